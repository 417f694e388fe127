"""Edge cases of the hub: callbacks that add and remove watchers or take events during a dispatch, unpublished revisions, lost history."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any

import pytest

from kas.store import Compacted, Op, build_record, open_store
from kas.store.hub import NOTIFIED_PER_TURN
from kas.store.lmdb import LMDBStore
from tests.growth.counting import CONFIRMED_S, Spent, confirmed

PREFIX = "/registry/x/"


@pytest.fixture
def store(tmp_path: Path):
    store = open_store(str(tmp_path), max_size=1 << 30, sync=False)  # valgrind maps only some gigabytes
    yield store
    store.close()


def put(store: LMDBStore, count: int = 1) -> None:
    for i in range(count):
        store.commit_now(Op(f"{PREFIX}{i % 5}", build_record(b"{", b'"d":1}')))


def drain(watcher: Any) -> list[int]:
    got = []
    while watcher.ready:
        got += [e.revision for e in watcher.take()]
    return got


def test_watcher_made_by_a_callback_gets_each_event_once(store: LMDBStore) -> None:
    made = []

    def join() -> None:
        if not made:
            made.append(store.watch(PREFIX, 0, lambda: None))

    first = store.watch(PREFIX, 0, join)
    store.hub.listen(PREFIX, lambda events: made.append(store.watch(PREFIX, 1, lambda: None)) if len(made) == 1 else None)
    put(store, 3)
    store.hub.catch_up()
    put(store, 2)
    store.hub.catch_up()
    assert drain(first) == [1, 2, 3, 4, 5]
    assert drain(made[0]) == [1, 2, 3, 4, 5]
    assert drain(made[1]) == [2, 3, 4, 5]


def test_callback_may_close_another_watcher(store: LMDBStore) -> None:
    watchers: list[Any] = []
    watchers.append(store.watch(PREFIX, 0, lambda: watchers[1].close()))
    watchers.append(store.watch(PREFIX, 0, lambda: None))
    put(store, 2)
    store.hub.catch_up()
    assert drain(watchers[0]) == [1, 2]
    assert drain(watchers[1]) == []
    assert store.hub.watchers == 1


def test_callback_may_take_at_once(store: LMDBStore) -> None:
    got: list[int] = []
    watcher = store.watch(PREFIX, 0, lambda: got.extend(e.revision for e in watcher.take()))
    put(store, 7)
    store.hub.catch_up()
    assert got == [1, 2, 3, 4, 5, 6, 7]


def test_watch_from_a_revision_that_is_committed_but_not_published(store: LMDBStore) -> None:
    """Another worker has committed it and not yet raised the shared revision. It can be read, and watched from."""
    put(store, 2)
    store.hub.catch_up()
    published = store.hub._shared_revision
    store.hub._shared_revision = lambda: 2
    put(store, 2)
    watcher = store.watch(PREFIX, 3, lambda: None)
    assert drain(watcher) == [4]
    store.hub._shared_revision = published
    put(store)
    store.hub.catch_up()
    assert drain(watcher) == [5]


def test_long_backlog_is_pulled_in_chunks(store: LMDBStore) -> None:
    put(store, 30)
    store.hub.catch_up()
    watcher = store.watch(PREFIX, 0, lambda: None, limit=4)
    assert store.hub.watchers == 0
    first = watcher.take(7)
    assert [e.revision for e in first] == list(range(1, 8))
    assert watcher.progress == 7
    put(store)
    store.hub.catch_up()
    assert drain(watcher) == list(range(8, 32))
    assert watcher.progress == 31
    assert store.hub.watchers == 1


def test_a_worker_that_slept_through_compaction_lists_again(store: LMDBStore) -> None:
    resets: list[int] = []
    store.hub.listen(PREFIX, lambda events: None, lambda: resets.append(store.hub.revision))
    watcher = store.watch(PREFIX, 0, lambda: None)
    put(store, 10)
    store.compact(8)
    store.hub.catch_up()
    assert (resets, store.hub.revision) == ([8], 10)
    with pytest.raises(Compacted):
        drain(watcher)


@pytest.mark.parametrize("slept", [False, True])
def test_a_failing_follower_starts_again_and_does_not_disturb_the_others(store: LMDBStore, slept: bool) -> None:
    seen: list[int] = []
    resets: list[int] = []
    broken = [True]

    def bug(events: Any) -> None:
        raise KeyError("bug")

    def reset() -> None:
        if broken:
            raise ValueError("unreadable")
        resets.append(store.hub.revision)

    store.hub.listen(PREFIX, bug, reset)
    store.hub.listen(PREFIX, lambda events: seen.extend(e.revision for e in events), lambda: seen.append(0))
    watcher = store.watch(PREFIX, 0, lambda: None)
    end = store.hub.listen(PREFIX, bug)  # a follower without a callback for starting again
    put(store, 5)
    if slept:
        store.compact(5)
    store.hub.catch_up()
    assert (seen, store.hub.failing, store.hub.revision) == ([0] if slept else [1, 2, 3, 4, 5], 1, 5)
    if not slept:
        assert drain(watcher) == [1, 2, 3, 4, 5]
    broken.clear()
    end()
    store.commit_now(Op("/registry/y/other", build_record(b"{", b'"d":1}')))
    store.hub.catch_up()
    assert (resets, store.hub.failing) == ([6], 0)


def test_many_watchers_are_notified_over_several_loop_iterations(store: LMDBStore) -> None:
    turns: list[Any] = []
    store.hub.later = turns.append
    told: list[int] = []
    watchers = [store.watch(PREFIX, 0, lambda i=i: told.append(i)) for i in range(2 * NOTIFIED_PER_TURN + 1)]
    put(store)
    store.hub.catch_up()
    assert told == list(range(NOTIFIED_PER_TURN)) and len(turns) == 1
    watchers[-2].close()
    put(store)  # a watcher that has taken nothing is notified once
    store.hub.catch_up()
    assert len(turns) == 1
    while turns:
        turns.pop()()
    assert told == [i for i in range(2 * NOTIFIED_PER_TURN + 1) if i != 2 * NOTIFIED_PER_TURN - 1]
    assert all(drain(w) == [1, 2] for i, w in enumerate(watchers) if i != 2 * NOTIFIED_PER_TURN - 1)


@pytest.mark.timeout(CONFIRMED_S)
def test_many_writes_at_once_notify_each_watcher_once(request: pytest.FixtureRequest, store: LMDBStore) -> None:
    """When hundreds of writes were dispatched one by one, 64 writes with 5,000 watchers held the loop for 55 ms."""
    store.hub.later = lambda tell: None
    watchers = [store.watch(PREFIX, 0, lambda: None) for _ in range(2000)]

    def cost(count: int) -> float:
        put(store, count)
        with Spent() as spent:
            store.hub.catch_up()
        for watcher in watchers:
            assert len(watcher.take(count)) == count
        return spent.seconds

    one, many = min(cost(1) for _ in range(3)), min(cost(128) for _ in range(3))
    assert not confirmed(request.node.nodeid, "" if many < 25 * one else f"128 times as many: {one}, {many}")


def test_a_batch_is_queued_or_ends_a_slow_watch_as_single_events_do(store: LMDBStore) -> None:
    woken: list[str] = []
    watchers = {n: store.watch(PREFIX, 0, lambda n=n: woken.append(n), limit=limit) for n, limit in (("few", 3), ("just", 4), ("many", 9))}
    watchers["key"] = store.watch(PREFIX, 0, lambda: woken.append("key"), key=f"{PREFIX}1")
    put(store, 4)
    store.hub.catch_up()
    assert sorted(woken) == ["few", "just", "key", "many"] and store.hub.fallen_behind == 1
    put(store, 1)
    store.hub.catch_up()
    assert sorted(woken) == ["few", "just", "key", "many"] and store.hub.fallen_behind == 2  # no watcher is notified twice
    got = {n: drain(w) for n, w in watchers.items()}
    assert got == {"few": [1, 2, 3, 4, 5], "just": [1, 2, 3, 4, 5], "many": [1, 2, 3, 4, 5], "key": [2]}
    put(store, 5)
    store.hub.catch_up()
    got = {n: drain(w) for n, w in watchers.items()}
    assert got == {"few": [6, 7, 8, 9, 10], "just": [6, 7, 8, 9, 10], "many": [6, 7, 8, 9, 10], "key": [7]}


@pytest.mark.timeout(CONFIRMED_S)
def test_a_page_of_old_events_costs_the_same_whatever_came_after_it(request: pytest.FixtureRequest, store: LMDBStore) -> None:
    """The state after each write is found without reading the log to its end. A watch from 100,000 writes back used to read all of it for
    each of its 200 pages. Deletes, and keys written twice in a page, are covered, too."""
    record = build_record(b"{", b'"d":1}')

    def write(start: int, stop: int) -> None:
        for i in range(start, stop):
            store.commit_now(Op(f"{PREFIX}{i:06}", record))

    def cost() -> float:
        with Spent() as spent:
            events, _ = store.events(PREFIX, 0, 100)
        assert [e.key for e in events[:2]] == [f"{PREFIX}a", f"{PREFIX}b"] and len(events) >= 100
        return spent.seconds

    for op in (Op(f"{PREFIX}a", record), Op(f"{PREFIX}b", record), Op(f"{PREFIX}a", None), Op(f"{PREFIX}b", record)):
        store.commit_now(op)
    write(0, 500)
    few = min(cost() for _ in range(10))
    write(500, 20_000)
    many = min(cost() for _ in range(30))
    assert not confirmed(request.node.nodeid, "" if many < 2.5 * few else f"40 times as much: {few}, {many}")


def test_ring_is_bounded(store: LMDBStore) -> None:
    put(store, 1500)
    store.hub.catch_up()
    assert len(store.hub._ring) <= 1024
    watcher = store.watch(PREFIX, 0, lambda: None)
    assert drain(watcher) == list(range(1, 1501))


class Looked(deque[Any]):
    """A ring that counts how many of its events were examined."""

    seen = 0

    def _counted(self, events):
        for event in events:
            self.seen += 1
            yield event

    def __iter__(self):
        return self._counted(super().__iter__())

    def __reversed__(self):
        return self._counted(super().__reversed__())


@pytest.mark.parametrize("behind", [0, 1, 7])
def test_a_watch_examines_only_the_events_that_it_lacks(store: LMDBStore, behind: int) -> None:
    """Thousands of watches start again when their connections break, and the ring has a thousand events."""
    put(store, 500)
    store.hub.catch_up()
    ring = store.hub._ring = Looked(store.hub._ring)
    watcher = store.watch(PREFIX, 500 - behind, lambda: None)
    assert ring.seen <= behind + 1
    put(store, 1)
    store.hub.catch_up()
    assert drain(watcher) == list(range(501 - behind, 502))


def test_a_watch_gets_its_own_events_from_the_ring(store: LMDBStore) -> None:
    put(store, 20)
    store.commit_now(*(Op(f"/registry/y/{i}", build_record(b"{", b'"d":1}')) for i in range(3)), one_revision=True)
    put(store, 5)
    store.hub.catch_up()
    assert drain(store.watch(PREFIX, 18, lambda: None)) == [19, 20, 22, 23, 24, 25, 26]
    assert drain(store.watch(PREFIX, 10, lambda: None, f"{PREFIX}1")) == [12, 17, 23]
    assert [e.key for e in store.watch("/registry/y/", 20, lambda: None).take()] == ["/registry/y/0", "/registry/y/1", "/registry/y/2"]
