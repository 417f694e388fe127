"""What stands between the events and the backends: truncation, batches, the union."""

from __future__ import annotations

import asyncio

import orjson
import pytest

from kas.audit.backend import AuditError, Truncate, Union
from kas.audit.batch import Batch
from kas.observe.metrics import Registry
from tests.audit.entries import entry


class Sink:
    """Takes entries, at once or (``gate``) when it may."""

    name = "sink"

    def __init__(self, fails: bool = False, gate: asyncio.Event | None = None) -> None:
        self.batches: list[list[str]] = []
        self.fails, self.gate, self.closed = fails, gate, False
        self.waiting: list[tuple[int, asyncio.Event]] = []

    def process(self, entries):
        if self.gate is not None:
            return self._later(entries)
        self._take(entries)
        return None

    async def _later(self, entries) -> None:
        await self.gate.wait()
        self._take(entries)

    def _take(self, entries) -> None:
        if self.fails:
            raise AuditError("broken")
        self.batches.append([orjson.loads(e.text)["auditID"] for e in entries])
        self.last = entries
        for number, waiting in self.waiting:
            if len(self.batches) >= number:
                waiting.set()

    async def has(self, batches: int) -> None:
        waiting = asyncio.Event()
        self.waiting.append((batches, waiting))
        if len(self.batches) < batches:
            await waiting.wait()

    async def close(self) -> None:
        self.closed = True


def test_large_entries_lose_their_bodies_and_batches_are_cut(caplog):
    sink = Sink()
    size = len(entry(1).text)
    truncate = Truncate(sink, size + 200, 2 * size + 100)
    truncate.process([entry(n) for n in range(5)])
    assert sink.batches == [["id-0", "id-1"], ["id-2", "id-3"], ["id-4"]]
    truncate.process([entry(6, requestObject={"a": "x" * 500})])
    kept = orjson.loads(sink.last[0].text)
    assert "requestObject" not in kept and kept["annotations"] == {"audit.k8s.io/truncated": "true"}
    truncate.process([entry(7, userAgent="x" * 500), entry(8)])
    assert sink.batches[-1] == ["id-8"] and "1 events are too large" in caplog.text


def test_a_batch_goes_when_it_is_full_and_when_its_time_has_come():
    async def main() -> None:
        sink = Sink()
        batch = Batch(sink, 100, 3, 0.05, 0, 0, lambda b, e: None)
        batch.process([entry(n) for n in range(4)])
        await sink.has(2)
        assert sink.batches == [["id-0", "id-1", "id-2"], ["id-3"]]
        batch.process([entry(9)])
        await batch.close()
        assert sink.batches[2:] == [["id-9"]] and sink.closed

    asyncio.run(asyncio.wait_for(main(), 60))


def test_what_is_due_goes_together_where_it_is_all_one():
    async def main() -> None:
        sink = Sink()
        batch = Batch(sink, 100, 2, 0.05, 0, 0, lambda b, e: None, joins=True)
        batch.process([entry(n) for n in range(5)])
        await sink.has(2)
        assert sink.batches == [["id-0", "id-1", "id-2", "id-3"], ["id-4"]]
        await batch.close()
        limited = Batch(sink, 100, 2, 0.05, 1000.0, 9, lambda b, e: None, joins=True)
        limited.process([entry(n) for n in range(4)])
        await sink.has(4)
        assert sink.batches[2:] == [["id-0", "id-1"], ["id-2", "id-3"]]
        await limited.close()

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_full_buffer_loses_what_comes_and_says_so():
    async def main() -> None:
        gate = asyncio.Event()
        sink = Sink(gate=gate)
        batch = Batch(sink, 2, 1, 0, 0, 0, lambda b, e: None)
        with pytest.raises(AuditError, match="queue blocked"):
            batch.process([entry(n) for n in range(3)])
        gate.set()
        await batch.close()
        assert sink.batches == [["id-0"], ["id-1"]]

    asyncio.run(asyncio.wait_for(main(), 60))


def test_batches_wait_for_their_turn():
    async def main() -> None:
        sink, now = Sink(), [0.0]
        batch = Batch(sink, 100, 1, 0, 1000.0, 2, lambda b, e: None, clock=lambda: now[0])
        batch.process([entry(n) for n in range(5)])
        await sink.has(5)
        # Two were saved up; the clock stands still, so that the others are owed.
        assert batch._tokens == -3
        await batch.close()

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_failing_batch_is_told():
    async def main() -> None:
        told: list[str] = []
        batch = Batch(Sink(fails=True), 10, 1, 0, 0, 0, lambda b, e: told.append(f"{b.name}: {e}"))
        batch.process([entry()])
        await batch.close()
        assert told == ["sink: broken"]

    asyncio.run(asyncio.wait_for(main(), 60))


def test_every_backend_gets_every_entry_and_a_strict_one_is_heard():
    metrics = Registry()
    union = Union(metrics.counter("apiserver_audit_error_total", "help", ("plugin",)))
    good, bad = Sink(), Sink(fails=True)
    union.backends = [(bad, False), (good, True)]
    assert union.process([entry(1)]) is None and good.batches == [["id-1"]]
    union.backends = [(bad, True), (good, False)]
    with pytest.raises(AuditError, match="broken"):
        union.process([entry(2)])
    assert good.batches[-1] == ["id-2"]
    assert b'apiserver_audit_error_total{plugin="sink"} 2' in metrics.expose()


def test_waiting_backends_are_heard_too():
    async def main() -> None:
        gate = asyncio.Event()
        gate.set()
        union = Union(Registry().counter("apiserver_audit_error_total", "help", ("plugin",)))
        good = Sink(gate=gate)
        union.backends = [(Sink(fails=True, gate=gate), True), (good, False)]
        with pytest.raises(AuditError):
            await union.process([entry(1)])
        assert good.batches == [["id-1"]]
        await union.close()
        assert good.closed

    asyncio.run(asyncio.wait_for(main(), 60))
