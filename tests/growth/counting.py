"""Measures the work of this process: instructions where the machine counts them, else CPU time.

Instructions are those in user space, of all threads (Linux's ``perf_event_open``; virtual machines mostly have no such counters, and
``kernel.perf_event_paranoid`` above 2 forbids them). They are converted to seconds, ``PER_SECOND`` of them to one, so that the limits are
the same for both. They hardly vary between runs, whatever else the machine does.

CPU time varies with what else runs. A test that fails by CPU time therefore runs once more, alone, under valgrind's callgrind
(``confirmed``), which counts instructions on any machine, about fifty times slower.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PER_SECOND = 2_000_000_000
HARDWARE, INSTRUCTIONS = 0, 1
SOFTWARE, TASK_CLOCK = 1, 1
_SIZE = 112  # of perf_event_attr (PERF_ATTR_SIZE_VER5)
_INHERIT, _NO_KERNEL, _NO_HYPERVISOR = 1 << 1, 1 << 5, 1 << 6
_NUMBERS = {"x86_64": 298, "aarch64": 241}  # of the call
# The directory of ``Callgrind``, in a process that runs under it; and the families of a test that are measured there.
UNDER_CALLGRIND, ONLY = os.environ.get("KAS_GROWTH_CALLGRIND"), os.environ.get("KAS_GROWTH_ONLY", "")
REQUESTS = """
#include <valgrind/callgrind.h>
void begin(void) { CALLGRIND_START_INSTRUMENTATION; CALLGRIND_ZERO_STATS; }
void end(void) { CALLGRIND_DUMP_STATS; CALLGRIND_STOP_INSTRUMENTATION; }
"""
LONGEST_S = 1200
CONFIRMED_S = LONGEST_S + 300  # the longest that a test waits for it


def _open(kind: int, config: int, tid: int) -> int:
    """A counter of a thread and of the threads that it starts. Raises OSError."""
    number = _NUMBERS.get(platform.machine())
    if number is None or sys.platform != "linux":
        raise OSError("no perf_event_open here")
    flags = _INHERIT | _NO_KERNEL | _NO_HYPERVISOR
    attr = struct.pack("IIQQQQQ", kind, _SIZE, config, 0, 0, 0, flags).ljust(_SIZE, b"\0")
    libc = ctypes.CDLL(None, use_errno=True)
    fd: int = libc.syscall(number, ctypes.create_string_buffer(attr, _SIZE), tid, -1, -1, 8)  # closed on exec
    if fd < 0:
        raise OSError(ctypes.get_errno(), "perf_event_open")
    return fd


class Events:
    """Counts one kind of event in every thread of this process, from now on. Raises OSError where they cannot be counted."""

    def __init__(self, kind: int = HARDWARE, config: int = INSTRUCTIONS) -> None:
        self._fds: list[int] = []
        try:
            for tid in map(int, os.listdir("/proc/self/task")):
                self._fds.append(_open(kind, config, tid))
        except OSError:
            self.close()
            raise

    def count(self) -> int:
        """The number of events so far."""
        return sum(int(struct.unpack("Q", os.read(fd, 8))[0]) for fd in self._fds)

    def close(self) -> None:
        """Stops counting."""
        for fd in self._fds:
            os.close(fd)
        self._fds = []


class Callgrind:
    """Counts instructions of this process from now on, by the callgrind that it runs under."""

    def __init__(self) -> None:
        self._directory = Path(UNDER_CALLGRIND or "")
        self._library = ctypes.CDLL(str(self._directory / "requests.so"))
        self._library.begin()

    def count(self) -> int:
        """The number of instructions; stops counting."""
        self._library.end()
        dumped = max(self._directory.glob("out.*"), key=lambda path: int(path.suffix[1:]))
        total = re.search(r"^totals: (\d+)", dumped.read_text(), re.M)
        dumped.unlink()
        assert total is not None
        return int(total[1])

    def close(self) -> None:
        pass


def confirmed(test: str, fault: str, only: str = "") -> str:
    """Returns ``fault``, found by CPU time, if counting instructions finds a fault too, else "".

    ``test`` is the test's pytest id, ``only`` the one of its families to measure. If instructions were counted in the first place, or
    there is no valgrind, returns ``fault``.
    """
    if not fault or COUNTED or not shutil.which("valgrind"):
        return fault
    run = ["-m", "pytest", "-q", "--tb=short", "-n0", "-o", "timeout=0", test]
    try:
        done = under_callgrind(run, {"KAS_GROWTH_ONLY": only})
    except subprocess.TimeoutExpired:
        return f"{fault} (not counted within {LONGEST_S} s)"
    if done.returncode == 0:
        return ""
    said = [line for line in done.stdout.splitlines() if line.startswith("E ")] or [done.stdout[-4000:], done.stderr[-1000:]]
    return "\n".join([fault, "counted in instructions:", *said])


def under_callgrind(args: list[str], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Runs this interpreter with these arguments under callgrind, where ``Spent`` counts instructions. Raises TimeoutExpired after
    ``LONGEST_S``."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "COV_"))}
    with tempfile.TemporaryDirectory() as directory:
        library = [*os.environ.get("CC", "cc").split(), "-shared", "-fPIC", "-x", "c", "-", "-o", f"{directory}/requests.so"]
        subprocess.run(library, input=REQUESTS, text=True, check=True)
        return subprocess.run(
            ["valgrind", "-q", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={directory}/out", sys.executable, *args],
            cwd=Path(__file__).resolve().parents[2], env={**inherited, "KAS_GROWTH_CALLGRIND": directory, "PYTHONHASHSEED": "0", **env},
            capture_output=True, text=True, timeout=LONGEST_S, check=False,
        )  # fmt: skip


def available() -> bool:
    """Whether instructions can be counted here."""
    if UNDER_CALLGRIND:
        return True
    with contextlib.suppress(OSError):
        events = Events()
        try:
            sum(range(1000))
            return events.count() > 0
        finally:
            events.close()
    return False


COUNTED = available()


def repeated(times: int) -> int:
    """The number of repetitions of a measurement: ``n`` for CPU time; instructions hardly vary."""
    return 2 if COUNTED else times


class Spent:
    """A context manager; afterwards ``seconds`` is the work of all threads of the process within it."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __enter__(self) -> Spent:
        self._events = (Callgrind() if UNDER_CALLGRIND else Events()) if COUNTED else None
        self._began = time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.process_time() - self._began
        if self._events is not None:
            self.seconds = self._events.count() / PER_SECOND
            self._events.close()
