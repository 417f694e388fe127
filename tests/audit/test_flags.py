"""The effect of the ``--audit-log-*`` and ``--audit-webhook-*`` flags, seen in what arrives at the file and at the webhook."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from kas.audit import auditor
from kas.audit.auditor import Auditor
from kas.audit.logfile import LogFile
from kas.config.options import read
from kas.observe.metrics import Registry
from tests.audit.entries import entry
from tests.audit.sink import Sink

LIMIT_S = 60
NEVER = "--audit-{}-batch-max-wait=9h"
BATCHES = ("--audit-{}-mode=batch", NEVER)


class Log:
    """The audit log made from a command line, with one backend, and what arrived there: lists of events for a webhook, one for a file."""

    def __init__(self, kind: str, directory: Path, *flags: str) -> None:
        self.kind, self.file, self.sink, self.metrics = kind, directory / "audit.log", Sink(), Registry()
        (directory / "policy").write_text(json.dumps({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata"}]}))
        where = f"--audit-log-path={self.file}" if kind == "log" else self.sink.kubeconfig(directory)
        given = [where, f"--audit-policy-file={directory / 'policy'}", *(flag.format(kind) for flag in flags)]
        options, self.errors = read([f"--data-dir={directory}", *given])
        self.auditor: Auditor | None = None if self.errors else auditor.build(options, directory, self.metrics)

    async def process(self, *numbers: int, **more: object) -> None:
        """Records events with these numbers; awaits what must be awaited."""
        assert self.auditor is not None
        pending = self.auditor._backends.process([entry(n, **more) for n in numbers])
        if pending is not None:
            await pending

    @property
    def events(self) -> list[dict]:
        """All events that arrived."""
        if self.kind == "webhook":
            return self.sink.events
        return [json.loads(line) for line in self.file.read_text().splitlines()] if self.file.exists() else []

    @property
    def ids(self) -> list[str]:
        """The numbers of the events that arrived."""
        return [e["auditID"].removeprefix("id-") for e in self.events]

    @property
    def lost(self) -> float:
        """Returns the number of events that were not recorded, by /metrics: by the backend, or by the buffer before it."""
        family = self.metrics.counter("apiserver_audit_error_total", "", ("plugin",))
        assert family.values.keys() <= {(self.kind,), ("buffered",)}
        return sum(family.values.values())

    async def has(self, *numbers: int) -> None:
        """Waits until these have arrived, and nothing else."""
        until = time.monotonic() + LIMIT_S
        while sorted(self.ids) != sorted(map(str, numbers)):
            assert time.monotonic() < until, self.ids
            await asyncio.sleep(0.01)

    async def close(self) -> None:
        if self.auditor is not None:
            await self.auditor.close(LIMIT_S)


@pytest.fixture(params=["log", "webhook"])
def run(request, tmp_path) -> Callable[..., Log]:
    """``run(what, *flags)`` awaits ``what(log)`` with a log of these flags; "{}" in a flag is the backend's name."""

    def run(what: Callable[[Log], Awaitable[None]], *flags: str) -> Log:
        log = Log(request.param, tmp_path, *flags)

        async def go() -> None:
            try:
                await what(log)
            finally:
                await log.close()

        try:
            asyncio.run(asyncio.wait_for(go(), 2 * LIMIT_S))
        finally:
            log.sink.close()
        return log

    return run


@pytest.mark.parametrize(("size", "lost"), [("2", 1), ("3", 0)])
def test_events_beyond_a_full_buffer_are_lost(size, lost, run):
    log = run(lambda log: log.process(0, 1, 2), *BATCHES, "--audit-{}-batch-max-size=9", f"--audit-{{}}-batch-buffer-size={size}")
    assert (log.lost, log.ids) == (lost, ["0", "1", "2"][: 3 - lost])


def test_a_full_batch_is_sent(run):
    async def what(log: Log) -> None:
        await log.process(0, 1, 2)
        await log.has(0, 1)  # the third is not awaited, and waits

    log = run(what, *BATCHES, "--audit-{}-batch-max-size=2", "--audit-{}-batch-throttle-enable=false")
    assert log.ids == ["0", "1", "2"]  # it is sent at the end


