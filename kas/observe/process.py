"""Properties and limits of the current process: descriptors, threads, memory, garbage collection, scheduling, and its relation to its
parent.
"""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import signal
import socket
import sys
import time
from _thread import allocate_lock  # avoids importing threading, which the supervisor does not need
from collections.abc import Awaitable, Callable
from pathlib import Path

from kas.observe import _libc

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # <sys/prctl.h>
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8  # <malloc.h>
# Buffers above MMAP_BYTES are mapped, and unmapped when freed. A heap with more than TRIM_BYTES free at its end is shortened. The pages of
# a list, half a MiB each and several at once, stay below both: mapping them anew would cost a list a quarter of its time in page faults.
MMAP_BYTES, TRIM_BYTES = 2 << 20, 8 << 20
LOOKED_FOR_S = 0.002  # interval of checks whether a child has ended
ADOPTED_S = 0.0005  # interval of checks for a new parent
GROWN_BYTES, TRIM_EVERY_S = 8 << 20, 10.0
# STEP_BYTES take 6 to 18 ms of processor time to return; SOON_S avoids returning memory that is reused at once
STEP_BYTES, SOON_S = 48 << 20, 0.1
LOOKED_AGAIN = 50  # a check is not repeated for this many times its own duration
# Thresholds of the cyclic garbage collector: a young collection per so many new objects, and after two of them one of the objects that
# these have left (30,000 objects: 1 ms, ten to twenty times that with cold caches). A collection holds the GIL and cannot be interrupted,
# so it must be short: one per 50,000 objects, going through a million, held the loop for 90 to 370 ms whenever something large was built.
#
# Requests create many small dicts and no cycles, so a collection every 700 objects finds nothing and costs up to a third of a pod create. A
# full collection happens by itself after 60 million more objects at the earliest.
LOOKED_AT = (10_000, 2, 2_000)
OLD_TURNS, OLD_OBJECTS = 1_200, 200_000  # OLD_TURNS: a minute of the loop's timer; OLD_OBJECTS take 10 to 20 ms to collect
# old objects that may be collected while the process is busy: 20 to 40 ms; memory blocks up to which counting objects takes 10 ms
OLD_MOST, OLD_BLOCKS = 400_000, 4_000_000
IDLE_S = 3.0  # processor seconds in that minute, up to which the process counts as idle
# By default the interpreter hands over the GIL after another thread has waited for 5 ms, and a thread that is woken in vain starts to wait
# anew. A loop that pauses every few milliseconds, and reads the store without the GIL in between, starved the threads that read and write
# for all requests: during a list, a GET took 20 to 150 ms waiting for the GIL, and takes 4 ms now. With half of this value a create took 5
# % more.
SWITCH_S = 0.001
SLICE_NS = 100_000  # the kernel's minimum; the default is 0.7 to 3 ms, depending on the number of processors
ADDRESSES_BYTES = 1 << 30  # address space for a worker's threads, their heaps and stacks; not memory
FEWEST_THREADS, WORKERS_THREADS = 16, 16  # outside the workers; per worker: 14 when it is ready, 16 were seen with 24 clients
COUNTED_TASKS = 4096  # the other processes of the user are not expected to use up a limit above this
RESERVE = 64  # descriptors reserved for files, the store and threads of the listeners


def age_s() -> float:
    """Seconds since this process was created, by fork or by the shell, before the interpreter began to load (/proc/self/stat, field 22)."""
    ticks = Path("/proc/self/stat").read_text().rpartition(") ")[2].split()[19]
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(ticks) / os.sysconf("SC_CLK_TCK")


def notify_ready() -> str:
    """Notifies systemd that the service has started, if it waits for that (``Type=notify``; sd_notify(3), like kube-apiserver).

    It does so once: it removes the variable that names the socket. Returns why the notification failed, or "".
    """
    name = os.environ.pop("NOTIFY_SOCKET", "")
    if not name:
        return ""
    address = "\0" + name[1:] if name.startswith("@") else name  # "@": an abstract socket
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
            s.setblocking(False)  # a service manager that does not read must not block the supervisor
            s.sendto(b"READY=1\n", address)
    except (OSError, ValueError) as e:  # ValueError: a null byte in the name
        return f"systemd could not be told of the start at {name}: {e}"
    return ""


