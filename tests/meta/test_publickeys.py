"""Untrusted keys: which are read, and that none costs the work that its numbers could cause: such a test would not end."""

from __future__ import annotations

import base64
import datetime
import math

import pytest
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa, x25519
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from kas.kinds.certificates.pem import request_problem
from kas.kinds.core.secret import _tls_warnings
from kas.meta.publickeys import private_key, public_key, public_key_of, usable
from tests import pki
from tests.derkeys import COSTLY, DH, DSA, HUGE, P, Q, algorithm, element, integer, pem, pkcs1, spki

FORMATS = (PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL)


def certificate(key, format: PublicFormat = PublicFormat.SubjectPublicKeyInfo) -> tuple[bytes, bytes]:
    """Returns a certificate request in DER, signed with ``key``, and the key's SubjectPublicKeyInfo."""
    request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(key, hashes.SHA256())
    return request.public_bytes(Encoding.DER), key.public_key().public_bytes(Encoding.DER, format)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("kind", ["rsa", "ec"])
def test_private_keys_are_read(kind, format):
    key = rsa.generate_private_key(65537, 1024) if kind == "rsa" else ec.generate_private_key(ec.SECP256R1())
    text = b"a comment\n" + key.private_bytes(Encoding.PEM, format, NoEncryption())
    assert private_key(text).public_key() == key.public_key()


def test_ed25519_is_read():
    key = ed25519.Ed25519PrivateKey.generate()
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    assert private_key(text).public_key() == key.public_key()


def test_a_huge_key_is_read_without_checks():
    assert private_key(pem(HUGE, "RSA PRIVATE KEY")).key_size == P.bit_length() + Q.bit_length()


def test_other_kinds_of_keys_are_refused():
    d = pow(65537, -1, math.lcm(P - 1, Q - 1))
    refused = [
        b"", b"\x30", b"\x30\x80", element(0x30, b""), element(0x30, b"\x02"), element(0x30, integer(0) * 6),
        element(0x30, integer(0) + algorithm(DH, Q, 2) + element(4, integer(5))),
        element(0x30, integer(0) + algorithm(DSA, Q, P, 3) + element(4, integer(5))),
        element(0x30, b"".join(map(integer, (0, Q, P, 3, 4, 5)))),  # DSA's own format
        pkcs1(P, Q, 65537), pkcs1(P, Q, d, e=3), pkcs1(P, Q, d + (P - 1) * (Q - 1)),
        element(0x30, b"".join(map(integer, (0, P * Q, 65537, 1 << 8_000_000, P, Q, 1, 1, 1)))),  # numbers of a megabyte
        ed448.Ed448PrivateKey.generate().private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption()),
    ]  # fmt: skip
    for der in refused:
        with pytest.raises(ValueError):
            private_key(pem(der))


def test_a_text_without_a_key_is_refused():
    with pytest.raises(ValueError, match="no private key"):
        private_key(pem(b"\x30\x00", "CERTIFICATE"))


@pytest.mark.parametrize("kind", COSTLY)
def test_public_keys_with_parameters_are_not_loaded(kind):
    if kind == "dsa":
        assert public_key_of(spki(*COSTLY[kind])) is None, "Go parses it, and verifies nothing with it"
    else:
        with pytest.raises(UnsupportedAlgorithm):
            public_key_of(spki(*COSTLY[kind]))


def test_public_keys_are_read():
    for key in (rsa.generate_private_key(65537, 1024), ec.generate_private_key(ec.SECP384R1())):
        request, info = certificate(key)
        assert public_key_of(info) == key.public_key() == public_key(x509.load_der_x509_csr(request))
        assert usable(key.public_key())
    assert not usable(pki.short_rsa_key(1023).public_key())
    exchanged = x25519.X25519PrivateKey.generate().public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    assert public_key_of(exchanged) is None
    for der in (b"", b"\x30\x05", element(0x30, element(0x30, b""))):
        with pytest.raises(ValueError):
            public_key_of(der)


@pytest.mark.parametrize("kind", COSTLY)
def test_a_request_with_such_a_key_is_refused(kind):
    request, info = certificate(ec.generate_private_key(ec.SECP256R1()))
    at = request.index(info)
    inside = element(0x30, integer(0) + element(0x30, b"") + spki(*COSTLY[kind]) + element(0xA0, b""))
    signature = request[at + len(info) :]  # the empty attributes, and what follows the signed part
    der = element(0x30, inside + signature[2:])
    assert request_problem(pem(der, "CERTIFICATE REQUEST")) == "x509: cannot verify signature: algorithm unimplemented"


def test_a_tls_secret_with_a_huge_key_is_answered_at_once():
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([])
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + datetime.timedelta(days=1))
    text = builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)
    held = {
        "huge": pem(HUGE), "own": key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        "dh": pem(element(0x30, integer(0) + algorithm(DH, Q, 2) + element(4, integer(5)))),
    }  # fmt: skip
    said = {
        who: _tls_warnings({
            "type": "kubernetes.io/tls",
            "data": {"tls.crt": base64.b64encode(text).decode(), "tls.key": base64.b64encode(private).decode()},
        })
        for who, private in held.items()
    }  # fmt: skip
    assert said == {"huge": ["tls: private key does not match public key"], "own": [], "dh": ["tls: failed to parse private key"]}
