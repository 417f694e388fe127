"""What is between the events and the backends: truncation, batches, the union."""

from __future__ import annotations

import asyncio
import time
from itertools import count
from types import SimpleNamespace

import orjson
import pytest

from kas.audit import webhook
from kas.audit.backend import AuditError, Truncate, Union
from kas.audit.batch import ENDED, MAX_UNDER_WAY, Batch
from kas.client.pool import LARGE
from kas.meta.buckets import Buckets
from kas.meta.waiting import Throttle
from kas.observe.metrics import Registry
from tests.audit.entries import entry


class Sink:
    """Accepts entries, at once or when ``gate`` opens."""

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


def test_large_entries_lose_their_bodies_and_batches_are_split():
    sink = Sink()
    size = len(entry(1).line)
    metrics = Registry()
    union = Union(metrics.counter("apiserver_audit_error_total", "help", ("plugin",)))
    truncate = Truncate(sink, size + 200, 2 * size + 100, union.failed)
    truncate.process([entry(n) for n in range(5)])
    assert sink.batches == [["id-0", "id-1"], ["id-2", "id-3"], ["id-4"]]
    truncate.process([entry(6, requestObject={"a": "x" * 500})])
    kept = orjson.loads(sink.last[0].text)
    assert "requestObject" not in kept and kept["annotations"] == {"audit.k8s.io/truncated": "true"}
    # What is lost because of its size is counted, and fails no request.
    union.backends = [(truncate, True)]
    union.process([entry(7, userAgent="x" * 500), entry(8)])
    assert sink.batches[-1] == ["id-8"]
    assert b'apiserver_audit_error_total{plugin="truncate"} 1' in metrics.expose()


def test_a_part_that_cannot_be_stored_does_not_affect_others():
    class Broken(Sink):
        def _take(self, entries) -> None:
            self.fails = len(self.batches) == 1 and not self.fails  # the second one
            super()._take(entries)

    async def later(truncate: Truncate, entries) -> None:
        pending = truncate.process(entries)
        assert pending is not None
        await pending

    size, large, told = len(entry(1).line), entry(7, userAgent="x" * 500), []
    for waits in (False, True):
        gate = asyncio.Event()
        gate.set()
        sink = Broken(gate=gate if waits else None)
        truncate = Truncate(sink, size + 200, 2 * size + 100, lambda b, e, n: told.append((str(e), e.plugin, n)))
        with pytest.raises(AuditError, match="broken") as e:
            entries = [*(entry(n) for n in range(5)), large]
            asyncio.run(later(truncate, entries)) if waits else truncate.process(entries)
        assert sink.batches == [["id-0", "id-1"], ["id-4"]] and e.value.lost == 2
    assert told == [("event is too large even after truncating", "truncate", 1)] * 2


@pytest.mark.parametrize("waits", [False, True])
def test_after_a_failed_batch_the_next_one_is_sent(waits, caplog):
    class Odd(Sink):
        def _take(self, entries) -> None:
            if len(entries) == 3:
                raise UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed")
            super()._take(entries)

    async def main() -> None:
        told: asyncio.Queue[str] = asyncio.Queue()
        gate = asyncio.Event()
        gate.set()
        sink = Odd(gate=gate if waits else None)
        batch = Batch(sink, 10, 3, 0.01, None, lambda b, e, n: told.put_nowait(f"{type(e).__name__} {str(e)[:18]} {n}"))
        batch.process([entry(n) for n in range(3)])
        assert await told.get() == "AuditError UnicodeEncodeError 3"
        batch.process([entry(3)])
        await sink.has(1)
        await batch.close()
        assert told.empty() and sink.batches == [["id-3"]]
        assert "a batch of audit events failed" in caplog.text

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_batch_is_sent_when_it_is_full_or_its_time_has_come():
    async def main() -> None:
        sink = Sink()
        batch = Batch(sink, 100, 3, 0.05, None, lambda b, e, n: None)
        batch.process([entry(n) for n in range(4)])
        await sink.has(2)
        assert sink.batches == [["id-0", "id-1", "id-2"], ["id-3"]]
        batch.process([entry(9)])
        await batch.close()
        assert sink.batches[2:] == [["id-9"]] and sink.closed

    asyncio.run(asyncio.wait_for(main(), 60))


