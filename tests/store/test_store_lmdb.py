"""The LMDB backend beyond the contract: opening, persistence, history policy, shared memory, locks, closing."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kas.store import Busy, Closed, Compacted, Corrupt, Op, StoreError, Unknown, build_record, open_store
from kas.store.lmdb import HistoryPolicy, LMDBStore, committer
from kas.store.shared import Shared

ROOT = str(Path(__file__).parents[2])
BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def put(key: str, size: int = 10, lease_s: int = 0) -> Op:
    return Op(key, build_record(b"{", b'"d":"%s"}' % (b"x" * size), lease_s=lease_s))


@pytest.fixture
def store(tmp_path: Path):
    store = open_store(str(tmp_path / "data"), sync=False)
    yield store
    store.close()


def test_data_survive_reopening(tmp_path: Path) -> None:
    path = str(tmp_path / "deep" / "data")
    store = open_store(path)
    for _ in range(5):
        store.commit_now(put("/registry/a/1"))
    store.compact(2)
    store.close()
    store = open_store(path)
    assert (store.revision, store.compacted_revision, store.hub.revision) == (5, 2, 5)
    assert store.get("/registry/a/1", 3).revision == 3
    store.commit_now(put("/registry/a/1"))
    assert store.revision == 6
    store.close()


def test_a_closed_store_refuses_calls(store: LMDBStore) -> None:
    store.commit_now(put("/registry/a/1"))
    store.close()
    store.close()
    with pytest.raises(StoreError):
        store.get("/registry/a/1")
    with pytest.raises(Closed):
        store.commit_now(put("/registry/a/1"))


def test_unusable_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="data directory"):
        open_store(str(tmp_path / "file" / "data"))


def test_commit_needs_a_loop(store: LMDBStore) -> None:
    with pytest.raises(StoreError, match="start"):
        store.commit(put("/registry/a/1"))
    with pytest.raises(ValueError, match="different keys"):
        store.commit_now(put("/registry/a/1"), put("/registry/a/1"))


def test_cancelled_future_does_not_undo_the_write(store: LMDBStore) -> None:
    async def main() -> None:
        store.start(asyncio.get_running_loop())
        store.commit(put("/registry/a/1")).cancel()
        await store.commit(put("/registry/a/2"))

    asyncio.run(main())
    assert store.get("/registry/a/1").revision == 1


def test_an_unexpected_error_in_a_batch_does_not_stop_later_writes(store: LMDBStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def without_memory(*_: object) -> None:
        raise MemoryError("no room")

    with monkeypatch.context() as m:
        m.setattr(committer, "apply_batch", without_memory)
        with pytest.raises(Unknown, match="may have been made: MemoryError: no room"):
            store.commit_now(put("/registry/a/1"))
    store.commit_now(put("/registry/a/1"))
    assert store.revision == 1


def test_queue_has_a_bound(store: LMDBStore) -> None:
    unit = committer.Unit([put("/registry/a/1")], lambda error: None, direct=True)
    for _ in range(committer.QUEUE_UNITS):
        store._committer.submit(unit)
    with pytest.raises(Busy):
        store._committer.submit(unit)


def test_the_history_policy_keeps_its_window(tmp_path: Path) -> None:
    store = open_store(str(tmp_path), sync=False)
    policy = HistoryPolicy(window_s=450, chunk=3)
    for i in range(10):
        store.commit_now(put("/registry/a/1"))
        store.commit_now(put("/registry/a/2"))
        assert policy.run(store, 1000 + 100 * i) == [0, 0, 0, 0, 0, 2, 4, 6, 8, 10][i]
    assert store.get("/registry/a/1", 10).revision == 9
    with pytest.raises(Compacted):
        store.get("/registry/a/1", 9)
    assert policy.run(store, 1900) == 10
    assert policy.run(store, 2349) == 18
    # Long after the last write the whole history is older than the window.
    assert policy.run(store, 9000) == 20
    assert store.get("/registry/a/1").revision == 19
    store.close()


@pytest.mark.parametrize("jump_s", [10 * 365 * 86400, -10 * 365 * 86400])
def test_history_survives_a_changed_clock(tmp_path: Path, jump_s: float) -> None:
    """Also if the clock changed while no server ran."""
    store = open_store(str(tmp_path), sync=False)
    for now in range(0, 60, 10):
        store._committer._clock = lambda now=now: 2e9 + now  # type: ignore[misc]
        store.commit_now(put("/registry/a/1"))
        store.maintain(now, window_s=300)
    store.close()
    store = open_store(str(tmp_path), sync=False)
    store._committer._clock = lambda: 2e9 + 60 + jump_s
    store.commit_now(put("/registry/a/1"))
    for now in range(60, 361, 10):
        assert store.maintain(now, window_s=300) == (7 if now == 360 else 0)
        store.commit_now(put("/registry/a/1"))
    store.close()


def test_memory_of_the_history_policy_is_bounded(store: LMDBStore) -> None:
    policy = HistoryPolicy(window_s=86400)
    for now in range(0, 200_000, 5):
        policy.target(store, now)
    assert len(policy._seen) <= 62


def test_history_policy_bounds_the_size(store: LMDBStore) -> None:
    for _ in range(100):
        store.commit_now(put("/registry/a/1", 20_000))
    policy = HistoryPolicy(max_bytes=500_000)
    for _ in range(5):
        policy.run(store, 0)
    statistics = store.statistics()
    assert statistics["log_bytes"] <= 500_000
    assert statistics["log_entries"] > 5


def test_expiry_spares_renewed_keys(store: LMDBStore) -> None:
    store.commit_now(put("/registry/events/" + "n" * 500, lease_s=5))
    now = store.range("/registry/").records[0].lease_expiry
    store.commit_now(put("/registry/events/" + "n" * 500, lease_s=50))
    assert store.expire(now) == 0
    assert store.expire(now + 100) == 1
    store.close()


@pytest.mark.parametrize("years", [10, -10])
def test_leases_do_not_depend_on_the_clock_being_set(store: LMDBStore, monkeypatch: pytest.MonkeyPatch, years: int) -> None:
    """Neither existing ones nor those granted afterwards."""
    store.commit_now(put("/registry/events/before", lease_s=3600))
    monkeypatch.setattr(time, "time", lambda real=time.time: real() + years * 31_556_952)  # type: ignore[misc]
    store.commit_now(put("/registry/events/after", lease_s=3600))
    assert store.expire() == 0
    after, before = store.range("/registry/events/").records
    assert 0 <= after.lease_expiry - before.lease_expiry < 3600
    monkeypatch.setattr(time, "clock_gettime", lambda clock, real=time.clock_gettime: real(clock) + 7200)
    assert store.expire() == 2


def test_the_lease_clock_belongs_to_the_server_and_not_to_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Like the time of day, it continues while the machine sleeps."""
    shared = Shared.create(2)
    monkeypatch.setattr(time, "clock_gettime", {BOOT_CLOCK: 1000.0}.__getitem__)
    at = shared.lease_clock()
    monkeypatch.setattr(time, "time", lambda: 0.0)
    replaced = Shared.attach(shared.spec, 1)
    assert replaced.lease_clock() == at
    monkeypatch.setattr(time, "clock_gettime", {BOOT_CLOCK: 1060.0}.__getitem__)
    assert replaced.lease_clock() == at + 60
    shared.close()


