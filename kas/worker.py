"""One worker of ``kas serve``, from its start to its end.

Start: open the store, bring the bootstrap objects up to date, load derived state, wait for the certificates, listen,
report ready. Shutdown (SIGTERM), as in kube-apiserver: readyz fails, a delay, no new requests, requests in flight
end, watches end, the store closes.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import gc
import importlib
import logging
import os
import signal
import socket
import stat
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any

from kas.admission import order
from kas.client import outgoing
from kas.client.http import use_environment
from kas.config import features
from kas.config.options import Completed
from kas.controllers.runner import Periodic, Runner
from kas.director import Director
from kas.edge import messagelimit, slowreaders
from kas.edge.asgi import App
from kas.edge.body import Bounds
from kas.edge.descriptors import DescriptorGate, defer_accept, held, limit_buffers, sent
from kas.edge.dispatch import Dispatcher
from kas.edge.unusedconnections import LOOK_EVERY_S, UnusedConnections
from kas.endpoints import respond, translate
from kas.endpoints.healthchecks import STORAGE
from kas.extensions import NONE, Extensions, Hook, HookContext, hook_name
from kas.filters.deadline import deadline, timed_out
from kas.filters.handler import Chain
from kas.filters.panic_recovery import panic_recovery
from kas.filters.request_info import request_info
from kas.filters.wait_group import WaitGroup
from kas.meta.threads import Threads
from kas.observe import counted
from kas.observe.logs import flush_logs, setup_logging_of
from kas.observe.looptime import LoopTime
from kas.observe.process import (
    LOOKED_AT,
    Cycles,
    age_s,
    bound_heaps,
    mappable,
    outgoing_descriptors,
    share_interpreter,
    spare_descriptors,
)
from kas.request.http import Handler, Request, Response
from kas.request.masking import SHOWN_ID
from kas.server import Server
from kas.store import Damaged, Full, Store, StoreError, TransformError, Unavailable, Unknown, open_store
from kas.store.shared import Shared
from kas.warmup import WarmUp, load_largest

if TYPE_CHECKING:
    from kas.edge.front.rendezvous import Rendezvous
    from kas.edge.listener import Listener
    from kas.encryption.atrest import EncryptionAtRest

log = logging.getLogger("kas")

GIVE_UP_S = 2.0
PATIENCE = 4  # the part of --shutdown-grace within which some client has to take something of the remaining responses
ANSWERED_S = 0.2  # how often that is checked
STOPPED_S = 1.0  # until connections without a request have closed
AGAIN_S = 1.0
OWED_S = 10.0  # how often a write that etcd had no room for is retried
HEARD_S = 0.02  # in which granian's threads mostly have learnt of the end
QUIET_S = 0.5  # how long a server that ends still serves requests on open connections while it is never idle
LEAST_DRAINED_PER_S = 200.0  # watches of all workers that end in --shutdown-watch-termination-grace-period, as in kube-apiserver
# The controllers that lead clients and other servers to this one, or would restore that: kas.controllers.peerleases,
# masterleases, bootstrapcontroller.
LEADING_HERE = ("peer-endpoint-lease", "kubernetes-service-endpoint-lease", "kubernetes-service-endpoints", "bootstrap-controller")
EXIT_DEAF = 3
MAP_FULL = "MDB_MAP_FULL"
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY")  # environment variables that name a proxy


def load(options: Completed) -> None:
    """Imports what a worker with these options needs from the start, for a process that forks several workers. None
    of it starts a thread, opens a descriptor or makes an event loop before ``work`` does."""
    for name in order.enabled(*order.wanted(options.raw)):
        importlib.import_module(order.module(name))
    load_largest()
    importlib.import_module("uvloop")


def work(
    options: Completed, index: int, report_fd: int, go_fd: int, specs: Sequence[str], sockets: dict[str, int],
    rendezvous: Rendezvous | None = None, ask: int = -1, extensions: Extensions = NONE, again: bool = False,
) -> None:  # fmt: skip
    """Runs worker number ``index`` until it is told to stop.

    - ``report_fd`` gets "ready" or the reason of a failure.
    - ``go_fd`` reads end of file once certificates and keys exist.
    - ``specs`` name the memory that workers share (``Shared``), one for each etcd cluster.
    - ``sockets`` are bound descriptors to listen on, by the name of the port's option.
    - With ``rendezvous`` a TLS front holds the secure port.
    - ``ask`` is the pipe to the replicator, with etcd.
    - ``extensions`` are an embedding program's.
    - ``again``: there was a worker before.
    """
    import uvloop

    bound_heaps()
    share_interpreter()
    setup_logging_of(options.raw)
    if any(os.environ.get(name) or os.environ.get(name.lower()) for name in PROXIES):
        from kas.client.proxies import Environment  # few have one

        if proxies := Environment(os.environ):
            use_environment(proxies.of)
    log.info("start: worker %d loaded %.0f ms after its fork", index, age_s() * 1000)
    try:
        # Not uvloop.run: it ends by looking at all tasks, among which granian keeps one that only represents its own
        # scheduler.
        loop = uvloop.new_event_loop()
        loop.set_default_executor(Threads())
        asyncio.set_event_loop(loop)
        loop.run_until_complete(_serve(options, index, report_fd, go_fd, specs, sockets, rendezvous, ask, extensions, again))
    except (StoreError, OSError, ValueError) as e:
        os.write(report_fd, failure(options, e).encode())
        os.close(report_fd)
        os._exit(1)
    flush_logs()
    # granian's runtime threads have nothing left to do, and waiting for them would delay the exit.
    os._exit(0)


def failure(options: Completed, e: Exception) -> str:
    """The reason why a worker could not start. An error about a full disk does not name a path: it is the data
    directory's, or the store has reached its limit, unless etcd is the one that is full."""
    if isinstance(e, Full) and options.raw.storage_backend == "lmdb":
        if MAP_FULL in str(e):
            return f"--store-max-size: the store in {options.data_dir} needs more than {options.store_max_size} bytes: {e}"
        return f"--data-dir: {options.data_dir}: {e}"
    if isinstance(e, OSError) and e.filename and e.strerror:
        return f"{e.filename}: {e.strerror}"
    return str(e)


