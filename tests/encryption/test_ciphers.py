"""The encryption providers: values of other implementations, and values that must be refused."""

from __future__ import annotations

import base64

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM as OtherGCM
from hypothesis import given
from hypothesis import strategies as st

from kas.encryption._salsa import xsalsa20
from kas.encryption.ciphers import AESCBC, AESGCM, Identity, SealError, Secretbox
from kas.encryption.kms.keys import HKDFSealer
from kas.encryption.union import Union
from tests import prerequisites
from tests.vectors import files

KEY = b"0123456789abcdef0123456789abcdef"
PLACE = b"/registry/secrets/ns/a"
ALL = [AESCBC(KEY), AESCBC(KEY[:16]), AESGCM(KEY), AESGCM(KEY[:24]), Secretbox(KEY), HKDFSealer(KEY)]
AUTHENTIC = ALL[2:]
A = b"k8s:enc:a:v1:"


@pytest.mark.parametrize("cipher", ALL)
@given(plain=st.binary(max_size=300))
def test_encrypted_values_are_decrypted(cipher, plain):
    sealed = cipher.seal(plain, PLACE)
    assert cipher.open(sealed, PLACE) == (plain, False)
    assert cipher.seal(plain, PLACE) != sealed


@pytest.mark.parametrize("cipher", AUTHENTIC)
def test_a_changed_bit_is_detected(cipher):
    sealed = cipher.seal(b"plain", PLACE)
    for i in range(len(sealed)):
        changed = sealed[:i] + bytes([sealed[i] ^ 1]) + sealed[i + 1 :]
        with pytest.raises(SealError):
            cipher.open(changed, PLACE)


@pytest.mark.parametrize("cipher", [AESGCM(KEY), HKDFSealer(KEY)])
def test_a_value_is_bound_to_its_key(cipher):
    with pytest.raises(SealError, match="cipher: message authentication failed"):
        cipher.open(cipher.seal(b"plain", PLACE), PLACE + b"b")


@pytest.mark.parametrize("cipher", ALL)
@given(junk=st.binary(max_size=120))
def test_invalid_data_are_refused(cipher, junk):
    try:
        cipher.open(junk, PLACE)
    except SealError:
        return
    assert isinstance(cipher, AESCBC)  # not authenticated: one in 256 has valid padding


@pytest.mark.parametrize("sealed, why", [
    (b"x" * 15, "the stored data was shorter than the required size"),
    (b"x" * 17, "the stored data is not a multiple of the block size"),
    (b"x" * 16, r"invalid PKCS7 data \(empty or not padded\)"),
])  # fmt: skip
def test_messages_of_aescbc(sealed, why):
    with pytest.raises(SealError, match=why):
        AESCBC(KEY).open(sealed, PLACE)


def test_secretbox_agrees_with_nacl():
    """The example of NaCl's own tests (tests/secretbox.c)."""
    key = bytes.fromhex("1b27556473e985d462cd51197a9a46c76009549eac6474f206c4ee0844f68389")
    nonce = bytes.fromhex("69696ee955b62b73cd62bda875fc73d68219e0036b7a0b37")
    text = bytes.fromhex(
        "be075fc53c81f2d5cf141316ebeb0c7b5228c52a4c62cbd44b66849b64244ffce5ecbaaf33bd751a1ac728d45e6c61296cdc3c01233561f41db66cce314adb31"
        "0e3be8250c46f06dceea3a7fa1348057e2f6556ad6b1318a024a838f21af1fde048977eb48f59ffd4924ca1c60902e52f0a089bc76897040e082f93776384864"
        "5e0705"
    )
    front = "f3ffc7703f9400e52a7dfb4b3d3305d98e993b9f48681273c29650ba32fc76ce"  # tag, then the text's first 16 bytes
    stream = xsalsa20(key, nonce, bytes(32) + text)
    from cryptography.hazmat.primitives.poly1305 import Poly1305

    box = Poly1305.generate_tag(stream[:32], stream[32:]) + stream[32:]
    assert box[:32].hex() == front
    assert Secretbox(key).open(nonce + box, b"anywhere") == (text, False)


def test_the_stream_needs_its_lengths():
    for key, nonce in ((KEY[:31], bytes(24)), (KEY, bytes(23))):
        with pytest.raises(ValueError):
            xsalsa20(key, nonce, b"")


def test_identity_refuses_encrypted_values():
    with pytest.raises(SealError, match="identity transformer tried to read encrypted data"):
        Identity().open(b"k8s:enc:aescbc:v1:key1:x", PLACE)


def test_the_first_provider_writes_and_all_read():
    old, new = Secretbox(KEY), Secretbox(KEY[::-1])
    before = Union("none", [(A, old), (b"", Identity())])
    union = Union("none", [(A, new), (A, old), (b"", Identity())])
    assert union.open(union.seal(b"plain", PLACE), PLACE) == (b"plain", False)
    assert union.open(before.seal(b"plain", PLACE), PLACE) == (b"plain", True)
    assert union.open(b"plain", PLACE) == (b"plain", True)
    with pytest.raises(SealError, match=r"^none$"):
        union.open(b"k8s:enc:b:", PLACE)
    wrong = Secretbox(bytes(32)).seal(b"plain", PLACE)
    with pytest.raises(SealError, match=r"^output array was not large enough for encryption$"):  # both report it, once
        union.open(A + wrong, PLACE)


RECORDED = [
    (step["put"], base64.b64decode(step["value"]))
    for row in files.lines("security/encryption") if "/stored/" in row["id"] for step in row["in"]["steps"]
    if "put" in step and step["put"].endswith(("/one", "/two"))
]  # fmt: skip
PROVIDERS = {
    b"k8s:enc:aescbc:v1:key1:": AESCBC(KEY), b"k8s:enc:aescbc:v1:k16:": AESCBC(KEY[:16]), b"k8s:enc:aescbc:v1:k-24.x:": AESCBC(KEY[:24]),
    b"k8s:enc:aesgcm:v1:key1:": AESGCM(KEY), b"k8s:enc:aesgcm:v1:k16:": AESGCM(KEY[:16]), b"k8s:enc:aesgcm:v1:k-24.x:": AESGCM(KEY[:24]),
    b"k8s:enc:secretbox:v1:key1:": Secretbox(KEY),
}  # fmt: skip


@pytest.mark.parametrize("place, value", RECORDED or [pytest.param("", b"", marks=prerequisites.missing("no recorded values"))])
def test_recorded_values_of_kube_apiserver_are_decrypted(place, value):
    for prefix, cipher in PROVIDERS.items():
        if value.startswith(prefix):
            assert cipher.open(value[len(prefix) :], place.encode())[0].startswith(b"k8s\0")
            return
    assert value.startswith((b"k8s:enc:kms:v2:plug:", b"k8s\0"))


def test_another_implementation_decrypts_our_values():
    """Nonce, ciphertext and tag, with the storage key as additional data."""
    sealed = AESGCM(KEY).seal(b"plain", PLACE)
    assert OtherGCM(KEY).decrypt(sealed[:12], sealed[12:], PLACE) == b"plain"