def test_a_worker_opens_the_store_while_another_still_records_its_files(tmp_path: Path) -> None:
    """Workers open it at the same time at the start; the numbers are stored one after the other."""
    shared = Shared.create(2)
    open_store(str(tmp_path), sync=False, shared=Shared.attach(shared.spec, 0)).close()
    found = shared.files
    assert all(found)
    for n in range(len(found)):
        shared.files = (*found[:n], *[0] * (len(found) - n))
        open_store(str(tmp_path), sync=False, shared=Shared.attach(shared.spec, 1)).close()
        assert shared.files == found
    shared.files = (*found[:3], found[3] + 1)
    with pytest.raises(Corrupt, match="was removed or replaced while the server used it"):
        open_store(str(tmp_path), sync=False, shared=Shared.attach(shared.spec, 1))
    shared.close()


def test_loaded_objects_expire_with_their_lease_however_often_they_are_loaded(store: LMDBStore) -> None:
    for lease_s in (50, 90):
        store.load([put("/registry/a/1", lease_s=lease_s), put("/registry/a/2")], [(7, 3, 2), (5, 5, 1)])
    store.loaded(9)
    record = store.get("/registry/a/1")
    assert (record.revision, record.create_revision, record.version) == (7, 3, 2)
    assert store.leased() == [("/registry/a/1", 7)]
    assert store.expire(record.lease_expiry - 1) == 0 and store.expire(record.lease_expiry) == 1
    assert (store.get("/registry/a/1"), store.count("/registry/a/"), store.leased()) == (None, 1, [])


def test_shared_counters_and_wake_ups() -> None:
    shared = Shared.create(3)
    one, two = Shared.attach(shared.spec, 1), Shared.attach(shared.spec, 2)
    assert one.memory.enter(True) == 1
    assert two.memory.enter(True) == 2
    assert two.memory.enter(False) == 1
    one.memory.leave(True)
    assert shared.memory.in_flight(True) == 1
    one.publish(7)
    one.memory.publish(3)
    assert (two.revision, shared.revision) == (7, 7)
    one.missed, two.refused_at = 9, 1.5
    assert (two.missed, shared.missed, one.refused_at) == (9, 9, 1.5)
    import select

    assert set(select.select([shared.wake_fd, one.wake_fd, two.wake_fd], [], [], 0)[0]) == {shared.wake_fd, two.wake_fd}
    two.drain()
    two.drain()
    assert two.wake_fd not in select.select([two.wake_fd], [], [], 0)[0]
    shared.memory.reap(2)
    assert shared.memory.in_flight(True) == 0
    shared.close()


def test_the_store_opens_and_imports_fast(tmp_path: Path) -> None:
    """It imports no event loop library, no codec and nothing else that is heavy."""
    code = "import sys, kas.store.lmdb; print(sorted(m for m in ('uvloop', 'orjson', 'granian', 'msgspec', 'cffi') if m in sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert out.stdout.strip() == "[]"
