"""The number of keys, in all or after a page: counted once, and then updated from what was written since."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from kas.store import Op, _engine, build_record, open_store
from kas.store.lmdb import LMDBStore
from kas.store.lmdb import store as lmdb

PODS = "/registry/pods/"


@pytest.fixture
def store(tmp_path: Path):
    store = open_store(str(tmp_path / "data"), sync=False)
    yield store
    store.close()


def put(key: str) -> Op:
    return Op(key, build_record(b"{", b'"a":1}'))


def filled(store: LMDBStore, count: int) -> None:
    for at in range(0, count, 500):
        store.commit_now(*(put(f"{PODS}ns/{i:06d}") for i in range(at, min(at + 500, count))), one_revision=True)


@pytest.mark.parametrize("seed", range(6))
def test_pages_report_the_remaining_count_after_any_writes(store: LMDBStore, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(lmdb, "MANY_KEYS", 1)
    chance = random.Random(seed)
    # Some share the whole prefix that the engine keeps of a long key.
    names = [f"{ns}/{i:02d}" for ns in ("a", "b") for i in range(20)] + [f"a/{'n' * 470}{i}" for i in range(6)]
    keys = [PODS + name for name in names] + ["/registry/podz/x"]
    there: set[str] = set()
    history: list[set[str]] = [set()]
    pages: list[tuple[str, str, int]] = []  # where lists continue, and at which revision
    for _ in range(600):
        step = chance.random()
        if step < 0.4:
            key = chance.choice(keys)
            gone = key in there and chance.random() < 0.5
            store.commit_now(Op(key, None) if gone else put(key))
            there = there - {key} if gone else there | {key}
            history.append(there)
            continue
        prefix, start, revision = chance.choice([PODS, PODS + "a/", PODS + "b/"]), "", 0
        if pages and step < 0.7:
            prefix, start, revision = chance.choice(pages[-20:])
        elif step < 0.8:
            revision = chance.randrange(max(1, len(history) - 10), len(history) + 1) - 1
        page = store.range(prefix, start, chance.randrange(1, 6), revision, count=True)
        assert store.count(prefix) == sum(k.startswith(prefix) for k in there)
        range_ = sorted(k for k in history[revision or -1] if k.startswith(prefix) and k >= start)
        assert [r.key for r in page.records] == range_[: page.count]
        assert page.remaining == len(range_) - page.count
        if page.more:
            pages.append((prefix, page.next_key, page.revision))


def test_nothing_is_counted_twice(store: LMDBStore) -> None:
    filled(store, 2000)
    first = store.range_json(PODS, "", 1, count=True)
    assert first.remaining == 1999
    # A wrong number in the cache is returned, which shows that nothing was counted.
    known = store._counted.entries
    assert known[PODS, ""] == (first.revision, 2000) and known[PODS, first.next_key] == (first.revision, 1999)
    known[PODS, ""], known[PODS, first.next_key] = (first.revision, 5000), (first.revision, 4000)
    assert store.range_json(PODS, "", 3, count=True).remaining == 4997
    assert store.range_json(PODS, first.next_key, 1, first.revision, count=True).remaining == 3999
    # Writes are examined, also for the page after them.
    store.commit_now(put(PODS + "ns/new"))
    store.commit_now(Op(PODS + "ns/000000", None))
    store.commit_now(put(PODS + "ns/000001"))
    assert store.range_json(PODS, "", 1, count=True).remaining == 4999
    assert store.range_json(PODS, first.next_key, 1, count=True).remaining == 4000


def test_after_many_writes_keys_are_counted_again(store: LMDBStore) -> None:
    filled(store, 1000)
    assert store.range(PODS, "", 1, count=True).remaining == 999
    store._counted.entries[PODS, ""] = (store.revision, 7000)
    for _ in range(2000):
        store.commit_now(put(PODS + "ns/000000"))
    assert store.range(PODS, "", 1, count=True).remaining == 999


def test_after_compaction_keys_are_counted_again(store: LMDBStore) -> None:
    filled(store, 1000)
    before = store.revision
    store.commit_now(put(PODS + "ns/x"))
    store.commit_now(put(PODS + "ns/y"))
    while not store.compact(store.revision - 1):
        pass
    page = _engine.scan(store._env, PODS, "", 1, count=True, known=(before, 7000))
    assert page.remaining == 1001
    assert _engine.scan(store._env, PODS, "", 1, count=True, known=(store.revision - 1, 7000)).remaining == 7000
    assert _engine.scan(store._env, PODS, "", 1, count=True, known=(store.revision + 1, 7000)).remaining == 1001


def test_the_last_page_has_no_remaining_count(store: LMDBStore) -> None:
    """And small counts are not cached."""
    filled(store, 300)
    assert store.range(PODS, "", 300, count=True).remaining == 0
    assert store.range(PODS, "", 200, count=True).remaining == 100
    assert not store._counted.entries


def test_counts_of_keys_are_cached(store: LMDBStore) -> None:
    """``/metrics`` asks for them each second."""
    filled(store, 2000)
    assert store.count(PODS) == 2000
    known = store._counted.entries
    known[PODS, ""] = (store.revision, 5000)  # from the cache: nothing was counted
    store.commit_now(put(PODS + "ns/new"))
    store.commit_now(put(PODS + "ns/newer"))
    store.commit_now(Op(PODS + "ns/000000", None))
    store.commit_now(put(PODS + "ns/000001"))
    assert store.count(PODS) == 5001
    assert known[PODS, ""] == (store.revision, 5001)
    assert store.range(PODS, "", 1, count=True).remaining == 5000
    for _ in range(2000):  # reading takes as long as counting
        store.commit_now(put(PODS + "ns/000001"))
    assert store.count(PODS) == 2001


def test_a_bounded_count_is_bounded_and_not_cached_as_a_whole_one(store: LMDBStore) -> None:
    """Whether the keys were counted before or not."""
    filled(store, 2000)
    assert store.count(PODS, 300) == 300 and not store._counted.entries
    assert store.count(PODS) == 2000
    assert store.count(PODS, 300) == 300 and store.count(PODS, 3000) == 2000 and store.count(PODS) == 2000


def test_loaded_objects_are_counted(store: LMDBStore) -> None:
    """Loading leaves no history."""
    filled(store, 300)
    assert store.count(PODS) == 300
    store.load([put(f"{PODS}other/{i:03d}") for i in range(10)], [(i + 1, i + 1, 1) for i in range(10)])
    assert store.count(PODS) == 310
