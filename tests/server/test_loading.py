"""Several workers are forked from a process that has loaded their modules: they share nothing else with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kas.edge import granianparts
from kas.testing.server import KasServer
from tests.processes import children
from tests.server.test_processes import wait_for

# Whether granian was built with jemalloc's background threads.
BACKGROUND = granianparts.ALLOCATOR.encode() in Path(sys.modules[granianparts.ASGIWorker.__module__].__file__ or "").read_bytes()

# Prints everything besides memory that a process can have, before and after loading a worker's modules.
LOADS = """
import os, signal, sys
import kas.supervisor
from kas.config.options import complete, read

def has():
    return {
        "threads": len(os.listdir("/proc/self/task")), "descriptors": sorted(os.listdir("/proc/self/fd")),
        "signals": [str(signal.getsignal(s)) for s in sorted(signal.valid_signals()) if s not in (signal.SIGKILL, signal.SIGSTOP)],
        "wake-up": signal.set_wakeup_fd(-1), "children": open(f"/proc/self/task/{os.getpid()}/children").read(),
        "mask": signal.pthread_sigmask(signal.SIG_BLOCK, ()),
    }

options, errors = read(["--data-dir", sys.argv[1], "--workers", sys.argv[2]])
assert not errors, errors
options = complete(options)
before = has()
kas.supervisor._load(options)
after = has()
assert before == after, (before, after)
"""

# Prints random numbers that two children of a process must not draw alike.
DRAWS = """
import random, secrets, ssl, tempfile, uuid
from kas._fastpath import audit_id
from kas.meta.random import new_uid, random_suffix

def draw():
    return [new_uid(), random_suffix(13), audit_id(), str(uuid.uuid4()), secrets.token_hex(), random.random(), ssl.RAND_bytes(16).hex()]

draw()
for _ in range(2):
    r, w = os.pipe()
    if not os.fork():
        os.write(w, "\\n".join(map(str, draw())).encode())
        os._exit(0)
    os.close(w)
    print(os.fdopen(r).read())
    os.wait()
"""

FAILS = """
import os
import sys
import kas.supervisor
from kas.config.options import complete, read

def load(options):
    %s

kas.supervisor._load = load
options, errors = read(["--data-dir", %r, "--workers", "2", "--secure-port", "auto"])
sys.exit(kas.supervisor.run(complete(options)))
"""


def run(source: str, *args: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", source, *args], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def shared_kib(pid: int) -> int:
    """Returns how much of a process' own memory it shares with another one."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Shared_Dirty:"))


def members(session: int) -> list[int]:
    """Returns the processes of a session that have not ended."""
    out = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, found = path.read_text().rpartition(") ")[2].split()[:4]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(found) == session and state not in "ZX":
            out.append(int(path.parent.name))
    return out


def has_loaded(pid: int) -> bool:
    return "_granian" in Path(f"/proc/{pid}/maps").read_text()


@pytest.fixture
def serve(tmp_path: Path):
    servers = []

    def start(workers: int) -> KasServer:
        servers.append(KasServer(tmp_path, "--unsafe-no-fsync", workers=workers))
        return servers[-1].start()

    yield start
    for server in servers:
        server.stop()


def test_loading_makes_no_threads_descriptors_handlers_or_children(tmp_path: Path):
    loaded = run(LOADS + "print(*sys.modules)", str(tmp_path), "2")
    assert {"kas.worker", "kas.server", "uvloop", "kas.admission.plugins.resource_quota"} <= set(loaded)
    assert "granian._granian" not in loaded  # its allocator has a thread, see kas.edge.granianparts


@pytest.mark.parametrize("workers", ["1", "2"])
def test_unreachable_objects_left_by_loading_are_freed(tmp_path: Path, workers: str):
    """``datetime`` creates each of its classes twice, and its Python versions form a reference cycle that is not collected later."""
    code = LOADS.partition("before =")[0] + (
        "kas.supervisor.look_for_no_cycles(); import kas.worker\n" if workers == "1" else "kas.supervisor._load(options)\n"
    )
    twice = run(code + "print(*(c.__name__ for c in object.__subclasses__() if c.__module__ == 'datetime'))", str(tmp_path), workers)
    assert "timedelta" in twice
    assert len(twice) == len(set(twice)), twice


