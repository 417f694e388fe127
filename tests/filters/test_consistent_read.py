"""The filter that makes a request wait until the replica of an etcd cluster is as new as the cluster."""

from __future__ import annotations

import asyncio

import pytest

from kas._fastpath import PartOf
from kas.filters.consistent_read import consistent_read
from kas.meta.errors import ApiError, timeout
from kas.request.http import Response
from kas.store import Behind, Compacted, Unavailable
from tests.filters.requests import request


class Fresh:
    """A store at revision 7, whose ``fresh()`` counts waiting requests; ``fails`` is what it raises."""

    revision = 7

    def __init__(self, fails: Exception | None = None) -> None:
        self.asked, self.fails = 0, fails

    async def fresh(self) -> None:
        self.asked += 1
        if self.fails is not None:
            raise self.fails


class Fallback:
    """Answers ``found``, or raises it, and records the requests; ``old``: the replica lacks lists at old revisions."""

    def __init__(self, found, told, old=False) -> None:
        self.found, self.told, self.old = found, told, old

    def past(self, req) -> bool:
        return self.old

    async def __call__(self, req):
        self.told.append(req)
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


def run(fresh: Fresh, req) -> None:
    waiting = consistent_read(lambda info: fresh).before(req)
    if waiting is not None:
        assert asyncio.run(_of(waiting)) is None


async def _of(waiting):
    return await waiting


PODS = "/api/v1/namespaces/a/pods"


@pytest.mark.parametrize(
    ("method", "path", "query", "waits"),
    [
        ("GET", PODS, "", True), ("GET", f"{PODS}/b", "", True), ("GET", PODS, "watch=1", True), ("GET", PODS, "resourceVersion=", True),
        ("GET", PODS, "resourceVersion=8", True), ("GET", PODS, "resourceVersion=0", False),
        ("GET", f"{PODS}/b", "resourceVersion=7", False),
        # Writes are decided by etcd: only those that are answered here wait.
        ("POST", PODS, "", False), ("PUT", f"{PODS}/b", "", False), ("DELETE", f"{PODS}/b", "", False),
        ("PUT", f"{PODS}/b/status", "", False),
        ("POST", PODS, "dryRun=All", True), ("POST", f"{PODS}/b/eviction", "", True),
        ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "", True),
        ("GET", PODS, "watch=1&resourceVersion=7", False), ("GET", "/healthz", "", False), ("GET", "/apis", "", False),
    ],
)  # fmt: skip
def test_requests_without_a_revision_wait(method, path, query, waits):
    fresh = Fresh()
    run(fresh, request(method, path, query))
    assert fresh.asked == waits


def test_a_timeout_is_reported_to_the_client():
    with pytest.raises(ApiError) as e:
        run(Fresh(timeout("the replica is behind")), request("GET", PODS))
    assert e.value.code == 504


@pytest.mark.parametrize(
    ("fails", "method", "path", "query", "asked"),
    [
        (Behind("late"), "GET", PODS, "", True), (Behind("late"), "GET", f"{PODS}/b", "", True),
        (Behind("late"), "GET", PODS, "limit=1", True),
        (Behind("late"), "GET", PODS, "resourceVersion=8", False), (Behind("late"), "GET", PODS, "watch=1", False),
        (Behind("late"), "POST", PODS, "dryRun=All", False), (Unavailable("gone"), "GET", PODS, "", False),
    ],
)  # fmt: skip
def test_reads_for_which_the_replica_is_too_old_use_the_fallback(fails, method, path, query, asked):
    answer = Response(200, [])
    for found in (answer, None):
        req, told = request(method, path, query), []

        fallback = Fallback(found, told)
        behind = Fresh(fails)
        waiting = consistent_read(lambda info, behind=behind: behind, fallback).before(req)
        if asked and found is not None:
            assert asyncio.run(_of(waiting)) is answer
        else:
            with pytest.raises(type(fails)):
                asyncio.run(_of(waiting))
        assert told == [req] * asked


@pytest.mark.parametrize(("found", "query"), [
    (Response(200, []), "resourceVersion=3&resourceVersionMatch=Exact"), (Response(200, []), "limit=1&continue=x"),
    (Compacted(3, 5), "resourceVersion=3&resourceVersionMatch=Exact"), (Unavailable("too much"), "continue=x"),
    (Response(200, []), "resourceVersion=3&limit=5"),
])  # fmt: skip
def test_lists_older_than_the_replica_are_read_from_etcd(found, query):
    req, told = request("GET", PODS, query), []
    answer = asyncio.run(_of(consistent_read(lambda info: Fresh(), Fallback(found, told, old=True)).before(req)))
    assert told == [req] and answer is (found if isinstance(found, Response) else None)
    told.clear()
    waiting = consistent_read(lambda info: Fresh(), Fallback(found, told)).before(req)
    assert waiting is None or asyncio.run(_of(waiting)) is None
    assert told == []


@pytest.mark.parametrize(
    "query", ["resourceVersion=3", "resourceVersion=3&limit=0", "resourceVersion=3&limit=5&resourceVersionMatch=NotOlderThan"]
)
def test_lists_that_may_be_newer_are_read_from_the_replica(query):
    told = []
    waiting = consistent_read(lambda info: Fresh(), Fallback(Response(200, []), told, old=True)).before(request("GET", PODS, query))
    assert waiting is None or asyncio.run(_of(waiting)) is None
    assert told == []


def test_a_resource_uses_its_own_cluster():
    main, events = object(), object()
    for others, group, path, part in (
        ({}, "", "/api/v1/namespaces/a/configmaps/b", main),
        ({("", "events"): events}, "", "/api/v1/namespaces/a/configmaps/b", main),
        ({("", "events"): events}, "", "/api/v1/namespaces/a/events/b", events),
        ({("", "events"): events}, "events.k8s.io", "/apis/events.k8s.io/v1/namespaces/a/events/b", main),
    ):
        info = request("GET", path).info
        assert info.api_group == group and PartOf(main, others)(info) is part
