"""A konnectivity server: gRPC on a Unix socket, each tunnel to a loopback port."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

from kas.client.konnectivity import CLOSE_REQ, CLOSE_RSP, DATA, DIAL_CLS, DIAL_REQ, DIAL_RSP, METHOD, packet, read_packet
from kas.meta.protowire import put_bytes, put_int, put_text


def selection(path: str, name: str) -> dict[str, Any]:
    """An EgressSelectorConfiguration's selection."""
    return {"name": name, "connection": {"proxyProtocol": "GRPC", "transport": {"uds": {"udsName": path}}}}


class KonnectivityServer:
    """``routes`` say to which port an address leads, others keep their own. ``asked`` has all addresses, ``got`` the kinds of received
    packets; ``ended`` is released once for each tunnel that ended. ``refuses`` is its answer instead of dialling; with ``silent`` it does
    not answer. A context manager."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.asked: list[str] = []
        self.got: list[int] = []
        self.routes: dict[str, int] = {}
        self.ended = threading.Semaphore(0)
        self.refuses = ""
        self.silent = False
        self.drops = threading.Event()  # if set, every tunnel is cut off in its middle
        self.gave_up = threading.Event()
        self._pool = ThreadPoolExecutor(32)
        self._server = grpc.server(self._pool)
        handler = grpc.stream_stream_rpc_method_handler(self._proxy)
        _, service, method = METHOD.split("/")
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
        self._server.add_insecure_port(f"unix:{path}")

    def selection(self, name: str) -> dict[str, Any]:
        """An EgressSelectorConfiguration's selection."""
        return selection(self.path, name)

    def __enter__(self) -> KonnectivityServer:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(0).wait(10)
        self._pool.shutdown()

    def _proxy(self, packets: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        kind, dial = read_packet(next(packets))
        self.got.append(kind)
        assert kind == DIAL_REQ and dial[1] == b"tcp"
        address = dial[2].decode()
        self.asked.append(address)
        answered = put_int(3, dial[3])
        if self.silent:
            self.got += [read_packet(more)[0] for more in _until_gone(packets)]
            self.gave_up.set()
            return
        if self.refuses:
            yield packet(DIAL_RSP, put_text(1, self.refuses) + answered)
            return
        port = self.routes.get(address) or int(address.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as there:
            number = 7
            yield packet(DIAL_RSP, put_int(2, number) + answered)
            copying = threading.Thread(target=self._copy, args=(packets, there))
            copying.start()
            with contextlib.suppress(OSError):  # a client disconnected
                while data := there.recv(1 << 15):
                    yield packet(DATA, put_int(1, number) + put_bytes(3, data))
                    if self.drops.is_set():
                        context.abort(grpc.StatusCode.UNAVAILABLE, "the agent is gone")
            self.ended.release()
            yield packet(CLOSE_RSP, put_int(2, number))
            copying.join(10)

    def _copy(self, packets: Iterator[bytes], there: socket.socket) -> None:
        for data in _until_gone(packets):
            kind, said = read_packet(data)
            self.got.append(kind)
            if kind in (CLOSE_REQ, DIAL_CLS):
                break
            there.sendall(said[3])
        with contextlib.suppress(OSError):  # it has disconnected before
            there.shutdown(socket.SHUT_RDWR)


def _until_gone(packets: Iterator[bytes]) -> Iterator[bytes]:
    with contextlib.suppress(grpc.RpcError):  # the other end broke off
        yield from packets
