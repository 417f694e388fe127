"""What a process knows of itself, and what it owes to the one that started it."""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import signal
import socket
import sys
import time
from _thread import allocate_lock  # all that is needed of threading, which a supervisor does without
from collections.abc import Awaitable, Callable
from pathlib import Path

from kas.observe import _libc

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # <sys/prctl.h>
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8  # <malloc.h>
# Larger buffers are mapped, and unmapped when freed; a heap whose free end is larger is made shorter. The pages of a list, half a MiB each
# and some at once, stay below both: mapped anew they would cost a list a quarter of its time in page faults.
MMAP_BYTES, TRIM_BYTES = 2 << 20, 8 << 20
LOOKED_FOR_S = 0.002  # between two looks at whether a child has ended
ADOPTED_S = 0.0005  # between two looks at who the parent is
GROWN_BYTES, TRIM_EVERY_S = 8 << 20, 10.0
STEP_BYTES, SOON_S = 48 << 20, 0.1  # 6 to 18 ms of processor time; what is used again at once is not given back and asked for anew
LOOKED_AGAIN = 50  # times as long as a look took it is not done again
# When the interpreter looks for cycles: for so many new objects more, and after two such looks through what these have left (30,000
# objects: 1 ms, ten to twenty times that where the caches are others'). A look keeps the interpreter's lock and cannot be interrupted, so
# it must not be long: after every 50,000 and through a million it held the loop for 90 to 370 ms whenever something large was built.
# Requests make many small dicts and no cycles, so looking after every 700 finds nothing and costs up to a third of a pod's create. All
# there is, is looked through after 60 million objects more at the earliest.
LOOKED_AT = (10_000, 2, 2_000)
OLD_TURNS, OLD_OBJECTS = 1_200, 200_000  # a minute of the loop's timer; 10 to 20 ms
OLD_MOST, OLD_BLOCKS = 400_000, 4_000_000  # through which others wait for a look: 20 to 40 ms; what it takes 10 ms to count objects among
IDLE_S = 3.0  # of a processor in that minute
# By itself the interpreter lets somebody else have its lock after 5 ms of waiting, and whoever is woken in vain begins to wait anew. A loop
# that pauses every few milliseconds, and reads the store without the lock in between, so kept the threads that read and write for everybody
# waiting: beside a list a GET took 20 to 150 ms for want of the lock, and takes 4 now. With half of this a create took 5 % more.
SWITCH_S = 0.001
SLICE_NS = 100_000  # the shortest there is; usual ones are 0.7 to 3 ms, by the number of processors
ADDRESSES_BYTES = 1 << 30  # of a worker's threads, their heaps and stacks; not memory
FEWEST_THREADS, WORKERS_THREADS = 16, 16  # beside the workers; one has 14 when it is ready, and had 16 with 24 clients
COUNTED_TASKS = 4096  # a limit of more is not reached by what else its user runs
RESERVE = 64  # descriptors that are never given to clients: files, the store, threads of the listeners


def age_s() -> float:
    """Seconds since this process was made, by fork or by the shell: before the interpreter began to load (/proc/self/stat, field 22)."""
    ticks = Path("/proc/self/stat").read_text().rpartition(") ")[2].split()[19]
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(ticks) / os.sysconf("SC_CLK_TCK")


def notify_ready() -> str:
    """Tells systemd that the service has started, where it waits for that (``Type=notify``; sd_notify(3), as kube-apiserver does). Once:
    the variable that names the socket is taken away. Returns why it could not be told, or ""."""
    name = os.environ.pop("NOTIFY_SOCKET", "")
    if not name:
        return ""
    address = "\0" + name[1:] if name.startswith("@") else name  # "@": an abstract one
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
            s.setblocking(False)  # a manager that does not read must not hold what watches the workers
            s.sendto(b"READY=1\n", address)
    except (OSError, ValueError) as e:  # ValueError: a zero byte
        return f"systemd could not be told of the start at {name}: {e}"
    return ""


def raise_descriptor_limit() -> None:
    """The soft limit of open descriptors becomes the hard one, for this process and those it forks."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard and hard != resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def too_few_descriptors(workers: int) -> str:
    """Why a server of so many workers is told to open too few files, or "": it would be ready, and let nobody in. The hard limit counts."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    wanted = 2 * RESERVE + 8 * workers  # what one has open without clients, and what each needs of the others, and its parent of each
    if limit == resource.RLIM_INFINITY or limit >= wanted:
        return ""
    return f"{limit} files may be open, {workers} workers want {wanted} at least: ulimit -n, LimitNOFILE of systemd"


class NoProcess(Exception):
    """Why no process can be made, in one line."""


MORE_TASKS = "ulimit -u, TasksMax of systemd, --pids-limit of containers"


def fork() -> int:
    """``os.fork``. Raises ``NoProcess``."""
    try:
        return os.fork()
    except OSError as e:
        raise NoProcess(f"no process can be made: {e.strerror}: {MORE_TASKS}") from None


