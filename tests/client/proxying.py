"""An HTTP CONNECT proxy, on a Unix socket or with TLS and client certificates, and a directory with its files."""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from pathlib import Path
from typing import Any

from tests import pki, ports


class Authority:
    """Certificates in ``directory``: the proxy's and its client's."""

    def __init__(self, directory: Path, name: str = "proxies") -> None:
        ca = pki.issue([("CN", name)], ca=True)
        self.ca = ca.write(directory, "proxies")[0]
        self.server = pki.issue([("CN", "proxy")], ca, usages=("server",), ips=["127.0.0.1"]).write(directory, "proxy")
        self.client = pki.issue([("CN", "kas")], ca).write(directory, "client")

    def context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.server)
        context.load_verify_locations(self.ca)
        context.verify_mode = ssl.CERT_REQUIRED
        return context


class ConnectProxy:
    """Connects to loopback: ``routes`` say to which port an authority leads, others keep their own. ``asked`` has all authorities.
    ``says`` is its answer instead, None for no answer; then it closes the connection if ``closes``. A context manager, with its own loop.
    """

    def __init__(self, path: str = "", authority: Authority | None = None) -> None:
        self._path, self.authority = path, authority
        self.port = 0 if path else ports.reserve()  # its own, also when it no longer listens
        self.asked: list[str] = []
        self.routes: dict[str, int] = {}
        self.headers = "Host: 127.0.0.1\r\n"  # headers that requests must have
        self.says: bytes | None = b""
        self.closes = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._tasks: set[asyncio.Task[Any]] = set()

    def selection(self, name: str) -> dict[str, Any]:
        """An EgressSelectorConfiguration's selection."""
        if self._path:
            transport: dict[str, Any] = {"uds": {"udsName": self._path}}
        else:
            transport = {"tcp": {"url": f"https://127.0.0.1:{self.port}"}}
            assert self.authority is not None
            certificate, key = self.authority.client
            transport["tcp"]["tlsConfig"] = {"caBundle": self.authority.ca, "clientCert": certificate, "clientKey": key}
        return {"name": name, "connection": {"proxyProtocol": "HTTPConnect", "transport": transport}}

    def __enter__(self) -> ConnectProxy:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(60)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    async def _start(self) -> None:
        if self._path:
            self._server = await asyncio.start_unix_server(self._serve, self._path)
        else:
            context = self.authority.context() if self.authority is not None else None
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=context)

    async def _stop(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._tunnel(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass  # a client disconnected
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _tunnel(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first, _, rest = (await reader.readuntil(b"\r\n\r\n")).decode().partition("\r\n")
        verb, where, version = first.split(" ")
        assert (verb, version, rest) == ("CONNECT", "HTTP/1.1", self.headers + "\r\n")
        self.asked.append(where)
        if self.says != b"":
            writer.write(self.says or b"")
            if not self.closes:
                await reader.read()
            return
        port = self.routes.get(where) or int(where.rpartition(":")[2])
        there = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        try:
            await asyncio.gather(_copy(reader, there[1]), _copy(there[0], writer))
        finally:
            there[1].close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
    else:
        writer.close()


def egress_file(directory: Path, *selections: dict[str, Any], name: str = "egress.yaml") -> str:
    """Returns the path of an EgressSelectorConfiguration with these selections."""
    document = {"apiVersion": "apiserver.k8s.io/v1beta1", "kind": "EgressSelectorConfiguration", "egressSelections": selections}
    (directory / name).write_text(json.dumps(document))
    return str(directory / name)
