"""The origin of a request: the only identity of a client before it is authenticated."""

from __future__ import annotations

import socket
from contextvars import ContextVar

_FROM: ContextVar[str] = ContextVar("from", default="")


def comes_from(address: str) -> None:
    """Sets the client address for which the current context works."""
    _FROM.set(address)


def origin() -> str:
    """The client that the current context works for, as of ``client_of``; "" when unknown."""
    return client_of(_FROM.get())


def client_of(address: str) -> str:
    """The client identity of an address. For IPv6 it is the /64 network, since one holder usually has all its addresses; an IPv4-mapped
    address counts as IPv4.
    """
    if ":" not in address:
        return address
    try:
        packed = socket.inet_pton(socket.AF_INET6, address.partition("%")[0])
    except OSError:  # not an IP address
        return address
    return address.rpartition(":")[2] if packed[:12] == bytes(10) + b"\xff\xff" else packed[:8].hex()
