"""What a process gives back, and how long it waits for those it started."""

from __future__ import annotations

import ctypes
import signal
import subprocess
import sys
from typing import Any

import pytest

from kas.observe import _libc, process
from kas.observe.process import GROWN_BYTES, Trimmer, end_child


class Process:
    """One whose memory is what the test says; ``used`` is what of its heaps is in use, 0 where nothing tells."""

    def __init__(self, monkeypatch: Any, used: int) -> None:
        self.resident, self.used, self.trims = 100 << 20, used, 0
        monkeypatch.setattr(process, "_resident_bytes", lambda: self.resident)
        self.trimmer = Trimmer()
        monkeypatch.setattr(self.trimmer, "_trim", self._trim)
        monkeypatch.setattr(self.trimmer, "_used", lambda: self.used)

    def _trim(self) -> None:
        self.trims += 1

    def looked_at(self) -> int:
        """How often it was done, once the allocator had its turn."""
        if self.trimmer.due():
            self.trimmer.trim()
        return self.trims


@pytest.mark.parametrize("used", [0, 50 << 20])
def test_freed_memory_is_given_back_once_there_is_more(monkeypatch: Any, used: int):
    one = Process(monkeypatch, used)
    assert one.looked_at() == 0
    one.resident += GROWN_BYTES
    assert one.looked_at() == one.looked_at() == 1
    one.resident -= 2 * GROWN_BYTES  # what it was at least counts
    assert one.looked_at() == 1
    one.resident += GROWN_BYTES
    assert one.looked_at() == (1 if used else 2)  # below what it began with there is nothing to look for
    one.resident += GROWN_BYTES
    assert one.looked_at() == (2 if used else 3)


def test_what_is_freed_after_that_is_given_back(monkeypatch: Any):
    """Thousands of connections that were open when it was done last: what they leave makes nothing grow."""
    one = Process(monkeypatch, 50 << 20)
    one.resident += 10 * GROWN_BYTES
    one.used += 9 * GROWN_BYTES
    assert one.looked_at() == 1
    one.used -= GROWN_BYTES - 1
    assert one.looked_at() == 1
    one.used -= 1
    assert one.looked_at() == one.looked_at() == 2


def test_where_the_allocator_has_no_such_function_nothing_is_due(monkeypatch: Any):
    one = Trimmer()
    monkeypatch.setattr(one, "_trim", None)
    assert not one.due()
    one.trim()


def test_another_system_is_told_at_the_start(monkeypatch):
    monkeypatch.setattr(process.sys, "platform", "darwin")
    assert process.unfit().startswith("kas runs on Linux: ")


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="glibc 2.33 says what is in use")
def test_what_is_in_use_is_told():
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
def test_all_threads_have_two_heaps(bound: bool):
    told = subprocess.run([sys.executable, "-c", HEAPS, "bound" if bound else ""], capture_output=True, text=True, timeout=60, check=True)
    assert (told.stdout.count("<heap nr=") <= 2) == bound


@pytest.mark.parametrize(("what", "patience_s", "code"), [("sleep 0.05; exit 3", 60, 3), ("sleep 60", 0.01, -signal.SIGKILL)])
def test_a_child_is_waited_for_and_not_for_ever(what: str, patience_s: float, code: int):
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
        end_child(child.pid, patience_s)  # nobody is there any more
    child.returncode = code
    assert ended == [code]
