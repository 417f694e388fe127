"""A GET whose stored bytes are the answer (``PlainGet``), and requests that it leaves to the general handler."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kas._fastpath import PlainGet
from kas.endpoints.read import get
from kas.meta.errors import ApiError
from kas.observe.metrics import Histogram, Timer
from kas.request.http import Request
from kas.request.requestinfo import Query

FORMS = {
    (b"application/json", b"me", False, True): (None, None, False, True),
    (b"application/yaml", b"me", False, True): (None, None, False, False),
}


class Store:
    def __init__(self, **records: bytes) -> None:
        self.asked: list[str] = []
        self.records = {f"/registry/things/a/{name}": SimpleNamespace(json_line=line) for name, line in records.items()}

    def get(self, key: str) -> SimpleNamespace | None:
        self.asked.append(key)
        return self.records.get(key)


def registry(**records: bytes) -> SimpleNamespace:
    seconds = Histogram("seconds", "", (), (1.0,))
    return SimpleNamespace(store=Store(**records), seconds=seconds, requests=SimpleNamespace(get=Timer(seconds, ())))


def request(accept: bytes = b"application/json", agent: bytes = b"me") -> Request:
    return Request("GET", "/", "", [(b"accept", accept), (b"user-agent", agent)])


def test_the_stored_bytes_are_the_answer_and_the_read_is_counted():
    r = registry(b=b"{}\n")
    answer = PlainGet("/registry/things/", True, FORMS, 10).answer(request(), r, "a", "b")
    assert answer is not None
    assert (answer.status, answer.headers, answer.body) == (200, [(b"content-type", b"application/json")], b"{}\n")
    assert sum(r.seconds.values[()][:-1]) == 1


def test_it_reads_from_the_given_registry():
    """Reads that go to etcd instead of the replica have a registry of their own."""
    here, there = registry(b=b"old\n"), registry(b=b"new\n")
    plain = PlainGet("/registry/things/", True, FORMS, 10)
    assert plain.answer(request(), there, "a", "b").body == b"new\n" and not here.store.asked


def test_objects_without_a_namespace():
    r = registry()
    assert PlainGet("/registry/nodes/", False, FORMS, 10).answer(request(), r, "", "n") is None
    assert r.store.asked == ["/registry/nodes/n"]


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a%2f"])
def test_an_invalid_name_is_not_looked_up(name):
    r = registry()
    assert PlainGet("/registry/things/", True, FORMS, 10).answer(request(), r, "a", name) is None and not r.store.asked


@pytest.mark.parametrize(("accept", "agent"), [(b"application/yaml", b"me"), (b"application/json", b"curl/8"), (b"", b"me")])
def test_other_formats_are_left_to_the_general_handler(accept, agent):
    r = registry(b=b"{}\n")
    assert PlainGet("/registry/things/", True, FORMS, 10).answer(request(accept, agent), r, "a", "b") is None and not r.store.asked


def test_answers_to_compress_are_left_to_the_general_handler():
    plain = PlainGet("/registry/things/", True, FORMS, 10)
    assert plain.answer(request(), registry(b=b"x" * 10), "a", "b") is not None
    assert plain.answer(request(), registry(b=b"x" * 11), "a", "b") is None


@pytest.mark.parametrize(("query", "short"), [("", True), ("resourceVersion=0", True), ("resourceVersion=0&pretty=1", False)])
def test_which_gets_are_answered_directly(query, short):
    """Those that accept any version, too, as clients' caches ask for."""
    r, asked = registry(), []
    r.store.revision, r.find = 7, lambda namespace, name: asked.append(name)
    r.not_found = lambda name: ApiError(404, "NotFound", "no", {})
    r.store.records["/registry/things/a/b"] = SimpleNamespace(json_line=b"{}\n")
    served = SimpleNamespace(native=True, plain=PlainGet("/registry/things/", True, FORMS, 10), registry=r)
    req = Request("GET", "/", query, [(b"accept", b"application/json"), (b"user-agent", b"me")])
    req.params = Query(query)
    if short:
        assert get(req, served, "a", "b").body == b"{}\n" and not asked
    else:
        with pytest.raises(ApiError):
            get(req, served, "a", "b")
        assert asked == ["b"]
