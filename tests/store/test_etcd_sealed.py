"""Encrypted values of etcd in a replica: a value that cannot be decrypted when it arrives is decrypted when it is read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kas.registry.etcdvalues import StoredValues
from kas.registry.registries import Registries
from kas.store import Op, TransformError, compile_matcher, open_store
from kas.store.etcd import etcd_pb2 as pb
from kas.store.etcd.client import PUT, TXN
from kas.store.etcd.layout import Keys
from kas.store.etcd.sealing import Sealing
from kas.types.scheme import BUILTIN
from tests.contract.store_suite import draft
from tests.controllers.waiting import until
from tests.endpoints.customs import definition, version
from tests.etcd import Etcd
from tests.store.test_etcd_store import A, Plain, Server

B = "/registry/pods/ns/b"
GROUP = "filled.example.com"


class Plugin:
    """A fake provider that encrypts with a letter and the key. While it is ``away``, it does neither."""

    plain, waits, refuses_plain = False, False, ""
    away, letter = False, b"x"

    def seal(self, plain: bytes, key: bytes) -> bytes:
        self._ask()
        return b"k8s:enc:" + self.letter + key + b":" + bytes(c ^ 0x5A for c in plain)

    def open(self, sealed: bytes, key: bytes) -> tuple[bytes, bool]:
        if not sealed.startswith(b"k8s:enc:"):
            return sealed, True
        self._ask()
        if not sealed[9:].startswith(key + b":"):
            raise ValueError("it is another's")
        return bytes(c ^ 0x5A for c in sealed[10 + len(key) :]), sealed[8:9] != self.letter

    def _ask(self) -> None:
        if self.away:
            raise ValueError("the plug-in is away")


@pytest.fixture
def plugin() -> Plugin:
    return Plugin()


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[Etcd]:
    with Etcd(tmp_path) as etcd:
        yield etcd


@pytest.fixture
def server(etcd: Etcd, tmp_path: Path, plugin: Plugin) -> Iterator[Server]:
    server = Server(etcd, tmp_path / "replica", lambda key: plugin)
    yield server
    server.stop()


def test_values_not_decrypted_on_arrival_are_decrypted_when_read(server: Server, plugin: Plugin, etcd: Etcd) -> None:
    store = server.store
    store.commit_now(Op(A, draft(data="needle"), 0))
    assert etcd.value(A).startswith(b"k8s:enc:x" + A.encode())
    first = store.get(A)
    assert (first.sealed, first.stale, b'"needle"' in first.json) == (True, False, True)
    server.pause()
    data = b"".join(p.read_bytes() for p in server.path.iterdir() if p.is_file())
    assert b"needle" not in data
    # A replica that is filled while the plug-in is away holds values that it cannot read, and keeps them.
    plugin.away = True
    for p in server.path.iterdir():
        p.unlink()
    server.again()
    for read in (lambda: server.store.get(A), lambda: server.store.range("/registry/pods/")):
        with pytest.raises(TransformError, match="the plug-in is away"):
            read()
    with pytest.raises(TransformError, match="the plug-in is away"):
        server.store.commit_now(Op(B, draft(), 0))
    assert etcd.value(B) is None
    server.pause()
    server.again()  # the same replica is used again: it holds what etcd holds
    plugin.away = False
    assert server.store.get(A).json == first.json
    assert [r.json for r in server.store.range("/registry/pods/").records] == [first.json]


def test_values_of_an_old_key_are_stale_until_they_are_rewritten(server: Server, plugin: Plugin, etcd: Etcd) -> None:
    store = server.store
    store.commit_now(Op(A, draft(data="1"), 0))
    plugin.letter = b"y"
    assert store.get(A).stale
    server.pause()
    for p in server.path.iterdir():
        p.unlink()
    server.again()  # re-encrypted with the current letter; etcd still has the old form
    assert server.store.get(A).stale
    server.store.commit_now(Op(A, draft(data="1"), server.store.get(A).revision))
    assert not server.store.get(A).stale
    assert etcd.value(A).startswith(b"k8s:enc:y")
    until(lambda: server.store.range("/registry/pods/", count=True).count == 1)


def test_values_with_unknown_content_are_kept_encrypted(server: Server, plugin: Plugin, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fields of a newer version; here they are tabs."""
    monkeypatch.setattr(Plain, "handed_on", lambda self, key, old, new: new + b"\t" * old.count(b"\t"), raising=False)
    monkeypatch.setattr(Plain, "whole", False)
    etcd = server.etcd

    def stored() -> bytes:
        return plugin.open(etcd.value(A), A.encode())[0]

    def write() -> None:
        server.store.commit_now(Op(A, draft(data="needle"), server.store.get(A).revision))

    server.store.commit_now(Op(A, draft(data="needle"), 0))
    assert b"\t" not in stored()
    server.client.call(PUT, pb.PutRequest(key=A.encode(), value=plugin.seal(stored() + b"\t", A.encode())))
    until(lambda: server.store.get(A).version == 2)
    write()
    assert stored().endswith(b"\t")
    server.pause()
    assert b"needle" not in b"".join(p.read_bytes() for p in server.path.iterdir() if p.is_file()), "the note is as sealed as etcd's value"
    for p in server.path.iterdir():
        p.unlink()
    plugin.away = True
    server.again()  # its content is not known yet
    plugin.away = False
    monkeypatch.setattr(Plain, "whole", True)
    write()
    assert stored().endswith(b"\t")


