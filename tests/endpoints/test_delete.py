"""Deletes of a collection: how many run at once, and what a refusal leaves. Deletion by an update that removes the last finalizer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kas.admission import DELETE, Attributes
from kas.endpoints import listing
from kas.endpoints.delete import EMPTIED_AT_ONCE, Deleter
from kas.endpoints.served import Served
from kas.meta import errors
from kas.registry.generic import Registry
from tests.endpoints.inprocess import BUILT_IN, BUILTIN, NOW, Api

PATH = "/api/v1/namespaces/ns/configmaps"


class Slow:
    """Answers only when ``wanted`` deletes have been requested at once, and refuses those of some names."""

    name = "Slow"

    def __init__(self, *refused: str, wanted: int = 1) -> None:
        self.refused, self.wanted, self.under_way, self.most = refused, wanted, 0, 0
        self.asked: list[str] = []
        self.enough = asyncio.Event()

    def handles(self, a: Attributes) -> bool:
        return a.operation == DELETE

    async def validate(self, a: Attributes) -> None:
        name = a.old["metadata"]["name"]
        self.asked.append(name)
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        if self.most >= self.wanted:
            self.enough.set()
        await self.enough.wait()
        for _ in range(5):
            await asyncio.sleep(0)
        self.under_way -= 1
        if name in self.refused:
            raise errors.forbidden("", "configmaps", name, "kept")


def deleted(path: Any, count: int, plugin: Slow, at_once: int, query: str = "") -> tuple[int, Any, list[str], list[str]]:
    """Returns status and answer of a deletecollection of ``count`` config maps, the names in the order of their events, and those left."""

    async def main() -> tuple[int, Any, list[str], list[str]]:
        api = Api(path, plugins=[plugin], deletes_at_once=at_once)
        try:
            for i in range(count):
                assert (await api("POST", PATH, {"metadata": {"name": f"c{i:02}"}}))[0] == 201
            before = api.store.revision
            status, answer = await api("DELETE", PATH + query)
            gone = [e.key.rpartition("/")[2] for e in api.store.events("/registry/", before)[0] if e.record is None]
            left = [rec.key.rpartition("/")[2] for rec in api.store.range(api.config_maps.prefix("ns")).records]
            return status, answer, gone, left
        finally:
            api.watches.end_all()
            api.close()

    return asyncio.run(main())


@pytest.mark.parametrize(("at_once", "most"), [(0, 1), (1, 1), (4, 4), (100, 20)])
def test_deletes_of_a_collection_run_concurrently(tmp_path, at_once, most):
    names = [f"c{i:02}" for i in range(20)]
    status, answer, gone, left = deleted(tmp_path, 20, plugin := Slow(wanted=most), at_once)
    assert (status, left, plugin.most) == (200, [], most)
    assert (sorted(plugin.asked) if most > 1 else plugin.asked) == names  # concurrent deletes may overtake one another
    assert [o["metadata"]["name"] for o in answer["items"]] == names == sorted(gone)


@pytest.mark.parametrize("at_once", [1, 4])
def test_after_a_refusal_no_other_delete_starts(tmp_path, at_once):
    status, answer, gone, left = deleted(tmp_path, 20, plugin := Slow("c05", wanted=at_once), at_once)
    assert (status, answer["message"]) == (403, 'configmaps "c05" is forbidden: kept')
    assert "c05" in left and sorted([*gone, *left]) == [f"c{i:02}" for i in range(20)]
    assert 5 < len(plugin.asked) <= 5 + at_once and plugin.under_way == 0  # deletes that had started have been answered
    assert set(plugin.asked) - {"c05"} == set(gone)


@pytest.mark.parametrize("query", ["?dryRun=All", "?dryRun=All&limit=50"])
def test_few_requests_hold_more_than_a_page_of_deleted_objects(tmp_path, monkeypatch, query):
    """Deleted objects are held until they are answered: eight concurrent deletes of a collection of 60 MB, also dry ones, took 600 MB."""
    monkeypatch.setattr("kas.endpoints.delete.PAGE_BYTES", 4 << 10)
    beyond, most, read = set(), [0], {}

    async def main() -> None:
        api = Api(tmp_path)
        try:
            for i in range(20):
                assert (await api("POST", PATH, {"metadata": {"name": f"c{i:02}"}, "data": {"a": "x" * 1000}}))[0] == 201
            whole = Deleter._each

            async def each(self: Any, req: Any, served: Served, records: Any, options: Any) -> None:
                read[req] = read.get(req, 0) + sum(map(len, records))
                if read[req] > 8 << 10:  # a page more than one has been read
                    beyond.add(req)
                most[0] = max(most[0], len(beyond))
                await asyncio.sleep(0.001)
                await whole(self, req, served, records, options)

            def encode(q: Any, *args: Any) -> Any:
                beyond.discard(q.req)
                return encoded(q, *args)

            encoded = listing.encode
            monkeypatch.setattr(Deleter, "_each", each)
            monkeypatch.setattr(listing, "encode", encode)
            answers = await asyncio.gather(*(api("DELETE", PATH + query) for _ in range(8)))
            assert [(status, len(found["items"])) for status, found in answers] == [(200, 20)] * 8
        finally:
            api.watches.end_all()
            api.close()

    asyncio.run(main())
    assert 1 <= most[0] <= EMPTIED_AT_ONCE


@pytest.mark.parametrize("held", [0, 8 << 20])
@pytest.mark.parametrize("query", ["", "limit=7", "limit=20", "labelSelector=odd%3D1", "labelSelector=odd%3D1&limit=4", "dryRun=All"])
def test_deleted_objects_too_large_to_hold_are_read_again_for_the_answer(tmp_path, monkeypatch, query, held):
    """160 MB took 577 MB, and 42 since they are read again."""
    monkeypatch.setattr("kas.endpoints.delete.PAGE_BYTES", 4 << 10)
    monkeypatch.setattr("kas.endpoints.delete.HELD_BYTES", held)
    encoded = []
    monkeypatch.setattr(listing, "encode", lambda q, meta, done, whole=listing.encode: encoded.append(len(done)) or whole(q, meta, done))

    async def main() -> None:
        api = Api(tmp_path)
        try:
            for i in range(20):
                labels = {"labels": {"odd": str(i % 2)}}
                assert (await api("POST", PATH, {"metadata": {"name": f"c{i:02}", **labels}, "data": {"a": "x" * 1000}}))[0] == 201
            status, before = await api("GET", f"{PATH}?{query}")
            assert (await api("DELETE", f"{PATH}?{query}"), status) == ((200, before), 200)
            assert encoded == ([len(before["items"])] if held else [])
            left = [rec.key.rpartition("/")[2] for rec in api.store.range(api.config_maps.prefix("ns")).records]
            assert len(left) == 20 - (0 if "dryRun" in query else len(before["items"]))
        finally:
            api.watches.end_all()
            api.close()

    asyncio.run(main())


@pytest.mark.parametrize("held", [0, 8 << 20])
def test_deletecollection_succeeds_though_history_is_dropped_meanwhile(tmp_path, monkeypatch, held):
    """A full store drops history to make room for deletes: `kubectl delete --all` was a 410 with the first objects deleted."""
    monkeypatch.setattr("kas.endpoints.delete.PAGE_BYTES", 4 << 10)
    monkeypatch.setattr("kas.endpoints.delete.HELD_BYTES", held)

    async def main() -> None:
        api = Api(tmp_path)
        whole = Deleter._each

        async def each(self: Deleter, *args: Any) -> None:
            await whole(self, *args)
            api.store.compact(api.store.revision)

        monkeypatch.setattr(Deleter, "_each", each)
        try:
            for i in range(20):
                assert (await api("POST", PATH, {"metadata": {"name": f"c{i:02}"}, "data": {"a": "x" * 1000}}))[0] == 201
            old = api.store.revision
            status, answer = await api("DELETE", PATH)
            assert status == 200 and answer["kind"] == ("ConfigMapList" if held else "Status")
            assert len(answer.get("items", range(20))) == 20 and answer.get("status", "Success") == "Success"
            assert api.store.range(api.config_maps.prefix("ns")).records == []
            status, answer = await api("DELETE", f"{PATH}?resourceVersion={old}&resourceVersionMatch=Exact")
            assert (status, answer["reason"]) == (410, "Expired"), "who names a revision is told that it is gone"
        finally:
            api.watches.end_all()
            api.close()

    asyncio.run(main())


def test_a_dry_run_deletes_nothing(tmp_path):
    status, answer, gone, left = deleted(tmp_path, 20, plugin := Slow(wanted=4), 4, "?dryRun=All")
    assert (status, gone, len(left), plugin.most, len(answer["items"])) == (200, [], 20, 4, 20)


def test_system_priority_classes_can_only_be_deleted_by_deletecollection(tmp_path):
    """A delete by name is refused before any other check, also a dry run; deletecollection succeeds, as upstream's does."""
    classes, system = "/apis/scheduling.k8s.io/v1/priorityclasses", "system-node-critical"

    async def main() -> None:
        api = Api(tmp_path, plugins=[plugin := Slow()])
        resource = BUILTIN.resource("scheduling.k8s.io", "v1", "priorityclasses")
        api.rest.add(Served(resource, Registry(resource, api.store, lambda: NOW), BUILT_IN))
        try:
            for name, value in ((system, 2_000_001_000), ("mine", 1)):
                assert (await api("POST", classes, {"metadata": {"name": name}, "value": value}))[0] == 201
            for query in ("", "?dryRun=All"):
                status, answer = await api("DELETE", f"{classes}/{system}{query}")
                why = "this is a system priority class and cannot be deleted"
                assert (status, answer["message"]) == (403, f'priorityclasses.scheduling.k8s.io "{system}" is forbidden: {why}')
            assert not plugin.asked and (await api("DELETE", f"{classes}/mine"))[0] == 200
            status, answer = await api("DELETE", classes)
            assert (status, [o["metadata"]["name"] for o in answer["items"]]) == (200, [system])
        finally:
            api.watches.end_all()
            api.close()

    asyncio.run(main())


def test_a_delete_by_update_answers_with_the_stored_object(tmp_path):
    """With the last stored revision, and watchers see what was stored; as upstream, which answers with the request's object."""

    async def main() -> None:
        api = Api(tmp_path)
        try:
            finalizers = {"finalizers": ["example.com/x"]}
            assert (await api("POST", PATH, {"metadata": {"name": "a", **finalizers}, "data": {"k": "old"}}))[0] == 201
            marked = (await api("DELETE", PATH + "/a"))[1]
            marked["metadata"].pop("finalizers")
            before = api.store.revision
            status, answer = await api("PUT", PATH + "/a", marked | {"data": {"k": "new"}})
            assert status == 200 and answer["data"] == {"k": "new"} and "finalizers" not in answer["metadata"]
            assert answer["metadata"]["resourceVersion"] == marked["metadata"]["resourceVersion"]
            (event,) = api.store.events("/registry/", before)[0]
            assert event.record is None and b'"k":"old"' in event.previous.json
            assert (await api("GET", PATH + "/a"))[0] == 404
        finally:
            api.watches.end_all()
            api.close()

    asyncio.run(main())
