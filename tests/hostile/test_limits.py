"""One client cannot take the event loop or the memory that others need. Each test says what its attack used to cost."""

from __future__ import annotations

import contextlib
import json
import select
import socket
import ssl
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import h2.config
import h2.connection
import h2.settings
import pytest

from kas.testing.server import KasServer
from tests.hostile.bystander import Bystander
from tests.hostile.hostile_wire import dial, statuses

MB = 1_000_000
WRITES = [{"apiGroups": [""], "resources": ["configmaps", "pods"], "verbs": ["create", "patch", "update", "get", "delete"]}]


def ended(connections: list[ssl.SSLSocket]) -> list[int]:
    """Returns the status that each connection was answered with before the server closed it (0: none); waits for all."""
    answers, open_ones, deadline = dict.fromkeys(connections, b""), set(connections), time.monotonic() + 90
    while open_ones:
        assert time.monotonic() < deadline, f"{len(open_ones)} connections were left open"
        for s in select.select(list(open_ones), [], [], 1.0)[0]:
            try:
                data = s.recv(65536)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                continue
            except OSError:
                data = b""
            answers[s] += data
            if not data:
                open_ones.discard(s)
    return [(statuses(a) or [0])[-1] for a in answers.values()]


@pytest.mark.parametrize("who", ["nobody", "mallory"])
def test_two_hundred_stalled_bodies(target: KasServer, bystander: Bystander, grant: Callable[..., None], room: str, who: str):
    """They used to take 808 MB, from anonymous clients, and were never closed."""
    grant("mallory", WRITES, room)
    token = "Authorization: Bearer m-token\r\n" if who == "mallory" else ""
    head = f"POST /api/v1/namespaces/{room}/configmaps HTTP/1.1\r\nHost: x\r\n{token}Content-Type: application/json\r\nContent-Length: {3 * MB}\r\n\r\n"  # noqa: E501

    def stall() -> list[int]:
        with contextlib.ExitStack() as stack:
            connections = []
            for _ in range(200):
                s = stack.enter_context(dial(target))
                connections.append(s)
                s.settimeout(10)
                try:
                    s.sendall(head.encode())
                    s.sendall(b'{"metadata":{"name":"x"},"data":{"k":"' + b"x" * (2_900_000 if who == "mallory" else 100_000))
                except OSError:
                    continue  # refused in the middle
                s.setblocking(False)
            return ended([s for s in connections if s.fileno() >= 0])

    codes = bystander.beside(stall)
    if who == "nobody":
        assert set(codes) <= {403, 0} and 403 in codes
    else:
        assert set(codes) <= {408, 429, 0} and {408, 429} <= set(codes)


def test_three_hundred_stalled_streams(target: KasServer, bystander: Bystander, grant: Callable[..., None], room: str):
    """One HTTP/2 connection with as many such bodies as it may have at once used to take as much."""
    grant("mallory", WRITES, room)
    codes = set(bystander.beside(lambda: stalled_streams(target, room)).values())
    assert codes <= {408, 429, 0} and 408 in codes


def stalled_streams(target: KasServer, room: str) -> dict[int, int]:
    """Returns the statuses of streams that send all but the end of their announced bodies."""
    with dial(target, "h2") as s:
        s.settimeout(60)
        c = h2.connection.H2Connection(h2.config.H2Configuration())
        c.initiate_connection()
        s.sendall(c.data_to_send())
        while c.remote_settings.max_concurrent_streams > 1000:  # until the server's settings have arrived
            c.receive_data(s.recv(65536))
        assert c.remote_settings.max_concurrent_streams == 100
        streams = []
        for _ in range(100):
            stream = c.get_next_available_stream_id()
            c.send_headers(stream, [
                (":method", "POST"), (":path", f"/api/v1/namespaces/{room}/configmaps"), (":scheme", "https"), (":authority", "x"),
                ("authorization", "Bearer m-token"), ("content-type", "application/json"), ("content-length", str(3 * MB)),
            ])  # fmt: skip
            streams.append(stream)
        s.sendall(c.data_to_send())
        codes: dict[int, int] = {}
        sent = dict.fromkeys(streams, 0)
        deadline = time.monotonic() + 90
        while len(codes) < len(streams):
            assert time.monotonic() < deadline, f"{len(streams) - len(codes)} streams were left open"
            for stream in streams:
                # As much as the windows allow, except for the end.
                room_left = min(c.local_flow_control_window(stream), 2_900_000 - sent[stream], c.max_outbound_frame_size)
                if stream not in codes and room_left > 0:
                    c.send_data(stream, b"x" * room_left)
                    sent[stream] += room_left
            s.sendall(c.data_to_send())
            if select.select([s], [], [], 0.2)[0] or s.pending():
                for event in c.receive_data(s.recv(1 << 20)):
                    if isinstance(event, h2.events.ResponseReceived):
                        codes[event.stream_id] = int(dict(event.headers)[b":status"])
                    elif isinstance(event, (h2.events.StreamReset, h2.events.StreamEnded)):
                        codes.setdefault(event.stream_id, 0)
    return codes


