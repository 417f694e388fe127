"""The TLS front process: accepts connections, gives each a relay and a worker, and closes those that take too long.

``Limits`` bound how long each stage of a connection may take and how many handshakes may run at once. The number of
connections is bounded by that of file descriptors.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import signal
import socket
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from OpenSSL import SSL

from kas.edge.front.failures import Failures
from kas.edge.front.handshakes import BUDGET_S, Handshakes
from kas.edge.front.relay import Relay
from kas.edge.front.rendezvous import Rendezvous
from kas.edge.front.tls import Contexts, Settings, host, listen
from kas.edge.front.worker import Worker
from kas.edge.slowreaders import Held, SlowReaders
from kas.meta.fdwait import BEAT
from kas.meta.threads import Threads
from kas.observe.logs import flush_logs
from kas.observe.process import Trimmer

log = logging.getLogger("kas.front")

BACKLOG = 4096
SWEEP_S = 1.0
GIVE_BACK_S = 10.0  # between two looks at how much memory was freed
PAUSE_S = 0.1  # after accept failed for lack of descriptors
SPARE_DESCRIPTORS, MOST_DESCRIPTORS = 128, 1 << 20
GOODBYE_S = 2.0


@dataclass(frozen=True)
class Limits:
    """Bounds on connections.

    ``handshakes``: how many may run at once; a further one closes the oldest handshake of the client that has most.
    A client has ``handshake_s`` for its handshake, ``silent_s`` from there to its first byte (kube-apiserver's time
    for the head of a request), and ``linger_s`` to take the last response, counted in time in which the front runs
    (``OwnTime``). ``connections``: 0 = derived from the limit on file descriptors.
    """

    handshakes: int = 1024
    handshake_s: float = 10.0
    silent_s: float = 32.0
    linger_s: float = 2.0
    connections: int = 0


class OwnTime:
    """A clock that leaves out the time in which this process did not run: a machine that stood still, or was busy
    with other processes, has taken that time from the clients as well. ``looked`` must be called every ``SWEEP_S``."""

    def __init__(self) -> None:
        self._lost, self._due = 0.0, time.monotonic() + SWEEP_S

    def now(self) -> float:
        """The time in seconds."""
        return time.monotonic() - self._lost

    def looked(self) -> float:
        """The time, after subtracting how much later than due this call comes."""
        at = time.monotonic()
        self._lost += max(0.0, at - self._due)
        self._due = at + SWEEP_S
        return at - self._lost


class _Waiting:
    """Relays that have ``limit_s`` for something; the one that began first is first."""

    def __init__(self, limit_s: float, time_: OwnTime) -> None:
        self.limit_s, self._time = limit_s, time_
        self.since: OrderedDict[Relay, float] = OrderedDict()  # a dict would pass over all deleted entries to find the first

    def add(self, relay: Relay) -> None:
        self.since[relay] = self._time.now()

    def drop(self, relay: Relay) -> None:
        self.since.pop(relay, None)

    def cut_oldest(self) -> bool:
        """Closes the first relay; False if there is none."""
        for relay in self.since:
            relay.close()
            return True
        return False

    def sweep(self, now: float) -> None:
        while self.since and now - next(iter(self.since.values())) >= self.limit_s:
            self.cut_oldest()


class _Handshakes(_Waiting):
    """Relays whose handshake is under way."""

    def __init__(self, limit_s: float, time_: OwnTime) -> None:
        super().__init__(limit_s, time_)
        self._clients: dict[str, OrderedDict[Relay, None]] = {}

    def add(self, relay: Relay) -> None:
        super().add(relay)
        self._clients.setdefault(relay.client, OrderedDict())[relay] = None

    def drop(self, relay: Relay) -> None:
        super().drop(relay)
        of_client = self._clients.get(relay.client)
        if of_client is not None:
            of_client.pop(relay, None)
            if not of_client:
                del self._clients[relay.client]

    def cut_of_most(self) -> bool:
        """Closes the oldest handshake of the client that has most of them, after a look at each client. False if there is none."""
        if not self._clients:
            return False
        most: OrderedDict[Relay, None] = max(self._clients.values(), key=len)
        next(iter(most)).close()
        return True


class FrontProcess:
    """Serves until ``stop`` was called and all workers have ended (``ended``).

    ``sock`` is bound; ``workers`` is their number. With ``goaway``, workers may ask that an HTTP/2 client
    reconnects.
    """

    def __init__(
        self, sock: socket.socket, rendezvous: Rendezvous, workers: int, settings: Settings, limits: Limits = Limits(),
        goaway: bool = False,
    ) -> None:  # fmt: skip
        self.loop = asyncio.get_running_loop()
        self.rendezvous, self.goaway = rendezvous, goaway
        self._listening, self._contexts = sock, Contexts(settings)
        self._workers = [
            Worker(self.loop, rendezvous.worker(i), rendezvous.introductions(i), self._workers_changed, rendezvous.streams(i))
            for i in range(workers)
        ]
        self._limits, self._most = limits, limits.connections or _descriptors()
        self._open = 0
        self._time = OwnTime()
        self._in_handshake = _Handshakes(limits.handshake_s, self._time)
        self._silent, self._lingering = (_Waiting(limit_s, self._time) for limit_s in (limits.silent_s, limits.linger_s))
        self._without_worker: list[Relay] = []  # relays that wanted a worker while there was none
        self._handshake_queue = Handshakes(self.loop)
        self._slow_readers = SlowReaders(self._held, self._reset)
        self._checking: asyncio.Future[int] | None = None
        self._failures = Failures(rendezvous.path.parent / "metrics-front.json")
        self._writing: asyncio.Future[None] | None = None
        self._trimmer, self._trim_at = Trimmer(), 0.0
        self._stop_asked = self._ending = self._deaf = False
        self.complete: asyncio.Future[None] = self.loop.create_future()  # every worker has joined once
        self.ended: asyncio.Future[None] = self.loop.create_future()

    def start(self) -> None:
        """Starts to accept connections."""
        listen(self._listening, BACKLOG)
        for worker in self._workers:
            worker.join()
        self.loop.add_reader(self._listening.fileno(), self._accept)
        self._sweep()

    def stop(self) -> None:
        """Ends once the last worker has ended; until then requests are answered."""
        self._stop_asked = True
        self._workers_changed()

    def reload(self) -> None:
        """Checks the certificate files now."""
        self._contexts.refresh()

    # --- connections

    def _accept(self) -> None:
        until = time.monotonic() + BUDGET_S
        while time.monotonic() < until:
            try:
                sock, address = self._listening.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as e:
                log.warning("accept: %s", e.strerror)
                self.loop.remove_reader(self._listening.fileno())
                self.loop.call_later(PAUSE_S, self._accept_again)
                return
            if self._open >= self._most and not (self._in_handshake.cut_of_most() or self._silent.cut_oldest()):
                sock.close()
                continue
            if len(self._in_handshake.since) >= self._limits.handshakes:
                self._in_handshake.cut_of_most()
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            self._open += 1
            self._in_handshake.add(Relay(self, sock, host(address[0]), self._contexts.current))

    def _accept_again(self) -> None:
        if not (self._ending or self._deaf):
            self.loop.add_reader(self._listening.fileno(), self._accept)

    def begin_handshake(self, relay: Relay) -> None:
        """See ``relay.Front``."""
        self._handshake_queue.ask(relay)

    def greeted(self, relay: Relay) -> None:
        """See ``relay.Front``."""
        self._in_handshake.drop(relay)
        self._silent.add(relay)

    def wants_worker(self, relay: Relay) -> None:
        """Gives the relay the worker with the fewest connections."""
        there = [w for w in self._workers if w.joined]
        if not there:
            self._without_worker.append(relay)  # it still counts as silent, so its wait is bounded
            return
        self._silent.drop(relay)
        relay.join(min(there, key=lambda w: len(w.relays)))

    def lingers(self, relay: Relay) -> None:
        """See ``relay.Front``."""
        self._lingering.add(relay)

    def refused(self) -> None:
        """See ``relay.Front``. While the server ends, new connections are refused, so that clients may try another
        server: a connection that is closed after its handshake is an error to a client."""
        if self._stop_asked and not self._deaf:
            self._deaf = True
            self.loop.remove_reader(self._listening.fileno())
            with contextlib.suppress(OSError):  # not supported everywhere
                self._listening.shutdown(socket.SHUT_RD)

    def gone(self, relay: Relay) -> None:
        """See ``relay.Front``."""
        self._open -= 1
        if relay in self._in_handshake.since:
            self._failures.count += 1
        for waiting in (self._in_handshake, self._silent, self._lingering):
            waiting.drop(relay)
        if self._ending and not self._open:
            self._ended()

    # --- workers and time

    def _workers_changed(self) -> None:
        patient, self._without_worker = self._without_worker, []
        for relay in patient:
            if not relay.closed:
                self.wants_worker(relay)
        if not self.complete.done() and all(w.joined for w in self._workers):
            self.complete.set_result(None)
        self._end()

    def _end(self) -> None:
        """Ends with the last worker. What it has written is still delivered; a connection that has not reached a worker is closed."""
        if self._ending or not self._stop_asked or any(w.joined for w in self._workers):
            return
        self._ending = True
        self.loop.remove_reader(self._listening.fileno())
        for waiting in (self._in_handshake, self._silent):
            while waiting.cut_oldest():
                pass
        self.loop.call_later(GOODBYE_S if self._open else 0, self._ended)

    def _ended(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)

    def _sweep(self) -> None:
        self.loop.call_later(SWEEP_S, self._sweep)  # first, because starting a thread below may fail
        now = self._time.looked()
        for waiting in (self._in_handshake, self._silent, self._lingering):
            waiting.sweep(now)
        self._contexts.refresh()
        self._give_back(now)
        if (self._checking is None or self._checking.done()) and self._slow_readers.pressed():
            self._checking = self.loop.run_in_executor(None, self._slow_readers.look)
        if self._failures.due and (self._writing is None or self._writing.done()):
            self._writing = self.loop.run_in_executor(None, self._failures.tell)

    def _held(self) -> Iterator[Held[Relay]]:
        """Called by ``SlowReaders`` in its thread."""
        for worker in self._workers:
            for relay in list(worker.relays.values()):
                found = relay.held()
                if found is not None:
                    yield found

    def _reset(self, one: Held[Relay]) -> None:
        self.loop.call_soon_threadsafe(one.what.reset)

    def _give_back(self, now: float) -> None:
        """Returns freed memory to the system. Thousands of connections that are gone leave their memory in the
        allocator's heap, which the few that remain would keep."""
        if now >= self._trim_at:
            self._trim_at = now + GIVE_BACK_S
            if self._trimmer.due():
                self.loop.run_in_executor(None, self._trimmer.trim)


