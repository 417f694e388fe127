"""The log file: lines, rotation, several writers."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import os
import shutil
import stat
import sys
import threading
import time
from pathlib import Path

import orjson
import pytest

from kas.audit import logfile
from kas.audit.backend import AuditError
from kas.audit.logfile import LogFile, ThreadedLogFile, _stamp, json_line, legacy_line
from tests.audit.entries import entry


def log(tmp_path: Path, **how) -> LogFile:
    return LogFile(str(tmp_path / "logs" / "audit.log"), how.pop("lock", tmp_path / "lock"), json_line, **how)


def lines(path: Path) -> list[dict]:
    data = path.read_bytes()
    return [orjson.loads(line) for line in (gzip.decompress(data) if path.suffix == ".gz" else data).splitlines()]


def written(tmp_path: Path) -> list[dict]:
    """Returns the lines of the rotated files, oldest first, and of the current one."""
    files = sorted((tmp_path / "logs").iterdir(), key=lambda p: (p.name == "audit.log", p.name))
    return [line for p in files if not p.name.startswith(".") for line in lines(p)]


def drained(backend: LogFile) -> None:
    if (cleaner := backend._cleaner) is not None:  # it closes its file
        cleaner.join(60)


def test_one_line_for_each_event_in_a_private_file(tmp_path):
    backend = log(tmp_path)
    backend.process([entry(1), entry(2)])
    backend.process([entry(3)])
    asyncio.run(backend.close())
    assert [e["auditID"] for e in written(tmp_path)] == ["id-1", "id-2", "id-3"]
    assert (tmp_path / "logs" / "audit.log").stat().st_mode & 0o777 == 0o600


def test_a_removed_file_is_created_again(tmp_path):
    backend = log(tmp_path)
    backend.process([entry(1)])
    (tmp_path / "logs" / "audit.log").rename(tmp_path / "moved")
    backend.process([entry(2)])
    assert [e["auditID"] for e in written(tmp_path)] == ["id-2"]


@pytest.mark.parametrize("shared", [True, False])
def test_rotation_keeps_every_line(tmp_path, shared):
    backend = log(tmp_path, max_size=2000, lock=tmp_path / "lock" if shared else None)
    for n in range(30):
        backend.process([entry(n)])
    drained(backend)
    assert [e["auditID"] for e in written(tmp_path)] == [f"id-{n}" for n in range(30)]
    names = sorted(p.name for p in (tmp_path / "logs").iterdir())
    assert len(names) > 5 and names[-1] == "audit.log" and all(p.stat().st_size <= 2000 for p in (tmp_path / "logs").iterdir())


def test_old_files_are_counted_aged_and_compressed(tmp_path):
    backend = log(tmp_path, max_size=1000, max_backups=2, max_age_s=3600, compress=True)
    (tmp_path / "logs").mkdir()
    old, other = tmp_path / "logs" / "audit-2020-01-01T00-00-00.000.log", tmp_path / "logs" / "audit-notes.log"
    for p in (old, other):
        p.write_text("{}\n")
    for n in range(12):
        backend.process([entry(n)])
        drained(backend)
    backend._clean()
    names = sorted(p.name for p in (tmp_path / "logs").iterdir())
    assert "audit-notes.log" in names and old.name not in names
    packed = [n for n in names if n.endswith(".gz")]
    assert len(packed) == 2 and len(names) == 4
    assert [e["auditID"] for name in packed for e in lines(tmp_path / "logs" / name)]


def test_files_rotated_during_compression_are_cleaned_up_too(tmp_path, monkeypatch):
    began, may_go_on = threading.Event(), threading.Event()

    def slow(path: Path) -> None:
        began.set()
        assert may_go_on.wait(60)
        compressed(path)

    compressed = logfile._gzip
    monkeypatch.setattr(logfile, "_gzip", slow)
    backend = log(tmp_path, max_size=1000, max_backups=2, compress=True)
    for n in range(2):
        backend.process([entry(n) for _ in range(3)])
    assert began.wait(60)
    for n in range(3):
        backend.process([entry(n) for _ in range(3)])
    may_go_on.set()
    drained(backend)
    names = sorted(p.name for p in (tmp_path / "logs").iterdir())
    assert [name.endswith(".gz") for name in names] == [True, True, False] and names[-1] == "audit.log"


def test_old_files_are_cleaned_up_when_the_log_is_opened(tmp_path):
    """So a server that rarely rotates keeps nothing beyond its age, at least from one start to the next; as lumberjack."""
    logs = tmp_path / "logs"
    logs.mkdir()
    old, young = (logs / f"audit-{_stamp(time.time() - hours * 3600)}.log" for hours in (2, 0.5))
    for path in (old, young):
        path.write_bytes(entry(1).line)
    os.utime(young, (0, 0))  # the time of a file's last write is not that of its rotation
    (no_time := logs / "audit-2020-13-01T00-00-00.000.log").write_bytes(entry(1).line)
    backend = log(tmp_path, max_age_s=3600, compress=True)
    backend.process([entry(2)])
    drained(backend)
    assert sorted(p.name for p in logs.iterdir()) == sorted([f"{young.name}.gz", no_time.name, "audit.log"])


def test_backups_are_named_in_utc(tmp_path, monkeypatch):
    """As those of kube-apiserver, wherever the server is."""
    monkeypatch.setenv("TZ", "America/St_Johns")
    time.tzset()
    try:
        assert _stamp(1767225600.25) == "2026-01-01T00-00-00.250"
    finally:
        monkeypatch.undo()
        time.tzset()


def test_files_are_private_while_they_are_compressed(tmp_path, monkeypatch):
    (old := tmp_path / "audit-2026.log").write_bytes(b"x" * 1000)
    old.chmod(0o600)
    modes: list[int] = []
    copy = shutil.copyfileobj

    def look(source, out) -> None:
        modes.extend(stat.S_IMODE(p.stat().st_mode) for p in tmp_path.iterdir())
        copy(source, out)

    monkeypatch.setattr(shutil, "copyfileobj", look)
    before = os.umask(0)
    try:
        logfile._gzip(old)
    finally:
        os.umask(before)
    assert modes == [0o600, 0o600]
    (packed,) = tmp_path.iterdir()
    assert gzip.decompress(packed.read_bytes()) == b"x" * 1000 and stat.S_IMODE(packed.stat().st_mode) == 0o600


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_files_compressed_by_another_worker_leave_nothing_behind(tmp_path, monkeypatch, when):
    old, packed = tmp_path / "audit-2026.log", tmp_path / "audit-2026.log.gz"
    old.write_bytes(b"x")
    copy = shutil.copyfileobj

    def other() -> None:
        old.unlink()
        packed.write_bytes(b"theirs")

    def meanwhile(source, out) -> None:
        copy(source, out)
        other()

    if when == "before":
        other()
    else:
        monkeypatch.setattr(shutil, "copyfileobj", meanwhile)
    logfile._gzip(old)
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [(packed.name, b"theirs")]


def test_a_full_disk_leaves_the_file_unchanged(tmp_path, monkeypatch):
    def full(source, out) -> None:
        raise OSError(28, "No space left on device")

    (old := tmp_path / "audit-2026.log").write_bytes(b"x")
    monkeypatch.setattr(shutil, "copyfileobj", full)
    with pytest.raises(OSError, match="No space"):
        logfile._gzip(old)
    assert list(tmp_path.iterdir()) == [old]


def test_two_writers_neither_lose_nor_mix_lines(tmp_path):
    """Each worker has a backend of its own on the same file."""
    backends = [log(tmp_path, max_size=20_000, compress=True) for _ in range(2)]

    def write(which: int) -> None:
        for n in range(300):
            backends[which].process([entry(which * 1000 + n)])

    threads = [threading.Thread(target=write, args=(i,)) for i in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    for b in backends:
        drained(b)
    found = sorted(int(e["auditID"][3:]) for e in written(tmp_path))
    assert found == [*range(300), *range(1000, 1300)]


def test_a_single_writer_checks_the_file_twice_a_second(tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(logfile, "monotonic", lambda: now[0])
    looked: list[float] = []
    real = LogFile._open
    monkeypatch.setattr(LogFile, "_open", lambda self: looked.append(now[0]) or real(self))
    backend, path = log(tmp_path, lock=None), tmp_path / "logs" / "audit.log"
    for n in range(3):
        backend.process([entry(n)])
    path.rename(moved := tmp_path / "moved")
    now[0] = 100.0 + logfile.LOOK_S - 0.01
    backend.process([entry(3)])
    now[0] = 100.0 + logfile.LOOK_S
    for n in (4, 5):
        backend.process([entry(n)])
    assert looked == [100.0, 100.0 + logfile.LOOK_S]
    assert [[e["auditID"] for e in lines(p)] for p in (moved, path)] == [["id-0", "id-1", "id-2", "id-3"], ["id-4", "id-5"]]


def test_a_file_that_could_not_be_created_is_tried_again_at_once(tmp_path, monkeypatch):
    """Also by a single writer that has just checked."""
    monkeypatch.setattr(logfile, "monotonic", lambda: 100.0)
    backend = log(tmp_path, lock=None, max_size=10)
    backend.process([entry(1)])
    opened = logfile._opened

    def full(path: str) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(logfile, "_opened", full)
    with pytest.raises(AuditError, match="no space left on device"):
        backend.process([entry(2)])
    monkeypatch.setattr(logfile, "_opened", opened)
    backend.process([entry(3)])
    drained(backend)
    assert [e["auditID"] for e in written(tmp_path)] == ["id-1", "id-3"]


class Held(LogFile):
    """Writes when it is allowed to; ``began`` counts."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path), None, json_line)
        self.let, self.began, self.threads = threading.Event(), 0, set[str]()

    def process(self, entries) -> None:
        self.began += 1
        self.threads.add(threading.current_thread().name)
        self.let.wait(60)
        super().process(entries)


