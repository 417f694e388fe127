"""Connections through an HTTP CONNECT proxy (upstream: ``apiserver/pkg/server/egressselector/egress_selector.go``).

The proxy is reached over TCP, usually with TLS, or over a Unix socket. Once it has answered 200, the connection is
the backend's: any protocol for a direct connection can use it, including TLS to the backend inside TLS to the proxy.
The proxy resolves the backend's name.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable
from time import perf_counter
from typing import Generic, cast

from kas.client.http import MAX_HEAD, BackendError, DialErrors, Factory, P, host_port, os_text, parse_head
from kas.meta.field import go_quote
from kas.observe.metrics import Registry

_BUCKETS = (0.005, 0.025, 0.1, 0.5, 2.5, 12.5)
_LABELS = "labeled by the protocol (http-connect or grpc), transport (tcp or uds)"
HTTP_CONNECT = "http_connect"
_UNSAYABLE = re.compile(r"[\x00-\x20\x7f]")


class DialMetrics:
    """Metrics of connections through proxies."""

    def __init__(self, registry: Registry) -> None:
        name, labels = "apiserver_egress_dialer_dial_", ("protocol", "transport")
        self.started = registry.counter(f"{name}start_total", f"Dial starts, {_LABELS}.", labels)
        self.took = registry.histogram(f"{name}duration_seconds", f"Dial latency histogram in seconds, {_LABELS}", labels, _BUCKETS)
        self.failed = registry.counter(
            f"{name}failure_count", f"Dial failure count, {_LABELS}, and stage (connect or proxy). The stage indicates at which stage the "
            "dial failed", ("protocol", "stage", "transport"),
        )  # fmt: skip


def _as_egress(wanted: str) -> bytes:
    return b"Host: 127.0.0.1\r\n"


class ConnectProxy:
    """One proxy: on the Unix socket ``path``, or at ``address`` (host, port), with TLS if ``tls`` is given.
    ``headers`` returns those of the CONNECT request for ``host:port``."""

    def __init__(
        self, metrics: DialMetrics, path: str = "", address: tuple[str, int] = ("", 0), tls: Callable[[], ssl.SSLContext] | None = None,
        tls_name: str = "", headers: Callable[[str], bytes] = _as_egress,
    ) -> None:  # fmt: skip
        self._metrics, self._path, self._address, self._tls, self._headers = metrics, path, address, tls, headers
        self._tls_name = tls_name or address[0]
        self.where = path or host_port(*address)
        self._network = "unix" if path else "tcp"
        self._labels = HTTP_CONNECT, "uds" if path else "tcp"

    async def connect(self, factory: Factory[P], host: str, port: int) -> tuple[asyncio.BaseTransport, P]:
        """Like the event loop's ``create_connection``. Raises BackendError; cancelling it closes the connection."""
        if _UNSAYABLE.search(host):  # nodes report their own addresses: none may add a line to the request
            raise BackendError(f"dial {self._network} {self.where}: invalid character in host name {go_quote(host)}")
        began, metrics = perf_counter(), self._metrics
        metrics.started.inc(self._labels)
        wanted = host_port(host, port)
        opening = _Connecting[P](factory, wanted, self.where, self._headers(wanted))
        try:
            await self._reached(opening)
            made = await opening.made
        except BaseException:
            metrics.failed.inc((self._labels[0], "proxy" if opening.asked else "connect", self._labels[1]))
            opening.close()
            raise
        metrics.took.observe(self._labels, perf_counter() - began)
        return made

    async def _reached(self, opening: Opening[P]) -> None:
        """Connects ``opening`` to the proxy. Raises BackendError."""
        loop = asyncio.get_running_loop()
        first: asyncio.BaseProtocol = opening
        ready = None
        if self._tls is not None:
            # asyncio's TLS, whichever event loop runs, as in http.py.
            ready = loop.create_future()
            first = _Sealed(loop, opening, self._tls(), ready, server_side=False, server_hostname=self._tls_name)
        with DialErrors(self._network, self.where):
            if self._path:
                transport, _ = await loop.create_unix_connection(lambda: first, self._path)
            else:
                transport, _ = await loop.create_connection(lambda: first, *self._address)
            if ready is not None:
                try:
                    await ready
                except BaseException:
                    transport.close()
                    raise


