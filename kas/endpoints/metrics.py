"""``/metrics`` of all workers and ``/metrics/slis``."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

from kas.endpoints.rest import method_not_allowed
from kas.observe.metrics import DUMPED, Read, Registry, Said, Shown, dump_path, dumped, exposed
from kas.observe.process import age_s
from kas.request.http import Request, Response
from kas.request.mux import Mux
from kas.request.negotiation import takes_gzip

log = logging.getLogger("kas.metrics")

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8; escaping=underscores"


class MetricsEndpoint:
    """Workers leave their numbers in ``run_dir``; whoever is asked adds them up."""

    def __init__(self, registry: Registry, slis: Registry, run_dir: Path, index: int, collect: Callable[[], None]) -> None:
        self.registry, self.slis, self.run_dir, self.index = registry, slis, run_dir, index
        registry.collectors.append(collect)
        self._written: dict[str, bytes] = {}
        self._said: dict[str, Said] = {name: {} for name in DUMPED}
        self._writing = asyncio.Lock()
        self._began = str(int(time.time() - age_s())).encode()
        for name, each in self._registries():
            with contextlib.suppress(FileNotFoundError):  # of the worker that was in this one's place and died
                each.resume(self._path(name).read_bytes())

    def _registries(self) -> tuple[tuple[str, Registry], ...]:
        return tuple(zip(DUMPED, (self.registry, self.slis), strict=True))

    def _path(self, name: str) -> Path:
        return dump_path(self.run_dir, name, self.index)

    def install(self, mux: Mux) -> None:
        """Serve /metrics and /metrics/slis."""
        mux.exact("/metrics", lambda req: self._answer(req, "metrics", self.registry))
        mux.exact("/metrics/slis", lambda req: self._answer(req, "slis", self.slis))

    async def dump(self) -> None:
        """Writes this worker's numbers where the others find them; beside the loop, since they may be many, and a busy disk may take a
        second."""
        async with self._writing:
            for name, registry in self._registries():
                await asyncio.to_thread(self._write, name, registry.read())

    def _write(self, name: str, read: Read) -> None:
        data = dumped(read, self._said[name])
        if data != self._written.get(name):  # health is seldom asked for
            _write(self._path(name), data)
            self._written[name] = data

    async def _answer(self, req: Request, name: str, registry: Registry) -> Response:
        if req.method == "DELETE":  # upstream's resets the numbers, which here are those of all workers and outlive them
            raise method_not_allowed()
        told = True
        try:
            await self.dump()  # what is shown outlives this worker
        except OSError as e:  # a full disk, of which the numbers tell
            told = False
            log.warning("the numbers for other workers were not written: %s", e)
        gzip = takes_gzip(req.header(b"accept-encoding"))
        text = await asyncio.to_thread(self._text, name, registry.read(collected=told, own=True), registry.shown, gzip)
        headers = [(b"content-type", CONTENT_TYPE), (b"process-start-time-unix", self._began)]
        if gzip:  # as promhttp, whatever the size and whether or not answers of the API are compressed
            headers += [(b"content-encoding", b"gzip"), (b"vary", b"Accept-Encoding")]
        return Response(200, headers, text)

    def _text(self, name: str, read: Read, shown: Shown, gzip: bool) -> bytes:
        own = self._path(name)
        text = exposed(read, (p.read_bytes() for p in sorted(self.run_dir.glob(f"{name}-*.json")) if p != own), shown)
        if gzip:
            from isal import igzip

            return igzip.compress(text, compresslevel=1)
        return text


def _write(path: Path, data: bytes) -> None:
    new = path.with_suffix(".new")
    new.write_bytes(data)
    os.replace(new, path)