def test_batches_are_written_in_order_off_the_loop(tmp_path):
    held = Held(tmp_path / "audit.log")

    async def run() -> None:
        backend = ThreadedLogFile(held)
        waiting = [backend.process([entry(2 * n), entry(2 * n + 1)]) for n in range(5)]
        closed = asyncio.ensure_future(backend.close())  # after all of them
        await asyncio.sleep(0)
        assert not any(w.done() for w in waiting) and not closed.done() and not (tmp_path / "audit.log").exists()
        held.let.set()
        await closed
        assert all(w.done() for w in waiting)
        await asyncio.gather(*waiting)

    asyncio.run(run())
    assert [e["auditID"] for e in lines(tmp_path / "audit.log")] == [f"id-{n}" for n in range(10)]
    assert held.began == 5 and held._fd == -1 and len(held.threads) == 1 and threading.current_thread().name not in held.threads


def test_write_errors_off_the_loop_are_reported(tmp_path):
    async def run() -> None:
        backend = ThreadedLogFile(log(tmp_path))
        (tmp_path / "logs").write_text("a file")
        with pytest.raises(AuditError, match=r"file exists|not a directory"):
            await backend.process([entry()])
        (tmp_path / "logs").unlink()
        await backend.process([entry(1)])
        await backend.close()

    asyncio.run(run())
    assert [e["auditID"] for e in written(tmp_path)] == ["id-1"]