async def _serve(
    options: Completed, index: int, report_fd: int, go_fd: int, specs: Sequence[str], sockets: dict[str, int],
    rendezvous: Rendezvous | None, ask: int, extensions: Extensions, again: bool,
) -> None:  # fmt: skip
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for s in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(s, stop.set)
    shared, *others = (Shared.attach(spec, index) for spec in specs)
    raw = options.raw
    step = _steps()
    encryption = _encryption(options, index) if raw.encryption_provider_config else None
    store = _open(options, shared, others, ask, encryption)
    step("store open")
    server = Server(options, store, shared, index, extensions, encryption)
    if rendezvous is not None:
        server.metrics.add(counted.failed_handshakes())  # counted by the front
    step("server built")
    server.heartbeat.start(loop)
    store.start(loop)
    if encryption is not None:
        await asyncio.to_thread(encryption.begin)
        await asyncio.to_thread(encryption.read_all, store)
        step("sealed values read")
    server.hooks.done(STORAGE)
    owed = await _bootstrap(server, stop, encryption if again else None)
    step("bootstrap objects there")
    server.store.catch_up()
    server.load_derived()
    step("derived state loaded")
    while os.read(go_fd, 1):  # nothing else runs yet during start-up
        pass
    os.close(go_fd)
    if (signer := server.keys.external) is not None:  # it may not be running yet
        longest_s = int(options.raw.service_account_max_token_expiration)
        if not await _done_before(stop, asyncio.to_thread(signer.begin, longest_s)):
            return
    server.load_credentials()
    step("credentials loaded")
    own = frozenset(p for p in (options.secure_port, options.insecure_port, options.read_only_port) if p)
    unused, stuck = UnusedConnections(own), slowreaders.SlowReaders(functools.partial(slowreaders.held_by, own), slowreaders.reset)
    bounds = Bounds()
    listeners = _listeners(server, sockets, unused, rendezvous, bounds)
    server.started = True
    ports = [socket.socket(fileno=os.dup(fd)) for fd in sockets.values()]
    for bound in ports:
        limit_buffers(bound)
    descriptor_gate = DescriptorGate(ports, spare_descriptors(), lambda: _give_up(server))
    outgoing.share_out(outgoing_descriptors())
    for listener in listeners:
        listener.start(index)
    if server.spdy_listener is not None:
        await server.spdy_listener.start()
    for bound in ports:
        defer_accept(bound)
    LoopTime(server.metrics, _describe_request, [descriptor_gate.check_sometimes, Cycles().look]).start()
    runner = server.runner([
        ("silent connections", LOOK_EVERY_S, functools.partial(asyncio.to_thread, unused.look)),
        ("answers that are not taken", slowreaders.LOOK_EVERY_S, stuck.due),
        ("WebSockets", messagelimit.LOOK_EVERY_S, bounds.message_limit.due),
        *owed,
    ])
    runner.start()
    load_largest()
    gc.freeze()  # what exists now lives as long as the process
    gc.set_threshold(*LOOKED_AT)
    await _run_hooks(server, extensions.post_start, lambda name: server.hooks.done(hook_name(name)))
    gc.enable()
    os.write(report_fd, b"ready\n")
    warm_up = WarmUp(server.registries, server.trim)
    server.rest.cold, server.rest.ask = warm_up.cold, warm_up.ask
    warming = loop.create_task(warm_up.run())
    if raw.v >= 4:
        loop.set_debug(True)
    await stop.wait()
    warming.cancel()
    await _shut_down(server, listeners, runner, descriptor_gate, bounds.leaving)


