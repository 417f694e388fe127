"""A full map, a full disk: writes are refused completely, reads and deletes continue, and freed space is used."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from kas.config.options import Options, complete
from kas.store import Full, Op, StoreError, build_record, open_store
from kas.store.lmdb import LMDBStore
from kas.store.lmdb.ballast import Ballast
from kas.store.shared import NO_FILES, Shared
from kas.worker import failure
from tests import prerequisites


def put(key: str, size: int = 20_000, expected: int | None = None) -> Op:
    return Op(key, build_record(b'{"metadata":{', b'"x":1},"d":"%s"}' % (b"x" * size)), expected)


def fill(store: LMDBStore, limit: int = 2000) -> int:
    for i in range(limit):
        try:
            store.commit_now(put(f"/registry/fill/{i:05d}", expected=0))
        except Full:
            return i
    raise AssertionError("it never became full")


def check_full(store: LMDBStore, count: int) -> None:
    """The store is full after ``count`` records: no record is incomplete, reads work, deletes free space."""
    revision = store.revision
    assert revision == count
    assert store.count("/registry/fill/") == count
    assert store.get(f"/registry/fill/{count:05d}") is None
    assert store.get("/registry/fill/00000").revision == 1
    events, reached = store.events("/registry/", 0, count + 1)
    assert (len(events), reached) == (count, revision)
    for i in range(count // 2):
        store.commit_now(Op(f"/registry/fill/{i:05d}", None))
    assert store.revision == revision + count // 2
    while not store.compact(store.revision, 100):
        pass
    for i in range(count // 4):
        store.commit_now(put(f"/registry/again/{i:05d}", expected=0))
    assert store.count("/registry/again/") == count // 4


def test_full_map(tmp_path: Path) -> None:
    store = open_store(str(tmp_path), max_size=4 << 20, sync=False)
    try:
        count = fill(store)
        assert count > 100
        check_full(store, count)
        assert store.statistics()["file_bytes"] <= (4 << 20) + (2 << 20)
    finally:
        store.close()


def test_a_full_map_refuses_writes_until_there_is_space(tmp_path: Path) -> None:
    store = open_store(str(tmp_path), max_size=4 << 20, sync=False)
    try:
        fill(store)
        # The delete itself may use the reserve above the limit; creates may not.
        store.commit_now(Op("/registry/fill/00000", None))
        for i in range(3):
            with pytest.raises(Full):
                store.commit_now(put(f"/registry/more/{i}", 400_000))
    finally:
        store.close()


def test_one_write_too_large_for_the_map_leaves_the_store_usable(tmp_path: Path) -> None:
    store = open_store(str(tmp_path), max_size=2 << 20, sync=False)
    try:
        with pytest.raises(Full):
            store.commit_now(put("/registry/a/huge", 4 << 20))
        store.commit_now(put("/registry/a/small", 100))
        assert store.revision == 1
    finally:
        store.close()


def test_all_workers_know_that_the_store_is_full(tmp_path: Path) -> None:
    """Whichever worker is asked, and whichever finds space again."""
    shared = Shared.create(2)
    one = open_store(str(tmp_path / "one"), max_size=2 << 20, sync=False, shared=shared)
    shared.files = NO_FILES  # a process opens a path once, so here the workers have different ones
    other = open_store(str(tmp_path / "other"), sync=False, shared=Shared.attach(shared.spec, 1))
    try:
        assert other.full() == ""
        with pytest.raises(Full):
            one.commit_now(put("/registry/a/huge", 4 << 20))
        assert one.full() == other.full() == "database space exceeded"
        other.commit_now(put("/registry/a/small", 100))
        assert one.full() == other.full() == ""
    finally:
        one.close()
        other.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB, if the system allows mounting one."""
    libc = ctypes.CDLL(None, use_errno=True)
    where = tmp_path / "disk"
    where.mkdir()
    if libc.mount(b"tmpfs", str(where).encode(), b"tmpfs", 0, b"size=4m") != 0:
        prerequisites.give_up(f"cannot mount a small disk: {os.strerror(ctypes.get_errno())}")
    yield where
    libc.umount(str(where).encode())