def test_due_entries_are_sent_together(tmp_path):
    async def main() -> None:
        sink = Sink()
        batch = Batch(sink, 100, 2, 0.05, None, lambda b, e, n: None, joins=True)
        batch.process([entry(n) for n in range(5)])
        await sink.has(2)
        assert sink.batches == [["id-0", "id-1", "id-2", "id-3"], ["id-4"]]
        await batch.close()
        limited = Batch(sink, 100, 2, 0.05, Buckets(tmp_path / "b", 1, 1000.0, 9), lambda b, e, n: None, joins=True)
        limited.process([entry(n) for n in range(4)])
        await sink.has(4)
        assert sink.batches[2:] == [["id-0", "id-1"], ["id-2", "id-3"]]
        await limited.close()

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_full_buffer_loses_new_entries_and_reports_it():
    async def main() -> None:
        gate = asyncio.Event()
        sink = Sink(gate=gate)
        batch = Batch(sink, 2, 1, 0, None, lambda b, e, n: None)
        with pytest.raises(AuditError, match="queue blocked") as e:
            batch.process([entry(n) for n in range(3)])
        assert (e.value.lost, e.value.plugin) == (1, "buffered")
        gate.set()
        await batch.close()
        assert sink.batches == [["id-0"], ["id-1"]]

    asyncio.run(asyncio.wait_for(main(), 60))


def test_the_buffer_is_bounded_in_bytes_too(monkeypatch):
    """With bodies an entry has megabytes, and a webhook that is down accepts none."""
    monkeypatch.setattr("kas.audit.batch.MOST_BYTES", most := 2 * len(entry(0).line))

    async def main() -> None:
        gate = asyncio.Event()
        sink = Sink(gate=gate)
        batch = Batch(sink, 100, 1, 0, None, lambda b, e, n: None)
        with pytest.raises(AuditError, match="queue blocked") as e:
            batch.process([entry(n) for n in range(5)])
        assert (e.value.lost, batch.held) == (3, most)
        await asyncio.sleep(0.01)
        assert not batch.waiting and batch.held == most  # those being sent count
        with pytest.raises(AuditError, match="queue blocked"):
            batch.process([entry(9)])
        gate.set()
        await sink.has(2)
        await asyncio.sleep(0.01)
        assert not batch.held
        batch.process([entry(3)])
        await batch.close()
        assert sink.batches == [["id-0"], ["id-1"], ["id-3"]] and not batch.held

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_batch_is_bounded_by_its_bytes(monkeypatch):
    """400 entries with bodies of a megabyte were assembled, and copied, at once; the rest goes with the next batch, and is not late."""
    monkeypatch.setattr("kas.audit.batch.BATCH_BYTES", 2 * len(entry(0).line))

    async def main() -> None:
        sink = Sink()
        batch = Batch(sink, 100, 5, 3600, None, lambda b, e, n: None)
        batch.process([entry(n) for n in range(5)])
        await sink.has(3)
        assert sink.batches == [["id-0", "id-1"], ["id-2", "id-3"], ["id-4"]]
        monkeypatch.setattr("kas.audit.batch.BATCH_BYTES", 1)
        batch.process([entry(n) for n in range(5)])  # one by one, each being too large
        await batch.close()
        assert sink.batches[3:] == [[f"id-{n}"] for n in range(5)] and not batch.held

    asyncio.run(asyncio.wait_for(main(), 60))


