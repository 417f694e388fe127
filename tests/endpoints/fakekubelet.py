"""A fake kubelet and a fake web server of a pod; ``seen`` has what the API server sent."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import datetime
import gzip
import hashlib
import json
import ssl
import struct
import threading
import zlib
from pathlib import Path

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def make_certificate(directory: Path, host: str) -> tuple[str, str]:
    """Returns (certificate file, key file), self-signed."""
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "kubelet")])
    now = datetime.datetime.now(datetime.UTC)
    cert = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(1)
        .not_valid_before(now - datetime.timedelta(hours=1)).not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(host))]), False)
        .add_extension(x509.BasicConstraints(True, None), True)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    files = directory / "kubelet.crt", directory / "kubelet.key"
    files[0].write_bytes(cert.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return str(files[0]), str(files[1])


class FakeKubelet:
    """``protocols`` are its WebSocket subprotocols, ``clients`` the file of the CA of its clients' certificates. ``log_begins`` is a
    complete log that is not followed, ``more_log`` continues one that is. A context manager."""

    def __init__(
        self, host: str = "127.0.0.1", certificate: tuple[str, str] | None = None, protocols=("v5.channel.k8s.io",), clients: str = "",
    ) -> None:  # fmt: skip
        self.host, self.port, self.protocols = host, 0, protocols
        self.seen: list[dict] = []
        self.speaks_spdy = False  # otherwise it echoes all bytes after an upgrade in reverse
        self.streams: list[str] = []  # SPDY streams that were opened, and the data on those that are not stdin
        self.log_begins = b"first line\n"
        self.more_log = threading.Event()
        self.gone = threading.Event()
        self._tls = None
        if certificate:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._tls.load_cert_chain(*certificate)
            if clients:
                self._tls.verify_mode = ssl.CERT_REQUIRED
                self._tls.load_verify_locations(clients)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> FakeKubelet:
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(10)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    async def _start(self):
        server = await asyncio.start_server(self._serve, self.host, 0, ssl=self._tls)
        self.port = server.sockets[0].getsockname()[1]
        return server

    async def _stop(self) -> None:
        self._server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            first, *lines = head.split("\r\n")
            method, target, _ = first.split(" ")
            headers = {k.lower(): v.strip() for k, _, v in (x.partition(":") for x in lines if x)}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            path, _, query = target.partition("?")
            self.seen.append({"method": method, "path": path, "query": query, "headers": headers, "body": body.decode()})
            await self._answer(method, path, query, headers, reader, writer)
        writer.close()

    async def _answer(self, method, path, query, headers, reader, writer) -> None:
        if headers.get("upgrade", "").lower() == "websocket":
            try:
                await self._websocket(headers, reader, writer)
            finally:
                self.gone.set()
        elif headers.get("upgrade", "").lower() == "spdy/3.1" and self.speaks_spdy:
            writer.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
            try:
                await self._streams(reader, writer)
            finally:
                self.gone.set()
        elif headers.get("upgrade", "").lower() == "spdy/3.1":
            writer.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
            while data := await reader.read(1024):
                writer.write(data[::-1])
                await writer.drain()
        elif path.startswith("/containerLogs/"):
            await self._log(query, writer)
        elif path == "/redirect":
            _plain(writer, 302, b"", b"Location: /elsewhere\r\nAccess-Control-Allow-Origin: *\r\n")
        elif path in ("/page", "/page.gz"):
            page, packed = b'<a href="/rewriteme">test</a>', path.endswith("gz")
            kind = b"Content-Type: text/html; charset=utf-8\r\n" + b"Content-Encoding: gzip\r\n" * packed
            _plain(writer, 200, gzip.compress(page) if packed else page, kind)
        elif path == "/big":
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n")
            try:
                while True:
                    writer.write(b"x" * 65536)
                    await writer.drain()
            finally:
                self.gone.set()
        else:
            body = b"" if method == "HEAD" else json.dumps(self.seen[-1]).encode()
            _plain(writer, 200, body, b"Content-Type: application/json\r\nKeep-Alive: timeout=5\r\n")
        await writer.drain()

    async def _log(self, query, writer) -> None:
        if "previous=true" in query:
            _plain(writer, 400, b'previous terminated container "c" in pod "p" not found')
            return
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        _chunk(writer, self.log_begins)
        await writer.drain()
        if "follow=true" in query:
            await asyncio.get_running_loop().run_in_executor(None, self.more_log.wait, 10)
            _chunk(writer, b"second line\n")
        _chunk(writer, b"")

    async def _streams(self, reader, writer) -> None:
        """Serves SPDY/3.1: stdin is echoed to stdout in capitals until it ends; then all streams end, as a kubelet's do."""
        inflate, ids = zlib.decompressobj(), dict[str, int]()

        def frame(first: int, flags: int, data: bytes) -> None:
            writer.write(struct.pack("!II", first, flags << 24 | len(data)) + data)

        frame(0x80030006, 0, struct.pack("!I", 2))  # a ping
        while True:
            first, second = struct.unpack("!II", await reader.readexactly(8))
            data = await reader.readexactly(second & 0xFFFFFF)
            if first == 0x80030001:
                block = inflate.decompress(data[10:])
                (size,) = struct.unpack("!I", block[4:8])
                (name,) = struct.unpack("!I", block[8 + size : 12 + size])
                assert block[:4] + block[8 : 8 + size] == b"\0\0\0\1streamtype" and len(block) == 12 + size + name
                ids[block[12 + size :].decode()] = number = int.from_bytes(data[:4], "big")
                self.streams.append(block[12 + size :].decode())
                frame(0x80030002, 0, struct.pack("!I", number) + b"whatever")
            elif first == 0x80030006:
                self.streams.append("ping")
            elif first == ids.get("stdin"):
                if data:
                    frame(ids["stdout"], 0, data.upper())
                if second >> 24 == 1:
                    break
            else:
                self.streams.append(f"{next(n for n, i in ids.items() if i == first)}: {data.decode()}")
            await writer.drain()
        frame(ids["error"], 0, b'{"metadata":{},"status":"Success"}')
        frame(ids["error"], 1, b"")
        for number in ids.values():
            frame(0x80030003, 0, struct.pack("!II", number, 5))
        await writer.drain()

    async def _websocket(self, headers, reader, writer) -> None:
        offered = [p.strip() for p in headers.get("sec-websocket-protocol", "").split(",")]
        chosen = next((p for p in offered if p in self.protocols), None)
        if chosen is None:
            _plain(writer, 403, b"no protocol")
            return
        accept = base64.b64encode(hashlib.sha1(headers["sec-websocket-key"].encode() + GUID).digest()).decode()
        writer.write(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: {chosen}\r\n\r\n".encode()
        )
        while True:
            data = await _frame(reader)
            if data is None:
                return
            if data == b"\x00flood":
                while True:
                    writer.write(b"\x82\x7f" + struct.pack("!Q", 32769) + b"\x01" + b"x" * 32768)
                    await writer.drain()
            if data[:1] == b"\x00":
                _send(writer, b"\x01" + data[1:].upper())
                if chosen.startswith("v4") and data.endswith(b"bye"):
                    break
            elif data[:1] == b"\xff":
                break
        _send(writer, b'\x03{"metadata":{},"status":"Success"}')
        writer.write(b"\x88\x02" + struct.pack("!H", 1000))
        await writer.drain()


def _plain(writer, status: int, body: bytes, more: bytes = b"") -> None:
    writer.write(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n%b\r\n%b" % (status, len(body), more, body))


def _chunk(writer, data: bytes) -> None:
    writer.write(b"%x\r\n%b\r\n" % (len(data), data))


def _send(writer, data: bytes) -> None:
    assert len(data) < 126
    writer.write(b"\x82" + bytes((len(data),)) + data)


async def _frame(reader) -> bytes | None:
    first, second = await reader.readexactly(2)
    size = second & 0x7F
    if size == 126:
        (size,) = struct.unpack("!H", await reader.readexactly(2))
    key = await reader.readexactly(4)
    data = bytes(b ^ key[i % 4] for i, b in enumerate(await reader.readexactly(size)))
    return None if first & 0x0F == 8 else data