def test_full_disk(small_disk: Path) -> None:
    store = open_store(str(small_disk / "data"), max_size=1 << 30)
    try:
        count = fill(store)
        assert count > 50
        assert store.count("/registry/fill/") == count
        assert store.get("/registry/fill/00000").revision == 1
        # When the disk has space again, the store has, too.
        ctypes.CDLL(None).mount(b"tmpfs", str(small_disk).encode(), b"tmpfs", 32, b"size=16m")
        store.commit_now(put("/registry/after/1"))
        assert store.revision == count + 1
    finally:
        store.close()


def grow(disk: Path, size: bytes) -> None:
    assert ctypes.CDLL(None).mount(b"tmpfs", str(disk).encode(), b"tmpfs", 32, b"size=" + size) == 0


def test_deletes_succeed_when_the_disk_is_full(small_disk: Path) -> None:
    grow(small_disk, b"12m")
    store = open_store(str(small_disk / "data"), max_size=1 << 30)
    other = open_store(str(small_disk / "data2"), max_size=1 << 30)  # another program fills it up
    try:
        count = fill(store)
        fill(other)
        assert store.full() == "database space exceeded"
        for i in range(count):
            store.commit_now(Op(f"/registry/fill/{i:05d}", None))
        assert store.count("/registry/fill/") == 0
        for i in range(count // 4):  # in the space that was freed inside the file
            store.commit_now(put(f"/registry/again/{i:05d}", expected=0))
        assert store.full() == ""
    finally:
        store.close()
        other.close()


def test_a_closed_ballast_touches_no_file_that_reuses_its_descriptor(tmp_path: Path) -> None:
    ballast = Ballast(str(tmp_path))
    ballast.give_up()
    assert ballast.given_up
    ballast.close()
    others = [os.open(tmp_path / f"other{i}", os.O_RDWR | os.O_CREAT) for i in range(16)]  # a file with the same descriptor number
    ballast.give_up()
    ballast.keep()
    ballast.close()
    assert [os.fstat(fd).st_size for fd in others] == [0] * 16
    for fd in others:
        os.close(fd)


def test_creates_leave_space_for_deletes(small_disk: Path) -> None:
    """Until the disk has space again: then the reserve is allocated again."""
    grow(small_disk, b"12m")
    store = open_store(str(small_disk / "data"), max_size=1 << 30)
    try:
        count = fill(store)
        for i in range(count // 2):
            store.commit_now(Op(f"/registry/fill/{i:05d}", None))
            with contextlib.suppress(Full):
                while True:
                    store.commit_now(put("/registry/same", 400_000))
                    store.commit_now(put(f"/registry/more/{store.revision}"))
        assert (small_disk / "data" / "ballast").stat().st_size == 1
        store.maintain(0.0)
        assert (small_disk / "data" / "ballast").stat().st_size == 1, "there is no room for it"
        grow(small_disk, b"32m")
        store.maintain(0.0)
        assert (small_disk / "data" / "ballast").stat().st_size == 2 << 20
        store.commit_now(put("/registry/after", 400_000))
    finally:
        store.close()


def test_a_disk_that_is_full_from_the_start_allows_only_deletes(small_disk: Path) -> None:
    grow(small_disk, b"12m")
    store = open_store(str(small_disk / "data"), max_size=1 << 30)
    store.commit_now(put("/registry/a"))
    store.close()
    (small_disk / "data" / "ballast").unlink()
    with contextlib.suppress(OSError), (small_disk / "filled").open("wb", buffering=0) as f:
        while True:
            f.write(b"x" * 4096)
    store = open_store(str(small_disk / "data"), max_size=1 << 30)
    try:
        assert store.full() == "database space exceeded" and store.get("/registry/a") is not None
        with pytest.raises(Full):
            store.commit_now(put("/registry/b", 100))
        (small_disk / "filled").unlink()
        store.maintain(0.0)
        store.commit_now(put("/registry/b", 100))
        assert store.full() == ""
    finally:
        store.close()


def test_the_committed_record_without_space_causes_no_bus_error(small_disk: Path) -> None:
    data = small_disk / "data"
    open_store(str(data), max_size=1 << 30).close()
    os.truncate(data / "committed", 0)
    os.truncate(data / "committed", 16)  # as long as before, with nothing of it on the disk
    with contextlib.suppress(OSError), (small_disk / "filled").open("wb", buffering=0) as f:
        while True:
            f.write(b"x" * 4096)
    with pytest.raises(StoreError, match="No space left on device"):
        open_store(str(data), max_size=1 << 30)


def test_file_size_limit(tmp_path: Path) -> None:
    """A limit on the file's size (ulimit -f) has the same effect as a full disk."""
    store = open_store(str(tmp_path), max_size=1 << 30, sync=False)
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2 << 20, old[1]))
    try:
        count = fill(store)
        assert store.count("/registry/fill/") == count == store.revision
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
        store.commit_now(put("/registry/after/1"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
        signal.signal(signal.SIGXFSZ, handler)
        store.close()


def test_deleting_everything_frees_space(tmp_path: Path) -> None:
    """Deletes leave the objects in the history, which is dropped when a write finds no space."""
    store = open_store(str(tmp_path), max_size=4 << 20, sync=False)
    try:
        for turn in range(3):
            count = fill(store)
            assert count > 100, turn
            assert store.full() == "database space exceeded"
            for i in range(count):
                store.commit_now(Op(f"/registry/fill/{i:05d}", None))
            assert store.count("/registry/fill/") == 0
        store.commit_now(put("/registry/after/1", expected=0))
        assert store.compacted_revision > 0
        assert store.full() == ""
    finally:
        store.close()


def test_updates_do_not_fill_the_map(tmp_path: Path) -> None:
    """The history of few objects is dropped for their next states, however often they are written."""
    store = open_store(str(tmp_path), max_size=4 << 20, sync=False)
    try:
        for i in range(1000):
            store.commit_now(put(f"/registry/same/{i % 10}"))
        assert store.revision == 1000
        assert store.full() == ""
        assert store.statistics()["file_bytes"] <= (4 << 20) + (2 << 20)
    finally:
        store.close()


def test_history_is_kept_if_dropping_it_would_not_help(tmp_path: Path) -> None:
    store = open_store(str(tmp_path), max_size=4 << 20, sync=False)
    try:
        fill(store)
        assert store.compacted_revision == 0
    finally:
        store.close()


@pytest.mark.parametrize(("backend", "told"), [("lmdb", "--data-dir: /there: writing: no space"), ("etcd3", "writing: no space")])
def test_a_disk_that_is_full_at_the_start_is_reported(backend, told):
    options = SimpleNamespace(raw=SimpleNamespace(storage_backend=backend), data_dir=Path("/there"))
    assert failure(options, Full("writing: no space")) == told
    assert failure(options, ValueError("something else")) == "something else"


def test_a_file_that_a_worker_may_not_open_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "store" / "committed"
    path.mkdir(parents=True)
    with pytest.raises(OSError) as e:
        open_store(str(path.parent), max_size=1 << 20, sync=False)
    assert failure(SimpleNamespace(raw=SimpleNamespace(storage_backend="lmdb")), e.value) == f"{path}: Is a directory"


def test_starting_with_a_too_small_store_names_the_flag(tmp_path: Path) -> None:
    options = complete(Options({"data-dir": str(tmp_path), "store-max-size": 1 << 16}))
    store = open_store(str(tmp_path / "store"), max_size=1 << 16, sync=False)
    try:
        with pytest.raises(Full) as e:
            store.commit_now(put("/registry/a", 1 << 17))
    finally:
        store.close()
    assert failure(options, e.value).startswith(f"--store-max-size: the store in {tmp_path} needs more than 65536 bytes: ")
