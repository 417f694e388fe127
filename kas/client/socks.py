"""Connections through a SOCKS5 proxy (RFC 1928; authentication by RFC 1929), which a kubeconfig's ``proxy-url`` may name.

As in Go (``net/http`` with ``golang.org/x/net/internal/socks``), the proxy resolves the backend's name, and nothing
is encrypted except by the protocol on the connection.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re

from kas.client.connectproxy import Opening
from kas.client.http import BackendError, DialErrors, Factory, P, host_port
from kas.meta.field import go_quote

PORT = 1080
MAX_TEXT = 255  # octets of a name, a user and a password
_VERSION, _LOGIN_VERSION, _CONNECT = 5, 1, 1
_OPEN, _LOGIN = 0, 2  # authentication methods
_IPV4, _NAME, _IPV6 = 1, 3, 4
_REFUSALS = (
    "general SOCKS server failure", "connection not allowed by ruleset", "network unreachable", "host unreachable", "connection refused",
    "TTL expired", "command not supported", "address type not supported",
)  # fmt: skip
_UNSAYABLE = re.compile(r"[\x00-\x20\x7f]")


class SocksProxy:
    """The proxy at ``address`` (host, port). ``login`` are user and password, None if it needs none. Raises
    ValueError for a login that cannot be encoded."""

    def __init__(self, address: tuple[str, int], login: tuple[bytes, bytes] | None = None) -> None:
        if login is not None and not all(0 < len(part) <= MAX_TEXT for part in login):
            raise ValueError("invalid username/password")
        self._address, self._login = address, login
        self.where = host_port(*address)

    async def connect(self, factory: Factory[P], host: str, port: int) -> tuple[asyncio.BaseTransport, P]:
        """Like the event loop's ``create_connection``. Raises BackendError; cancelling it closes the connection."""
        opening = _Asking[P](factory, _request(host, port), self._login, f"socks connect tcp {self.where}->{host_port(host, port)}")
        try:
            with DialErrors("tcp", self.where):
                await asyncio.get_running_loop().create_connection(lambda: opening, *self._address)
            return await opening.made
        except BaseException:
            opening.close()
            raise


def _request(host: str, port: int) -> bytes:
    """The CONNECT request; ``host`` is encoded as an address if it is one."""
    try:
        packed = ipaddress.ip_address(host).packed
        where = bytes([_IPV4 if len(packed) == 4 else _IPV6]) + packed
    except ValueError:
        name = host.encode("idna") if not host.isascii() else host.encode()
        if len(name) > MAX_TEXT:
            raise BackendError("FQDN too long") from None
        if _UNSAYABLE.search(host):
            raise BackendError(f"invalid character in host name {go_quote(host)}") from None
        where = bytes([_NAME, len(name)]) + name
    return bytes([_VERSION, _CONNECT, 0]) + where + port.to_bytes(2, "big")


class _Asking(Opening[P]):
    """Handles the proxy's up to three answers one after the other, of at most 262 bytes each."""

    def __init__(self, factory: Factory[P], request: bytes, login: tuple[bytes, bytes] | None, what: str) -> None:
        super().__init__(factory)
        self._request, self._login, self._what = request, login, what
        self._got = bytearray()
        self._next = self._method

    def ask(self, transport: asyncio.Transport) -> None:
        methods = bytes([_OPEN] if self._login is None else [_OPEN, _LOGIN])
        transport.write(bytes([_VERSION, len(methods)]) + methods)

    def data_received(self, data: bytes) -> None:
        self._got += data
        while not self.made.done() and self._next():
            pass

    def fail(self, why: str) -> None:
        self.end(f"{self._what}: {why}")

    def _take(self, size: int) -> bytes:
        """That many bytes, or none until they have arrived."""
        if len(self._got) < size:
            return b""
        taken = bytes(self._got[:size])
        del self._got[:size]
        return taken

    def _send(self, data: bytes) -> None:
        assert self.transport is not None  # it has just delivered data
        self.transport.write(data)

    def _method(self) -> bool:
        said = self._take(2)
        if not said:
            return False
        if said[0] != _VERSION:
            self.fail(f"unexpected protocol version {said[0]}")
        elif said[1] == _OPEN:
            self._send(self._request)
            self._next = self._reply
        elif said[1] == _LOGIN and self._login is not None:
            user, password = self._login
            self._send(bytes([_LOGIN_VERSION, len(user)]) + user + bytes([len(password)]) + password)
            self._next = self._logged_in
        else:
            self.fail("no acceptable authentication methods" if said[1] == 0xFF else f"unsupported authentication method {said[1]}")
        return True

    def _logged_in(self) -> bool:
        said = self._take(2)
        if not said:
            return False
        if said[0] != _LOGIN_VERSION:
            self.fail("invalid username/password version")
        elif said[1] != 0:
            self.fail("username/password authentication failed")
        else:
            self._send(self._request)
            self._next = self._reply
        return True

    def _reply(self) -> bool:
        if len(self._got) < 5:
            return False
        version, refusal, reserved, kind, first = self._got[:5]
        sizes = {_IPV4: 4, _IPV6: 16, _NAME: 1 + first}
        if version != _VERSION:
            self.fail(f"unexpected protocol version {version}")
        elif refusal:
            self.fail(f"unknown error {_REFUSALS[refusal - 1] if refusal <= len(_REFUSALS) else f'unknown code: {refusal}'}")
        elif reserved:
            self.fail("non-zero reserved field")
        elif kind not in sizes:
            self.fail(f"unknown address type {kind}")
        elif not self._take(4 + sizes[kind] + 2):
            return False
        elif self._got:  # in all protocols used here the client speaks first
            self.fail(f"unexpected {len(self._got)} bytes of buffered data")
        else:
            self.hand_over()
        return True