def test_closing_does_not_wait_for_a_hanging_disk(tmp_path):
    held = Held(tmp_path / "audit.log")

    async def run() -> None:
        backend = ThreadedLogFile(held)
        waiting = backend.process([entry()])
        closed = asyncio.ensure_future(backend.close())
        await asyncio.sleep(0)
        closed.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closed
        assert not waiting.done()
        held.let.set()
        await waiting

    asyncio.run(run())
    assert [e["auditID"] for e in lines(tmp_path / "audit.log")] == ["id-0"]


def test_an_unwritable_directory_is_an_error(tmp_path):
    (tmp_path / "logs").write_text("a file")
    with pytest.raises(AuditError, match=r"file exists|not a directory"):
        log(tmp_path).process([entry()])


def test_standard_output(tmp_path, capfdbinary):
    LogFile("-", tmp_path / "lock", json_line).process([entry(7)])
    assert orjson.loads(capfdbinary.readouterr().out)["auditID"] == "id-7"


def test_unread_standard_output_blocks_no_request(tmp_path, monkeypatch):
    """Requests wait for their events, and the loop must not block. A thread may wait."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, b"\n")
    os.set_blocking(writer, True)
    with open(writer, "w") as out, open(reader, "rb") as heard:
        monkeypatch.setattr(sys, "stdout", out)
        log = LogFile("-", tmp_path / "lock", json_line)
        with pytest.raises(AuditError, match=r"^-: logging blocked$"):
            log.process([entry(7)])
        thread = threading.Thread(target=ThreadedLogFile(log)._log.process, args=([entry(8)],))
        thread.start()
        lines = (line for line in heard if line != b"\n")
        assert orjson.loads(next(lines))["auditID"] == "id-8"
        thread.join()
        log.may_block = False
        log.process([entry(9)])
        assert orjson.loads(next(lines))["auditID"] == "id-9"


def test_an_unread_pipe_blocks_no_request(tmp_path):
    os.mkfifo(path := tmp_path / "pipe")
    log = LogFile(str(path), None, json_line)
    with pytest.raises(AuditError, match="no such device or address"):
        log.process([entry(1)])
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as heard:
        log.process([entry(2)])
        with pytest.raises(AuditError, match="logging blocked"):
            for _ in range(10_000):
                log.process([entry(3)])
        assert orjson.loads(heard.readline())["auditID"] == "id-2"
    log.end()


def test_the_legacy_line_of_an_unknown_user():
    unknown = entry(1, user={"groups": ["a"]}, sourceIPs=[], userAgent="", objectRef={"resource": "foo"}, responseStatus=None, verb="")
    assert legacy_line(unknown) == (
        b'2026-01-02T03:04:05Z AUDIT: id="id-1" stage="ResponseComplete" ip="<unknown>" method="" user="<none>" groups="<none>" '
        b'as="<self>" asgroups="<lookup>" user-agent="" namespace="<none>" uri="/api/v1/pods?n=1" response="<deferred>"\n'
    )


def test_the_legacy_line():
    assert legacy_line(entry(1)) == (
        b'2026-01-02T03:04:05Z AUDIT: id="id-1" stage="ResponseComplete" ip="127.0.0.1" method="list" user="jane" '
        b'groups="\\"a\\",\\"b\\"" as="<self>" asgroups="<lookup>" user-agent="t" namespace="ns" uri="/api/v1/pods?n=1" response="200"\n'
    )
    other = legacy_line(entry(1, impersonatedUser={"username": "eve", "groups": ["g"]}, responseStatus=None, objectRef=None, user={}))
    assert b'user="<none>" groups="<none>" as="eve" asgroups="\\"g\\""' in other
    assert b'namespace="<none>"' in other and b'response="<deferred>"' in other
    # As Go's RFC3339Nano, without trailing zeros.
    assert legacy_line(entry(1, requestReceivedTimestamp="2026-01-02T03:04:10.120300Z")).startswith(b"2026-01-02T03:04:10.1203Z AUDIT")


def test_standard_output_is_not_rotated(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert logfile.unusable(logfile.STANDARD_OUTPUT) == "" and list(tmp_path.iterdir()) == []