def test_an_incomplete_batch_waits_as_long_as_the_flag_says(run):
    async def what(log: Log) -> None:
        await log.process(0)
        await log.has(0)

    run(what, BATCHES[0], "--audit-{}-batch-max-size=9", "--audit-{}-batch-max-wait=10ms")


@pytest.mark.parametrize(
    ("enabled", "qps", "burst", "held"),
    [(True, "0.0001", 1, True), (True, "0.0001", 3, True), (True, "1e9", 1, False), (False, "0.0001", 1, False)],
)
def test_batches_are_throttled(enabled, qps, burst, held, run):
    async def what(log: Log) -> None:
        for n in range(burst):
            await log.process(n)
            await log.has(*range(n + 1))
        # The next one fills the buffer while it is throttled; otherwise it has left it after a few loop iterations.
        await log.process(burst)
        for _ in range(20):
            await asyncio.sleep(0)
        await log.process(burst + 1)
        assert log.lost == held

    throttle = (f"--audit-{{}}-batch-throttle-{name}" for name in (f"enable={str(enabled).lower()}", f"qps={qps}", f"burst={burst}"))
    log = run(what, *BATCHES, "--audit-{}-batch-max-size=1", "--audit-{}-batch-buffer-size=1", *throttle)
    # Throttled batches are sent at the end without waiting.
    assert sorted(log.ids) == [str(n) for n in range(burst + 2 - held)]


@pytest.mark.parametrize(
    ("flags", "whole"),
    [
        ((), True), (("--audit-{}-truncate-max-event-size=2000",), True),
        (("--audit-{}-truncate-enabled", "--audit-{}-truncate-max-event-size=2000"), False),
        (("--audit-{}-truncate-enabled", "--audit-{}-truncate-max-event-size=200000"), True),
        (("--audit-{}-truncate-enabled",), True),
    ],
)  # fmt: skip
def test_large_events_lose_their_bodies(flags, whole, run):
    log = run(lambda log: log.process(0, requestObject={"a": "x" * 9000}), "--audit-{}-mode=blocking", *flags)
    (event,) = log.events
    assert ("requestObject" in event) is whole
    assert (event.get("annotations") == {"audit.k8s.io/truncated": "true"}) is not whole


@pytest.mark.parametrize(("enabled", "parts"), [(True, [2, 2, 1]), (False, [5])])
def test_large_batches_are_split(enabled, parts, run, monkeypatch):
    """This cannot be seen in the file, so the writer's calls are checked."""
    written: list[int] = []
    process = LogFile.process
    monkeypatch.setattr(LogFile, "process", lambda self, entries: (written.append(len(entries)), process(self, entries))[1])
    size = 2 * entry(0).size + 1
    sizes = (f"--audit-{{}}-truncate-max-event-size={size}", f"--audit-{{}}-truncate-max-batch-size={size + 1}")
    truncate = f"--audit-{{}}-truncate-enabled={str(enabled).lower()}"
    log = run(lambda log: log.process(*range(5)), "--audit-{}-mode=blocking", truncate, *sizes)
    assert log.ids == ["0", "1", "2", "3", "4"]
    assert (written or [len(found["items"]) for found in log.sink.lists]) == parts


def test_events_have_the_configured_version(run):
    log = run(lambda log: log.process(0), "--audit-{}-mode=blocking", "--audit-{}-version=audit.k8s.io/v1")
    assert (log.sink.lists or log.events)[0]["apiVersion"] == "audit.k8s.io/v1"


@pytest.mark.parametrize("version", ["audit.k8s.io/v1beta1", "audit.k8s.io/v2", ""])
def test_other_versions_are_refused(version, tmp_path):
    for kind in ("log", "webhook"):
        log = Log(kind, tmp_path, f"--audit-{{}}-version={version}")
        log.sink.close()
        assert log.errors == ['invalid group version, allowed versions are ["audit.k8s.io/v1"]']


def test_in_mode_blocking_an_event_arrives_before_the_request_continues(run):
    async def what(log: Log) -> None:
        await log.process(0)
        assert log.ids == ["0"]

    run(what, "--audit-{}-mode=blocking")


def test_in_mode_batch_requests_do_not_wait(run):
    async def what(log: Log) -> None:
        await log.process(0)
        assert log.ids == []

    assert run(what, *BATCHES, "--audit-{}-batch-max-size=2").ids == ["0"]
