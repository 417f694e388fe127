"""The number of seats that requests take."""

from __future__ import annotations

import pytest

from kas.flowcontrol.work import Stored, Work
from tests.flowcontrol.levels import workers
from tests.flowcontrol.test_classification import request


def estimate(path: str, *, method: str = "GET", objects: int | None = 5000, size: int = 2000, most: int = 0, by_size: bool = True,
             watched: dict | None = None, count: int = 1) -> tuple[int, int, float]:  # fmt: skip
    from kas._fastpath import parse
    from kas.request.requestinfo import Query

    (w,) = workers(1, 1000, None)
    w.level.max_seats = most
    path, _, query = path.partition("?")
    req = request("u", (), path, method)
    req.params = Query(query)
    req.info = parse(method, path, req.params)
    work = Work(lambda g, r: None if objects is None else Stored(objects, size), watched or {}, count, by_size)
    return work.estimate(req, w.flow(req))


PODS = "/api/v1/namespaces/a/pods"


@pytest.mark.parametrize(("query", "seats"), [
    ("", 10), ("?resourceVersion=0", 10), ("?limit=20", 1), ("?limit=100", 2), ("?limit=20&continue=x", 1), ("?limit=x", 100),
    ("?resourceVersion=5&resourceVersionMatch=Exact", 100), ("?continue=x&limit=1000", 20), ("?continue=x&limit=10&labelSelector=a", 50),
    ("?fieldSelector=metadata.name%3Dx", 1), ("?watch=1&resourceVersion=7", 1), ("?watch=1", 10), ("?watch=1&resourceVersion=0", 10),
    ("?watch=1&resourceVersion=7&sendInitialEvents=true", 10), ("?watch=1&resourceVersion=0&sendInitialEvents=false", 10),
    ("?watch=1&resourceVersion=7&sendInitialEvents=false", 1),
])  # fmt: skip
def test_lists_by_size(query, seats):
    assert estimate(PODS + query) == (seats, 0, 0.0)


@pytest.mark.parametrize(("query", "objects", "seats"), [
    ("", 50, 1), ("", 450, 5), ("", 5000, 10), ("?limit=20", 5000, 10), ("?continue=x&limit=120", 5000, 3),
    ("?continue=x&limit=120&labelSelector=a", 300, 5), ("?fieldSelector=metadata.name%3Dx", 5000, 1), ("", 0, 1), ("", None, 1),
])  # fmt: skip
def test_lists_by_count(query, objects, seats):
    assert estimate(PODS + query, objects=objects, by_size=False) == (seats, 0, 0.0)


def test_at_most_a_share_of_the_level():
    for most in (4, 1):
        assert all(estimate(PODS + query, most=most) == (most, 0, 0.0) for query in ("", "?limit=x", "?limit=4000", "?watch=1"))


@pytest.mark.parametrize(("watched", "count", "expected"), [
    ({}, 1, (1, 0, 0.0)), ({("", "pods", "a", ""): 9}, 1, (1, 0, 0.0)),
    ({("", "pods", "a", ""): 9, ("", "pods", "", ""): 1}, 1, (1, 1, 0.005)),
    ({("", "pods", "a", ""): 25}, 1, (1, 3, 0.005)), ({("", "pods", "a", ""): 25}, 4, (1, 10, 0.005)),
    ({("", "pods", "a", ""): 1000}, 1, (1, 10, 0.05)),
    ({("", "pods", "b", ""): 1000, ("", "nodes", "a", ""): 1000}, 1, (1, 0, 0.0)),
    ({("", "pods", "a", "x"): 20, ("", "pods", "a", "y"): 500}, 1, (1, 2, 0.005)),
])  # fmt: skip
def test_writes_by_the_number_of_watchers(watched, count, expected):
    assert estimate(PODS + "/x", method="PUT", watched=watched, count=count) == pytest.approx(expected)


def test_a_token_request_notifies_no_watcher():
    watched = {("", "serviceaccounts", "", ""): 1000}
    assert estimate("/api/v1/namespaces/a/serviceaccounts/x/token", method="POST", watched=watched) == (1, 0, 0.0)


def test_removed_resources_are_forgotten():
    work = Work(lambda g, r: Stored(1, 1), {}, 1, True)
    for name in ("widgets", "gadgets"):
        work._count("example.com", name)
    size = work._counts.size
    work.forget("example.com", "widgets")
    work.forget("example.com", "nothings")
    assert list(work._counts.entries) == [("example.com", "gadgets")]
    assert work._counts.size == size // 2