def _descriptors() -> int:
    """How many connections there may be, with two descriptors each."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    most = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    return max(16, (most - SPARE_DESCRIPTORS) // 2)


def serve(sock: socket.socket, rendezvous: Rendezvous, workers: int, settings: Settings, goaway: bool, report_fd: int) -> None:
    """Runs the front until it was told to stop (SIGTERM) and no worker is left, or until its supervisor is gone.

    ``report_fd`` gets "ready" or the reason of a failure, and ``BEAT`` once a second. SIGHUP makes it check its
    files.
    """
    import uvloop

    parent = os.getppid()
    loop = uvloop.new_event_loop()
    loop.set_default_executor(Threads())
    asyncio.set_event_loop(loop)

    def front() -> FrontProcess:
        return FrontProcess(sock, rendezvous, workers, settings, goaway=goaway)

    try:
        loop.run_until_complete(_serve(front, report_fd, parent))
    except (OSError, ValueError, SSL.Error) as e:
        os.write(report_fd, f"the TLS front: {_reason(e, settings.files)}".encode())
        flush_logs()
        os._exit(1)
    flush_logs()
    os._exit(0)


def _reason(e: Exception, files: Sequence[str]) -> str:
    if isinstance(e, SSL.Error):
        return f"{', '.join(files)}: " + "; ".join(str(x[-1]) for x in e.args[0] if x) if e.args else str(e)
    return str(e)


async def _serve(make: Callable[[], FrontProcess], report_fd: int, parent: int) -> None:
    loop, front = asyncio.get_running_loop(), make()
    for s in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(s, front.stop)
    loop.add_signal_handler(signal.SIGHUP, front.reload)
    front.start()
    front.complete.add_done_callback(lambda _: os.write(report_fd, b"ready\n"))
    while not front.ended.done() and os.getppid() == parent:
        await asyncio.wait((front.ended,), timeout=SWEEP_S)
        with contextlib.suppress(BrokenPipeError):  # the supervisor is gone
            os.write(report_fd, BEAT)
