"""Space that is allocated behind the data before commits need it."""

from __future__ import annotations

import errno
import logging
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kas.observe._libc import shorten_slice
from kas.observe.process import SLICE_NS
from kas.store import Full, Op, build_record, open_store
from kas.store.lmdb import LMDBStore, committer, preallocation
from kas.store.lmdb.committer import Unit


def put(key: str) -> Op:
    return Op(key, build_record(b"{", b'"d":"%s"}' % (b"x" * 1500)))


def write(store: LMDBStore, first: int, n: int) -> None:
    """Space is allocated by the committing thread, between two commits: before the last of these, whatever the first left."""
    for i in range(first, first + n):
        store.commit_now(put(f"/registry/a/{i}"))


def grow(store: LMDBStore) -> int:
    """Writes until the file is no longer small, and one object more; returns the number of objects."""
    n = 0
    while store._env.end() < preallocation.LEAST:
        write(store, n, 1)
        n += 1
    write(store, n, 1)
    return n + 1


def size(tmp_path: Path) -> int:
    return (tmp_path / "data.mdb").stat().st_size


def test_commits_do_not_extend_the_file(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    try:
        write(store, 0, 20)
        assert size(tmp_path) == store._env.end()
        n = grow(store)
        before, end = size(tmp_path), store._env.end()
        assert before - end >= preallocation.LEAST // 2
        write(store, n, 20)
        assert (size(tmp_path), store._env.end() > end) == (before, True)
        with (tmp_path / "data.mdb").open("rb") as data:
            data.seek(store._env.end())
            assert not data.read().strip(b"\0")
        write(store, n + 20, 400)
        assert size(tmp_path) - store._env.end() >= preallocation.LEAST // 8
        assert store.statistics()["file_bytes"] == store._env.end() < size(tmp_path)
    finally:
        store.close()
    store = open_store(str(tmp_path))
    try:
        assert store.count("/registry/a/") == n + 420
        write(store, n + 420, 2)
        assert store.count("/registry/a/") == n + 422
    finally:
        store.close()


def test_the_size_limit_is_respected(tmp_path: Path) -> None:
    store = open_store(str(tmp_path), max_size=3 << 20)
    try:
        with pytest.raises(Full):
            write(store, 0, 2000)
        assert size(tmp_path) == store.statistics()["limit"] == 3 << 20
    finally:
        store.close()


def test_nothing_is_allocated_on_a_nearly_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preallocation, "LOW_BYTES", 1 << 62)
    store = open_store(str(tmp_path))
    try:
        grow(store)
        assert size(tmp_path) == store._env.end()
    finally:
        store.close()


def test_nothing_is_allocated_where_commits_are_not_synced(tmp_path: Path) -> None:
    store = open_store(str(tmp_path), sync=False)
    try:
        grow(store)
        assert size(tmp_path) == store._env.end()
    finally:
        store.close()


def opened(directory: Path) -> list[str]:
    """Returns the files below the directory that this process has open."""
    return [name for fd in Path("/proc/self/fd").iterdir() if (name := os.path.realpath(fd)).startswith(str(directory.resolve()))]


def test_after_an_error_the_commits_extend_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(preallocation.os, "fdatasync", refuse)
    store = open_store(str(tmp_path))
    with caplog.at_level(logging.WARNING, "kas.store"):
        write(store, grow(store), 300)
    assert store.count("/registry/a/") > 300
    assert [r.message for r in caplog.records] == ["the data file is no longer extended ahead of commits: [Errno 5] Input/output error"]
    assert opened(tmp_path)
    store.close()
    assert opened(tmp_path) == []


@pytest.mark.parametrize("more", [False, True])
def test_the_next_commit_syncs_both_if_it_is_imminent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: bool) -> None:
    synced: list[int] = []
    store = open_store(str(tmp_path))
    try:
        grow(store)
        kept = store._preallocation
        assert kept is not None
        monkeypatch.setattr(preallocation.os, "fdatasync", synced.append)
        store._committer.close()  # it is for one thread
        end = store._env.end()
        os.truncate(tmp_path / "data.mdb", end)
        kept._size = 0
        kept.keep(more)
        assert (size(tmp_path), len(synced)) == (2 * end, 0 if more else 1)
    finally:
        store.close()


def test_the_committer_says_whether_another_commit_is_imminent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[bool] = []
    monkeypatch.setattr(committer, "BATCH_OPS", 1)
    store = open_store(str(tmp_path))
    assert store._preallocation is not None
    monkeypatch.setattr(store._preallocation, "keep", told.append)
    write(store, 0, 1)  # the thread runs
    with store._committer._lock:  # all are queued before the first is committed
        for i in range(3):
            store._committer.submit(Unit([put(f"/registry/b/{i}")], lambda error: None, direct=True))
    store.close()
    assert told[:3] == [False, True, True]


def slice_of(thread: int) -> int:
    """Returns what the kernel shows of a thread's time slice; 0 if it shows nothing."""
    shown = Path(f"/proc/self/task/{thread}/sched")
    lines = shown.read_text().splitlines() if shown.exists() else []
    return next((int(line.split(":")[1]) for line in lines if line.startswith("se.slice")), 0)


def slice_that_was_asked_for() -> int:
    """Returns 0 if the kernel ignores the request, as before Linux 6.12."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(shorten_slice, 3 * SLICE_NS).result()
        return slice_of(pool.submit(threading.get_native_id).result())


def test_the_committing_thread_has_a_short_time_slice(tmp_path: Path) -> None:
    if slice_that_was_asked_for() != 3 * SLICE_NS:
        pytest.skip("this kernel does not shorten slices, or does not show them")
    usual = slice_of(threading.get_native_id())
    store = open_store(str(tmp_path))
    try:
        write(store, 0, 1)
        thread = store._committer._thread.native_id
        assert thread is not None
        assert slice_of(thread) == SLICE_NS < usual == slice_of(threading.get_native_id())
    finally:
        store.close()
