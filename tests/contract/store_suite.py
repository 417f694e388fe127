"""The store contract as tests: every guarantee of ``kas/store/__init__.py``, for any backend.

A backend's test class derives from ``StoreSuite`` and provides the fixture ``store``: an open, empty store with ``commit_now``.
"""

from __future__ import annotations

from typing import Any

import pytest

from kas.store import Compacted, Conflict, Draft, FutureRevision, KeyTooLong, Op, build_record, compile_matcher

TYPE = b'{"kind":"ConfigMap","apiVersion":"v1",'
PODS = "/registry/pods/"


def draft(name: str = "a", data: str = "x", labels: dict[str, str] | None = None, lease_s: int = 0, **fields: str) -> Draft:
    head = TYPE + b'"metadata":{"name":"%s",' % name.encode()
    tail = b'"uid":"u"},"data":"%s"}' % data.encode()
    fields = {"metadata.name": name, **fields}
    return build_record(head, tail, labels, fields, len(TYPE), lease_s=lease_s, metadata_tail=len(b'"uid":"u"}'))


def put(store: Any, key: str, expected: int | None = None, **kwargs: Any) -> int:
    store.commit_now(Op(key, draft(key.rsplit("/", 1)[1], **kwargs), expected))
    return store.revision


def delete(store: Any, key: str, expected: int | None = None) -> int:
    store.commit_now(Op(key, None, expected))
    return store.revision


def keys(result: Any) -> list[str]:
    return [r.key for r in result.records]


def seen(events: list[Any]) -> list[tuple[int, int, str]]:
    return [(e.revision, e.op, e.key) for e in events]


