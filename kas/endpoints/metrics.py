"""``/metrics``, summed over all worker processes, and ``/metrics/slis``."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path

from kas.endpoints.respond import plain
from kas.observe.metrics import (
    DUMPED,
    Collect,
    LastDump,
    Read,
    Registry,
    Shown,
    dump_path,
    dumped,
    exposed,
    merged_families,
    reset_path,
    total,
)
from kas.observe.process import age_s
from kas.request.http import Request, Response
from kas.request.mux import Mux
from kas.request.negotiation import parse_accept, takes_gzip

log = logging.getLogger("kas.metrics")

TEXT, MESSAGES = "text/plain; version=0.0.4; charset=utf-8", "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily"
DELIMITED = f"{MESSAGES}; encoding=delimited"
# Escaping schemes a client may ask for. No name here needs escaping. The scheme "dots", which would rewrite every name, is not supported.
ESCAPING = ("allow-utf-8", "underscores", "values")


def negotiated(accept: str) -> tuple[str, str]:
    """Return the format that an Accept header asks for, TEXT or DELIMITED, and the escaping of names.

    As ``expfmt.Negotiate`` of ``prometheus/common``. Protobuf messages in text form, meant for people, are not offered.
    """
    escaping = "underscores"
    for clause in parse_accept(accept):
        media, params = f"{clause.type}/{clause.sub}", clause.params
        if params.get("escaping") in ESCAPING:
            escaping = params["escaping"]
        if f"{media}; proto={params.get('proto')}" == MESSAGES and params.get("encoding") == "delimited":
            return DELIMITED, escaping
        if media == "text/plain" and params.get("version", "") in ("", "0.0.4"):
            break
    return TEXT, escaping


class _Page:
    """One format of the page.

    While a page is built, all requests that arrive share the next one, which covers everything before they arrived.

    A build runs to its end even if its clients disconnect.
    """

    def __init__(self, make: Callable[[], Awaitable[bytes]]) -> None:
        self._make = make
        self._building = asyncio.Lock()
        self._next: asyncio.Task[bytes] | None = None  # not started yet

    async def next(self) -> bytes:
        """Return a page whose build starts after this call."""
        made = self._next
        if made is None or made.get_loop() is not asyncio.get_running_loop():
            made = self._next = asyncio.create_task(self._begin())
            made.add_done_callback(_retrieve_exception)
        return await asyncio.shield(made)

    async def _begin(self) -> bytes:
        async with self._building:
            self._next = None
            return await self._make()


def _retrieve_exception(made: asyncio.Task[bytes]) -> None:
    """Retrieve the exception of an abandoned build, so that asyncio does not report it as never retrieved."""
    if not made.cancelled():
        made.exception()


class MetricsEndpoint:
    """Serves the metrics of all workers. Each worker writes its values to ``run_dir``; the one that is scraped sums them.

    With ``resets``, a DELETE resets labelled metrics, as upstream allows with profiling: the earlier values are subtracted from then on.
    """

    def __init__(
        self, registry: Registry, slis: Registry, run_dir: Path, index: int, collect: Collect, resets: bool = False,
    ) -> None:  # fmt: skip
        self._resets = resets
        self.registry, self.slis, self.run_dir, self.index = registry, slis, run_dir, index
        registry.collectors.append(collect)
        self._written: dict[str, bytes] = {}
        self._last_dumps: dict[str, LastDump] = {name: {} for name in DUMPED}
        self._writing = asyncio.Lock()
        self._pages: dict[tuple[str, str, bool], _Page] = {}  # by registry, format and gzip: eight at most
        self._began = str(int(time.time() - age_s())).encode()
        for name, each in self._registries():
            with contextlib.suppress(FileNotFoundError):  # from the previous worker with this index, which died
                each.resume(self._path(name).read_bytes())

    def _registries(self) -> tuple[tuple[str, Registry], ...]:
        return tuple(zip(DUMPED, (self.registry, self.slis), strict=True))

    def _path(self, name: str) -> Path:
        return dump_path(self.run_dir, name, self.index)

    def install(self, mux: Mux) -> None:
        """Register /metrics and /metrics/slis."""
        mux.exact("/metrics", lambda req: self._answer(req, "metrics", self.registry))
        mux.exact("/metrics/slis", lambda req: self._answer(req, "slis", self.slis))

    async def dump(self) -> None:
        """Write this worker's values for the other workers. Done in a thread: they may be many, and a busy disk may take a second."""
        async with self._writing:
            for name, registry in self._registries():
                await asyncio.to_thread(self._write, name, await registry.paced())

    def _write(self, name: str, read: Read) -> None:
        data = dumped(read, self._last_dumps[name])
        if data != self._written.get(name):  # the health metrics rarely change
            _write(self._path(name), data)
            self._written[name] = data

    async def _answer(self, req: Request, name: str, registry: Registry) -> Response:
        if req.method == "DELETE" and self._resets:
            await self.dump()
            await asyncio.to_thread(self._reset, name, await registry.paced(collected=True))
            return plain(200, "metrics reset\n")
        gzip = takes_gzip(req.header(b"accept-encoding"))
        form, escaping = negotiated(req.header(b"accept"))
        page = self._pages.get((name, form, gzip))
        if page is None:
            page = self._pages[name, form, gzip] = _Page(partial(self._build, name, registry, form, gzip))
        body = await page.next()
        headers = [(b"content-type", f"{form}; escaping={escaping}".encode()), (b"process-start-time-unix", self._began)]
        if gzip:  # as promhttp does, whatever the size and whether or not API responses are compressed
            headers += [(b"content-encoding", b"gzip"), (b"vary", b"Accept-Encoding")]
        return Response(200, headers, body)

    async def _build(self, name: str, registry: Registry, form: str, gzip: bool) -> bytes:
        written = True
        try:
            await self.dump()  # values that were shown must survive this worker
        except OSError as e:  # such as a full disk, which the metrics themselves report
            written = False
            log.warning("the metrics for other workers were not written: %s", e)
        read = await registry.paced(collected=written, own=True)
        return await asyncio.to_thread(self._body, name, read, registry.shown, form, gzip)

    def _body(self, name: str, read: Read, shown: Shown, form: str, gzip: bool) -> bytes:
        since = b""
        with contextlib.suppress(FileNotFoundError):  # nothing was reset
            since = reset_path(self.run_dir, name).read_bytes()
        families = merged_families(read, self._others(name), shown, since)
        if form == DELIMITED:
            from kas.observe.metricmessages import delimited  # rarely requested

            body = delimited(families)
        else:
            body = exposed(families)
        if gzip:
            from isal import igzip

            return igzip.compress(body, compresslevel=1)
        return body

    def _others(self, name: str) -> Iterator[bytes]:
        own = self._path(name)
        return (p.read_bytes() for p in sorted(self.run_dir.glob(f"{name}-*.json")) if p != own)

    def _reset(self, name: str, read: Read) -> None:
        _write(reset_path(self.run_dir, name), total(read, self._others(name)))


def _write(path: Path, data: bytes) -> None:
    new = path.with_suffix(".new")
    new.write_bytes(data)
    os.replace(new, path)
