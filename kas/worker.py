"""One worker of ``kas serve``, from its start to its end.

Start-up: open the store, bring the bootstrap objects up to date, load derived state, wait for the certificates, listen, report ready.
Shutdown (SIGTERM), as upstream: readyz fails, delay, no new work, requests in flight end, watches end, the store closes.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import sys
import time
from collections.abc import Callable

from kas.config.options import Completed
from kas.controllers.runner import Runner
from kas.edge.asgi import App
from kas.edge.front.introduction import Introductions
from kas.edge.front.rendezvous import Rendezvous, free
from kas.edge.listener import HTTP, Listener, TLSFiles
from kas.endpoints.healthchecks import STORAGE
from kas.observe.logs import setup_logging
from kas.observe.process import age_s
from kas.server import Server
from kas.store import StoreError, open_store
from kas.store.shared import Shared
from kas.warmup import warm_up

log = logging.getLogger("kas")


def work(options: Completed, index: int, report_fd: int, go_fd: int, shared_spec: str, rendezvous: Rendezvous | None = None) -> None:
    """Runs worker number ``index`` until it is told to stop. ``report_fd`` gets "ready" or the reason of a failure;
    ``go_fd`` reads end of file once certificates and keys exist. With ``rendezvous`` a TLS front holds the secure port."""
    import uvloop

    setup_logging(options.raw.v, options.raw.logging_format)
    log.info("start: worker %d imported %.0f ms after its fork", index, age_s() * 1000)
    try:
        # Not uvloop.run: it ends by looking at all tasks, among which granian keeps one that only stands for its own scheduler.
        loop = uvloop.new_event_loop()
        asyncio.set_event_loop(loop)
        loop.run_until_complete(_serve(options, index, report_fd, go_fd, shared_spec, rendezvous))
    except (StoreError, OSError, ValueError) as e:
        os.write(report_fd, str(e).encode())
        os.close(report_fd)
        os._exit(1)
    sys.stdout.flush()
    sys.stderr.flush()
    # granian's runtime threads have nothing left to say, and waiting for them would delay the exit.
    os._exit(0)


async def _serve(
    options: Completed, index: int, report_fd: int, go_fd: int, shared_spec: str, rendezvous: Rendezvous | None
) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for s in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(s, stop.set)
    shared = Shared.attach(shared_spec, index)
    raw = options.raw
    step = _steps()
    store = open_store(str(options.data_dir / "store"), max_size=options.store_max_size, sync=not raw.unsafe_no_fsync, shared=shared)
    step("store open")
    server = Server(options, store, shared, index)
    step("server built")
    server.heartbeat.start(loop)
    store.start(loop)
    server.hooks.done(STORAGE)
    server.bootstrap()
    step("bootstrap objects there")
    server.store.hub.catch_up()
    server.load_derived()
    step("derived state loaded")
    while os.read(go_fd, 1):  # start-up, nothing else runs yet
        pass
    os.close(go_fd)
    server.load_credentials()
    step("credentials loaded")
    listeners = _listeners(server, rendezvous)
    server.started = True
    for listener in listeners:
        listener.start(index)
    runner = server.runner()
    runner.start()
    # What was made so far lives as long as the process. Requests make many small dicts and no cycles, so looking for cycles
    # after every 700 of them finds nothing and costs up to a third of a pod's create.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    os.write(report_fd, b"ready\n")
    warming = loop.create_task(warm_up(server.registries))
    if raw.v >= 4:
        loop.set_debug(True)
    await stop.wait()
    warming.cancel()
    await _shut_down(server, listeners, runner)


def _steps() -> Callable[[str], None]:
    """Logs what of the start took how long, at -v 1."""
    began = time.monotonic()

    def step(what: str) -> None:
        log.info("start: %s after %.0f ms", what, (time.monotonic() - began) * 1000)

    return step


def _listeners(server: Server, rendezvous: Rendezvous | None) -> list[Listener]:
    o, raw = server.options, server.options.raw
    http = HTTP("1" if raw.disable_http2_serving else "auto", raw.http2_max_streams_per_connection)
    out = []
    if o.secure_port and rendezvous is not None:
        introductions = Introductions(rendezvous.introductions(server.index))
        introductions.start()
        address = rendezvous.worker(server.index)
        free(address)
        out.append(Listener(App(server.chain, introductions=introductions), "", 0, uds=address, http=http))
    elif o.secure_port:
        pki = o.data_dir / "pki"
        tls = TLSFiles(raw.tls_cert_file or str(pki / "apiserver.crt"), raw.tls_private_key_file or str(pki / "apiserver.key"), o.tls_min)
        out.append(Listener(App(server.chain), raw.bind_address, o.secure_port, tls, http=http))
    if o.insecure_port:
        out.append(Listener(App(server.chain_of("insecure")), "127.0.0.1", o.insecure_port, http=http))
    if o.read_only_port:
        out.append(Listener(App(server.chain_of("read-only"), read_only=True), "127.0.0.1", o.read_only_port, http=http))
    return out


async def _shut_down(server: Server, listeners: list[Listener], runner: Runner) -> None:
    raw = server.options.raw
    server.shutting_down = True
    log.info("shutdown initiated")
    if raw.shutdown_delay_duration:
        await asyncio.sleep(raw.shutdown_delay_duration)
    server.not_accepting = True
    await runner.stop()
    end = time.monotonic() + raw.shutdown_grace
    await server.waiting.wait(raw.shutdown_grace)
    server.watches.end_all()
    for _ in range(100):
        if not server.watches.open:
            break
        await asyncio.sleep(0.01)
    for listener in listeners:
        listener.stop()
    with contextlib.suppress(TimeoutError):
        # Answers given to the listener may still be on their way.
        async with asyncio.timeout(max(2.0, end - time.monotonic())):
            await asyncio.gather(*(x.stopped for x in listeners if x.stopped is not None))
    await server.aggregator.close()
    if server.auditor is not None:
        await server.auditor.close()
    server.store.close()
