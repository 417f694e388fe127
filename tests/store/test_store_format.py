"""Directories of earlier formats: they are upgraded in place without loss; unknown formats are refused.

``data/format1.mdb.xz`` is the data file of the last program that wrote format 1 (log keys without index): a pod written four times, one
created and deleted, one with a hashed key, an event with a lease, history compacted up to 2.
"""

from __future__ import annotations

import lzma
from pathlib import Path

import lmdb
import pytest

from kas.store import Compacted, Corrupt, Op, build_record, open_store

OLD = Path(__file__).with_name("data") / "format1.mdb.xz"
POD, GONE, LONG, EVENT = "/registry/pods/ns/a", "/registry/pods/ns/b", "/registry/pods/ns/" + "n" * 500, "/registry/events/ns/e"


def put(key: str) -> Op:
    return Op(key, build_record(b"{", b'"d":1}', {"app": "new"}))


@pytest.fixture
def old(tmp_path: Path) -> str:
    (tmp_path / "data.mdb").write_bytes(lzma.decompress(OLD.read_bytes()))
    return str(tmp_path)


def marker(path: str) -> bytes:
    with lmdb.open(path, max_dbs=8, readonly=True, lock=False) as env, env.begin() as txn:
        return bytes(txn.get(b"kas.format"))


def test_an_old_directory_keeps_objects_history_and_leases(old: str) -> None:
    assert marker(old) == b"1"
    store = open_store(old, max_size=1 << 24)
    assert (store.revision, store.compacted_revision) == (8, 2)
    assert [(r.key, r.revision) for r in store.range("/registry/").records] == [(EVENT, 8), (POD, 4), (LONG, 7)]
    assert store.get(POD).labels == {"app": "web"}
    assert store.get(POD, 3).json.endswith(b'"data":"2"}')
    assert store.get(GONE, 5).revision == 5
    with pytest.raises(Compacted):
        store.get(POD, 1)
    assert [(e.revision, e.type) for e in store.events("/registry/", 2)[0]] == [
        (3, "MODIFIED"), (4, "MODIFIED"), (5, "ADDED"), (6, "DELETED"), (7, "ADDED"), (8, "ADDED"),
    ]  # fmt: skip
    assert store.expire(store.get(EVENT).lease_expiry) == 1
    store.close()
    assert marker(old) == b"2"


def test_old_and_new_history_are_continuous(old: str) -> None:
    store = open_store(old, max_size=1 << 24)
    store.commit_now(put(POD), put(GONE), one_revision=True)
    store.commit_now(put(POD))
    watcher = store.watch("/registry/pods/", 3, lambda: None, limit=1)
    got = []
    while watcher.ready:
        got += [(e.revision, e.key) for e in watcher.take(1)]
    assert got == [(4, POD), (5, GONE), (6, GONE), (7, LONG), (9, POD), (9, GONE), (10, POD)]
    assert store.get(POD, 8).revision == 4
    assert store.compact(7, 100)
    assert [e.revision for e in store.events("/registry/", 7)[0]] == [8, 9, 9, 10]
    store.close()
    store = open_store(old, max_size=1 << 24)
    assert (store.revision, store.compacted_revision, store.get(POD, 9).labels) == (10, 7, {"app": "new"})
    store.close()


def test_newer_format_is_refused_with_advice(tmp_path: Path) -> None:
    with lmdb.open(str(tmp_path), max_dbs=8) as env, env.begin(write=True) as txn:
        txn.put(b"kas.format", b"3")
    with pytest.raises(Corrupt, match=r"has data format 3, this program reads format 2: use the program version that wrote it"):
        open_store(str(tmp_path), max_size=1 << 24)
    assert marker(str(tmp_path)) == b"3"
