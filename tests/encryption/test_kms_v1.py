"""The KMS v1 provider against a plug-in behind a Unix socket."""

from __future__ import annotations

import asyncio

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from kas.encryption.ciphers import AESCBC, SealError
from kas.encryption.kms import v1
from kas.encryption.kms.client import KMSClient
from kas.encryption.kms.v1 import SERVICE, KMSv1
from tests.security.kms import PluginV1

PLACE = b"/registry/secrets/ns/a"


@pytest.fixture
def plugin(tmp_path):
    with PluginV1(tmp_path / "kms.sock") as p:
        yield p


@pytest.fixture
def made(plugin):
    out = []

    def make(cache_size: int = 1000, timeout_s: float = 60.0) -> KMSv1:
        out.append(KMSv1("k", KMSClient(plugin.target, timeout_s, SERVICE), cache_size))
        return out[-1]

    yield make
    for provider in out:
        provider.close()


def own_key(plugin, sealed: bytes) -> tuple[bytes, bytes]:
    """Returns (the value's key, the ciphertext), parsed here."""
    size = int.from_bytes(sealed[:2], "big")
    key = sealed[2 : 2 + size]
    return plugin._aead.decrypt(key[:12], key[12:], None), sealed[2 + size :]


def test_each_write_has_its_own_key(plugin, made):
    kms, other = made(), made()
    values = [kms.seal(b"plain", PLACE) for _ in range(3)]
    assert plugin.asked == {"Version": 1, "Encrypt": 3}
    opened = [own_key(plugin, value) for value in values]
    assert len({key for key, _ in opened}) == 3 and all(len(key) == 32 for key, _ in opened)
    assert [AESGCM(key).decrypt(data[:12], data[12:], PLACE) for key, data in opened] == [b"plain"] * 3
    assert [kms.open(v, PLACE) for v in values] == [(b"plain", False)] * 3 and "Decrypt" not in plugin.asked
    for _ in range(2):
        assert [other.open(v, PLACE) for v in values] == [(b"plain", False)] * 3
    assert plugin.asked["Decrypt"] == 3


def test_values_of_old_servers_are_read_and_stale(plugin, made):
    kms = made()
    sealed = kms.seal(b"", PLACE)
    key, _ = own_key(plugin, sealed)
    old = sealed[: 2 + int.from_bytes(sealed[:2], "big")] + AESCBC(key).seal(b"plain", PLACE)
    assert kms.open(old, PLACE) == (b"plain", True)


@pytest.mark.parametrize(("size", "asked"), [(-1, 4), (1, 3), (2, 2)])
def test_the_number_of_cached_keys_is_bounded(plugin, made, size, asked):
    writer, kms = made(), made(size)
    values = [writer.seal(b"plain", PLACE) for _ in range(2)]
    for value in (values[0], values[1], values[1], values[0]):
        assert kms.open(value, PLACE)[0] == b"plain"
    assert plugin.asked["Decrypt"] == asked


def test_values_that_are_refused(plugin, made):
    kms = made()
    sealed = kms.seal(b"plain", PLACE)
    for cut in (b"", b"\0", b"\0\x09x"):
        with pytest.raises(SealError, match="failed to read uint16 length prefixed data"):
            kms.open(cut, PLACE)
    with pytest.raises(SealError, match=r"^\[cipher: message authentication failed, .*\]$"):
        kms.open(sealed, PLACE + b"b")
    with pytest.raises(SealError, match=r"^rpc error: code = InvalidArgument desc = cannot decrypt$"):
        kms.open(b"\0\x3c" + b"x" * 60 + b"y" * 40, PLACE)


def test_health(plugin, made, monkeypatch):
    kms, hurried = made(), made(timeout_s=0.3)
    assert kms.problem == "the plug-in has not been asked yet"
    assert kms.check() == "" == kms.problem
    assert plugin.asked == {"Version": 1, "Encrypt": 1, "Decrypt": 1}
    plugin.hold()
    monkeypatch.setattr(kms, "_client", hurried._client)
    assert kms.check() == f"failed to perform encrypt section of the healthz check for KMS Provider k, error: {kms.problem}"
    assert kms.problem.startswith("rpc error: code = DeadlineExceeded")
    plugin.release()
    plugin.version = "v7"
    assert "KMS provider api version v7 is not supported, only v1beta1 is supported now" in made().check()


def test_an_error_without_a_text_is_a_problem_too(made, monkeypatch):
    kms = made()
    kms.check()

    def encrypted(data: bytes) -> bytes:
        raise MemoryError

    monkeypatch.setattr(kms, "_encrypt", encrypted)
    why = "failed to ask the KMS plug-in: MemoryError: "
    assert kms.check() == f"failed to perform encrypt section of the healthz check for KMS Provider k, error: {why}"
    assert kms.problem == why


def test_the_loop_waits_once_for_a_hanging_plugin(plugin, made, monkeypatch):
    monkeypatch.setattr(v1, "LOOP_WAIT_S", 0.05)
    kms = made()
    kms.check()
    plugin.hold()

    async def write() -> None:
        for _ in range(2):
            with pytest.raises(SealError, match=r"^the plug-in has not answered yet$"):
                kms.seal(b"plain", PLACE)
        late = kms._late
        plugin.release()
        await asyncio.to_thread(late.result, 60)
        monkeypatch.setattr(v1, "LOOP_WAIT_S", 60)
        assert kms.open(kms.seal(b"plain", PLACE), PLACE) == (b"plain", False)

    asyncio.run(write())
    assert plugin.asked["Encrypt"] == 3  # those of the check, the late one and the last one