class StoreSuite:
    # -- single writes ------------------------------------------------------------------------------------------------

    def test_an_empty_store_is_at_revision_zero(self, store: Any) -> None:
        assert store.revision == 0
        assert store.compacted_revision == 0
        assert store.get(PODS + "ns/a") is None
        result = store.range(PODS)
        assert (result.records, result.revision, result.more, result.next_key, result.remaining) == ([], 0, False, "", 0)

    def test_a_created_record_contains_its_revision(self, store: Any) -> None:
        put(store, "/registry/x/first")
        revision = put(store, PODS + "ns/a", 0, labels={"app": "web"}, data="1")
        assert revision == 2
        record = store.get(PODS + "ns/a")
        assert record.json == TYPE + b'"metadata":{"name":"a","resourceVersion":"2","uid":"u"},"data":"1"}'
        assert record.item_json == b'{"metadata":{"name":"a","resourceVersion":"2","uid":"u"},"data":"1"}'
        assert (record.revision, record.create_revision, record.version) == (2, 2, 1)
        assert record.labels == {"app": "web"}
        assert record.fields == {"metadata.name": "a"}

    def test_the_revision_is_the_last_member_if_the_tail_is_only_the_closing_braces(self, store: Any) -> None:
        store.commit_now(Op("/registry/x/a", build_record(b'{"metadata":{"name":"a",', b"}}"), 0))
        assert store.get("/registry/x/a").json == b'{"metadata":{"name":"a","resourceVersion":"1"}}'

    def test_update_keeps_the_create_revision(self, store: Any) -> None:
        first = put(store, PODS + "ns/a", 0)
        second = put(store, PODS + "ns/a", first, data="2")
        record = store.get(PODS + "ns/a")
        assert (record.revision, record.create_revision, record.version) == (second, first, 2)

    def test_create_after_delete_starts_over(self, store: Any) -> None:
        put(store, PODS + "ns/a", 0)
        delete(store, PODS + "ns/a")
        third = put(store, PODS + "ns/a", 0)
        record = store.get(PODS + "ns/a")
        assert (record.revision, record.create_revision, record.version) == (third, third, 1)

    @pytest.mark.parametrize("expected", [0, 1, 99])
    def test_precondition_fails_with_the_current_record(self, store: Any, expected: int) -> None:
        put(store, PODS + "ns/a")
        put(store, PODS + "ns/a")
        with pytest.raises(Conflict) as caught:
            put(store, PODS + "ns/a", expected)
        assert caught.value.current.revision == 2
        assert store.revision == 2

    def test_precondition_on_an_absent_key(self, store: Any) -> None:
        with pytest.raises(Conflict) as caught:
            put(store, PODS + "ns/a", 7)
        assert caught.value.current is None
        with pytest.raises(Conflict):
            delete(store, PODS + "ns/a")
        with pytest.raises(Conflict):
            delete(store, PODS + "ns/a", 0)
        assert store.revision == 0

    def test_a_transaction_is_all_or_nothing(self, store: Any) -> None:
        put(store, "/registry/a/1")
        with pytest.raises(Conflict) as caught:
            store.commit_now(Op("/registry/b/1", draft()), Op("/registry/a/1", draft(), 0), Op("/registry/c/1", draft()))
        assert caught.value.key == "/registry/a/1"
        assert keys(store.range("/registry/")) == ["/registry/a/1"]
        store.commit_now(Op("/registry/b/1", draft(), 0), Op("/registry/a/1", None, 1), Op("/registry/c/1", draft()))
        assert store.revision == 4
        assert keys(store.range("/registry/")) == ["/registry/b/1", "/registry/c/1"]

    def test_a_key_beyond_the_maximum_length_is_refused(self, store: Any) -> None:
        with pytest.raises(KeyTooLong):
            put(store, "/registry/x/" + "n" * 4096)

    # -- ranges -------------------------------------------------------------------------------------------------------

    def test_range_is_in_byte_order_and_inside_the_prefix(self, store: Any) -> None:
        names = ["ns/b", "ns/a", "ns/a.b", "ns/a-b", "ns-1/a", "ns/é", "ns/z"]
        for name in names:
            put(store, PODS + name)
        put(store, "/registry/podtemplates/ns/a")
        put(store, "/registry/pod")
        assert keys(store.range(PODS)) == sorted((PODS + n for n in names), key=str.encode)
        assert keys(store.range(PODS + "ns/")) == sorted((PODS + n for n in names if n.startswith("ns/")), key=str.encode)
        assert store.count(PODS) == store.count(PODS, 100) == len(names)
        assert store.count(PODS, 3) == store.count(PODS + "ns/", 3) == 3 and store.count(PODS + "ns/", 1) == 1
        assert store.count("/registry/services/") == 0

    def test_pages_are_contiguous(self, store: Any) -> None:
        for i in range(10):
            put(store, f"{PODS}ns/{i}")
        got, start = [], ""
        while True:
            page = store.range(PODS, start, 3, count=True)
            got += keys(page)
            assert page.remaining == 10 - len(got)
            assert page.more == (len(got) < 10)
            if not page.more:
                break
            start = page.next_key
        assert got == [f"{PODS}ns/{i}" for i in range(10)]
        assert page.next_key == ""

    def test_a_full_last_page_has_no_successor(self, store: Any) -> None:
        for i in range(3):
            put(store, f"{PODS}ns/{i}")
        page = store.range(PODS, "", 3, count=True)
        assert (page.more, page.remaining, page.next_key) == (False, 0, "")

    def test_pages_are_bounded_by_their_bytes(self, store: Any) -> None:
        for i in range(7):
            put(store, f"{PODS}ns/{i}", data="x" * 1000)
        page = store.range(PODS, "", 5, count=True, max_bytes=1500)
        assert [k[-1] for k in keys(page)] == ["0", "1"]
        assert (page.more, page.next_key, page.remaining) == (True, PODS + "ns/1\x00", 5)
        page = store.range(PODS, page.next_key, 0, store.revision, max_bytes=1)
        assert ([k[-1] for k in keys(page)], page.next_key) == (["2"], PODS + "ns/2\x00")
        page = store.range_json(PODS, PODS + "ns/3", 0, max_bytes=3500, wrap=lambda r: (b"[", b"]"))
        assert (page.count, page.more, page.body.count(b"x" * 1000)) == (4, False, 4)
        page = store.range(PODS, "", 1, max_bytes=100_000)
        assert (page.count, page.next_key) == (1, PODS + "ns/0\x00")

    def test_pages_of_long_keys_are_bounded_by_their_bytes(self, store: Any) -> None:
        names = [f"{PODS}ns/{'k' * 600}{i}" for i in range(6)]
        for name in names:
            put(store, name, data="x" * 1000)
        seen, start = [], ""
        for _ in range(3):
            page = store.range(PODS, start, 5, count=True, max_bytes=2800)
            seen += keys(page)
            assert (page.count, page.remaining) == (2, 6 - len(seen))
            start = page.next_key
        assert (seen, page.more) == (names, False)

    def test_the_limit_counts_only_matching_records(self, store: Any) -> None:
        for i in range(10):
            put(store, f"{PODS}ns/{i}", labels={"odd": str(i % 2)})
        odd = compile_matcher([("odd", "=", ("1",))])
        page = store.range(PODS, "", 3, matcher=odd, count=True)
        assert [k[-1] for k in keys(page)] == ["1", "3", "5"]
        assert (page.more, page.next_key, page.remaining) == (True, PODS + "ns/5\x00", 4)
        page = store.range(PODS, page.next_key, 3, matcher=odd)
        assert [k[-1] for k in keys(page)] == ["7", "9"]
        assert not page.more

    def test_json_page(self, store: Any) -> None:
        for i in range(3):
            put(store, f"{PODS}ns/{i}")
        result = store.range_json(PODS, "", 2, wrap=lambda r: (b"<%d %s|" % (r.revision, r.next_key.encode()), b">"))
        items = b",".join(store.get(f"{PODS}ns/{i}").item_json for i in range(2))
        assert result.body == b"<3 /registry/pods/ns/1\x00|" + items + b">"
        assert (result.count, result.more) == (2, True)
        assert store.range_json("/registry/none/").body == b""

    def test_a_start_outside_the_prefix(self, store: Any) -> None:
        put(store, PODS + "ns/a")
        assert keys(store.range(PODS, "/registry/a")) == [PODS + "ns/a"]
        assert keys(store.range(PODS, "/registry/z")) == []

    def test_keys_longer_than_the_engines_keep_their_order(self, store: Any) -> None:
        stem = "/registry/rbac/" + "n" * 455
        names = [stem[:469], stem[:470], stem, *(stem + s for s in ("", "/", "a", "b", "aa", "ab" * 100, "b/c", "é"))]
        for name in names:
            store.commit_now(Op(name, draft(), None))
        expected = sorted(set(names), key=str.encode)
        assert keys(store.range("/registry/rbac/")) == expected
        for limit in (1, 2, 3, 5):
            got, start = [], ""
            while True:
                page = store.range("/registry/rbac/", start, limit, count=True)
                got += keys(page)
                assert page.remaining == len(expected) - len(got)
                if not page.more:
                    break
                start = page.next_key
            assert got == expected, limit
        assert store.get(stem + "ab" * 100).key == stem + "ab" * 100
        store.commit_now(Op(stem + "a", None))
        assert store.get(stem + "a") is None
        assert keys(store.range("/registry/rbac/", revision=store.revision - 1)) == expected

    # -- history ------------------------------------------------------------------------------------------------------

    def test_reads_at_every_revision(self, store: Any) -> None:
        put(store, PODS + "ns/a", data="1")
        put(store, PODS + "ns/b", data="2")
        put(store, PODS + "ns/a", data="3")
        delete(store, PODS + "ns/b")
        put(store, PODS + "ns/b", data="5")
        expected = [{}, {"a": 1}, {"a": 1, "b": 2}, {"a": 3, "b": 2}, {"a": 3}, {"a": 3, "b": 5}]
        for revision in range(1, 6):
            result = store.range(PODS, revision=revision)
            assert {r.key[-1]: r.revision for r in result.records} == expected[revision]
            assert result.revision == revision
            for name in "ab":
                record = store.get(PODS + "ns/" + name, revision)
                assert (record.revision if record else None) == expected[revision].get(name)
        page = store.range(PODS, "", 1, revision=2, count=True)
        assert (keys(page), page.more, page.next_key, page.remaining) == ([PODS + "ns/a"], True, PODS + "ns/a\x00", 1)

    def test_revisions_outside_the_history_are_refused(self, store: Any) -> None:
        for i in range(6):
            put(store, PODS + "ns/a", data=str(i))
        assert store.compact(3)
        assert store.compacted_revision == 3
        assert store.get(PODS + "ns/a", 3).revision == 3
        for call in (lambda r: store.get(PODS + "ns/a", r), lambda r: store.range(PODS, revision=r), lambda r: store.events(PODS, r, 9)):
            with pytest.raises(Compacted) as compacted:
                call(2)
            assert (compacted.value.requested, compacted.value.compacted) == (2, 3)
            with pytest.raises(FutureRevision):
                call(7)
        assert [e.revision for e in store.events(PODS, 3, 9)[0]] == [4, 5, 6]

    def test_compaction_proceeds_in_steps_and_never_backwards(self, store: Any) -> None:
        for i in range(5):
            put(store, PODS + "ns/a", data=str(i))
        assert store.compact(4, 3) is False
        assert store.compacted_revision == 4
        assert store.compact(4, 3) is True
        assert store.compact(2, 3) is True
        assert store.compacted_revision == 4
        assert store.compact(100) is True
        assert store.compacted_revision == 5
        assert store.get(PODS + "ns/a", 5).revision == 5

    # -- events -------------------------------------------------------------------------------------------------------

    def test_every_write_is_an_event_with_both_states(self, store: Any) -> None:
        put(store, PODS + "ns/a", data="1")
        put(store, "/registry/other/a")
        put(store, PODS + "ns/a", data="2")
        delete(store, PODS + "ns/a")
        events, reached = store.events(PODS, 0, 100)
        assert reached == 4
        assert seen(events) == [(1, 1, PODS + "ns/a"), (3, 2, PODS + "ns/a"), (4, 3, PODS + "ns/a")]
        assert [e.record and e.record.revision for e in events] == [1, 3, None]
        assert [e.previous and e.previous.revision for e in events] == [None, 1, 3]
        assert events[1].record.json.endswith(b'"data":"2"}')

    def test_chunks_of_events_are_contiguous(self, store: Any) -> None:
        for i in range(20):
            put(store, f"{PODS}ns/{i % 3}", data=str(i))
        for chunk in (1, 2, 7, 19, 20, 21):
            after, got = 0, []
            while after < store.revision:
                events, after = store.events(PODS, after, chunk)
                got += events
            assert [e.revision for e in got] == list(range(1, 21))
            assert [e.record.revision for e in got] == list(range(1, 21))

    def test_chunks_of_events_are_bounded_by_their_bytes(self, store: Any) -> None:
        def write(i: int) -> None:
            key = f"{PODS}ns/{i % 4}"
            if i % 7 == 6 and store.get(key):
                delete(store, key)
            else:
                put(store, key, data="x" * (i % 5 * 3000))
            put(store, f"/registry/other/{i}", data="x" * 5000)  # not requested, so not counted

        for i in range(40):
            write(i)
        whole, reached = store.events(PODS, 0, 1000, 1 << 30)
        assert reached == 80
        for bound in (0, 1, 4000, 20_000, 100_000):
            after, got = 0, []
            while after < store.revision:
                events, after = store.events(PODS, after, 1000, bound)
                assert len(events) <= 1 or sum(map(len, events)) <= bound
                assert not events or events[-1].revision <= after
                got += events
                # It stops only where the next event would exceed the bound.
                following = whole[len(got) : len(got) + 1]
                assert not following or sum(map(len, events + following)) > bound
            assert seen(got) == seen(whole)
            assert [(e.record and e.record.json, e.previous and e.previous.json) for e in got] == [
                (e.record and e.record.json, e.previous and e.previous.json) for e in whole
            ]

    def test_events_of_large_objects_are_not_read_all_at_once(self, store: Any) -> None:
        for i in range(12):
            put(store, f"{PODS}ns/{i}", data="x" * 1_000_000)
        events, reached = store.events(PODS, 0, 512)
        assert [e.revision for e in events] == list(range(1, reached + 1))
        assert 1 <= len(events) < 6

    # -- watches ------------------------------------------------------------------------------------------------------

    def drain(self, watcher: Any) -> list[Any]:
        got = []
        while watcher.ready:
            got += watcher.take()
        return got

    def test_watch_from_the_past_continues_live(self, store: Any) -> None:
        for i in range(4):
            put(store, f"{PODS}ns/{i}")
        store.hub.catch_up()
        woken = []
        watcher = store.watch(PODS, 2, lambda: woken.append(1))
        assert [e.revision for e in self.drain(watcher)] == [3, 4]
        assert not woken
        put(store, PODS + "ns/5")
        put(store, "/registry/other/a")
        put(store, PODS + "ns/6")
        store.hub.catch_up()
        assert woken == [1]
        assert [e.revision for e in self.drain(watcher)] == [5, 7]
        assert watcher.progress == 7
        watcher.close()
        put(store, PODS + "ns/7")
        store.hub.catch_up()
        assert not watcher.ready
        assert watcher.take() == []

    def test_watch_of_one_key_and_of_a_namespace(self, store: Any) -> None:
        one = store.watch(PODS, 0, lambda: None, key=PODS + "ns/a")
        space = store.watch(PODS + "ns/", 0, lambda: None)
        for name in ("ns/a", "ns/ab", "ns2/a", "ns/a"):
            put(store, PODS + name)
        store.hub.catch_up()
        late = store.watch(PODS, 0, lambda: None, key=PODS + "ns/a")
        assert [e.revision for e in self.drain(one)] == [1, 4]
        assert [e.revision for e in self.drain(late)] == [1, 4]
        assert [e.revision for e in self.drain(space)] == [1, 2, 4]

    def test_watch_with_a_field_value(self, store: Any) -> None:
        """Objects that have or had the value are delivered; for dispatched events nothing else is."""
        live = store.watch(PODS, 0, lambda: None, trigger=("phase", "Running"))
        unset = store.watch(PODS + "ns/", 0, lambda: None, trigger=("phase", ""))
        small = store.watch(PODS, 0, lambda: None, limit=2, trigger=("phase", "Running"))
        for name, phase in ("a", "Pending"), ("a", "Running"), ("b", "Pending"), ("a", "Running"), ("a", "Failed"), ("b", "Running"):
            put(store, f"{PODS}ns/{name}", phase=phase)
        delete(store, f"{PODS}ns/b")
        put(store, f"{PODS}ns/c")
        store.hub.catch_up()
        has = [2, 4, 5, 6, 7]
        assert [e.revision for e in self.drain(live)] == has
        assert (live.progress, unset.progress) == (8, 7)
        assert [e.revision for e in self.drain(unset)] == [8]
        assert set(has) <= {e.revision for e in self.drain(small)}
        live.close()
        put(store, PODS + "ns/a", phase="Running")
        store.hub.catch_up()
        assert not live.ready
        assert [e.revision for e in self.drain(small)] == [9]
        for watcher in unset, small:
            watcher.close()
            watcher.close()

    def test_slow_watcher_loses_nothing(self, store: Any) -> None:
        watcher = store.watch(PODS, 0, lambda: None, limit=4)
        for i in range(30):
            put(store, f"{PODS}ns/{i % 5}")
            store.hub.catch_up()
        assert [e.revision for e in self.drain(watcher)] == list(range(1, 31))
        put(store, PODS + "ns/a")
        store.hub.catch_up()
        assert [e.revision for e in self.drain(watcher)] == [31]

    def test_watcher_behind_the_history_gets_compacted(self, store: Any) -> None:
        watcher = store.watch(PODS, 0, lambda: None, limit=2)
        for _ in range(10):
            put(store, PODS + "ns/a")
            store.hub.catch_up()
        store.compact(8)
        with pytest.raises(Compacted):
            self.drain(watcher)
        assert watcher.closed
        with pytest.raises(FutureRevision):
            store.watch(PODS, 11, lambda: None)

    def test_an_idle_watcher_survives_compaction(self, store: Any) -> None:
        watcher = store.watch(PODS, 0, lambda: None, limit=2)
        for _ in range(5):
            put(store, "/registry/other/a")
        store.hub.catch_up()
        store.compact(5)
        for _ in range(4):
            put(store, PODS + "ns/a")
            store.hub.catch_up()
        assert [e.revision for e in self.drain(watcher)] == [6, 7, 8, 9]

    def test_events_are_shared_between_watchers(self, store: Any) -> None:
        one, two = (store.watch(PODS, 0, lambda: None) for _ in range(2))
        put(store, PODS + "ns/a")
        store.hub.catch_up()
        assert self.drain(one)[0] is self.drain(two)[0]

    def test_listeners_are_called_before_catch_up_returns(self, store: Any) -> None:
        got: list[Any] = []
        end = store.hub.listen(PODS, got.extend)
        put(store, PODS + "ns/a")
        put(store, "/registry/other/a")
        store.hub.catch_up()
        assert seen(got) == [(1, 1, PODS + "ns/a")]
        end()
        put(store, PODS + "ns/a")
        store.hub.catch_up()
        assert len(got) == 1

    # -- leases -------------------------------------------------------------------------------------------------------

    def test_leases_expire_as_deletes_and_can_be_renewed(self, store: Any) -> None:
        put(store, "/registry/events/a", lease_s=10)
        put(store, "/registry/events/b", lease_s=20)
        put(store, "/registry/events/c", lease_s=10)
        put(store, "/registry/events/d", lease_s=10)
        put(store, "/registry/events/c", lease_s=1000)
        put(store, "/registry/events/d")
        now = store.get("/registry/events/a").lease_expiry
        assert store.expire(now - 3) == 0
        assert store.expire(now) == 1
        assert store.revision == 7
        assert keys(store.range("/registry/events/")) == [f"/registry/events/{n}" for n in "bcd"]
        assert store.events("/registry/", 6, 9)[0][0].op == 3
        assert store.expire(now + 500, limit=1) == 1
        assert store.revision == 8
        assert store.expire(now + 500) == 0
        assert keys(store.range("/registry/events/")) == ["/registry/events/c", "/registry/events/d"]
