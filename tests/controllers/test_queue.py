"""The work queue: an item is worked on once at a time, again if added meanwhile, and later after a failure."""

from __future__ import annotations

import asyncio
import contextlib

import orjson
import pytest
import uvloop

from kas.controllers.graph import DependentsOf, Graph, same_ties, uid_of
from kas.controllers.queue import WorkQueue
from kas.meta import errors
from kas.meta.waiting import TIME_SLICE_S


async def _until(check) -> None:
    async with asyncio.timeout(60):
        while not check():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


def _run(work, body, workers: int = 2) -> None:
    async def main() -> None:
        queue = WorkQueue(work, "test")
        task = asyncio.create_task(queue.run(workers))
        try:
            await body(queue)
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    asyncio.run(main())


@pytest.mark.parametrize("workers", [1, 16])
def test_work_without_waiting_yields_the_loop(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """All objects with owners were processed in one loop iteration when a worker began to lead: 4,000 held it for 120 ms."""
    now = 0.0
    monkeypatch.setattr("kas.meta.waiting.perf_counter", lambda: now)
    in_turn: list[int] = [0]

    async def work(item: int) -> None:
        nonlocal now
        now += TIME_SLICE_S / 5
        in_turn[-1] += 1

    async def body(queue: WorkQueue) -> None:
        for i in range(500):
            queue.add(i)
        while len(queue):
            await asyncio.sleep(0)
            in_turn.append(0)

    _run(work, body, workers)
    assert sum(in_turn) == 500 and max(in_turn) <= 5 + workers


def test_items_are_worked_on_once_and_in_order():
    done: list[int] = []

    async def work(item: int) -> None:
        done.append(item)

    async def body(queue: WorkQueue) -> None:
        for item in (1, 2, 1, 3, 2):
            queue.add(item)
        await _until(lambda: len(done) == 3 and not len(queue))

    _run(work, body, workers=1)
    assert done == [1, 2, 3]


def test_an_item_added_while_it_runs_runs_again_and_never_concurrently():
    running, seen, most = set(), 0, 0
    begun, both = asyncio.Event(), asyncio.Event()

    async def work(item: str) -> None:
        nonlocal seen, most
        assert item not in running
        running.add(item)
        most = max(most, len(running))
        begun.set()
        if len(running) == 2:
            both.set()
        await both.wait()
        await asyncio.sleep(0)
        running.discard(item)
        seen += 1

    async def body(queue: WorkQueue) -> None:
        queue.add("a")
        await begun.wait()
        queue.add("a")
        queue.add("a")
        queue.add("b")
        await _until(lambda: seen == 3 and not len(queue))

    _run(work, body)
    assert most == 2 and seen == 3


def test_failed_items_are_retried_and_other_errors_end_the_run():
    tries = 0

    async def work(item: str) -> None:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise errors.internal("not now")

    async def body(queue: WorkQueue) -> None:
        queue.add("a")
        await _until(lambda: tries == 3)

    _run(work, body)

    async def broken(item: str) -> None:
        raise KeyError(item)

    async def main() -> None:
        queue = WorkQueue(broken, "test")
        queue.add("a")
        await queue.run()

    with pytest.raises(ExceptionGroup):
        asyncio.run(main())


def test_an_item_that_is_nested_too_deeply_holds_no_other_up():
    """The controller began anew, with all that it had found out, and failed at the same item again."""
    done: list[str] = []

    async def work(item: str) -> None:
        if item == "deep" and "other" not in done:
            raise RecursionError
        done.append(item)

    async def body(queue: WorkQueue) -> None:
        queue.add("deep")
        queue.add("other")
        await _until(lambda: "deep" in done)

    _run(work, body, 1)
    assert done == ["other", "deep"]


def test_work_may_ask_to_be_repeated():
    times = 0

    async def work(item: str) -> float | None:
        nonlocal times
        times += 1
        return 0.01 if times < 4 else None

    async def body(queue: WorkQueue) -> None:
        queue.add("a")
        await _until(lambda: times == 4)

    _run(work, body)


def _json(name: str, uid: str, more: str = "") -> bytes:
    return f'{{"kind":"K","apiVersion":"v1","metadata":{{"name":"{name}","namespace":"n","uid":"{uid}"{more}}}}}'.encode()


def _owned(uid: str, block: bool = False) -> str:
    blocks = ',"blockOwnerDeletion":true' if block else ""
    return f',"ownerReferences":[{{"apiVersion":"v1","kind":"K","name":"o","uid":"{uid}"{blocks}}}]'


def test_updates_without_changed_references_are_recognized_by_their_bytes():
    def pod(version: int, phase: str, annotation: str = "", **meta) -> bytes:
        head = {"name": "p", "namespace": "n", "uid": "P", "resourceVersion": str(version), "creationTimestamp": "2024-01-02T03:04:05Z"}
        meta = {**head, **({"annotations": {"a": annotation}} if annotation else {}), **meta}
        meta["managedFields"] = [{"manager": str(version)}]
        return orjson.dumps({"kind": "Pod", "apiVersion": "v1", "metadata": meta, "status": {"phase": phase}})

    owners = [{"uid": "U", "kind": "ReplicaSet", "name": "r", "apiVersion": "apps/v1"}]
    assert same_ties(pod(9, "Pending", ownerReferences=owners), pod(10, "Running", ownerReferences=owners))
    assert not same_ties(pod(9, "Pending", ownerReferences=owners), pod(10, "Pending"))
    assert not same_ties(pod(9, "Pending"), pod(10, "Pending", finalizers=["orphan"]))
    # Text of a client cannot look like the members around the references.
    trap = '"managedFields":['
    assert not same_ties(pod(9, "x", trap, ownerReferences=owners), pod(10, "x", trap))


def _keys(graph, look):
    """Returns the keys of the objects that are processed."""
    return {key for one in look for key in ([d.key for d in graph.dependents_of(one.uid)] if isinstance(one, DependentsOf) else [one])}


def test_the_graph_keeps_only_dependents_and_their_owners():
    graph = Graph()
    assert graph.put("/r/n/o", _json("o", "U"), 1) == []
    assert graph.nodes == {}
    assert graph.put("/r/n/d", _json("d", "D", _owned("U", True)), 2) == ["/r/n/d"]
    assert graph.put("/r/n/d", _json("d", "D"), 1) == []  # an older state, read by the scan
    assert set(graph.nodes) == {"/r/n/d"}
    waiting = ',"deletionTimestamp":"2024-01-01T00:00:00Z","finalizers":["foregroundDeletion"]'
    assert _keys(graph, graph.put("/r/n/o", _json("o", "U", waiting), 3)) == {"/r/n/o", "/r/n/d"}
    assert graph.put("/r/n/d", _json("d", "D"), 4) == ["/r/n/o"]  # it no longer blocks
    assert graph.remove("/r/n/o", "U") == []
    assert graph.nodes == {}
    assert graph.dependents == {}


def test_an_object_created_again_with_the_same_name_is_another_one():
    graph = Graph()
    graph.put("/r/n/d", _json("d", "D", _owned("U")), 1)
    graph.put("/r/n/x", _json("x", "X", _owned("D")), 2)
    assert _keys(graph, graph.put("/r/n/d", _json("d", "E", _owned("U")), 3)) == {"/r/n/d", "/r/n/x"}
    assert graph.dependents == {"U": {"/r/n/d"}, "D": {"/r/n/x"}}


@pytest.mark.parametrize(
    "json",
    [
        _json("a", "U"),
        b'{"kind":"K","apiVersion":"v1","metadata":{"name":"a","uid":"U","labels":{"uid":"no"}}}',
        b'{"apiVersion":"v1","data":{"uid":"no","metadata":{"uid":"no"}},"kind":"K","metadata":{"annotations":{"uid":"no"},"uid":"U"}}',
    ],
)
def test_uid_of_reads_the_uid_of_the_metadata(json):
    assert uid_of(json) == "U"


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_an_immediate_item_may_be_rescheduled(run):
    """uvloop's handle of an immediate call has no time. Asking for it failed, and the listener had to list everything again."""
    done: list[str] = []

    async def main() -> None:
        async def work(item: str) -> None:
            done.append(item)

        queue = WorkQueue(work, "test")
        queue.add_after("a", 60)
        for _ in range(3):
            queue.add_after("a", 0)
        queue.add_after("a", 60)
        task = asyncio.create_task(queue.run(1))
        await _until(lambda: done and not len(queue))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run(main())
    assert done == ["a"]
