"""An aggregated API server with one resource, ``things``, which can be told to misbehave."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import json
import ssl
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from tests import ports
from tests.aggregator.certificates import Authority

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
DISCOVERY = "APIGroupDiscoveryList"


@dataclass
class Call:
    """A request as it arrived. ``headers`` are in order, with lower-case names; ``peer`` is the common name in the client's certificate."""

    method: str
    path: str
    query: str
    headers: list[tuple[str, str]]
    peer: str
    body_size: int = 0
    body_digest: str = ""

    def all(self, name: str) -> list[str]:
        return [v for k, v in self.headers if k == name]


@dataclass
class Reply:
    status: int
    body: bytes
    headers: list[tuple[str, str]] = field(default_factory=lambda: [("Content-Type", "application/json")])


class Backend:
    """Serves ``group``/v1 over TLS on a free port of 127.0.0.1, from ``start`` to ``stop``; a context manager.

    ``replies`` replaces the answers of paths; ``gate`` holds back the answers of ``/slow`` until it is set. ``emit(event)`` writes to
    every open watch.
    """

    def __init__(self, authority: Authority, group: str, clients: Authority | None = None, hosts: list[str] | None = None) -> None:
        self.group, self.authority = group, authority
        self.calls: list[Call] = []
        self.replies: dict[str, Reply] = {}
        self.hang_up = False  # after each answer, without announcing it
        self.connections = 0
        self.port = ports.reserve()  # its own while it does not listen, too
        self.watches: set[asyncio.StreamWriter] = set()
        self.stalled = 0  # bytes of /huge that were read so far
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(*authority.issue("backend", hosts or ["localhost"], files=f"backend-{group}"))
        if clients is not None:
            self._context.load_verify_locations(str(clients.file))
            self._context.verify_mode = ssl.CERT_OPTIONAL
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.gate = threading.Event()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._thread.start()

    def __enter__(self) -> Backend:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def start(self) -> None:
        """Listens, on the same port each time."""

        async def start() -> asyncio.Server:
            return await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=self._context)

        self._server = self.run(start())

    def stop(self) -> None:
        """Closes all connections and the listener."""

        self.gate.set()

        async def stop() -> None:
            if self._server is not None:
                self._server.close()
                self._server = None
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

        self.run(stop())

    def emit(self, event: dict[str, Any]) -> None:
        async def emit() -> None:
            for writer in list(self.watches):
                with contextlib.suppress(ConnectionError):  # a client that has just disconnected
                    _chunk(writer, json.dumps(event).encode() + b"\n")
                    await writer.drain()

        self.run(emit())

    def seen(self, path: str) -> list[Call]:
        return [c for c in list(self.calls) if c.path == path]

    @property
    def base(self) -> str:
        return f"/apis/{self.group}/v1"

    # --- serving

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
                self.connections += 1
                while await self._exchange(reader, writer):
                    if self.hang_up:
                        break
        finally:
            self._tasks.discard(task)
            self.watches.discard(writer)
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Handles one request; returns whether another one may follow on the connection."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.split("\r\n")
        method, target, _ = first.split(" ")
        headers = [(k.lower(), v.strip()) for k, _, v in (x.partition(":") for x in lines if x)]
        path, _, query = target.partition("?")
        der = writer.get_extra_info("ssl_object").getpeercert()
        peer = dict(x[0] for x in der["subject"]).get("commonName", "") if der else ""
        call = Call(method, path, query, headers, peer)
        self.calls.append(call)
        if path == f"{self.base}/early":
            # As servers do that do not read the rest: a client that had sent all of it would reuse the connection.
            refusal = b'{"kind":"Status","apiVersion":"v1","status":"Failure","code":413}'
            await _write(writer, Reply(413, refusal, [("Connection", "close")]))
            while await reader.read(65536):  # lets the other side finish, and drops the data
                pass
            return False
        given = dict(headers)
        if given.get("upgrade", "").lower() == "websocket":
            await _echo(given, reader, writer)
            return False
        digest = hashlib.sha256()
        async for piece in _body(reader, given):
            call.body_size += len(piece)
            digest.update(piece)
        call.body_digest = digest.hexdigest()
        reply = self.replies.get(path)
        if reply is not None:
            await _write(writer, reply)
            return True
        special: dict[str, Callable[[asyncio.StreamWriter], Coroutine[Any, Any, None]]] = {
            f"{self.base}/slow": self._slow, f"{self.base}/huge": self._huge, f"{self.base}/broken": self._broken,
        }  # fmt: skip
        if path in special:
            await special[path](writer)
        elif "watch=true" in query:
            await self._watch(reader, writer)
        else:
            await _write(writer, self._answer(call))
            return True
        return False

    def _answer(self, call: Call) -> Reply:
        if call.path == "/apis":
            wants = DISCOVERY in "".join(call.all("accept"))
            if not wants:
                return Reply(406, b"")
            body = json.dumps(self._discovery()).encode()
            etag = f'"{hashlib.sha256(body).hexdigest()}"'
            if call.all("if-none-match") == [etag]:
                return Reply(304, b"", [("ETag", etag)])
            kind = f"application/json;g=apidiscovery.k8s.io;v=v2;as={DISCOVERY}"
            return Reply(200, body, [("Content-Type", kind), ("ETag", etag)])
        if call.path == self.base:
            resource = {"name": "things", "singularName": "thing", "namespaced": True, "kind": "Thing", "verbs": ["get", "list"]}
            sub = {**resource, "name": "things/status", "singularName": "", "verbs": ["get"]}
            found = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{self.group}/v1", "resources": [resource, sub]}
            return Reply(200, json.dumps(found).encode())
        if call.path == "/openapi/v3":
            paths = {f"apis/{self.group}/v1": {"serverRelativeURL": f"/openapi/v3/apis/{self.group}/v1?hash=1"}, "api/v1": {}}
            return Reply(200, json.dumps({"paths": paths}).encode())
        if call.path == f"/openapi/v3/apis/{self.group}/v1":
            return Reply(200, json.dumps({"openapi": "3.0.0", "info": {"title": self.group}, "paths": {}}).encode())
        if call.path == "/openapi/v2":
            return Reply(200, json.dumps(self.spec()).encode(), [("Content-Type", "application/json"), ("ETag", '"spec"')])
        if call.path.startswith(self.base):
            echo = {"kind": "Thing", "apiVersion": f"{self.group}/v1", "method": call.method, "path": call.path, "query": call.query}
            return Reply(200, json.dumps({**echo, "size": call.body_size, "digest": call.body_digest}).encode())
        return Reply(404, b"nothing here\n", [("Content-Type", "text/plain")])

    def _discovery(self) -> dict[str, Any]:
        kind = {"group": self.group, "version": "v1", "kind": "Thing"}
        resource = {"resource": "things", "responseKind": kind, "scope": "Namespaced", "singularResource": "thing"}
        resource["verbs"] = ["get", "list"]
        group = {"metadata": {"name": self.group}, "versions": [{"version": "v1", "resources": [resource], "freshness": "Current"}]}
        return {"kind": DISCOVERY, "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": [group]}

    def spec(self) -> dict[str, Any]:
        """Returns an OpenAPI v2 document with one path of its own and one that is outside of its group."""
        answer = {"200": {"description": "OK", "schema": {"$ref": "#/definitions/test.Thing"}}}
        get = {"get": {"operationId": f"read{self.group}", "responses": answer}}
        thing = {"type": "object", "description": f"of {self.group}", "properties": {"name": {"type": "string"}}}
        definitions = {"test.Thing": thing, "test.Unused": {"type": "object"}}
        info = {"title": self.group, "version": "1"}
        return {"swagger": "2.0", "info": info, "paths": {f"{self.base}/things": get, "/healthz": get}, "definitions": definitions}

    async def _slow(self, writer: asyncio.StreamWriter) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self.gate.wait, 60)
        await _write(writer, Reply(200, b"{}"))

    async def _huge(self, writer: asyncio.StreamWriter) -> None:
        """Sends an endless answer."""
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n")
        while True:
            writer.write(b"x" * 65536)
            await writer.drain()
            self.stalled += 65536

    async def _broken(self, writer: asyncio.StreamWriter) -> None:
        """Sends less than announced."""
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\nContent-Type: text/plain\r\n\r\nabc")
        await writer.drain()

    async def _watch(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hop = b"Connection: keep-alive, x-hop\r\nX-Hop: 1\r\n"
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n" + hop + b"\r\n")
        self.watches.add(writer)
        await reader.read()  # until the other side closes


async def _body(reader: asyncio.StreamReader, headers: dict[str, str]):
    if headers.get("transfer-encoding", "").lower() == "chunked":
        while size := int((await reader.readline()).strip(), 16):
            yield await reader.readexactly(size)
            await reader.readline()
        await reader.readline()
        return
    left = int(headers.get("content-length", 0))
    while left:
        piece = await reader.read(min(left, 65536))
        if not piece:
            raise asyncio.IncompleteReadError(b"", left)
        left -= len(piece)
        yield piece


async def _write(writer: asyncio.StreamWriter, reply: Reply) -> None:
    head = f"HTTP/1.1 {reply.status} X\r\n" + "".join(f"{k}: {v}\r\n" for k, v in reply.headers)
    writer.write(f"{head}Content-Length: {len(reply.body)}\r\n\r\n".encode("latin-1") + reply.body)
    await writer.drain()


def _chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(b"%x\r\n%b\r\n" % (len(data), data))


async def _echo(headers: dict[str, str], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A WebSocket that echoes every message."""
    accept = base64.b64encode(hashlib.sha1(headers["sec-websocket-key"].encode() + GUID).digest()).decode()
    chosen = headers.get("sec-websocket-protocol", "").split(",")[0].strip()
    protocol = f"Sec-WebSocket-Protocol: {chosen}\r\n" if chosen else ""
    switched = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    writer.write(f"{switched}Sec-WebSocket-Accept: {accept}\r\n{protocol}\r\n".encode())
    while True:
        first, second = await reader.readexactly(2)
        size = second & 0x7F
        assert size < 126
        key = await reader.readexactly(4)
        data = bytes(b ^ key[i % 4] for i, b in enumerate(await reader.readexactly(size)))
        writer.write(bytes((first, size)) + data)
        await writer.drain()
        if first & 0x0F == 8:
            return
