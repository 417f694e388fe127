"""Where a request comes from: all that is known of who has not shown yet who it is."""

from __future__ import annotations

import socket
from contextvars import ContextVar

_FROM: ContextVar[str] = ContextVar("from", default="")


def comes_from(address: str) -> None:
    """What is done from now on is for somebody at this address."""
    _FROM.set(address)


def origin() -> str:
    """Who is at the address that this is done for, "" when it was not said."""
    return client_of(_FROM.get())


def client_of(address: str) -> str:
    """Who is behind an address. Of IPv6 the network: who has one address of it has all."""
    if ":" not in address:
        return address
    try:
        packed = socket.inet_pton(socket.AF_INET6, address.partition("%")[0])
    except OSError:  # no address of the network
        return address
    return address.rpartition(":")[2] if packed[:12] == bytes(10) + b"\xff\xff" else packed[:8].hex()
