"""The store contract where revisions and writes are not one to one: several keys at one revision, and revisions without a write.

A backend's test class derives from ``RevisionSuite`` in addition to ``StoreSuite``; its store has ``apply(revision, ops)``.
"""

from __future__ import annotations

from typing import Any

import pytest

from kas.store import Compacted, Conflict, FutureRevision, Op, StoreError, compile_matcher
from tests.contract.store_suite import PODS, draft, keys, put, seen

NAMES = ["c", "a", "b"]


def pod(name: str, data: str = "x", **kwargs: Any) -> Op:
    return Op(f"{PODS}ns/{name}", draft(name, data, **kwargs))


def drain(watcher: Any, limit: int = 512) -> list[list[Any]]:
    """Takes until nothing is left; returns what each call returned."""
    got = []
    while watcher.ready:
        got.append(watcher.take(limit))
    return [events for events in got if events]


class RevisionSuite:
    def three(self, store: Any, data: str = "x") -> int:
        store.commit_now(*(pod(name, data) for name in NAMES), one_revision=True)
        return store.revision

    # -- one revision -------------------------------------------------------------------------------------------------

    def test_transaction_takes_one_revision(self, store: Any) -> None:
        put(store, PODS + "ns/a")
        assert self.three(store) == 2
        records = store.range(PODS).records
        assert [(r.key[-1], r.revision, r.create_revision, r.version) for r in records] == [("a", 2, 1, 2), ("b", 2, 2, 1), ("c", 2, 2, 1)]
        assert all(b'"resourceVersion":"2"' in r.json for r in records)
        assert put(store, PODS + "ns/d") == 3

    def test_transaction_without_asking_has_consecutive_revisions(self, store: Any) -> None:
        store.commit_now(*(pod(name) for name in NAMES))
        assert [store.get(f"{PODS}ns/{name}").revision for name in NAMES] == [1, 2, 3]

    def test_failed_precondition_takes_no_revision(self, store: Any) -> None:
        self.three(store)
        with pytest.raises(Conflict) as caught:
            store.commit_now(pod("d"), Op(PODS + "ns/a", draft(), 7), Op(PODS + "ns/b", None), one_revision=True)
        assert (caught.value.key, caught.value.current.revision) == (PODS + "ns/a", 1)
        assert store.revision == 1
        assert keys(store.range(PODS)) == [f"{PODS}ns/{name}" for name in "abc"]

    def test_a_transaction_with_a_check_succeeds_only_if_the_key_is_as_expected(self, store: Any) -> None:
        self.three(store)
        store.commit_now(Op(PODS + "ns/a", None, 1, check=True), pod("d"), Op(PODS + "ns/z", None, 0, check=True), pod("e"))
        assert [store.get(f"{PODS}ns/{name}").revision for name in "ade"] == [1, 2, 3]
        assert store.revision == 3 and store.get(PODS + "ns/z") is None
        assert [e.key[-1] for e in store.events(PODS, 1)[0]] == ["d", "e"]

    @pytest.mark.parametrize(("name", "expected"), [("a", 7), ("a", 0), ("z", 1)])
    def test_a_failed_check_takes_no_revision(self, store: Any, name: str, expected: int) -> None:
        self.three(store)
        with pytest.raises(Conflict) as caught:
            store.commit_now(pod("d"), Op(PODS + f"ns/{name}", None, expected, check=True))
        assert caught.value.key == PODS + f"ns/{name}"
        assert store.revision == 1 and store.get(PODS + "ns/d") is None

    def test_a_check_without_an_expectation_or_with_a_write_is_refused(self, store: Any) -> None:
        with pytest.raises(ValueError, match="check"):
            Op(PODS + "ns/a", None, None, check=True)
        with pytest.raises(ValueError, match="check"):
            Op(PODS + "ns/a", draft(), 1, check=True)

    def test_reads_before_and_at_a_revision_of_several_keys(self, store: Any) -> None:
        first = self.three(store, "1")
        store.commit_now(pod("a", "2"), Op(PODS + "ns/b", None), pod("d", "2"), one_revision=True)
        last = self.three(store, "3")
        assert (first, last) == (1, 3)
        wanted = {1: {"a": 1, "b": 1, "c": 1}, 2: {"a": 2, "c": 1, "d": 2}, 3: {"a": 3, "b": 3, "c": 3, "d": 2}}
        for revision, state in wanted.items():
            assert {r.key[-1]: r.revision for r in store.range(PODS, revision=revision).records} == state
            for name in "abcd":
                record = store.get(f"{PODS}ns/{name}", revision)
                assert (record and record.revision) == state.get(name)
        assert store.get(PODS + "ns/b", 3).create_revision == 3

    def test_events_of_one_revision_have_the_order_of_the_transaction(self, store: Any) -> None:
        self.three(store)
        store.commit_now(pod("b"), Op(PODS + "ns/c", None), pod("0"), one_revision=True)
        events, reached = store.events(PODS, 0, 100)
        assert reached == 2
        a, b, c, zero = (f"{PODS}ns/{name}" for name in "abc0")
        assert seen(events) == [(1, 1, c), (1, 1, a), (1, 1, b), (2, 2, b), (2, 3, c), (2, 1, zero)]
        assert [(e.record and e.record.revision, e.previous and e.previous.revision) for e in events] == [
            (1, None), (1, None), (1, None), (2, 1), (None, 1), (2, None),
        ]  # fmt: skip

    def test_events_never_split_a_revision(self, store: Any) -> None:
        for i in range(4):
            self.three(store, str(i) * 1000)
            put(store, "/registry/other/a")
            put(store, PODS + "ns/z", data=str(i))
        whole = store.events(PODS, 0, 100)[0]
        assert len(whole) == 16
        for limit, size in ((1, 1 << 20), (2, 1 << 20), (4, 1 << 20), (5, 1 << 20), (100, 0), (100, 5000), (100, 9000)):
            after, got = 0, []
            while after < store.revision:
                events, after = store.events(PODS, after, limit, size)
                got += events
                # The chunk ends with a complete revision.
                assert not events or all(e.revision > events[-1].revision for e in whole[len(got) :])
                assert len({e.revision for e in events}) <= 1 or len(events) <= limit + 2
            assert seen(got) == seen(whole)

    def test_a_prefix_sees_its_own_keys_of_a_revision(self, store: Any) -> None:
        store.commit_now(pod("a"), Op("/registry/other/a", draft()), pod("b"), one_revision=True)
        assert seen(store.events("/registry/other/", 0, 1)[0]) == [(1, 1, "/registry/other/a")]
        assert store.events("/registry/none/", 0, 1) == ([], 1)

    def test_compaction_at_a_revision_removes_all_of_it(self, store: Any) -> None:
        for i in range(3):
            self.three(store, str(i))
        while not store.compact(2, 1):
            assert store.compacted_revision == 2
            with pytest.raises(Compacted):
                store.events(PODS, 1, 100)
            assert seen(store.events(PODS, 2, 100)[0]) == [(3, 2, f"{PODS}ns/{name}") for name in NAMES]
        assert {r.revision for r in store.range(PODS, revision=2).records} == {2}

    # -- watches ------------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("limit", [1, 2, 1024], ids=["falls-behind", "falls-behind-inside", "live"])
    def test_watcher_takes_whole_revisions(self, store: Any, limit: int) -> None:
        watcher = store.watch(PODS, 0, lambda: None, limit=limit)
        ends = {0}
        for i in range(5):
            ends.add(self.three(store, str(i)))
            ends.add(put(store, PODS + "ns/z"))
            store.catch_up()
        takes = []
        while watcher.ready:
            assert watcher.progress in ends
            takes.append(watcher.take(1))
        assert [[e.revision for e in events] for events in takes if events] == [
            [r] * n for r, n in zip(range(1, 11), [3, 1] * 5, strict=True)
        ]
        assert watcher.progress == 10

    def test_a_reader_that_takes_on_notification_gets_whole_revisions(self, store: Any) -> None:
        got: list[list[int]] = []
        watcher = store.watch(PODS, 0, lambda: got.append([e.revision for e in watcher.take()]))
        self.three(store)
        store.catch_up()
        put(store, PODS + "ns/a")
        self.three(store)
        store.catch_up()
        assert [r for revisions in got for r in revisions] == [1, 1, 1, 2, 3, 3, 3]
        assert all(not set(one) & set(two) for i, one in enumerate(got) for two in got[i + 1 :])

    def test_resumed_watch_neither_repeats_nor_splits(self, store: Any) -> None:
        for i in range(4):
            self.three(store, str(i))
        store.catch_up()
        for after in range(5):
            wanted = [(r, name) for r in range(after + 1, 5) for name in NAMES]
            for limit in (1, 1024):  # from the log, and from memory
                watcher = store.watch(PODS, after, lambda: None, limit=limit)
                assert [(e.revision, e.key[-1]) for events in drain(watcher, 1) for e in events] == wanted
                watcher.close()

    def test_watch_of_one_key_in_a_revision_of_several(self, store: Any) -> None:
        watcher = store.watch(PODS, 0, lambda: None, key=PODS + "ns/b")
        self.three(store)
        self.three(store)
        store.catch_up()
        assert [e.revision for events in drain(watcher, 1) for e in events] == [1, 2]

    def test_listener_is_called_once_for_a_revision(self, store: Any) -> None:
        calls: list[list[int]] = []
        store.listen(PODS, lambda events: calls.append([e.revision for e in events]))
        self.three(store)
        store.catch_up()
        assert calls == [[1, 1, 1]]

    # -- revisions of another source

    def test_assigned_revisions_may_have_gaps(self, store: Any) -> None:
        store.apply(10, [pod("a", "1"), pod("b", "1")])
        store.apply(25, [pod("a", "2")])
        assert store.revision == 25
        assert [(r.key[-1], r.revision, r.create_revision) for r in store.range(PODS).records] == [("a", 25, 10), ("b", 10, 10)]
        assert store.range(PODS, revision=9).records == []
        assert {r.revision for r in store.range(PODS, revision=17).records} == {10}
        assert seen(store.events(PODS, 3, 1)[0]) == [(10, 1, PODS + "ns/a"), (10, 1, PODS + "ns/b")]
        assert store.events(PODS, 11, 9)[1] == 25
        with pytest.raises(FutureRevision):
            store.get(PODS + "ns/a", 26)
        assert put(store, PODS + "ns/c") == 26
        store.compact(17)
        assert store.compacted_revision == 17
        assert store.get(PODS + "ns/a", 17).revision == 10

    def test_an_assigned_revision_without_writes_advances_the_store(self, store: Any) -> None:
        store.apply(5, [pod("a")])
        watcher = store.watch(PODS, 5, lambda: None)
        store.apply(40, [])
        store.catch_up()
        assert store.revision == 40
        assert watcher.progress == 40
        assert store.events(PODS, 5, 9) == ([], 40)
        store.apply(30, [])  # was notified before
        assert store.revision == 40
        store.apply(41, [pod("a")])
        store.catch_up()
        assert [[e.revision for e in events] for events in drain(watcher)] == [[41]]

    def test_an_assigned_revision_must_be_newer(self, store: Any) -> None:
        store.apply(5, [pod("a")])
        for revision in (4, 5):
            with pytest.raises(StoreError, match="not newer"):
                store.apply(revision, [pod("b")])
        assert keys(store.range(PODS)) == [PODS + "ns/a"]
        assert store.revision == 5

    def test_live_watch_over_gaps(self, store: Any) -> None:
        watcher = store.watch(PODS, 0, lambda: None)
        told: list[int] = []
        store.listen("/registry/", lambda events: told.extend(e.revision for e in events))
        for revision in (7, 8, 100, 1 << 40):
            store.apply(revision, [pod("a"), pod("b")])
            store.catch_up()
        assert [[e.revision for e in events] for events in drain(watcher, 1)] == [[7, 7], [8, 8], [100, 100], [1 << 40] * 2]
        assert told == [7, 7, 8, 8, 100, 100, 1 << 40, 1 << 40]
        late = store.watch(PODS, 50, lambda: None)
        assert [[e.revision for e in events] for events in drain(late, 1)] == [[100, 100], [1 << 40] * 2]

    def test_selectors_at_revisions_of_several_keys(self, store: Any) -> None:
        store.commit_now(pod("a", labels={"app": "x"}), pod("b", labels={"app": "y"}), one_revision=True)
        store.commit_now(pod("a", labels={"app": "y"}), pod("b", labels={"app": "x"}), one_revision=True)
        matcher = compile_matcher([("app", "=", ("x",))])
        assert [keys(store.range(PODS, revision=r, matcher=matcher)) for r in (1, 2)] == [[PODS + "ns/a"], [PODS + "ns/b"]]
