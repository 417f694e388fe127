"""The front's TLS contexts when files cannot be used."""

from __future__ import annotations

import base64
import os

import pytest

from kas.edge.front.tls import Contexts, Pair, Settings
from tests import pki


def pem(der: bytes) -> bytes:
    return b"-----BEGIN CERTIFICATE-----\n" + base64.encodebytes(der) + b"-----END CERTIFICATE-----\n"


@pytest.fixture(scope="module")
def odd() -> dict[str, bytes]:
    return {**{name: pem(der) for name, der in pki.unreadable().items()}, "nothing": b"", "text": b"nothing"}


@pytest.mark.parametrize("name", ["version", "bits", "twice", "name", "nothing", "text"])
def test_an_unreadable_file_does_not_prevent_reloading_others(tmp_path, name, odd):
    """Nor does it end the loop that checks files, which closes late connections, too."""
    one, two = (pki.issue([("CN", n)], usages=("server",), dns=[n]) for n in ("one", "two"))
    first, second = (Pair(*issued.write(tmp_path, n)) for n, issued in (("first", one), ("second", two)))
    authority = tmp_path / "ca.crt"
    authority.write_bytes(pki.authority("clients").pem)
    contexts = Contexts(Settings(first, [second], [str(authority)]))
    before = contexts.current
    contexts.refresh()
    assert contexts.current is before
    (tmp_path / "second.crt").write_bytes(odd[name])
    authority.write_bytes(odd[name])
    one.write(tmp_path, "first")
    contexts.refresh()
    assert contexts.current is not before and contexts._stale
    (tmp_path / "first.crt").unlink()
    before = contexts.current
    contexts.refresh()
    assert contexts.current is before, "the pair that was there last"
    one.write(tmp_path, "first")
    two.write(tmp_path, "second")
    authority.write_bytes(pki.authority("clients").pem)
    contexts.refresh()
    assert contexts.current is not before and not contexts._stale


@pytest.mark.parametrize("name", ["first.crt", "first.key", "ca.crt"])
def test_a_pipe_in_the_place_of_a_file_holds_nothing_up(tmp_path, name):
    """Its read waited for a writer, with the event loop and everybody's connections."""
    pair = Pair(*pki.issue([("CN", "one")], usages=("server",), dns=["one"]).write(tmp_path, "first"))
    authority = tmp_path / "ca.crt"
    authority.write_bytes(pki.authority("clients").pem)
    contexts = Contexts(Settings(pair, [], [str(authority)]))
    (tmp_path / name).unlink()
    os.mkfifo(tmp_path / name)
    contexts.refresh()
    assert contexts._stale
