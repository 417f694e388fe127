"""Ends connections over which nothing was ever asked: the HTTP server below waits without a clock for the first byte of a request.

What it does itself, measured with granian 2.8.7: a TLS handshake ends after 10 s, the head of an HTTP/1 request, and a connection idle
between two, after 30 s, an HTTP/2 connection that does not answer its pings after 50 s. A connection (after its handshake) without a first
byte was kept for ever, and one of HTTP/2 that sends pings, or answers them, and nothing else. kube-apiserver counts from the beginning of a
connection there, whatever comes but requests (Go's ``http2`` server with an ``IdleTimeout``).
"""

from __future__ import annotations

import logging
import os
import socket
import struct
from time import monotonic

log = logging.getLogger("kas.edge")

SILENT_S = 30
UNASKED_S = 90  # kube-apiserver's idle timeout
LOOK_EVERY_S = 10.0
# struct tcp_info of Linux: eight bytes of states, then 32-bit numbers; tcpi_last_data_recv, in milliseconds, is the twelfth.
_LAST_RECEIVED_AT = 8 + 11 * 4
_ESTABLISHED = 1


class UnusedConnections:
    """``spoke`` is the set of client ports of requests that came since the last look; the app adds to it. ``ports`` are those listened on.

    Clients are told apart by their port alone, which keeps the set small whoever connects: who shares the port of another client that did
    ask is spared for as long as that one is there.
    """

    def __init__(self, ports: frozenset[int]) -> None:
        self._ports = ports
        self.spoke: set[int] = set()
        self._since: dict[int, float] = {}  # of connections over which nothing was asked, by inode: when they were seen first

    def look(self) -> int:
        """Ends the connections that never asked anything, and have been silent for ``SILENT_S`` or there for ``UNASKED_S``; returns how
        many. For a thread: some microseconds a descriptor."""
        ended, open_ports, before = 0, set(), self.spoke.copy()
        now, since = monotonic(), dict[int, float]()
        for name in os.listdir("/proc/self/fd"):
            try:
                if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                    continue
                # A duplicate: the number may mean something else in the next moment.
                own = os.dup(int(name))
            except OSError:  # gone
                continue
            try:
                s = socket.socket(fileno=own)
            except OSError:  # no socket any more
                os.close(own)
                continue
            try:
                with s:
                    if s.family not in (socket.AF_INET, socket.AF_INET6) or s.getsockname()[1] not in self._ports:
                        continue
                    client = s.getpeername()[1]
                    open_ports.add(client)
                    if client in self.spoke:
                        continue
                    inode = os.fstat(s.fileno()).st_ino
                    since[inode] = self._since.get(inode, now)
                    if _silent_s(s) > SILENT_S or now - since[inode] > UNASKED_S:
                        s.shutdown(socket.SHUT_RDWR)
                        ended += 1
            except OSError:  # it listens, or is not connected any more
                continue
        self._since = since
        self.spoke -= before - open_ports  # not who came meanwhile
        if ended:
            log.info("%d connections without a request were ended", ended)
        return ended


def _silent_s(s: socket.socket) -> float:
    """Seconds since the last byte came, or since the connection was made; 0 for one that is not established."""
    info = s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
    if info[0] != _ESTABLISHED:
        return 0.0
    return float(struct.unpack_from("=I", info, _LAST_RECEIVED_AT)[0]) / 1000
