"""A whole server in this process, without its listener: a request passes every filter, admission, validation and the store, and its cost
is the work of this process meanwhile (``counting.py``). Everything but HTTP is as in a worker."""

from __future__ import annotations

import asyncio
import gc
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from kas.config.options import Options, complete
from kas.extensions import NONE, Extensions
from kas.request.http import Request, Response
from kas.server import Server
from kas.store import open_store
from kas.store.shared import Shared
from tests.growth.counting import Spent

JSON, YAML, PROTOBUF = "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"
JSON_PATCH, MERGE_PATCH = "application/json-patch+json", "application/merge-patch+json"
STRATEGIC, APPLY = "application/strategic-merge-patch+json", "application/apply-patch+yaml"


@dataclass
class Sent:
    """One request; ``body`` is text, or a value that is encoded as JSON. ``beside`` is the number of bytes of the stored object, where
    that grows instead of the request."""

    method: str
    path: str
    body: Any = None
    ctype: str = JSON
    accept: str = JSON
    headers: tuple[tuple[str, str], ...] = ()
    beside: int = 0

    def bytes(self) -> bytes:
        if self.body is None:
            return b""
        if isinstance(self.body, bytes):
            return self.body
        if isinstance(self.body, str):
            return self.body.encode()
        try:
            return orjson.dumps(self.body)
        except TypeError:  # it is nested too deeply for orjson
            return json.dumps(self.body).encode()


class InProcess:
    """``ask`` answers (status, body); ``cost`` measures a request that was made before."""

    def __init__(self, directory: Path, extensions: Extensions = NONE, **flags: Any) -> None:
        options = complete(Options({"data-dir": str(directory), "advertise-address": "127.0.0.1", "token-auth-file": "", **flags}))
        options = options._replace(run_dir=directory / "run")
        options.run_dir.mkdir(parents=True)
        (directory / "admin.token").write_text("t")
        self.loop = asyncio.new_event_loop()
        self.shared = Shared.private()
        self.store = open_store(str(directory / "store"), max_size=2 << 30, sync=False, shared=self.shared)
        self.server = self.loop.run_until_complete(self._start(options, extensions))
        self.chain = self.server.chain_of("insecure")
        self.answered = 0, b""
        gc.collect()
        gc.freeze()  # so that the collector runs quickly over what requests leave behind

    async def _start(self, options: Any, extensions: Extensions) -> Server:
        server = Server(options, self.store, self.shared, 0, extensions)
        self.store.start(asyncio.get_running_loop())
        server.bootstrap()
        server.store.hub.catch_up()
        server.load_derived()
        server.load_credentials()
        server.started = True
        return server

    def close(self) -> None:
        async def end() -> None:
            self.server.watches.end_all()
            self.store.close()

        self.loop.run_until_complete(end())
        self.loop.close()
        gc.unfreeze()

    def request(self, sent: Sent) -> Request:
        path, _, query = sent.path.partition("?")
        headers = [(b"host", b"localhost"), (b"content-type", sent.ctype.encode()), (b"accept", sent.accept.encode())]
        headers += [(k.lower().encode(), v.encode()) for k, v in sent.headers]
        req = Request(sent.method, path, query, headers, sent.bytes())
        req.client, req.scheme, req.http_version = "127.0.0.1", "https", "1.1"
        return req

    async def _answer(self, req: Request) -> tuple[int, bytes]:
        async def run() -> Response:
            result = self.chain(req)
            return result if isinstance(result, Response) else await result

        resp = await asyncio.ensure_future(run())
        if resp.stream is None:
            if resp.finish is not None:
                resp.finish()
            return resp.status, resp.body
        parts: list[bytes] = []

        async def write(piece: bytes) -> None:
            parts.append(piece)

        await resp.stream(write)
        if resp.finish is not None:
            resp.finish()
        return resp.status, b"".join(parts)

    def ask(self, sent: Sent) -> tuple[int, Any]:
        status, body = self.loop.run_until_complete(self._answer(self.request(sent)))
        try:
            return status, json.loads(body)
        except ValueError:
            return status, body

    def cost(self, sent: Sent) -> tuple[float, int]:
        """The cost of a request, in seconds, and its status; its response is in ``answered``."""
        req = self.request(sent)
        gc.collect()
        gc.freeze()  # the collector skips the objects that exist now, at every size
        gc.disable()
        try:
            with Spent() as spent:
                self.answered = self.loop.run_until_complete(self._answer(req))
            return spent.seconds, self.answered[0]
        finally:
            gc.enable()
