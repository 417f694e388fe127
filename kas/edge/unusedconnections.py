"""Closes connections over which no request ever came: granian waits without a limit for the first byte of a request.

granian itself (measured with 2.8.7) ends a TLS handshake after 10 s, the head of an HTTP/1 request and an idle
connection between two requests after 30 s, and an HTTP/2 connection that does not answer pings after 50 s. It keeps
a connection without a first byte after the handshake for ever, and so an HTTP/2 connection that only sends or
answers pings. kube-apiserver counts from the beginning of such a connection, whatever arrives other than requests
(Go's ``http2`` server with an ``IdleTimeout``).
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
# struct tcp_info of Linux: eight bytes of states, then 32-bit numbers; tcpi_last_data_recv, in milliseconds, is the
# twelfth.
_LAST_RECEIVED_AT = 8 + 11 * 4
_ESTABLISHED = 1


class UnusedConnections:
    """``spoke`` is the set of client ports of the requests that came since the last look; the application adds to
    it. ``ports`` are those listened on.

    Clients are told apart by their port alone, which keeps the set small whoever connects. A connection that shares
    its port with another client that did send a request is spared for as long as that client is connected.
    """

    def __init__(self, ports: frozenset[int]) -> None:
        self._ports = ports
        self.spoke: set[int] = set()
        self._since: dict[int, float] = {}  # connections without a request by inode: when each was first seen

    def look(self) -> int:
        """Closes the connections without any request that have been silent for ``SILENT_S`` or open for
        ``UNASKED_S``; returns how many. To be run in a thread: some microseconds for each descriptor."""
        ended, open_ports, before = 0, set(), self.spoke.copy()
        now, since = monotonic(), dict[int, float]()
        for name in os.listdir("/proc/self/fd"):
            try:
                if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                    continue
                # A duplicate, because the number may be reused at any moment.
                own = os.dup(int(name))
            except OSError:  # closed meanwhile
                continue
            try:
                s = socket.socket(fileno=own)
            except OSError:  # no longer a socket
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
            except OSError:  # it listens, or is no longer connected
                continue
        self._since = since
        self.spoke -= before - open_ports  # keeps the ports that were added meanwhile
        if ended:
            log.info("%d connections without a request were ended", ended)
        return ended


def _silent_s(s: socket.socket) -> float:
    """Seconds since the last byte arrived, or since the connection was made; 0 for one that is not established."""
    info = s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
    if info[0] != _ESTABLISHED:
        return 0.0
    return float(struct.unpack_from("=I", info, _LAST_RECEIVED_AT)[0]) / 1000
