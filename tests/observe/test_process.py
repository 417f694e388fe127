"""Memory that a process returns to the system, and how long it waits for its children."""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import signal
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kas.observe import _libc, process, processmetrics
from kas.observe.metrics import Registry
from kas.observe.process import GROWN_BYTES, LOOKED_AT, OLD_TURNS, STEP_BYTES, Cycles, Trimmer, end_child
from kas.observe.processmetrics import ProcessMetrics, octets


class Process:
    """A process whose memory is set by the test; ``used`` is the part of its heaps in use, 0 where that is unknown."""

    def __init__(self, monkeypatch: Any, used: int) -> None:
        self.resident, self.used, self.trims = 100 << 20, used, 0
        monkeypatch.setattr(process, "_resident_bytes", lambda: self.resident)
        monkeypatch.setattr(_libc, "used_bytes", lambda: self.used)
        self.trimmer = Trimmer()
        monkeypatch.setattr(self.trimmer, "_trim", self._trim)

    def _trim(self) -> None:
        self.trims += 1

    def trim_if_due(self) -> int:
        """How often memory was returned, after the allocator had run."""
        if self.trimmer.due():
            self.trimmer.trim()
        return self.trims


@pytest.mark.parametrize("used", [0, 50 << 20])
def test_freed_memory_is_returned_when_there_is_more_of_it(monkeypatch: Any, used: int):
    one = Process(monkeypatch, used)
    assert one.trim_if_due() == 0
    one.resident += GROWN_BYTES
    assert one.trim_if_due() == one.trim_if_due() == 1
    one.resident -= 2 * GROWN_BYTES  # the least value so far counts
    assert one.trim_if_due() == 1
    one.resident += GROWN_BYTES
    assert one.trim_if_due() == (1 if used else 2)  # below the initial value there is nothing to return
    one.resident += GROWN_BYTES
    assert one.trim_if_due() == (2 if used else 3)


def test_memory_freed_later_is_returned(monkeypatch: Any):
    """Thousands of connections that were open at the last return leave memory behind without any growth."""
    one = Process(monkeypatch, 50 << 20)
    one.resident += 10 * GROWN_BYTES
    one.used += 9 * GROWN_BYTES
    assert one.trim_if_due() == 1
    one.used -= GROWN_BYTES - 1
    assert one.trim_if_due() == 1
    one.used -= 1
    assert one.trim_if_due() == one.trim_if_due() == 2


def test_much_freed_memory_is_returned_in_parts(monkeypatch: Any):
    """Returning 300 MB at once held the heap's lock for 40 to 110 ms, and the loop waited for it."""
    one, given = Process(monkeypatch, 50 << 20), []
    monkeypatch.setattr(process, "LOOKED_AGAIN", 0)

    def trim() -> None:
        given.append(one.resident - one.used - (50 << 20))
        one.resident -= given[-1]

    monkeypatch.setattr(one.trimmer, "_trim", trim)

    def goes_on(by: int, resident: int = 0) -> None:
        for _ in range(60):
            one.used, one.resident = one.used + by, one.resident + resident
            if one.trimmer.due_soon():
                one.trimmer.trim_soon()

    goes_on(5 << 20, 5 << 20)
    assert not given  # all of it is in use
    goes_on(-5 << 20)
    assert len(given) == 6 and max(given) < STEP_BYTES + (5 << 20)
    goes_on(1 << 20)  # used again
    goes_on(-1 << 20)
    assert len(given) == 6


def test_much_free_memory_is_not_measured_all_the_time(monkeypatch: Any):
    """Measuring the memory in use walks through the free memory."""
    one, now = Process(monkeypatch, 50 << 20), 0.0
    monkeypatch.setattr(process.time, "monotonic", lambda: now)
    monkeypatch.setattr(process.time, "thread_time", iter((1.0, 1.25)).__next__)
    assert not one.trimmer.due_soon()
    one.resident += STEP_BYTES
    assert one.trimmer.due_soon()
    one.trimmer.trim_soon()
    now = 0.25 * process.LOOKED_AGAIN - 0.1
    assert not one.trimmer.due_soon()
    now += 0.2
    assert one.trimmer.due_soon()


def test_nothing_is_due_where_the_allocator_lacks_the_function(monkeypatch: Any):
    one = Trimmer()
    monkeypatch.setattr(one, "_trim", None)
    assert not one.due() and not one.due_soon()
    one.trim()


def test_another_operating_system_is_reported_at_the_start(monkeypatch):
    monkeypatch.setattr(process.sys, "platform", "darwin")
    assert process.unfit().startswith("kas runs on Linux: ")


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="glibc 2.33 says what is in use")
def test_memory_in_use_is_reported():
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
    used = _libc.used_bytes
    before, held = used(), [libc.malloc(50_000) for _ in range(100)]
    assert used() >= before + 4_000_000
    for one in held:
        libc.free(one)
    assert used() < before + 1_000_000


