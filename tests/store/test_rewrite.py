"""Objects rewritten in the form in which they would be stored today."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kas import kinds
from kas.meta import clock
from kas.registry.registries import Registries
from kas.store import Op, Record, open_store
from kas.store.rewrite import PAGE, redraft, rewrite_stale
from kas.types.scheme import BUILTIN
from tests.contract.sealing import ONE, AESGCMTransformer

TWO = AESGCMTransformer(two=b"2" * 32)
ROOT = "/registry/configmaps/"


def config_map(name: str, **more: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "ns", "uid": "u", "creationTimestamp": "2024-01-01T00:00:00Z", "labels": {"l": name}}
    return {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {**metadata, **more}, "data": {"k": '"resourceVersion":"1"'}}


def forms(record: Record) -> tuple[Any, ...]:
    return (
        record.json_at(7), record.protobuf_at(7), record.partial_protobuf_at(7), record.labels, record.fields, record.type_prefix_len,
        (record.metadata_json or b"").replace(b'"%d"' % record.revision, b'"7"'),
    )  # fmt: skip


def test_a_rewritten_object_is_equal_in_every_representation(tmp_path: Path) -> None:
    kinds.install()
    store = open_store(str(tmp_path), sync=False)
    registries = Registries(store, clock.now)
    registries.add_stored(BUILTIN.resources, BUILTIN.resource, 3600, {})
    registry = registries.of("", "configmaps")
    large = config_map("large", annotations={f"a{i}": "x" for i in range(400)})  # also stored as protobuf
    for obj in (config_map("small"), large, config_map("tail", managedFields=[{"manager": "m", "operation": "Update"}])):
        key = f"{ROOT}ns/{obj['metadata']['name']}"
        store.commit_now(Op(key, registry.draft(obj), 0))
        before = store.get(key)
        assert before is not None
        store.commit_now(Op(key, redraft(before, 0), before.revision))
        after = store.get(key)
        assert after is not None and after.revision > before.revision
        assert forms(after) == forms(before)
    assert store.get(ROOT + "ns/large").protobuf is not None
    store.close()


def test_a_rewritten_object_keeps_its_lease(tmp_path: Path) -> None:
    kinds.install()
    store = open_store(str(tmp_path), sync=False)
    registries = Registries(store, clock.now)
    registries.add_stored(BUILTIN.resources, BUILTIN.resource, 3600, {})
    event = {"kind": "Event", "apiVersion": "v1", "metadata": {**config_map("e")["metadata"]}}
    store.commit_now(Op("/registry/events/ns/e", registries.of("", "events").draft(event), 0))
    before = store.get("/registry/events/ns/e")
    assert before is not None and before.lease_expiry
    draft = redraft(before, before.lease_expiry - 100)
    assert (draft.lease_s, redraft(before, before.lease_expiry + 5).lease_s) == (100, 1)
    store.close()


def test_objects_that_cannot_be_decrypted_are_reported_and_the_rest_rewritten(tmp_path: Path) -> None:
    kinds.install()
    n = PAGE + 20
    broken = {f"{ROOT}ns/m{i:04}" for i in (0, 7, PAGE - 1, PAGE, n - 1)}
    store = open_store(str(tmp_path), sync=False, transformers=lambda key: TWO if key in broken else ONE)
    registries = Registries(store, clock.now)
    registries.add_stored(BUILTIN.resources, BUILTIN.resource, 3600, {})
    for i in range(n):
        key = f"{ROOT}ns/m{i:04}"
        store.commit_now(Op(key, registries.of("", "configmaps").draft(config_map(f"m{i:04}")), 0))
    store.close()
    new = AESGCMTransformer(new=b"n" * 32, one=b"1" * 32)
    store = open_store(str(tmp_path), sync=False, transformers=lambda key: new)
    done = rewrite_stale(store, "/registry/", 0)
    assert {e.key for e in done.failed} == broken
    assert (done.seen, done.written) == (n - len(broken), n - len(broken))
    assert rewrite_stale(store, "/registry/", 0).written == 0
    record = store.get(ROOT + "ns/m0001")
    assert record is not None and not store.stale(record)
    store.close()