class _Sealed(SSLProtocol):
    """TLS that can carry another TLS connection. On an error the inner one causes a call of this one's ``_abort`` with the
    exception, an argument that CPython 3.11's does not take."""

    _transport: asyncio.Transport | None

    def _abort(self, exc: BaseException | None = None) -> None:
        if self._transport is not None:
            self._transport.abort()


class Opening(asyncio.Protocol, Generic[P]):
    """Asks a proxy for a connection and hands it to the protocol that ``factory`` makes. ``made`` is a future of
    both, or fails with BackendError. ``asked`` is set once the proxy was asked. A subclass implements the request,
    and parses the answer in ``data_received``."""

    def __init__(self, factory: Factory[P]) -> None:
        self._factory = factory
        self.transport: asyncio.Transport | None = None
        self.asked = False
        self.made: asyncio.Future[tuple[asyncio.BaseTransport, P]] = asyncio.get_running_loop().create_future()

    def ask(self, transport: asyncio.Transport) -> None:
        """Sends the request: the proxy is connected."""
        raise NotImplementedError

    def fail(self, why: str) -> None:
        """Handles an invalid or missing answer."""
        raise NotImplementedError

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio's, like the next two."""
        self.transport = cast(asyncio.Transport, transport)
        if self.made.done():  # the caller has given up
            self.close()
            return
        self.ask(self.transport)
        self.asked = True

    def hand_over(self) -> None:
        """The proxy has connected: from here on the connection is the backend's."""
        if self.made.done():
            return
        transport = self.transport
        assert transport is not None  # it has just delivered data
        # Reading is restarted once the other protocol is set, because that may take buffers.
        transport.pause_reading()
        protocol = self._factory()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        transport.resume_reading()
        self.made.set_result((transport, protocol))

    def eof_received(self) -> None:
        """The proxy sends no more."""
        self.fail("unexpected EOF")

    def connection_lost(self, exc: Exception | None) -> None:
        """The proxy is gone."""
        self.fail(f"read: {os_text(exc)}" if isinstance(exc, OSError) else "unexpected EOF")

    def end(self, why: str) -> None:
        """Fails with ``why``."""
        if not self.made.done():
            self.made.set_exception(BackendError(why))
        self.close()

    def close(self) -> None:
        """Gives up."""
        self.made.cancel()
        if self.transport is not None:
            self.transport.abort()


class _Connecting(Opening[P]):
    """Asks for a connection to ``wanted`` with CONNECT."""

    def __init__(self, factory: Factory[P], wanted: str, proxy: str, headers: bytes) -> None:
        super().__init__(factory)
        self._wanted, self._proxy, self._headers = wanted, proxy, headers
        self._got = bytearray()

    def ask(self, transport: asyncio.Transport) -> None:
        transport.write(f"CONNECT {self._wanted} HTTP/1.1\r\n".encode("latin-1", "replace") + self._headers + b"\r\n")

    def data_received(self, data: bytes) -> None:
        got = self._got
        got += data
        end = got.find(b"\r\n\r\n")
        if end > MAX_HEAD or (end < 0 and len(got) > MAX_HEAD):
            self.fail("unexpected EOF")
        elif end >= 0:
            self._answered(bytes(got[: end + 2]), len(got) - end - 4)

    def _answered(self, head: bytes, more: int) -> None:
        try:
            said = parse_head(head, "")
        except BackendError as e:
            self.fail(str(e))
            return
        if said.status != 200:
            status = f"{said.status} {said.reason}".rstrip()
            self.end(f"proxy error from {self._proxy} while dialing {self._wanted}, code {said.status}: {status}")
        elif more:
            # In all protocols used here the client speaks first.
            self.end(f"unexpected {more} bytes of buffered data from CONNECT proxy {go_quote(self._proxy)}")
        else:
            self.hand_over()

    def fail(self, why: str) -> None:
        self.end(f"reading HTTP response from CONNECT to {self._wanted} via proxy {self._proxy} failed: {why}")
