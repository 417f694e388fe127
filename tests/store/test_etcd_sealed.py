"""Sealed values of etcd in a replica: what cannot be opened when it comes is opened by who reads it later."""

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
    """Seals by a letter and the key; ``away``: neither seals nor opens."""

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


def test_what_cannot_be_opened_when_it_comes_is_opened_later(server: Server, plugin: Plugin, etcd: Etcd) -> None:
    store = server.store
    store.commit_now(Op(A, draft(data="needle"), 0))
    assert etcd.value(A).startswith(b"k8s:enc:x" + A.encode())
    first = store.get(A)
    assert (first.sealed, first.stale, b'"needle"' in first.json) == (True, False, True)
    server.pause()
    data = b"".join(p.read_bytes() for p in server.path.iterdir() if p.is_file())
    assert b"needle" not in data
    # A replica that is made while the plug-in is away holds what cannot be read, and keeps it for later.
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
    server.again()  # it is used again: it is what etcd holds
    plugin.away = False
    assert server.store.get(A).json == first.json
    assert [r.json for r in server.store.range("/registry/pods/").records] == [first.json]


def test_what_was_sealed_otherwise_is_stale_till_it_is_written(server: Server, plugin: Plugin, etcd: Etcd) -> None:
    store = server.store
    store.commit_now(Op(A, draft(data="1"), 0))
    plugin.letter = b"y"
    assert store.get(A).stale
    server.pause()
    for p in server.path.iterdir():
        p.unlink()
    server.again()  # sealed anew with the letter of today; etcd still has the other one
    assert server.store.get(A).stale
    server.store.commit_now(Op(A, draft(data="1"), server.store.get(A).revision))
    assert not server.store.get(A).stale
    assert etcd.value(A).startswith(b"k8s:enc:y")
    until(lambda: server.store.range("/registry/pods/", count=True).count == 1)


def test_what_no_draft_shows_is_handed_on_sealed(server: Server, plugin: Plugin, monkeypatch: pytest.MonkeyPatch) -> None:
    """A newer version's fields; here they are tabs."""
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
    server.again()  # nobody can see yet what is in it
    plugin.away = False
    monkeypatch.setattr(Plain, "whole", True)
    write()
    assert stored().endswith(b"\t")


@pytest.mark.parametrize("hidden", [False, True], ids=["definition-seen", "definition-hidden"])
def test_a_custom_resource_that_is_opened_later_is_filled_in_by_todays_definition(tmp_path: Path, plugin: Plugin, hidden: bool) -> None:
    """As one that is opened when it comes, which the replicator fills in; also where it could not open the definition when that came. It
    is selected by what it got."""
    defined, below = f"/registry/apiextensions.k8s.io/customresourcedefinitions/widgets.{GROUP}", f"/registry/{GROUP}/widgets/"
    keys, store = Keys(), open_store(str(tmp_path), sync=False)
    sealing = Sealing(lambda key: plugin, keys)

    def values() -> StoredValues:
        registries = Registries(store, lambda: "")
        registries.add_stored(BUILTIN.resources, BUILTIN.resource, 0, {})
        return StoredValues(registries, held=store.get)

    def comes(key: str, obj: dict[str, Any], away: bool = True) -> None:
        """To the replicator."""
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


def test_what_cannot_be_opened_is_deleted_like_anything_else(server: Server, plugin: Plugin, etcd: Etcd) -> None:
    """The replica goes on, whether it was sealed when it could be opened, or came when it could not."""
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
    # One that was never there is passed over as before.
    plugin.away = False
    server.store.commit_now(Op(A, draft(data="again"), 0))
    assert b'"again"' in server.store.get(A).json
