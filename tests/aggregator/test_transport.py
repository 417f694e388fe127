"""How a backend and this server authenticate to one another."""

from __future__ import annotations

import asyncio
import base64
import os
import ssl
import threading
from pathlib import Path

import pytest

from kas.aggregator.transport import MOST_CONTEXTS, ProxyCertificate, TLSContexts, TransportError, user_headers
from kas.auth.user import UserInfo
from kas.client.http import CONTEXT_BYTES
from kas.observe import caches
from tests.aggregator.certificates import Authority


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_headers_have_all_of_a_user():
    user = UserInfo("jané", ["a", "b"], "u", {"example.com/key": ["1", "2"], "50%": ["x"], "ü": ["y"]})
    assert user_headers(user) == [
        (b"x-remote-user", "jané".encode()), (b"x-remote-uid", b"u"), (b"x-remote-group", b"a"), (b"x-remote-group", b"b"),
        (b"x-remote-extra-example.com%2fkey", b"1"), (b"x-remote-extra-example.com%2fkey", b"2"), (b"x-remote-extra-50%25", b"x"),
        (b"x-remote-extra-%c3%bc", b"y"),
    ]  # fmt: skip
    assert (b"x-remote-uid", b"u") not in user_headers(user, with_uid=False)


@pytest.mark.parametrize(
    ("user", "header"),
    [
        (UserInfo("a\r\nx-remote-group: system:masters"), "X-Remote-User"), (UserInfo("a", ["b\n"]), "X-Remote-Group"),
        (UserInfo("a", (), "\0"), "X-Remote-Uid"), (UserInfo("a", (), "", {"k": ["\x7f"]}), "X-Remote-Extra-k"),
    ],
)  # fmt: skip
def test_a_user_that_headers_cannot_express_is_an_error(user, header):
    with pytest.raises(ValueError, match=f'invalid header field value for "{header}"'):
        user_headers(user)


def test_a_new_certificate_is_used_once_it_is_complete(tmp_path):
    authority, clock = Authority(tmp_path, "ca"), Clock()
    files = authority.issue("first", files="proxy")
    contexts = TLSContexts(ProxyCertificate(*files, clock))
    before = contexts.of("", True)
    assert contexts.of("", True) is before
    key = Path(files[1])
    old = key.read_bytes()
    authority.issue("second", files="proxy")
    new = key.read_bytes()
    key.write_bytes(old)  # half of the pair is there
    os.utime(key, (1, 1))
    clock.now += 2
    assert contexts.of("", True) is before
    key.write_bytes(new)
    assert contexts.of("", True) is before  # it has only just been checked
    clock.now += 2
    assert contexts.of("", True) is not before


def test_an_unusable_pair_prevents_the_start(tmp_path):
    authority = Authority(tmp_path, "ca")
    certificate, _ = authority.issue("one")
    _, key = authority.issue("two")
    with pytest.raises(OSError):
        ProxyCertificate(certificate, key)
    with pytest.raises(OSError):
        ProxyCertificate(certificate, str(tmp_path / "nothing"))
    assert ProxyCertificate("", "").look() == 0


def test_contexts_are_bounded_and_listed(tmp_path):
    contexts = TLSContexts(ProxyCertificate("", ""))
    bundle = Authority(tmp_path, "ca").pem.decode()
    first = contexts.of("", True)
    for i in range(MOST_CONTEXTS):
        contexts.of(base64.b64encode((bundle + "\n" * i).encode()).decode(), False)
    row = next(row for row in caches.rows() if row.name == "aggregator_tls")
    assert MOST_CONTEXTS * CONTEXT_BYTES == len(contexts._made) * CONTEXT_BYTES <= row.size <= row.budget
    assert contexts.of("", True) is not first


def test_the_ca_bundle_decides_which_server_is_trusted(tmp_path):
    contexts = TLSContexts(ProxyCertificate("", ""))
    bundle = base64.b64encode(Authority(tmp_path, "ca").pem).decode()
    strict, any_one, system = contexts.of(bundle, False), contexts.of("", True), contexts.of("", False)
    assert (strict.verify_mode, strict.check_hostname, len(strict.get_ca_certs())) == (ssl.CERT_REQUIRED, True, 1)
    assert (any_one.verify_mode, any_one.check_hostname) == (ssl.CERT_NONE, False)
    assert (system.verify_mode, system.check_hostname) == (ssl.CERT_REQUIRED, True)
    for bad in (b"nope", b"\xff", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"):
        with pytest.raises(TransportError, match="unable to parse bytes as PEM block"):
            contexts.of(base64.b64encode(bad).decode(), False)
    contexts.keep({("", True)})
    assert contexts.of("", True) is any_one and contexts.of(bundle, False) is not strict


def test_contexts_with_many_cas_are_fewer(tmp_path):
    contexts = TLSContexts(ProxyCertificate("", ""))
    bundle = Authority(tmp_path, "ca").pem.decode() + "\n" * CONTEXT_BYTES
    for i in range(20):
        contexts.of(base64.b64encode((bundle + "\n" * i).encode()).decode(), False)
    row = next(row for row in caches.rows() if row.name == "aggregator_tls")
    assert 1 < len(contexts._made) < 20 and row.size <= row.budget


def test_cas_are_read_once_off_the_loop(tmp_path, monkeypatch):
    """Those of the system as well. An unusable bundle is cached, too."""
    made = []
    before = TLSContexts._context

    def context(self, *what):
        made.append(threading.current_thread() is threading.main_thread())
        return before(self, *what)

    monkeypatch.setattr(TLSContexts, "_context", context)
    contexts = TLSContexts(ProxyCertificate("", ""))
    good, bad = (base64.b64encode(pem).decode() for pem in (Authority(tmp_path, "ca").pem, b"nope"))

    async def run():
        assert contexts.ready("", True) is None
        for bundle in (good, bad, ""):
            await contexts.ready(bundle, False)
            assert contexts.ready(bundle, False) is None

    asyncio.run(run())
    assert contexts.of(good, False) is contexts.of(good, False)
    for _ in range(2):
        with pytest.raises(TransportError, match="unable to parse bytes as PEM block"):
            contexts.of(bad, False)
    assert made == [False] * 3


@pytest.mark.parametrize("which", [0, 1])
def test_a_pipe_in_the_place_of_a_pair_leaves_the_last_in_use(tmp_path, which):
    authority, clock = Authority(tmp_path, "ca"), Clock()
    files = authority.issue("first", files="proxy")
    certificate = ProxyCertificate(*files, clock)
    os.unlink(files[which])
    os.mkfifo(files[which])
    clock.now += 2
    assert certificate.look() == 0 and "not a regular file" in certificate.why()
