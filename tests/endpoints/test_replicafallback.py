"""Answers read from etcd itself: which lists need them, and that what was opened for one is closed, whatever the client does."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace

import pytest

from kas.endpoints.replicafallback import ReplicaFallback
from kas.registry.requests import UNCOUNTED
from kas.store import continuetoken
from tests.filters.requests import request


class Opens:
    """Blocks until ``gate`` is set; then returns a store, or fails."""

    def __init__(self) -> None:
        self.gate, self.began, self.closed, self.fails = threading.Event(), threading.Event(), 0, False

    def __call__(self, where: str, one: bool, revision: int) -> Opens:
        assert (where, one, revision) == ("/registry/configmaps/a/b", True, 0)
        self.began.set()
        assert self.gate.wait(60)
        if self.fails:
            raise OSError(28, "No space left on device")
        return self

    def get(self, key: str) -> None:
        raise LookupError(key)

    def close(self) -> None:
        self.closed += 1


class Registry:
    store: Opens
    requests = UNCOUNTED

    @staticmethod
    def key(namespace: str, name: str) -> str:
        return f"/registry/configmaps/{namespace}/{name}"

    def find(self, namespace: str, name: str) -> None:
        return self.store.get(name)


def found(info):
    return SimpleNamespace(record=SimpleNamespace(namespaced=True), registry=Registry(), native=False)


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("leaves", [False, True])
def test_an_opened_store_is_closed(leaves, fails):
    async def run() -> None:
        opens = Opens()
        opens.fails = fails
        beside = ReplicaFallback(found, opens)
        req = request("GET", "/api/v1/namespaces/a/configmaps/b")
        task = asyncio.ensure_future(beside(req))
        while not opens.began.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        second = asyncio.ensure_future(beside(req))
        if leaves:
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.sleep(0)
            assert not beside._one.free and not opens.closed  # it is still being opened
        opens.gate.set()
        for one in (second,) if leaves else (task, second):
            with pytest.raises(OSError if fails else LookupError):
                await one
        assert opens.closed == (0 if fails else 2) and beside._one.free

    asyncio.run(asyncio.wait_for(run(), 60))


@pytest.mark.parametrize(
    ("query", "past"),
    [
        ("continue={99}", True), ("continue={100}", False), ("continue={99}&labelSelector=-", True), ("continue=x", False),
        ("resourceVersionMatch=Exact&resourceVersion=99", True), ("resourceVersionMatch=Exact&resourceVersion=100", False),
        ("resourceVersionMatch=Exact&resourceVersion=x", False),
    ],
)  # fmt: skip
def test_an_invalid_list_is_left_to_the_list_handler(query, past):
    """Its format is refused before its token, and its selectors are parsed off the loop."""
    prefix = "/registry/configmaps/a/"
    for revision in (99, 100):
        query = query.replace(f"{{{revision}}}", continuetoken.encode(prefix + "b", prefix, revision))
    registry = SimpleNamespace(prefix=lambda namespace: prefix, store=SimpleNamespace(compacted_revision=100))
    beside = ReplicaFallback(lambda info: SimpleNamespace(record=SimpleNamespace(namespaced=True), registry=registry), None)
    assert beside.past(request("GET", "/api/v1/namespaces/a/configmaps", query)) is past
