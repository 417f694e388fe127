"""Connections that fail as networks do: TCP proxies on loopback that can be cut, stalled or slowed down, and an etcd cluster whose members
and clients connect through them."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from kas.store.etcd import etcd_pb2 as pb
from kas.store.etcd.client import STATUS, Client
from tests.etcd import Cluster, Etcd

CHUNK = 1 << 16
SENDER = re.compile(rb"X-Server-From: ([0-9a-f]+)\r\n", re.IGNORECASE)  # etcd's members identify themselves in the head of a stream


class _Connection:
    """One client of a link, and its connection to the target."""

    def __init__(self, near: socket.socket, far: socket.socket) -> None:
        self.near, self.far, self.sender = near, far, b""

    def close(self) -> None:
        for s in (self.near, self.far):
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)
            s.close()


class Link:
    """A proxy to one port of this host, which listens on ``port``; a context manager.

    ``stall()``: no data pass, and connections stay open. ``cut()``: connections break, new ones are refused. ``slow(n)``: n bytes a second
    in each direction. ``garble(f)``: the server's data are replaced by f. ``heal()``: all data pass again, including those held back.
    ``ban(sender)`` breaks the connections of one etcd member.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = int(self._listener.getsockname()[1])
        self._state, self._flows, self._cut, self._rate = threading.Condition(), True, False, 0
        self._garbled: Callable[[bytes], bytes] | None = None
        self._banned: set[bytes] = set()
        self._open: set[_Connection] = set()
        self._closed = False

    def __enter__(self) -> Link:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._state:
            self._closed = True
            self._state.notify_all()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._break(lambda _: True)

    def stall(self) -> None:
        with self._state:
            self._flows = False

    def cut(self) -> None:
        with self._state:
            self._cut = True
        self._break(lambda _: True)

    def slow(self, rate: int) -> None:
        with self._state:
            self._rate = rate

    def garble(self, into: Callable[[bytes], bytes]) -> None:
        with self._state:
            self._garbled = into

    def ban(self, sender: bytes) -> None:
        with self._state:
            self._banned.add(sender)
        self._break(lambda c: c.sender == sender)

    def heal(self) -> None:
        with self._state:
            self._flows, self._cut, self._rate, self._garbled = True, False, 0, None
            self._banned.clear()
            self._state.notify_all()

    def _break(self, which) -> None:
        for c in [c for c in list(self._open) if which(c)]:
            c.close()

    def _accept(self) -> None:
        while not self._closed:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            if self._cut:
                near.close()
                continue
            try:
                far = socket.create_connection(("127.0.0.1", self._target), timeout=5)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            for s in (near, far):
                s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            c = _Connection(near, far)
            self._open.add(c)
            for a, b, first in ((near, far, True), (far, near, False)):
                threading.Thread(target=self._pump, args=(c, a, b, first), daemon=True).start()

    def _pump(self, c: _Connection, a: socket.socket, b: socket.socket, first: bool) -> None:
        try:
            while data := a.recv(CHUNK):
                if first and not c.sender and (found := SENDER.search(data)):
                    c.sender = found[1]
                with self._state:
                    while not (self._flows or self._closed):
                        self._state.wait()
                    if self._closed or self._cut or c.sender in self._banned:
                        break
                    rate, garbled = self._rate, self._garbled
                if garbled is not None and not first:
                    data = garbled(data)
                if rate:
                    with self._state:  # heal() releases data held back
                        self._state.wait_for(lambda: self._closed or self._rate != rate, len(data) / rate)  # noqa: B023
                b.sendall(data)
        except OSError:
            pass  # one end is gone: the other is closed below
        finally:
            c.close()
            self._open.discard(c)


class Linked(Cluster):
    """A cluster whose members connect to one another over links."""

    def __init__(self, directory: Path, members: int = 3, *flags: str) -> None:
        super().__init__(directory, members, *flags)
        self._stack = contextlib.ExitStack()
        self.links: dict[str, Link] = {}
        for member in self.members:
            listens = member.peers[member.name]
            link = self.links[member.name] = self._stack.enter_context(Link(urlsplit(listens).port or 0))
            member.listens, member.peers[member.name] = listens, f"http://127.0.0.1:{link.port}"

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._stack.close()

    def isolate(self, member: Etcd) -> None:
        """Cuts a member off from the others in both directions. Clients reach it."""
        client = Client(member.config)
        try:
            own = b"%x" % client.call(STATUS, pb.StatusRequest(), within_s=2.0).header.member_id
        finally:
            client.close()
        self.links[member.name].cut()
        for name, link in self.links.items():
            if name != member.name:
                link.ban(own)

    def join(self) -> None:
        """Connects all members again."""
        for link in self.links.values():
            link.heal()


def ways(cluster: Cluster, stack: contextlib.ExitStack) -> tuple[list[Link], tuple[str, ...]]:
    """Returns the links of one server to each member, and the URLs of their ports."""
    links = [stack.enter_context(Link(urlsplit(url).port or 0)) for url in cluster.urls]
    return links, tuple(f"http://127.0.0.1:{link.port}" for link in links)