LISTS: dict[str, tuple[str, str, Callable[[], Any], set[int]]] = {
    # Everyone waited for 10 s.
    "yaml of a review": ("application/yaml", "", lambda: b"- a\n" * (3 * MB // 4), {400}),
    "json of a review": ("application/json", "", lambda: b"[" + b"1," * (3 * MB // 2 - 2) + b"1]", {400}),
    "keys": (
        "application/json", "configmaps",
        lambda: {"metadata": {"generateName": "k"}, "data": {f"k{i}": "v" for i in range(130_000)}}, {201},
    ),
    "labels": (
        "application/json", "configmaps",
        lambda: {"metadata": {"generateName": "l", "labels": {f"k{i}": "v" * 40 for i in range(50_000)}}}, {201, 422},
    ),
    "values": (
        "application/json", "pods",
        lambda: {"metadata": {"generateName": "e"}, "spec": {"containers": [
            {"name": "c", "image": "i", "env": [{"name": f"E{i}", "value": "v"} for i in range(80_000)]}]}}, {201, 403},
    ),
    "unknown fields": (
        "application/json", "configmaps", lambda: {"metadata": {"generateName": "u"}, **{f"u{i}": {"a": 1} for i in range(100_000)}}, {201},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", list(LISTS))
def test_large_bodies_are_validated_off_the_event_loop(as_user, bystander: Bystander, grant, room: str, name: str):
    ctype, resource, make, expected = LISTS[name]
    grant("mallory", WRITES, room)
    body = make()
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    path = f"/api/v1/namespaces/{room}/{resource}" if resource else "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    strict = "&fieldValidation=Ignore" if name == "unknown fields" else ""

    def send(_: int) -> int:
        return as_user("m-token").raw("POST", f"{path}?dryRun=All{strict}", body, ctype, timeout=120).status_code

    with ThreadPoolExecutor(4) as pool:
        assert bystander.beside(lambda: set(pool.map(send, range(4)))) <= expected


def test_requests_of_disconnected_clients_are_dropped(target: KasServer, bystander: Bystander, mallory):
    """Large requests of clients that have disconnected before it is their turn."""
    body = b"- a\n" * (3 * MB // 4)
    head = (
        "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer m-token\r\n"
        f"Content-Type: application/yaml\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    review = {"spec": {"nonResourceAttributes": {"path": "/", "verb": "get"}}}

    def leave() -> None:
        for _ in range(20):
            with dial(target) as s:
                s.sendall(head.encode() + body)
        assert mallory("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review, timeout=60)[0] == 201

    bystander.beside(leave)


def test_expect_continue_is_answered_once_the_head_is_accepted(target: KasServer, wire):
    for token, codes in (("no-such-token", [401]), (target.token, [100, 201])):
        with dial(target) as s:
            s.settimeout(30)
            s.sendall(
                f"POST /api/v1/namespaces?dryRun=All HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
                "Content-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: 28\r\nConnection: close\r\n\r\n".encode()
            )
            got = s.recv(65536)
            if statuses(got) == [100]:
                s.sendall(b'{"metadata":{"name":"expt"}}')
            while True:
                try:
                    data = s.recv(65536)
                except OSError:
                    break
                if not data:
                    break
                got += data
            assert statuses(got) == codes


def test_connections_without_a_request(target: KasServer, bystander: Bystander):
    """Handshakes without a request: others connect as before."""
    idle = [socket.create_connection(("127.0.0.1", target.port), 10) for _ in range(300)]
    done = [dial(target) for _ in range(50)]

    def ask() -> None:
        for _ in range(20):
            with dial(target) as s:
                s.sendall(b"GET /version HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                s.settimeout(30)
                assert statuses(s.recv(65536)) == [200]

    bystander.beside(ask)
    for s in [*idle, *done]:
        s.close()