async def _done_before(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """Whether ``work``, which may take long, finished before this worker was told to end. Raises what it raises."""
    working, ending = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    await asyncio.wait((working, ending), return_when=asyncio.FIRST_COMPLETED)
    ending.cancel()
    if working.done():
        working.result()
    return working.done()


async def _bootstrap(server: Server, stop: asyncio.Event, sealed: EncryptionAtRest | None = None) -> list[Periodic]:
    """Writes the bootstrap objects; returns the periodic task that is left to do. Raises ``StoreError``.

    With etcd the replica has just become complete, so an etcd that does not answer now is waited for, until
    ``stop``: this worker may replace one that died, and others serve. An etcd that takes no writes is served with
    the objects of an earlier start: deleting objects through this server may be what makes room. If the objects are
    encrypted with a KMS plug-in (``sealed``) that does not answer, it is waited for, too, because other workers
    still have the key.
    """
    away = True
    while True:
        try:
            server.bootstrap()
            return []
        except (Full, Damaged) as e:
            if not server.options.etcd or not server.bootstrapped():
                raise
            log.warning("bootstrap objects of an earlier start are used until etcd accepts writes: %s", e)
            return [("bootstrap objects", OWED_S, PendingBootstrap(server).pay)]
        except (Unavailable, Unknown) as e:
            if not server.options.etcd or stop.is_set():
                raise
            log.warning("the bootstrap objects are written once etcd answers: %s", e)
        except TransformError as e:
            before, away = away, sealed is not None and any(check() for check in sealed.checks().values())
            if sealed is None or not (before or away) or stop.is_set():  # a plug-in that has just come back is tried once more
                raise
            log.warning("the bootstrap objects are checked once the KMS plug-in that encrypts them answers: %s", e)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(AGAIN_S):
                await stop.wait()


class PendingBootstrap:
    """Bootstrap objects that could not be written yet."""

    def __init__(self, server: Server) -> None:
        self._server, self._paid = server, False

    async def pay(self) -> None:
        """Writes them once etcd takes writes."""
        if not self._paid:
            with contextlib.suppress(Full, Damaged, Unavailable, Unknown):
                await asyncio.to_thread(self._server.bootstrap)
                self._paid = True


async def _run_hooks(server: Server, hooks: Mapping[str, Hook], done: Callable[[str], None]) -> None:
    """Runs an embedding program's hooks one after the other. Raises ValueError if one fails."""
    context = HookContext(server.loopback(), server.index, server.options.workers) if hooks else None
    for name, hook in hooks.items():
        assert context is not None
        try:
            waiting = hook(context)
            if not isinstance(waiting, Awaitable):
                raise TypeError(f"it gave {waiting!r}, nothing to wait for: a hook is a coroutine function")
            await waiting
        except Exception as e:  # whatever it is, the program has to know
            log.exception("hook %s failed", name)
            raise ValueError(f"hook {name} failed: {type(e).__name__}: {e}") from None
        done(name)


def _open(options: Completed, shared: Shared, others: Sequence[Shared], ask: int, encryption: EncryptionAtRest | None) -> Store:
    """Opens the store of ``--storage-backend``. ``others`` are for the clusters of ``--etcd-servers-overrides``."""
    raw, size = options.raw, mappable(options.store_max_size, 1 + len(others))
    if size < options.store_max_size:
        log.warning("start: the address space is limited, so the store's file is limited to %d MiB instead of --store-max-size", size >> 20)
    if options.etcd:
        from kas.replicator import open_etcd_store

        return open_etcd_store(options, [shared, *others], ask, encryption.transformer if encryption is not None else None)
    return open_store(
        str(options.data_dir / "store"), max_size=size, sync=not raw.unsafe_no_fsync, shared=shared,
        transformers=encryption.transformer if encryption is not None else None,
    )  # fmt: skip


def _encryption(options: Completed, index: int) -> EncryptionAtRest:
    from kas.encryption.atrest import EncryptionAtRest
    from kas.types.scheme import Scheme

    raw = options.raw
    path, reload, v1 = raw.encryption_provider_config, raw.encryption_provider_config_automatic_reload, raw.feature_gates
    told = options.run_dir / "kms" if options.workers > 1 or options.etcd else None
    return EncryptionAtRest(path, reload, "KMSv1" in features.enabled(v1), Scheme().resources, told, str(index))


def _steps() -> Callable[[str], None]:
    """Logs how long each step of the start took, at -v 1."""
    began = time.monotonic()

    def step(what: str) -> None:
        log.info("start: %s after %.0f ms", what, (time.monotonic() - began) * 1000)

    return step


def _describe_request(frame: FrameType) -> str:
    """The request that a frame serves, without anything that may be secret."""
    req = frame.f_locals.get("req")
    if not isinstance(req, Request):
        return ""
    verb, user = req.info.verb if req.info else req.method, req.user.name if req.user is not None else ""
    return f"verb={verb} path={req.path} userAgent={req.header(b'user-agent')} user={user} audit-ID={req.audit_id[:SHOWN_ID]}"


def _listeners(
    server: Server, sockets: dict[str, int], unused: UnusedConnections, rendezvous: Rendezvous | None, bounds: Bounds
) -> list[Listener]:
    from kas.edge.listener import HTTP, Listener, TLSFiles  # after the fork: see kas.edge.granianparts

    o, raw = server.options, server.options.raw
    http = HTTP("1" if raw.disable_http2_serving else "auto", raw.http2_max_streams_per_connection)
    connections = spare_descriptors() // (len(sockets) + (rendezvous is not None))
    out = []
    gate = server.flow_control.gate if server.flow_control is not None else None
    loop = asyncio.get_running_loop()
    known, acted = server.filter_parts.remembered, server.filter_parts.acted

    def acts(credential: bytes, wanted: bytes) -> bool:
        user = known.whose(credential)
        return user is not None and acted.has(user.name, wanted)

    make_dispatcher = functools.partial(
        Dispatcher, loop, knows=known.has, acts=acts, unauthenticated=lambda: known.unauthenticated,
        shows=functools.partial(acted.who, known.shown), naming=[name.lower().encode() for name in server.proxies.username_headers],
        spoke=unused.spoke.add,
    )  # fmt: skip
    dispatcher = make_dispatcher()
    if gate is not None:
        dispatcher = make_dispatcher(lambda: gate.queued_reads or gate.queued_writes, lambda: gate.shared, lone=known.all_known)
    if rendezvous is not None:
        from kas.edge.front.introduction import Introductions  # only needed behind a front
        from kas.edge.front.rendezvous import free
        from kas.edge.spdylistener import SPDYListener

        introductions = Introductions(rendezvous.introductions(server.index))
        introductions.start()
        address = rendezvous.worker(server.index)
        free(address)
        app = App(server.chain, introductions=introductions, bounds=bounds, gives=dispatcher.gives)
        out.append(Listener(app, "", 0, uds=address, http=http, connections=connections, dispatcher=dispatcher))
        server.spdy_listener = SPDYListener(server.chain, rendezvous.streams(server.index), introductions, bounds.message_limit)
    for name, fd in sockets.items():
        tls = None
        if name == "secure_port":
            app = App(server.chain, spoke=unused.spoke.add, bounds=bounds, gives=dispatcher.gives)
            cert, key = o.serving_pair
            tls = TLSFiles(str(cert), str(key), o.tls_min)
        elif name == "insecure_port":
            app = App(server.chain_of("insecure"), spoke=unused.spoke.add, bounds=bounds, gives=dispatcher.gives)
        else:
            app = App(server.chain_of("read-only"), read_only=True, spoke=unused.spoke.add, bounds=bounds, gives=dispatcher.gives)
        out.append(Listener(app, fd=fd, tls=tls, http=http, connections=connections, dispatcher=dispatcher))
    if raw.debug_socket_path and server.index == 0:
        out.append(Listener(App(_debug_handler(server)), uds=_free_path(raw.debug_socket_path)))
    return out


def _debug_handler(server: Server) -> Handler:
    """What ``--debug-socket-path`` serves to every process that may open it."""
    assert server.debug is not None
    mux = Director(lambda req: respond.not_found(), ())
    server.debug.install(mux)
    filters = [panic_recovery(server.metrics), request_info(), deadline(server.options.raw.request_timeout)]
    return Chain(filters, mux, respond.status, translate, server.deadlines, lambda req: respond.late(timed_out()))


def _free_path(path: str) -> str:
    """Removes the socket that an earlier server left at ``path`` and checks that one can be made. Returns ``path``. Raises ValueError."""
    try:
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISSOCK(os.lstat(path).st_mode):
                raise FileExistsError(errno.EEXIST, "exists and is not a socket")
            os.unlink(path)
        with socket.socket(socket.AF_UNIX) as probe:  # the listener's error would not name the reason in one line
            probe.bind(path)
        os.unlink(path)
    except OSError as e:
        raise ValueError(f"--debug-socket-path: {path}: {e.strerror or e}") from None
    return path


def _give_up(server: Server) -> None:
    """Ends a worker whose listeners no longer accept, after a moment for the requests in flight."""

    async def end() -> None:
        await server.waiting.wait(GIVE_UP_S)
        server.store.close()
        if server.encryption is not None:
            server.encryption.close()
        flush_logs()
        os._exit(EXIT_DEAF)

    server.not_accepting = True
    server.ending = asyncio.get_running_loop().create_task(end())


async def _shut_down(
    server: Server, listeners: list[Listener], runner: Runner, descriptor_gate: DescriptorGate, leaving: Collection[Response]
) -> None:
    raw, began = server.options.raw, time.monotonic()
    watched_s = raw.shutdown_watch_termination_grace_period
    server.shutting_down = True
    log.info("shutdown initiated")
    if not raw.shutdown_delay_duration:
        server.send_away()
    await runner.end(LEADING_HERE)  # new requests are still served during the delay
    if raw.shutdown_delay_duration:
        await asyncio.sleep(raw.shutdown_delay_duration / 2)
        server.send_away()
        await asyncio.sleep(raw.shutdown_delay_duration / 2)
    with contextlib.suppress(ValueError):  # logged; the server ends all the same
        await _run_hooks(server, server.extensions.pre_shutdown, lambda name: None)
    await runner.stop()
    end = time.monotonic() + raw.shutdown_grace
    if not await _became_idle(server, min(QUIET_S, raw.shutdown_grace)):
        server.not_accepting = True
        if await _answered(server.waiting, leaving, end, raw.shutdown_grace / PATIENCE):
            await _all_sent(max(0.5, end - time.monotonic()))
    descriptor_gate.close()
    ending = [listener for listener in listeners if not listener.deaf()]
    for listener in listeners:
        if listener.uds and listener.uds == raw.debug_socket_path:
            with contextlib.suppress(OSError):  # it was removed, or its directory was
                os.unlink(listener.uds)
        # Closes connections without a request now, and a watch's connection with its watch: no client sends a request
        # on a connection that is about to close.
        listener.stop()
    await asyncio.sleep(HEARD_S)
    if watched_s:
        await server.watches.drain(watched_s, LEAST_DRAINED_PER_S / server.options.workers)
    server.watches.end_all()
    for _ in range(100):
        if not server.watches.open:
            break
        await asyncio.sleep(0.01)
    if server.spdy_listener is not None:
        await server.spdy_listener.stop()
    # What is left are responses that clients do not take, whose connections do not close by themselves. The supervisor
    # waits for five seconds after the grace period.
    await _all_sent(max(0.5, end - time.monotonic()))
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(STOPPED_S):
            await asyncio.gather(*(x.stopped for x in ending if x.stopped is not None))
    server.not_accepting = True
    await server.aggregator.close()
    if server.auditor is not None:
        # Three of the five seconds after which this process would be killed.
        left = began + raw.shutdown_delay_duration + watched_s + raw.shutdown_grace + 3 - time.monotonic()
        await server.auditor.close(max(0.5, left))
    if server.tracer is not None:
        await asyncio.to_thread(server.tracer.exporter.close)
    server.store.close()
    if server.encryption is not None:
        server.encryption.close()


async def _answered(waiting: WaitGroup, leaving: Collection[Response], end: float, patience_s: float) -> bool:
    """Waits until no request is served, or until ``end``; returns True then.

    Returns False as soon as all that is left are responses being sent (``leaving``) and no client has taken anything
    for ``patience_s``: a client that does not read must not decide how long a shutdown takes.
    """
    told, before, moved = -1, dict[int, int](), time.monotonic()
    while (left := end - time.monotonic()) > 0:
        if await waiting.wait(min(ANSWERED_S, left)):
            return True
        told_before, told = told, sum(resp.sent for resp in leaving)
        there, before = before, held()
        took = told != told_before or any(there.get(fd, taken) != taken for fd, taken in before.items())
        if took or len(waiting.serving) > len(leaving):
            moved = time.monotonic()
        elif time.monotonic() - moved >= patience_s:
            log.warning("shutdown: %d unfinished answers are cut, whose clients have read nothing for %g s", len(leaving), patience_s)
            return False
    return True


async def _all_sent(within_s: float) -> bool:
    """Waits until the responses that were given to the listener have been taken; False if that takes longer. Where
    the system has no /dev/fd that cannot be known, and it returns True."""
    try:
        async with asyncio.timeout(within_s):
            await sent()
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


async def _became_idle(server: Server, within_s: float) -> bool:
    """Whether there came a moment in which no request is served and every response has been taken. Clients that are
    answered before it are told to leave with their response, so it usually comes soon, and no request has to be
    refused."""
    end = time.monotonic() + within_s
    while (left := end - time.monotonic()) > 0:
        if not await server.waiting.wait(left) or not await _all_sent(max(0.0, end - time.monotonic())):
            return False
        if not server.waiting.serving:
            return True
    return False