def too_few_tasks(workers: int, proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> str:
    """Why a server of so many workers may have too few processes and threads, or "": it would fail here and there when it begins one.
    What counts is what the user (but root) and the control group have left."""
    wanted = FEWEST_THREADS + WORKERS_THREADS * workers
    left = []
    limit = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    if os.getuid() and limit != resource.RLIM_INFINITY and limit < COUNTED_TASKS:
        left.append(limit - _tasks_of_user(proc))
    with contextlib.suppress(OSError, ValueError, StopIteration):  # a system of another version has no such file, and "max" is no number
        group = next(line[3:] for line in (proc / "self/cgroup").read_text().splitlines() if line.startswith("0::"))
        at = cgroups / group.lstrip("/")
        left.append(int((at / "pids.max").read_text()) - int((at / "pids.current").read_text()))
    if not left or min(left) >= wanted:
        return ""
    found = max(min(left), 0)
    return f"{found} processes and threads may be begun, {workers} workers want {wanted} at least: fewer --workers, or {MORE_TASKS}"


def _tasks_of_user(proc: Path) -> int:
    """How many threads this user has, in all processes; this one is not counted."""
    found, own = 0, os.getuid()
    for entry in os.scandir(proc):
        with contextlib.suppress(OSError):  # it has ended
            if entry.name.isdigit() and entry.stat().st_uid == own and int(entry.name) != os.getpid():
                found += len(os.listdir(f"{entry.path}/task"))
    return found


def lives(pid: int) -> bool:
    """Whether there is such a process, and it has not ended."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][:1] != "Z"
    except (ProcessLookupError, FileNotFoundError):  # the latter: it ended between the two
        return False
    except PermissionError:
        return True


def unfit() -> str:
    """Why nothing can be served in this place, or "": the server would be ready and then fail here and there. The soft limit counts."""
    if sys.platform != "linux":
        return "kas runs on Linux: what it knows of its processes, connections and descriptors it reads from there"
    if not os.path.exists("/proc/self/stat"):
        return "/proc is not mounted, which tells what processes and their descriptors do: mount -t proc proc /proc"
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY or limit >= 2 * ADDRESSES_BYTES:
        return ""
    return (
        f"processes may have {limit >> 20} MiB of addresses, threads and the store's file want {2 * ADDRESSES_BYTES >> 20} at least: "
        "ulimit -v, LimitAS of systemd; memory itself is bounded by --memory of containers, MemoryMax of systemd"
    )


def mappable(size: int, files: int = 1) -> int:
    """How much of each of so many files of ``size`` bytes may be mapped where addresses are limited: half of them, at least, are left for
    threads."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return size if limit == resource.RLIM_INFINITY else min(size, max(limit - ADDRESSES_BYTES, 0) // 2 // files)


def spare_descriptors() -> int:
    """How many descriptors clients may hold: a quarter, at least ``RESERVE``, is kept for the way out (webhooks, proxied requests),
    files and threads."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return limit - len(os.listdir("/dev/fd")) - max(RESERVE, limit // 4)


def outgoing_descriptors() -> int:
    """How many of what is kept clients may hold by what they have proxied, behind them: the rest is webhooks', the store's and the
    server's own."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return max(RESERVE // 2, limit // 4 - RESERVE)


def disconnect(fd: int) -> bool:
    """Ends a TCP connection at once, with a reset, whoever else holds it: what it had still to send is gone. The descriptor stays. Whether
    the system took it."""
    return _libc.disconnect(fd)


def adopt(on: bool) -> bool:
    """Whether this process becomes the parent of processes whose own parent ends below it; False where the system forbids it."""
    return _libc.prctl(PR_SET_CHILD_SUBREAPER, int(on))


def await_adoption(parent: int) -> None:
    """Returns when ``parent``, which forked this process, has ended."""
    while os.getppid() == parent:
        time.sleep(ADOPTED_S)


class Cycles:
    """Looks for cycles in small steps: through what is new, and through what such looks have left where it is time. The interpreter counts
    how many objects there are more than before, and where old ones go as new ones come it would look through any number at once (300 ms
    were seen).

    What got old before it became a cycle, as what a watch of some minutes left, is found by a look through everything, once in
    ``OLD_TURNS`` turns: where that is soon done, and else once there is twice as much as the last one left. Where it would hold up others,
    as 40 roles with selectors of 40,000 terms each did for 1.9 s, it waits for a minute in which there was next to nothing to do. ``used``
    tells the processor time of this process."""

    def __init__(self, used: Callable[[], float] = time.process_time) -> None:
        self._turns = self._left = 0
        self._used, self._before = used, 0.0

    def look(self) -> None:
        """To be called often: a turn."""
        self._turns += 1
        if self._turns % OLD_TURNS:
            gc.collect(1 if gc.get_count()[1] > LOOKED_AT[1] else 0)
            return
        now = self._used()
        idle, self._before = now - self._before <= IDLE_S, now
        if not idle and sys.getallocatedblocks() > OLD_BLOCKS:
            return  # to count them would be long
        old = len(gc.get_objects(generation=2))
        if old <= OLD_OBJECTS or (old >= 2 * self._left and (idle or old <= OLD_MOST)):
            gc.collect()
            self._left = len(gc.get_objects(generation=2))


def look_for_no_cycles() -> None:
    """What a start makes stays; looking for cycles in it took a seventh of the time. All but one: Python 3.11 loads ``datetime`` as it is
    written in Python, too, 0.5 MiB that nobody can reach any more. Let go at once, its place is there for what is loaded next."""
    gc.disable()
    gc.freeze()  # not to look through what is there
    import datetime  # noqa: F401

    gc.collect()


def end_child(pid: int, patience_s: float) -> None:
    """Waits for the end of a child of this process, if it has not ended yet, and does not wait for ever."""
    until = time.monotonic() + patience_s
    with contextlib.suppress(ChildProcessError):
        while not os.waitpid(pid, os.WNOHANG)[0]:
            if time.monotonic() > until:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                return
            time.sleep(LOOKED_FOR_S)


def end_with(parent: int) -> None:
    """Ends this process, as by SIGKILL, when its ``parent`` does, in whatever state either is."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the signal was asked for
        os._exit(1)


class Trimmer:
    """Gives back what the allocator keeps of freed memory inside of its heaps, whenever the process has grown by ``GROWN_BYTES``, or has
    freed as much since. glibc does it by itself only for the end of a heap, so that one small block keeps all that lies before it.

    It keeps a heap's lock from its beginning to its end, for which the loop then waits: 40 to 110 ms of processor time for 300 MB. So of
    much that is freed ``STEP_BYTES`` are given back as soon as they are there."""

    def __init__(self) -> None:
        self._one = allocate_lock()  # at a time
        self._trim = _libc.malloc_trim if _libc.trims() else None
        self._used = _libc.used_bytes
        self._before = self._least = 0 if self._trim is None else _resident_bytes()
        self._left = 0  # in use when it was done last
        self._unused = self._before - self._used()  # what was resident beyond that at least since it was done last
        self._soon_s = 0.0  # when it may be worth looking again

    def due(self) -> bool:
        """Whether ``trim`` may find something."""
        if self._trim is None:
            return False
        now = _resident_bytes()
        self._least = min(self._least, now)
        return now >= (self._before if self._left else self._least) + GROWN_BYTES

    def trim(self) -> None:
        """Does it if there is something: some milliseconds, without the interpreter's lock."""
        if self._trim is None:
            return
        with self._one:
            used = self._used()
            if _resident_bytes() >= self._least + GROWN_BYTES or used <= self._left - GROWN_BYTES:
                self._done(used)

    def due_soon(self) -> bool:
        """Whether ``trim_soon`` may find something."""
        if self._trim is None or time.monotonic() < self._soon_s:
            return False
        return _resident_bytes() >= self._before + STEP_BYTES

    def trim_soon(self) -> None:
        """``trim`` where ``STEP_BYTES`` were freed since, or are in use elsewhere: of heaps it is known what is in use and of the process
        what is resident. To know it takes a look at all that is free."""
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
        """What a worker does beside its loop, and every how many seconds."""
        import asyncio  # which a supervisor does not need

        return [
            ("freed memory", TRIM_EVERY_S, lambda: asyncio.to_thread(self.trim) if self.due() else None),
            ("much freed memory", SOON_S, lambda: asyncio.to_thread(self.trim_soon) if self.due_soon() else None),
        ]


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def share_interpreter() -> None:
    """The interpreter's lock is given to another thread once that has waited for ``SWITCH_S``."""
    sys.setswitchinterval(SWITCH_S)


def be_woken_soon() -> None:
    """For a thread that mostly waits: once it is woken it does not wait until others, who keep the processor, have used up their slices.
    Its share stays what it was. Older kernels than Linux 6.12 take no notice."""
    _libc.shorten_slice(SLICE_NS)


def bound_heaps() -> None:
    """The allocator gives memory back as it is freed. By itself glibc raises both bounds, to 32 and 64 MiB, once buffers as large as bodies
    and lists were freed, and then each thread's heap keeps what its largest request took. musl has no such function."""
    if _libc.mallopt(M_MMAP_THRESHOLD, MMAP_BYTES):
        _libc.mallopt(M_TRIM_THRESHOLD, TRIM_BYTES)
        # Two heaps for all threads, of which the interpreter's lock lets one run: each other heap would keep what its thread once needed.
        # With one the loop waits for the thread that commits, which has a lock of its own: creates took 7 % more.
        _libc.mallopt(M_ARENA_MAX, 2)