def raise_descriptor_limit() -> None:
    """Raises the soft limit on open descriptors to the hard limit, for this process and its children."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard and hard != resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def too_few_descriptors(workers: int) -> str:
    """Why the limit on open files is too low for ``workers`` workers, or "". The server would otherwise be ready but accept no client. The
    hard limit counts.
    """
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    # descriptors open without clients, what each worker needs of the others, and what its parent needs of each
    wanted = 2 * RESERVE + 8 * workers
    if limit == resource.RLIM_INFINITY or limit >= wanted:
        return ""
    return f"the limit of {limit} open files is too low, {workers} workers need at least {wanted}: ulimit -n, LimitNOFILE of systemd"


class NoProcess(Exception):
    """No process can be created; the message is one line."""


MORE_TASKS = "ulimit -u, TasksMax of systemd, --pids-limit of containers"


def fork() -> int:
    """``os.fork``. Raises ``NoProcess`` when the system refuses."""
    try:
        return os.fork()
    except OSError as e:
        raise NoProcess(f"no process can be created: {e.strerror}: {MORE_TASKS}") from None


def too_few_tasks(workers: int, proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> str:
    """Why the limits on processes and threads are too low for ``workers`` workers, or "". The server would otherwise fail whenever it
    starts one.

    What counts is what the user (except root) and the control group have left.
    """
    wanted = FEWEST_THREADS + WORKERS_THREADS * workers
    left = []
    limit = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    if os.getuid() and limit != resource.RLIM_INFINITY and limit < COUNTED_TASKS:
        left.append(limit - _tasks_of_user(proc))
    # the file does not exist with other versions of cgroups, and "max" is no number
    with contextlib.suppress(OSError, ValueError, StopIteration):
        group = next(line[3:] for line in (proc / "self/cgroup").read_text().splitlines() if line.startswith("0::"))
        at = cgroups / group.lstrip("/")
        left.append(int((at / "pids.max").read_text()) - int((at / "pids.current").read_text()))
    if not left or min(left) >= wanted:
        return ""
    found = max(min(left), 0)
    return f"{found} processes and threads may be begun, {workers} workers want {wanted} at least: fewer --workers, or {MORE_TASKS}"


def _tasks_of_user(proc: Path) -> int:
    """The number of threads of this user in all other processes."""
    found, own = 0, os.getuid()
    for entry in os.scandir(proc):
        with contextlib.suppress(OSError):  # the process has ended
            if entry.name.isdigit() and entry.stat().st_uid == own and int(entry.name) != os.getpid():
                found += len(os.listdir(f"{entry.path}/task"))
    return found


def lives(pid: int) -> bool:
    """Whether a process exists and has not ended; a zombie has ended."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][:1] != "Z"
    except (ProcessLookupError, FileNotFoundError):  # the latter: it ended between the two calls
        return False
    except PermissionError:
        return True


def unfit() -> str:
    """Why the server cannot run in this environment, or "". It would otherwise become ready and then fail now and then. The soft limit
    counts.
    """
    if sys.platform != "linux":
        return "kas runs on Linux: what it knows of its processes, connections and descriptors it reads from there"
    if not os.path.exists("/proc/self/stat"):
        return "/proc is not mounted, which kas needs to inspect its processes: mount -t proc proc /proc"
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY or limit >= 2 * ADDRESSES_BYTES:
        return ""
    return (
        f"the limit of {limit >> 20} MiB of address space is too low, threads and the store need at least {2 * ADDRESSES_BYTES >> 20}: "
        "ulimit -v, LimitAS of systemd; memory itself is bounded by --memory of containers, MemoryMax of systemd"
    )