def test_workers_of_one_process_draw_different_random_numbers(tmp_path: Path):
    drawn = run(LOADS + DRAWS, str(tmp_path), "2")
    assert len(drawn) == len(set(drawn)) == 14


def test_a_single_worker_loads_its_modules_itself(tmp_path: Path, serve: Callable[[int], KasServer]):
    assert "kas.worker" not in run(LOADS + "print(*sys.modules)", str(tmp_path), "1")
    server = serve(1)
    assert not has_loaded(server.pid)
    assert has_loaded(server.worker_pids()[0])


@pytest.mark.lmdb  # on etcd, workers start after the replica, and the supervisor loads their modules
def test_workers_share_the_loaded_modules_and_the_loading_process_has_ended(serve: Callable[[int], KasServer]):
    server = serve(2)
    first = server.worker_pids()
    assert not has_loaded(server.pid)
    assert set(children(server.pid)) == set(first)
    assert all(shared_kib(pid) > 6000 for pid in first), [shared_kib(pid) for pid in first]


@pytest.mark.lmdb  # on etcd, workers start after the replica, and the supervisor loads their modules
def test_a_replacing_worker_loads_its_modules_itself(serve: Callable[[int], KasServer]):
    server = serve(2)
    first = server.worker_pids()
    os.kill(first[0], signal.SIGKILL)
    wait_for(lambda: len(set(server.worker_pids()) - {first[0]}) == 2, "a new worker")
    (new,) = set(server.worker_pids()) - set(first)
    wait_for(lambda: has_loaded(new), "its modules")
    assert not has_loaded(server.pid)


@pytest.mark.parametrize(
    ("load", "said"),
    [('raise ImportError("no such thing")', "ImportError: no such thing"), ("os.kill(os.getpid(), 9)", "signal 9")],
)
def test_a_failure_to_load_ends_the_start(tmp_path: Path, load: str, said: str):
    code = FAILS % (load, str(tmp_path))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == f"kas: workers could not be loaded: {said}"


def test_workers_end_with_the_supervisor_whenever_it_ends(tmp_path: Path):
    """It is killed as soon as it has children: while they load, are forked or are adopted."""
    for n in range(4):
        args = [sys.executable, "-m", "kas", "serve", f"--data-dir={tmp_path}", "--secure-port=auto", "--workers=3", "--unsafe-no-fsync"]
        process = subprocess.Popen(args, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        wait_for(lambda: len(children(process.pid)) > min(n, 2), "children")  # noqa: B023
        process.kill()
        process.wait()
        wait_for(lambda: not members(process.pid), "the end of all")  # noqa: B023


def test_a_later_start_generates_no_key_and_does_not_load_cryptography(tmp_path: Path):
    prepared = LOADS.partition("before =")[0] + "import kas.preparation; kas.preparation.prepare_later(options, print); print(*sys.modules)"
    assert "cryptography" in run(prepared, str(tmp_path), "2")
    key = tmp_path / "pki" / "sa.key"
    made = key.read_bytes()
    assert "cryptography" not in run(prepared, str(tmp_path), "2")
    assert key.read_bytes() == made


def test_a_later_start_does_not_parse_certificates_again(tmp_path: Path):
    prepared = LOADS.partition("before =")[0] + "import kas.preparation; kas.preparation.prepare(options); print(*sys.modules)"
    assert "cryptography" in run(prepared, str(tmp_path), "2")
    made = [path.read_bytes() for path in sorted((tmp_path / "pki").glob("*.crt"))]
    assert "cryptography" not in run(prepared, str(tmp_path), "2")
    (tmp_path / "pki" / "apiserver.crt").unlink()
    assert "cryptography" in run(prepared, str(tmp_path), "2")
    assert [path.read_bytes() == crt for path, crt in zip(sorted((tmp_path / "pki").glob("*.crt")), made, strict=True)] == [False, True]


@pytest.mark.skipif(not BACKGROUND, reason="the HTTP server below has another allocator here")
@pytest.mark.parametrize("workers", [1, 2])
def test_each_worker_has_a_thread_that_returns_freed_memory(serve: Callable[[int], KasServer], workers: int):
    for pid in serve(workers).worker_pids():
        assert "jemalloc_bg_thd\n" in {path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/comm")}