HEAPS = """
import ctypes, sys, threading
from kas.observe.process import bound_heaps

if sys.argv[1] == "bound":
    bound_heaps()
kept = []

def work():
    kept.append([bytes(2000) for _ in range(100)])
    together.wait()

together = threading.Barrier(8)
threads = [threading.Thread(target=work) for _ in range(8)]
for t in threads:
    t.start()
for t in threads:
    t.join()
libc = ctypes.CDLL(None)
libc.fdopen.restype = ctypes.c_void_p
out = ctypes.c_void_p(libc.fdopen(1, b"w"))
libc.malloc_info(0, out)
libc.fflush(out)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_info"), reason="another allocator")
@pytest.mark.parametrize("bound", [False, True])
def test_all_threads_share_two_heaps(bound: bool):
    told = subprocess.run([sys.executable, "-c", HEAPS, "bound" if bound else ""], capture_output=True, text=True, timeout=60, check=True)
    assert (told.stdout.count("<heap nr=") <= 2) == bound


@pytest.mark.parametrize(("what", "patience_s", "code"), [("sleep 0.05; exit 3", 60, 3), ("sleep 60", 0.01, -signal.SIGKILL)])
def test_a_child_is_waited_for_with_a_timeout(what: str, patience_s: float, code: int):
    child = subprocess.Popen(["sh", "-c", f"exec 2>&-; {what}"])
    ended: list[int] = []
    real = process.os.waitpid

    def waitpid(pid: int, options: int) -> tuple[int, int]:
        found = real(pid, options)
        if found[0]:
            ended.append(process.os.waitstatus_to_exitcode(found[1]))
        return found

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(process.os, "waitpid", waitpid)
        end_child(child.pid, patience_s)
        end_child(child.pid, patience_s)  # the child has ended
    child.returncode = code
    assert ended == [code]


class Looked:
    """The number of objects that the collector visits at once, with the settings of a worker; the largest is ``most``."""

    def __init__(self) -> None:
        self.most = 0

    def __enter__(self) -> Looked:
        self._before, self._was_on = gc.get_threshold(), gc.isenabled()
        gc.enable()
        gc.freeze()  # without objects that tests have created so far
        gc.set_threshold(*LOOKED_AT)
        gc.callbacks.append(self._told)
        return self

    def __exit__(self, *_: object) -> None:
        gc.callbacks.remove(self._told)
        gc.set_threshold(*self._before)
        if not self._was_on:
            gc.disable()
        gc.unfreeze()

    def _told(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self.most = max(self.most, sum(len(gc.get_objects(i)) for i in range(info["generation"] + 1)))


def test_the_collector_works_in_small_steps_whatever_is_created() -> None:
    """A million objects, as 300 webhooks with 64 conditions each have after compilation, were visited at once: 90 ms on a quiet machine,
    370 on a loaded one, in which no other thread had the interpreter's lock."""
    with Looked() as looked:
        kept = [[i] for i in range(600_000)]
    assert len(kept) == 600_000 and 0 < looked.most <= 2 * (LOOKED_AT[1] + 2) * LOOKED_AT[0]


def test_the_collector_works_in_small_steps_when_old_objects_are_replaced() -> None:
    """The interpreter counts the growth of the number of objects, which may be zero."""
    with Looked() as looked:
        old, cycles = [[i] for i in range(300_000)], Cycles()
        looked.most = 0
        for i in range(300_000):
            old[i] = [i]
            if i % LOOKED_AT[0] == 0:
                cycles.look()  # the loop's timer
    assert 0 < looked.most <= 2 * (LOOKED_AT[1] + 2) * LOOKED_AT[0]


class Old(list):  # type: ignore[type-arg]
    """An object that can have weak references."""


@pytest.mark.parametrize("beside", [0, 300_000])
def test_old_objects_that_become_a_cycle_are_freed(beside: int) -> None:
    """As after watches of some minutes, with much memory that stays or none: at most as much garbage is left as there are objects."""
    with Looked():
        cycles, kept = Cycles(lambda: 0.0), [[i] for i in range(beside)]  # as in a process with little to do
        for _ in range(2 * OLD_TURNS - 1):
            cycles.look()  # the kept objects are old, and known
        held = [Old([i]) for i in range(beside + 1000)]
        left = [weakref.ref(one) for one in held[::1000]]
        for one in held:
            one.append(one)
        gc.collect(1)  # they are old now
        del held, one
        gc.collect(1)
        assert all(ref() is not None for ref in left)  # no collection of young objects finds them
        for _ in range(OLD_TURNS):
            cycles.look()
        assert len(kept) == beside and not any(ref() is not None for ref in left)