def test_entries_not_sent_by_the_end_are_reported():
    """Of more batches than may be in progress, and of one backend among others."""

    async def main() -> None:
        union, open_gate = Union(Registry().counter("apiserver_audit_error_total", "help", ("plugin",))), asyncio.Event()
        told: list[str] = []
        slow, quick = Sink(gate=asyncio.Event()), Sink(gate=open_gate)
        failed = lambda b, e, n: told.append(f"{e} ({n})")  # noqa: E731
        union.backends = [(Batch(sink, 100, 2, 60, None, failed), False) for sink in (slow, quick)]
        union.process([entry(n) for n in range(2 * MAX_UNDER_WAY + 5)])
        open_gate.set()
        closing = asyncio.ensure_future(union.close())
        while sum(map(len, quick.batches)) < 2 * MAX_UNDER_WAY + 5:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert sorted(told) == [f"2 {ENDED} (2)"] * MAX_UNDER_WAY + [f"5 {ENDED} (5)"]
        assert sum(map(len, quick.batches)) == 2 * MAX_UNDER_WAY + 5
        assert slow.closed and quick.closed and not slow.batches

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_cancelled_close_ends_when_every_backend_has_reported():
    """It ended with the first of them, and the losses of the others were not reported."""

    class Forever(Sink):
        async def close(self) -> None:
            await asyncio.Event().wait()

    async def main() -> None:
        union, told = Union(Registry().counter("apiserver_audit_error_total", "help", ("plugin",))), []
        slow = Sink(gate=asyncio.Event())
        union.backends = [(Forever(), False), (Batch(slow, 100, 2, 60, None, lambda b, e, n: told.append(n)), False)]
        union.backends[1][0].process([entry(n) for n in range(2 * MAX_UNDER_WAY + 5)])
        closing = asyncio.ensure_future(union.close())
        while not union.backends[1][0]._closing.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert sorted(told) == [2] * MAX_UNDER_WAY + [5] and slow.closed

    asyncio.run(asyncio.wait_for(main(), 60))


def test_batches_are_throttled(tmp_path):
    """For all workers together: two are within the burst, and the other four wait."""

    async def main() -> None:
        sinks = Sink(), Sink()
        throttles = (Buckets(tmp_path / "throttle", 1, 40.0, 2) for _ in sinks)
        batches = [Batch(sink, 100, 1, 0, throttle, lambda b, e, n: None) for sink, throttle in zip(sinks, throttles, strict=True)]
        begun = time.monotonic()
        for batch in batches:
            batch.process([entry(n) for n in range(3)])
        for sink in sinks:
            await sink.has(3)
        assert time.monotonic() - begun >= 4 / 40
        for batch in batches:
            await batch.close()

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_failing_batch_is_reported():
    async def main() -> None:
        told: list[str] = []
        batch = Batch(Sink(fails=True), 10, 1, 0, None, lambda b, e, n: told.append(f"{b.name}: {e} ({n})"))
        batch.process([entry()])
        await batch.close()
        assert told == ["sink: broken (1)"]

    asyncio.run(asyncio.wait_for(main(), 60))


def test_every_backend_gets_every_entry_and_a_strict_one_may_refuse():
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
    # Events are counted, not batches; a part of a batch may be lost.
    union.failed(bad, AuditError("broken"), 400)
    union.failed(bad, AuditError("buffer queue blocked", 7), 400)
    assert b'apiserver_audit_error_total{plugin="sink"} 409' in metrics.expose()


def test_backends_that_wait_may_refuse_too():
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


def test_large_batches_are_assembled_in_loop_iterations_of_their_own(monkeypatch):
    now, turns = count(), []
    monkeypatch.setattr(webhook, "sending", SimpleNamespace(throttle=Throttle(lambda: next(now))))
    large = entry(userAgent="x" * LARGE)

    class Sending:
        async def send(self, data, read) -> None:
            turns.append(turn)

    async def main() -> None:
        nonlocal turn
        backend = webhook.WebhookBackend(Sending())
        lists = [asyncio.ensure_future(backend.process([large])) for _ in range(3)]
        while not all(task.done() for task in lists):
            turn += 1
            await asyncio.sleep(0)

    turn = 0
    asyncio.run(main())
    assert len(set(turns)) == 3
