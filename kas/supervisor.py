"""The process that ``kas serve`` starts as: prepares, forks the workers, prints the ready line, passes signals on.

It prepares the data directory and its lock, ports, certificates and keys (in a short-lived child), the workers' shared memory and, if
there are several workers, the modules that they run. It opens no store and has no event loop, so that it can fork at any time. A worker
that dies is restarted after a growing pause; one that cannot start at all ends the server with its reason; one that does not respond is
killed and replaced. All of them end with this process, however it ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from kas.config import features
from kas.config.address import shown, unbound
from kas.config.datadir import StartError, check_data_dir, claim_data_dir
from kas.config.options import Completed
from kas.meta.fdwait import BEAT, readable
from kas.meta.files import private, remove_tree
from kas.meta.stdio import flush_standard_streams, say
from kas.observe.process import (
    NoProcess,
    adopt,
    age_s,
    await_adoption,
    end_child,
    end_with,
    fork,
    lives,
    look_for_no_cycles,
    notify_ready,
    raise_descriptor_limit,
)  # fmt: skip
from kas.store.shared import Shared
from kas.store.unfinished import unfinished

if TYPE_CHECKING:
    from kas.edge.front.rendezvous import Rendezvous
    from kas.extensions import Extensions

EXIT_FAILED = 1
RESPAWN_LIMIT = 5  # deaths of one worker within RESPAWN_WINDOW_S that end the server
RESPAWN_WINDOW_S = 30.0
LOOK_EVERY_S = 1.0  # at the workers' heartbeats, which are as frequent
EXIT_LOST = 4  # the replicator's exit code: see kas.replicator
KEY_S = 10.0  # how long a server that ends waits for the service account key that is being made for its next start
TAKE_OVER_S = 10.0  # how long the workers of a server that was killed may take to end
FRONT, REPLICATOR = -1, -2  # in the place of a worker's number


class Worker:
    """A child process: its number, or FRONT for the one that terminates TLS, REPLICATOR for the one that follows etcd; and the pipe on
    which it reports that it is ready, or why not."""

    def __init__(self, index: int, pid: int, pipe: int, sockets: dict[str, socket.socket]) -> None:
        self.index, self.pid, self.pipe, self.sockets = index, pid, pipe, sockets
        self.ready, self.report = False, b""
        self.heartbeats = self.beats = 0  # heartbeats received on the pipe; their number at the last look
        self.silent_s = 0.0  # time without a heartbeat in which this process ran
        self.deaf = False  # new connections go to the other workers
        self.killed_at: float | None = None  # when it is killed if it has not ended

    @property
    def name(self) -> str:
        """Its name in the log."""
        return {FRONT: "the TLS front", REPLICATOR: "the replicator"}.get(self.index, f"worker {self.index}")


def run(options: Completed, extensions: Extensions | None = None, ready: Callable[[Completed], None] | None = None) -> int:
    """Runs the server until it is told to stop; returns the exit code. ``extensions`` are an embedding program's. ``ready``, called
    with the final options, replaces the ready line."""
    for text in options.raw.warnings():
        _log(options, text, begin="kas: warning: ")
    try:
        return _Supervisor(options, extensions, ready).run()
    except (StartError, NoProcess) as e:
        _log(options, str(e), "error")
        return EXIT_FAILED


def _load(o: Completed) -> None:
    """Imports what the workers run once, so that they share its pages. A single worker imports for itself."""
    if o.workers == 1:
        return
    look_for_no_cycles()
    from kas import worker

    worker.load(o)
    gc.freeze()  # so that garbage collection in the workers does not write to these pages
    gc.enable()


def _log(o: Completed, text: str, level: str = "warning", begin: str = "kas: ") -> None:
    """Writes a message to standard error in the format of the logs; in text format it begins with ``begin``."""
    line = {"ts": round(time.time() * 1000, 3), "level": level, "logger": "kas.supervisor", "pid": os.getpid(), "msg": text}
    say(json.dumps(line) if o.raw.logging_format == "json" else begin + text)


class _Supervisor:
    def __init__(
        self, options: Completed, extensions: Extensions | None = None, ready: Callable[[Completed], None] | None = None
    ) -> None:
        self.options, self.extensions, self.ready = options, extensions, ready
        self.first_start = False
        self.workers: dict[int, Worker] = {}
        self.deaths: dict[int, list[float]] = {}
        self.stopping = False
        self.reserved: dict[str, socket.socket] = {}
        self.looked_at = 0.0
        self.exit_code = 0
        self.waiting_for_replica = options.etcd
        self.renewing = self.renewed = False
        self.owed: set[int] = set()  # children that could not be forked; retried every second

    def run(self) -> int:
        opts = self.options
        raise_descriptor_limit()
        self.pid = os.getpid()
        if not os.path.exists(opts.data_dir / "format"):  # or claimed; a start that is refused leaves nothing behind
            opts = self.options = self._reserve_ports(opts)
        self._lock_data_dir(opts.data_dir)
        if not self.reserved:
            opts = self.options = self._reserve_ports(opts)
        with self._run_dir() as run_dir:
            self.options = opts = opts._replace(run_dir=run_dir)
            self._block_signals()
            self._share()
            self.ask, self.ask_writer = os.pipe() if opts.etcd else (-1, -1)
            self.go, self.go_writer = os.pipe()
            self.rendezvous: Rendezvous | None = None
            if opts.front:
                from kas.edge.front.rendezvous import Rendezvous  # loads libcrypto, which this process does not need otherwise

                self.rendezvous = Rendezvous(run_dir / "front")
            preparer = self._fork(self._prepare)
            try:
                if opts.etcd:
                    self._spawn(REPLICATOR)
                    _load(opts)  # the workers are forked when it is ready
                elif not self._spawn_workers():
                    return EXIT_FAILED
                if not self._await_prepared(preparer):
                    return EXIT_FAILED
                code = self._loop()
                end_child(preparer.pid, KEY_S)  # it has usually ended long ago, or it is making a key
                return code
            finally:
                self._kill_all()

    @contextlib.contextmanager
    def _run_dir(self) -> Iterator[Path]:
        """The directory that workers share. It is below the data directory, so that a killed server leaves nothing elsewhere."""
        path = self.options.data_dir / "run"
        remove_tree(path)
        try:
            path.mkdir(mode=0o700)
        except OSError as e:
            raise StartError(f"--data-dir: {path}: {e.strerror}") from None
        try:
            yield path
        finally:
            remove_tree(path)

    # --- preparation

    def _lock_data_dir(self, path: Path) -> None:
        try:
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
            check_data_dir(path)  # before anything is written to a directory that is not ours
            self.lock = open(path / "lock", "a+", opener=private)  # noqa: SIM115 — held as long as the process lives
            self._take_lock(path)
            self.first_start = claim_data_dir(path)
            if not self.options.etcd and (why := unfinished(path)):
                raise StartError(f"--data-dir: {why}")
        except OSError as e:
            raise StartError(f"--data-dir: {path}: {'Not a directory' if isinstance(e, FileExistsError) else e.strerror}") from None

    def _take_lock(self, path: Path) -> None:
        """Takes the lock, which names the process that started its holders. Workers hold it too; if that process is gone they are
        ending, and are waited for."""
        until = time.monotonic() + TAKE_OVER_S
        while True:
            try:
                fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                self.lock.seek(0)
                holder = self.lock.read().strip()
                if time.monotonic() >= until or not holder.isdigit() or lives(int(holder)):
                    by = f" (process {holder})" if holder else ""
                    raise StartError(f"--data-dir: {path} is in use by another kas{by}") from None
                time.sleep(0.02)
        self.lock.truncate(0)
        self.lock.write(str(self.pid))
        self.lock.flush()

    def _reserve_ports(self, o: Completed) -> Completed:
        """Binds every port, so that 'in use' is known now and an automatic port stays ours; the workers listen."""
        done: dict[str, Any] = {}
        for name, host in (("secure_port", o.raw.bind_address), ("insecure_port", "127.0.0.1"), ("read_only_port", "127.0.0.1")):
            if (port := getattr(o, name)) == 0:
                continue
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            flag = "--" + name.replace("_", "-")
            if port > 0 and not (name == "secure_port" and o.raw.permit_port_sharing):
                with socket.socket(family) as probe:  # without SO_REUSEPORT any listener is seen
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    self._bind(probe, host, port, flag)
            s = socket.socket(family)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            try:  # without SO_REUSEADDR, so that the probe of another kas sees it before anybody listens
                s.bind((host, max(port, 0)))
            except OSError:  # closed connections of another program
                s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                self._bind(s, host, max(port, 0), flag)
            self.reserved[name], done[name] = s, s.getsockname()[1]
        return o._replace(**done)

    def _bound(self) -> dict[str, socket.socket]:
        """A worker's own sockets at the ports; they accept once it listens. Kept open here too, so that they can be shut down."""
        out = {}
        for name, held in self.reserved.items():
            if name == "secure_port" and self.rendezvous is not None:
                continue  # the front's
            s = out[name] = socket.socket(held.family)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            s.bind(held.getsockname())
        return out

    @staticmethod
    def _bind(s: socket.socket, host: str, port: int, flag: str) -> None:
        try:
            s.bind((host, port))
        except OSError as e:
            raise StartError(f"{flag}: {unbound(host, port, e)}") from None

    def _prepare(self, report: int) -> None:
        self._close_go_writer()
        from kas.preparation import prepare, prepare_later, unwritable  # only loaded in this child

        try:
            prepare(self.options)
        except OSError as e:
            raise StartError(unwritable(self.options, e)) from None
        os.write(report, b"ok")
        os.close(report)
        os.nice(10)  # workers that load on the same processor come first
        prepare_later(self.options, lambda why: _log(self.options, why))

    def _await_prepared(self, child: Worker) -> bool:
        """Waits for certificates and tokens, then lets the workers go: they wait for the end of the ``go`` pipe. Returns False if the
        server was told to stop meanwhile."""
        text = self._read_to_end(child.pipe)
        if text is None:
            return False
        os.close(child.pipe)
        if text != b"ok":
            os.waitpid(child.pid, 0)
            raise StartError(text.decode(errors="replace").strip() or "could not prepare the certificates")
        self._close_go_writer()
        return True

    def _read_to_end(self, pipe: int) -> bytes | None:
        """Reads a pipe to its end. Returns None if the server was told to stop meanwhile."""
        text = b""
        while True:
            ready = readable((self.signals, pipe))
            if self.signals in ready and {signal.SIGTERM, signal.SIGINT} & set(os.read(self.signals, 64)):
                return None
            if pipe in ready:
                chunk = os.read(pipe, 65536)
                if not chunk:
                    return text
                text += chunk

    # --- workers

    def _share(self) -> None:
        n = self.options.workers + self.options.etcd  # the replicator's slot is behind the workers'
        self.shared = Shared.create(n)
        self.others = [Shared.create(n) for _ in self.options.overrides]  # the revisions of other etcd clusters

    def _specs(self) -> list[str]:
        return [self.shared.spec, *(other.spec for other in self.others)]

    def _spawn_workers(self) -> bool:
        """Returns False if the server was told to stop meanwhile."""
        if self.rendezvous is not None:
            self._spawn(FRONT)  # it loads its own modules meanwhile
        if self.options.workers > 1 and not self.options.etcd and adopt(True):
            return self._spawn_loaded()
        _load(self.options)
        for i in range(self.options.workers):
            self._spawn(i)
        return True

    def _spawn_loaded(self) -> bool:
        """Forks the workers from a process that has loaded what they run and then ends, so that no process keeps the originals of pages
        that they write to. They become children of this process, which stays small. A worker that replaces one that died imports for
        itself."""
        made = []
        for i in range(self.options.workers):
            r, w = os.pipe()
            os.set_blocking(r, False)
            made.append((Worker(i, -1, r, self._bound()), w))
        heard, write_end = os.pipe()
        loader = fork()
        if not loader:
            os.close(heard)
            self._loader(made, write_end)
        for fd in (write_end, *(w for _, w in made)):
            os.close(fd)
        text = self._read_to_end(heard)
        os.close(heard)
        if text is None:  # the workers forked so far end with this process
            os.kill(loader, signal.SIGKILL)
            return False
        _, status = os.waitpid(loader, 0)
        adopt(False)
        told, *pids = text.split() or [b""]
        if told != b"ok":
            raise StartError(text.decode(errors="replace") or f"workers could not be loaded: signal {os.WTERMSIG(status)}")
        for (child, _), pid in zip(made, pids, strict=True):
            child.pid = int(pid)
            self.workers[child.pid] = child
        return True

    def _loader(self, made: list[tuple[Worker, int]], write_end: int) -> NoReturn:
        """Imports, forks a worker for each of ``made`` with the write end of its report pipe, and reports their process ids."""
        text = "ok"
        try:
            for s in (signal.SIGTERM, signal.SIGINT):
                signal.signal(s, signal.SIG_IGN)  # they are for the supervisor, which gets them, too
            signal.set_wakeup_fd(-1)
            end_with(self.pid)
            _load(self.options)
            own = os.getpid()
            for child, report in made:
                pid = fork()
                if not pid:
                    os.close(write_end)
                    for other, end in made:
                        os.close(other.pipe)
                        if other is not child:
                            os.close(end)
                            for held in other.sockets.values():
                                held.close()
                    await_adoption(own)
                    self._run_child(self._worker(child.index, child.sockets), report)
                text += f" {pid}"
        except NoProcess as e:
            text = str(e)
        except BaseException as e:
            import traceback

            _log(self.options, traceback.format_exc(), "error", "")
            text = f"workers could not be loaded: {type(e).__name__}: {e}"
        os.write(write_end, text.encode())
        os._exit(0)

    def _fork(self, work: Callable[[int], None], sockets: dict[str, socket.socket] | None = None) -> Worker:
        r, w = os.pipe()
        try:
            pid = fork()
        except NoProcess:
            os.close(r)
            os.close(w)
            raise
        if pid:
            os.close(w)
            os.set_blocking(r, True)
            return Worker(-1, pid, r, sockets or {})
        os.close(r)
        self._run_child(work, w)

    def _run_child(self, work: Callable[[int], None], w: int) -> NoReturn:
        """Runs ``work`` in a child, with the write end of a pipe on which it reports, and on which a failure is reported."""
        code = EXIT_FAILED
        try:
            end_with(self.pid)
            for other in self.workers.values():
                for held in other.sockets.values():
                    held.close()
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
                signal.signal(s, signal.SIG_DFL)
            signal.set_wakeup_fd(-1)
            work(w)
            code = 0
        except StartError as e:
            os.write(w, str(e).encode())
        except BaseException as e:
            import traceback

            _log(self.options, traceback.format_exc(), "error", "")
            os.write(w, f"{type(e).__name__}: {e}".encode())
        finally:
            flush_standard_streams()
            os._exit(code)

    def _spawn(self, index: int) -> None:
        sockets = self._bound() if index >= 0 else {}
        try:
            child = self._fork({FRONT: self._front, REPLICATOR: self._replicator}.get(index) or self._worker(index, sockets), sockets)
        except NoProcess as e:
            if not self.deaths and not self.renewed:
                raise
            for s in sockets.values():
                s.close()
            if index not in self.owed:
                _log(self.options, f"{e}; {Worker(index, -1, -1, {}).name} is missing until one can be started")
            self.owed.add(index)
            return
        self.owed.discard(index)
        os.set_blocking(child.pipe, False)
        child.index = index
        self.workers[child.pid] = child

    def _worker(self, index: int, sockets: dict[str, socket.socket]) -> Callable[[int], None]:
        def work(report: int) -> None:
            self._close_go_writer()
            look_for_no_cycles()  # until it is ready
            from kas.extensions import NONE
            from kas.worker import work as serve

            sockets_of_child = {name: s.detach() for name, s in sockets.items()}
            serve(
                self.options, index, report, self.go, self._specs(), sockets_of_child, self.rendezvous, self.ask_writer,
                self.extensions or NONE, bool(self.deaths) or self.renewed,
            )  # fmt: skip

        return work

    def _front(self, report: int) -> None:
        self._close_go_writer()
        from kas.edge.front import process
        from kas.edge.front.settings import settings
        from kas.observe.logs import setup_logging_of

        setup_logging_of(self.options.raw)
        Path("/proc/self/comm").write_text("kas-front")
        while os.read(self.go, 1):  # until the certificates exist
            pass
        assert self.rendezvous is not None
        # The supervisor keeps the socket, so that no connection is refused while a front that died is replaced.
        secure, o = self.reserved["secure_port"], self.options
        goaway = o.raw.goaway_chance > 0 or features.DEFAULT.enabled("UnauthenticatedHTTP2DOSMitigation")
        process.serve(secure, self.rendezvous, o.workers, settings(o), goaway, report)

    def _replicator(self, report: int) -> None:
        self._close_go_writer()
        from kas.observe.logs import flush_logs, setup_logging_of
        from kas.replicator import serve

        setup_logging_of(self.options.raw)
        Path("/proc/self/comm").write_text("kas-replicator")
        os.close(self.ask_writer)
        code = serve(self.options, self._specs(), self.options.workers, report, self.ask, self.waiting_for_replica, self.renewed)
        flush_logs()
        os._exit(code)

    def _close_go_writer(self) -> None:
        if self.go_writer >= 0:
            os.close(self.go_writer)
            self.go_writer = -1

    def _block_signals(self) -> None:
        r, w = os.pipe()
        os.set_blocking(w, False)
        os.set_blocking(r, False)
        self.signals = r
        signal.set_wakeup_fd(w, warn_on_full_buffer=False)
        for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(s, lambda *_: None)

    def _loop(self) -> int:
        announced = False
        grace: float | None = None
        while self.workers or self.owed:
            pipes = {w.pipe: w for w in self.workers.values() if w.pipe >= 0}
            timeout = LOOK_EVERY_S if grace is None else max(0.0, grace - time.monotonic())
            ready = readable((self.signals, *pipes), timeout)
            if grace is None:
                self._check_heartbeats()
                for index in tuple(self.owed):
                    self._spawn(index)
            for fd in ready - {self.signals}:
                self._read_report(pipes[fd])
            if self.signals in ready:
                for s in os.read(self.signals, 64):
                    if s in (signal.SIGTERM, signal.SIGINT):
                        if self.stopping:
                            self.exit_code = EXIT_FAILED
                            return self.exit_code
                        self.stopping = True
                        grace = time.monotonic() + self._grace_s()
                        self._end_all()
                    elif s == signal.SIGHUP:
                        self._reload()
            if grace is not None and time.monotonic() >= grace:
                _log(self.options, "workers did not end in time and were killed")
                return EXIT_FAILED
            self._reap()
            if self.waiting_for_replica and any(w.index == REPLICATOR and w.ready for w in self.workers.values()):
                self.waiting_for_replica = False
                self._spawn_workers()
            if not announced and self._all_ready() and not self.stopping:
                announced = True
                self._announce()
        return self.exit_code

    def _all_ready(self) -> bool:
        return bool(self.workers) and not self.waiting_for_replica and all(w.ready for w in self.workers.values())

    def _grace_s(self) -> float:
        """How long a worker that was told to stop may take."""
        raw = self.options.raw
        return raw.shutdown_delay_duration + raw.shutdown_watch_termination_grace_period + raw.shutdown_grace + 5.0

    def _check_heartbeats(self) -> None:
        """Checks the heartbeats. A worker without one gets no new connections after a while and is killed in the end. One that responds
        again in between is told to stop, because a listener that was shut down stays so. Only time in which this process ran counts: if
        all of them were stopped together, none is late."""
        now, limit = time.monotonic(), self.options.raw.worker_timeout
        passed, self.looked_at = min(now - self.looked_at, 2 * LOOK_EVERY_S), now
        for w in self.workers.values():
            beats = self.shared.memory.beats(w.index) if w.index >= 0 else w.heartbeats
            if w.killed_at is not None and now >= w.killed_at:
                self._signal(w, signal.SIGKILL)
            elif not w.ready or not limit or beats != w.beats:
                w.beats, w.silent_s = beats, 0.0
                if w.deaf and w.killed_at is None:
                    w.killed_at = now + self._grace_s()
                    self._signal(w, signal.SIGTERM)
            else:
                w.silent_s += passed
                if w.silent_s >= limit and w.killed_at is None:
                    _log(self.options, f"{w.name} has not answered for {w.silent_s:.0f} s and is killed")
                    w.killed_at = now
                    self._signal(w, signal.SIGKILL)
                elif w.silent_s >= limit / 3 and w.index >= 0 and not w.deaf and self._others_answer():
                    _log(self.options, f"worker {w.index} has not answered for {w.silent_s:.0f} s: new connections go to others")
                    self._shut_down_listeners(w)

    def _others_answer(self) -> bool:
        return any(w.ready and not w.silent_s for w in self.workers.values() if w.index >= 0)

    @staticmethod
    def _shut_down_listeners(w: Worker) -> None:
        """Shuts down a worker's listening sockets, whichever process has a descriptor of them; connections not accepted yet are reset."""
        w.deaf = True
        for s in w.sockets.values():
            with contextlib.suppress(OSError):  # not listening yet, or a socket that cannot be shut down
                s.shutdown(socket.SHUT_RD)

    @staticmethod
    def _signal(w: Worker, s: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(w.pid, s)

    def _read_report(self, w: Worker) -> None:
        data = os.read(w.pipe, 65536)
        if not data:
            os.close(w.pipe)
            w.pipe = -1
            return
        w.heartbeats += data.count(BEAT)
        w.report += data.replace(BEAT, b"")
        if w.report.startswith(b"ready\n"):
            w.ready, w.report = True, w.report[6:]

    def _reap(self) -> None:
        while self.workers:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            w = self.workers.pop(pid, None)
            if w is None:
                continue
            self._shut_down_listeners(w)
            for s in w.sockets.values():
                s.close()
            if w.pipe >= 0:
                with contextlib.suppress(BlockingIOError):
                    while data := os.read(w.pipe, 65536):
                        w.report += data
                os.close(w.pipe)
            if self.stopping:
                self._end_replicator()
                continue
            code = os.waitstatus_to_exitcode(status)
            reason = w.report.decode(errors="replace").strip() or (f"signal {-code}" if code < 0 else f"exit code {code}")
            lost = code == EXIT_LOST and w.index == REPLICATOR and not self.waiting_for_replica  # a replica that workers read
            if not w.ready and code > 0 and not lost and not self.renewing:
                _log(self.options, reason, "error")
                self._give_up()
                continue
            if w.index >= 0:
                self._release(w)
            if self.renewing or (code == EXIT_LOST and w.index == REPLICATOR):
                self._renew()
                continue
            now = time.monotonic()
            deaths = [t for t in self.deaths.get(w.index, []) if now - t < RESPAWN_WINDOW_S] + [now]
            self.deaths[w.index] = deaths
            if len(deaths) > RESPAWN_LIMIT:
                _log(self.options, f"{w.name} died {len(deaths)} times in {RESPAWN_WINDOW_S:g} s ({reason}); giving up", "error")
                self._give_up()
                continue
            _log(self.options, f"{w.name} died ({reason}); starting it again")
            time.sleep(0.05 * 2 ** (len(deaths) - 1) if len(deaths) > 1 else 0)
            self._spawn(w.index)

    def _release(self, w: Worker) -> None:
        """Frees what the worker held, and ends the count of what was open in it."""
        for shared in (self.shared, *self.others):
            shared.memory.reap(w.index)
        from kas.observe.metrics import drop_gauges

        try:
            drop_gauges(self.options.run_dir, w.index)
        except OSError as e:  # a full disk: the old gauges count until the replacement writes its own
            _log(self.options, f"the gauges of {w.name} could not be removed yet: {e}")

    def _renew(self) -> None:
        """Replaces the replica: its readers end first, then everything begins as at the start."""
        if not self.renewing:
            _log(self.options, "the replica of etcd cannot be continued; the workers are restarted")
            self.renewing = self.renewed = True
            self._signal_all(signal.SIGKILL)
        if not self.workers:
            self.renewing, self.waiting_for_replica = False, True
            for shared in (self.shared, *self.others):
                shared.close()
            self._share()  # the revision in the old memory cannot go back
            self._spawn(REPLICATOR)

    def _give_up(self) -> None:
        self.stopping, self.exit_code = True, EXIT_FAILED
        self._end_all()

    def _end_all(self) -> None:
        """Tells all children to stop, the replicator last: the workers' last writes need it."""
        self.owed.clear()
        for w in self.workers.values():
            if w.index != REPLICATOR:
                self._signal(w, signal.SIGTERM)
        self._end_replicator()

    def _end_replicator(self) -> None:
        if all(w.index == REPLICATOR for w in self.workers.values()):
            self._signal_all(signal.SIGTERM)

    def _signal_all(self, s: int) -> None:
        for w in self.workers.values():
            self._signal(w, s)

    def _reload(self) -> None:
        """Makes the front check its files. Workers have nothing to reload, and the signal would end them."""
        for w in self.workers.values():
            if w.index == FRONT:
                self._signal(w, signal.SIGHUP)

    def _kill_all(self) -> None:
        self._signal_all(signal.SIGKILL)
        for pid in list(self.workers):
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
        self.workers.clear()

    def _announce(self) -> None:
        o = self.options
        if self.ready is not None:
            self.ready(o)
            return
        if why := notify_ready():
            _log(o, why)
        took = age_s() * 1000
        secure, insecure, read_only = o.secure_port, o.insecure_port, o.read_only_port
        where = [f"https://{shown(o.raw.bind_address, secure)}"] * bool(secure) + [f"http://127.0.0.1:{insecure}"] * bool(insecure)
        where += [f"http://127.0.0.1:{read_only} (read-only)"] * bool(read_only)
        kubeconfig = o.data_dir / "admin.kubeconfig"
        if o.raw.logging_format == "json":
            line = {"addresses": where, "kubeconfig": str(kubeconfig), "start_ms": round(took), "first_start": self.first_start}
            say(json.dumps({"msg": "ready", **line}), sys.stdout)
        else:
            first = ", the first start" if self.first_start else ""
            say(f"kas ready on {', '.join(where)} in {took:.0f} ms{first}; kubeconfig: {kubeconfig}", sys.stdout)