@pytest.mark.parametrize("blocks", [0, process.OLD_BLOCKS + 1])
def test_a_collection_of_very_many_objects_waits_for_an_idle_minute(monkeypatch: pytest.MonkeyPatch, blocks: int) -> None:
    """It is due when there are twice as many objects as before, and a million: it blocked the loop for 120 to 240 ms, and 1.9 s with more
    objects."""
    used, counted = [0.0], []
    monkeypatch.setattr(process.sys, "getallocatedblocks", lambda: counted.append(1) or blocks)
    with Looked() as looked:
        cycles = Cycles(lambda: used[0])
        held = [Old([i]) for i in range(process.OLD_MOST + 1)]
        left = [weakref.ref(one) for one in held[::1000]]
        for one in held:
            one.append(one)
        gc.collect(1)
        del held, one
        gc.collect(1)
        looked.most = 0
        for busy in (True, True, False):
            assert all(ref() is not None for ref in left) and looked.most < process.OLD_OBJECTS
            used[0] += 2 * process.IDLE_S if busy else process.IDLE_S
            for _ in range(OLD_TURNS):
                cycles.look()
        assert not any(ref() is not None for ref in left) and len(counted) == 2


def test_network_bytes_are_those_the_kernel_counts():
    told = "TcpExt: SyncookiesSent InOctets\nTcpExt: 0 1\nIpExt: InNoRoutes InOctets OutOctets\nIpExt: 0 4711 815\n"
    assert octets(told) == (4711, 815)
    assert octets("TcpExt: SyncookiesSent\nTcpExt: 0\n") is None is octets("IpExt: InNoRoutes\nIpExt: 0\n")


def test_values_that_all_workers_share_are_reported_once(monkeypatch: Any):
    """Bytes of a network namespace, and the limit of a process' memory; the other values of the workers are summed."""
    monkeypatch.setattr(processmetrics.resource, "getrlimit", lambda of: (resource.RLIM_INFINITY if of == resource.RLIMIT_AS else 64, 64))
    one, other = Registry(), Registry()
    for registry in (one, other):
        ProcessMetrics(registry)
    told = {f.name: f.samples[0].value for f in text_string_to_metric_families(one.expose([other.dump()]).decode())}
    with open(processmetrics.NETWORK) as f:
        now = octets(f.read())
    assert now is not None
    assert 0 <= told["process_network_receive_bytes"] <= now[0] and 0 <= told["process_network_transmit_bytes"] <= now[1]
    assert told["process_virtual_memory_max_bytes"] == 1 << 64 and told["process_max_fds"] == 128


def test_too_low_process_limits_are_reported(tmp_path: Path, monkeypatch: Any):
    """Those of the user, which other processes use too, and of the control group; one worker needs 32."""
    (tmp_path / "self").mkdir()
    cgroup, group = tmp_path / "self" / "cgroup", tmp_path / "groups" / "a" / "b"
    cgroup.write_text("1:name=x:/\n0::/a/b\n")
    (tmp_path / "77" / "task" / "77").mkdir(parents=True)
    (tmp_path / "77" / "task" / "78").mkdir()
    monkeypatch.setattr(os, "getuid", lambda: uid)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, -1))

    def left(workers: int = 1) -> int | None:
        said = process.too_few_tasks(workers, tmp_path, tmp_path / "groups")
        assert not said or said.endswith(f" {workers} workers want {16 + 16 * workers} at least: fewer --workers, or {process.MORE_TASKS}")
        return int(said.partition(" ")[0]) if said else None

    uid, limit = os.stat(tmp_path).st_uid, 33
    if uid == 0:  # its own limit does not bind root
        assert left() is None
        uid = 1234
        for path in (tmp_path / "77", tmp_path / "self"):
            os.chown(path, uid, -1)
    assert left() == 31
    limit = 34
    assert left() is None and left(2) == 32
    limit = -1
    assert left(64) is None
    group.mkdir(parents=True)
    (group / "pids.current").write_text("10\n")
    for most, found in (("max", None), ("42", None), ("41", 31), ("5", 0)):
        (group / "pids.max").write_text(f"{most}\n")
        assert left() == found


def test_an_ended_process_is_not_alive(monkeypatch: Any):
    assert process.lives(os.getpid())
    with subprocess.Popen(["sleep", "100"]) as child:
        assert process.lives(child.pid)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert not process.lives(child.pid)  # its exit status has not been read yet
    assert not process.lives(child.pid)
    monkeypatch.setattr(os, "kill", lambda pid, signal: None)  # it existed when it was checked, and has ended since
    assert not process.lives(child.pid)
