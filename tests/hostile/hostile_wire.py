"""Raw TLS connections to a server, and what arrives over them."""

from __future__ import annotations

import re
import socket
import ssl

from kas.testing.server import KasServer


def dial(server: KasServer, alpn: str = "http/1.1") -> ssl.SSLSocket:
    context = ssl.create_default_context(cafile=server.ca)
    context.set_alpn_protocols([alpn])
    return context.wrap_socket(socket.create_connection(("127.0.0.1", server.port), 60), server_hostname="127.0.0.1")


def statuses(answer: bytes) -> list[int]:
    """Returns the status codes of the answers in a byte stream."""
    return [int(x) for x in re.findall(rb"HTTP/1\.[01] (\d{3})", answer)]