def mappable(size: int, files: int = 1) -> int:
    """How many bytes of each of ``files`` files of ``size`` bytes may be mapped when address space is limited: at least half of it is left
    for threads.
    """
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return size if limit == resource.RLIM_INFINITY else min(size, max(limit - ADDRESSES_BYTES, 0) // 2 // files)


def spare_descriptors() -> int:
    """How many descriptors client connections may use. A quarter of the limit, at least ``RESERVE``, is kept for outgoing connections
    (webhooks, proxied requests), files and threads.
    """
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return limit - len(os.listdir("/dev/fd")) - max(RESERVE, limit // 4)


def outgoing_descriptors() -> int:
    """How many of the reserved descriptors may be used by outgoing connections of proxied requests. The rest is for webhooks, the store and
    the server itself.
    """
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return max(RESERVE // 2, limit // 4 - RESERVE)


def disconnect(fd: int) -> bool:
    """Resets a TCP connection at once, even if other processes share it; unsent data is lost. The descriptor stays open. Returns whether
    the system accepted it.
    """
    return _libc.disconnect(fd)


def adopt(on: bool) -> bool:
    """Sets whether this process adopts orphaned descendants (a child subreaper). False when the system refuses."""
    return _libc.prctl(PR_SET_CHILD_SUBREAPER, int(on))


def await_adoption(parent: int) -> None:
    """Blocks until ``parent``, which forked this process, has ended."""
    while os.getppid() == parent:
        time.sleep(ADOPTED_S)


class Cycles:
    """Collects cyclic garbage in small steps: young objects often, and what these collections left when it is due. The interpreter triggers
    collections by the number of additional objects, and where old objects are freed as new ones come it would go through any number at once
    (300 ms were observed).

    Objects that became old before they became garbage, such as those of a watch of some minutes, are found by a full collection, once in
    ``OLD_TURNS`` turns: when it is short, or when the number of old objects has doubled since the last one. Where it would block requests,
    as 40 roles with selectors of 40,000 terms each did for 1.9 s, it waits for a minute in which the process was nearly idle. ``used``
    returns the processor time of this process.
    """

    def __init__(self, used: Callable[[], float] = time.process_time) -> None:
        self._turns = self._left = 0
        self._used, self._before = used, 0.0

    def look(self) -> None:
        """One turn; to be called frequently."""
        self._turns += 1
        if self._turns % OLD_TURNS:
            gc.collect(1 if gc.get_count()[1] > LOOKED_AT[1] else 0)
            return
        now = self._used()
        idle, self._before = now - self._before <= IDLE_S, now
        if not idle and sys.getallocatedblocks() > OLD_BLOCKS:
            return  # counting them would take too long
        old = len(gc.get_objects(generation=2))
        if old <= OLD_OBJECTS or (old >= 2 * self._left and (idle or old <= OLD_MOST)):
            gc.collect()
            self._left = len(gc.get_objects(generation=2))


def look_for_no_cycles() -> None:
    """Disables the cyclic garbage collector during start-up, whose objects stay: it took a seventh of the time.

    One collection is done: Python 3.11 also loads the pure-Python ``datetime``, 0.5 MiB that become unreachable. Freed at once, this memory
    is reused for the modules that are loaded next.
    """
    gc.disable()
    gc.freeze()  # excludes existing objects from collections
    import datetime  # noqa: F401

    gc.collect()


def end_child(pid: int, patience_s: float) -> None:
    """Waits for a child of this process to end; kills it after ``patience_s`` seconds."""
    until = time.monotonic() + patience_s
    with contextlib.suppress(ChildProcessError):
        while not os.waitpid(pid, os.WNOHANG)[0]:
            if time.monotonic() > until:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                return
            time.sleep(LOOKED_FOR_S)


def end_with(parent: int) -> None:
    """Has the kernel kill this process (SIGKILL) when its ``parent`` ends, whatever state either is in."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent ended before the signal was set up
        os._exit(1)


class Trimmer:
    """Returns freed memory inside the allocator's heaps to the system, whenever the process has grown by ``GROWN_BYTES`` or has freed as
    much. glibc does that by itself only for the end of a heap, so that one small block retains everything before it.

    The operation holds a heap's lock throughout, and the loop may have to wait for it: 40 to 110 ms of processor time for 300 MB. So when
    much is freed, it is returned as soon as ``STEP_BYTES`` have accumulated.
    """

    def __init__(self) -> None:
        self._one = allocate_lock()  # one trim at a time
        self._trim = _libc.malloc_trim if _libc.trims() else None
        self._used = _libc.used_bytes
        self._before = self._least = 0 if self._trim is None else _resident_bytes()
        self._left = 0  # bytes in use at the last trim
        self._unused = self._before - self._used()  # the least of (resident - in use) since the last trim
        self._soon_s = 0.0  # when the next check of trim_soon is due

    def due(self) -> bool:
        """Whether ``trim`` is likely to return memory; cheap."""
        if self._trim is None:
            return False
        now = _resident_bytes()
        self._least = min(self._least, now)
        return now >= (self._before if self._left else self._least) + GROWN_BYTES

    def trim(self) -> None:
        """Returns freed memory if there is enough of it: some milliseconds, without the GIL."""
        if self._trim is None:
            return
        with self._one:
            used = self._used()
            if _resident_bytes() >= self._least + GROWN_BYTES or used <= self._left - GROWN_BYTES:
                self._done(used)

    def due_soon(self) -> bool:
        """Whether ``trim_soon`` is likely to return memory; cheap."""
        if self._trim is None or time.monotonic() < self._soon_s:
            return False
        return _resident_bytes() >= self._before + STEP_BYTES

    def trim_soon(self) -> None:
        """Returns freed memory if ``STEP_BYTES`` of it have accumulated since the last time.

        The process may instead have grown elsewhere: only the bytes in use of the heaps and the resident bytes of the process are known,
        and the former take a walk over all free blocks.
        """
        with self._one:
            began = time.thread_time()
            used = self._used()
            self._soon_s = time.monotonic() + LOOKED_AGAIN * (time.thread_time() - began)
            self._unused = min(self._unused, unused := _resident_bytes() - used)
            if unused >= self._unused + STEP_BYTES:
                self._done(used)

    def _done(self, used: int) -> None:
        assert self._trim is not None
        self._trim()
        self._least = _resident_bytes()
        self._left, self._unused = used, self._least - used

    def periodic(self) -> list[tuple[str, float, Callable[[], Awaitable[None] | None]]]:
        """The periodic work of a worker for this: (name, interval in seconds, function)."""
        import asyncio  # which the supervisor does not need

        return [
            ("freed memory", TRIM_EVERY_S, lambda: asyncio.to_thread(self.trim) if self.due() else None),
            ("much freed memory", SOON_S, lambda: asyncio.to_thread(self.trim_soon) if self.due_soon() else None),
        ]


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def share_interpreter() -> None:
    """Sets the GIL's switch interval to ``SWITCH_S``."""
    sys.setswitchinterval(SWITCH_S)


def shorten_time_slice() -> None:
    """Shortens the scheduling slice of the current thread, for a thread that mostly waits: once woken, it does not wait until other threads
    have used up their slices. Its share of the processor is unchanged. Kernels before Linux 6.12 ignore this.
    """
    _libc.shorten_slice(SLICE_NS)


def bound_heaps() -> None:
    """Configures the allocator to return memory as it is freed.

    By default glibc raises both thresholds, to 32 and 64 MiB, once buffers as large as bodies and lists have been freed, and then each
    thread's heap retains what its largest request took. musl has no such function.
    """
    if _libc.mallopt(M_MMAP_THRESHOLD, MMAP_BYTES):
        _libc.mallopt(M_TRIM_THRESHOLD, TRIM_BYTES)
        # Two heaps for all threads, only one of which runs at a time because of the GIL: each further heap would retain what its thread
        # once needed. With one heap the loop waits for the thread that commits, which runs without the GIL: creates took 7 % more.
        _libc.mallopt(M_ARENA_MAX, 2)