@pytest.mark.parametrize("hidden", [False, True], ids=["definition-seen", "definition-hidden"])
def test_custom_resources_decrypted_later_get_the_defaults_of_the_current_definition(tmp_path: Path, plugin: Plugin, hidden: bool) -> None:
    """As one that is decrypted on arrival, which the replicator completes; also if the definition could not be decrypted on arrival.
    Selectors see the defaults."""
    defined, below = f"/registry/apiextensions.k8s.io/customresourcedefinitions/widgets.{GROUP}", f"/registry/{GROUP}/widgets/"
    keys, store = Keys(), open_store(str(tmp_path), sync=False)
    sealing = Sealing(lambda key: plugin, keys)

    def values() -> StoredValues:
        registries = Registries(store, lambda: "")
        registries.add_stored(BUILTIN.resources, BUILTIN.resource, 0, {})
        return StoredValues(registries, held=store.get)

    def comes(key: str, obj: dict[str, Any], away: bool = True) -> None:
        """An event arrives at the replicator."""
        store.open_with(sealing.replica(replicator, writes=True))
        sealed = plugin.seal(json.dumps(obj).encode(), keys.to_etcd(key))
        plugin.away = away
        store.apply(store.revision + 1, [sealing.taken(key, sealed, replicator)])
        plugin.away = False
        store.open_with(sealing.replica(worker))

    replicator, worker = values(), values()
    for size in (1, 2):
        sized = version("v1", {"size": {"type": "integer", "default": size}}, selectableFields=[{"jsonPath": ".spec.size"}])
        comes(defined, definition(GROUP, sized), away=hidden)
        for name, away in (("late", True), ("soon", False)):
            widget = {"apiVersion": f"{GROUP}/v1", "kind": "Widget", "metadata": {"name": name, "namespace": "ns"}, "spec": {}}
            comes(f"{below}ns/{name}", widget, away)
            assert json.loads(store.get(f"{below}ns/{name}").json)["spec"] == {"size": size}
        selected = compile_matcher(field_requirements=[("spec.size", "=", str(size))])
        assert len(store.range(below, matcher=selected).records) == 2
    store.close()


def test_values_that_cannot_be_decrypted_can_be_deleted(server: Server, plugin: Plugin, etcd: Etcd) -> None:
    """The replica continues, whether or not the value could be decrypted when it arrived."""
    server.store.commit_now(Op(A, draft(data="known"), 0))
    plugin.away = True
    sealed = b"k8s:enc:x" + B.encode() + b":" + bytes(c ^ 0x5A for c in draft(data="unknown").json)
    put = pb.PutRequest(key=B.encode(), value=sealed)
    server.client.call(PUT, put)
    until(lambda: server.store.revision >= 3)
    both = pb.DeleteRangeRequest(key=b"/registry/pods/ns/", range_end=b"/registry/pods/ns0")
    server.client.call(TXN, pb.TxnRequest(success=[pb.RequestOp(request_delete_range=both)]))
    until(lambda: server.store.revision >= 4)
    assert (server.store.get(A), server.store.get(B)) == (None, None)
    # A key that never existed is skipped as before.
    plugin.away = False
    server.store.commit_now(Op(A, draft(data="again"), 0))
    assert b'"again"' in server.store.get(A).json
