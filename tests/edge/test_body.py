"""Heads without bodies, bodies that are not wanted, and truncated bodies, over the network."""

from __future__ import annotations

import asyncio
import json

import h2.config
import h2.connection
import h2.events
import pytest
from h2.errors import ErrorCodes

from kas.edge.body import Inlet
from kas.meta.errors import ApiError
from kas.request.http import MAX_BODY_BYTES
from tests.hostile.hostile_wire import dial

ROOM = "/api/v1/namespaces/default/configmaps"


def post(path: str, *lines: str, token: str = "") -> bytes:
    who = [f"Authorization: Bearer {token}"] if token else []
    return "\r\n".join((f"POST {path} HTTP/1.1", "Host: x", "Content-Type: application/json", *who, *lines, "", "")).encode()


def answer(s) -> tuple[int, bytes]:
    """Reads the next answer on a TLS connection."""
    got = b""
    while b"\r\n\r\n" not in got:
        data = s.recv(65536)
        assert data, "the connection was closed"
        got += data
    head, _, body = got.partition(b"\r\n\r\n")
    length = next(int(x.split(b":")[1]) for x in head.lower().split(b"\r\n") if x.startswith(b"content-length:"))
    while len(body) < length:
        body += s.recv(65536)
    assert len(body) == length
    return int(head.split(b" ")[1]), body


@pytest.mark.parametrize(
    ("path", "lines", "who", "status"),
    [
        (ROOM, ("Content-Length: 1000000",), "nobody", 403),
        (ROOM, ("Content-Length: 1000000",), "wrong", 401),
        ("/nowhere", ("Content-Length: 1000000",), "admin", 404),
        ("/api/v1/nosuch", ("Content-Length: 1000000",), "admin", 404),
        (f"{ROOM}/x", ("Content-Length: 1000000",), "admin", 405),
        (ROOM, (f"Content-Length: {MAX_BODY_BYTES + 1}",), "admin", 413),
        (ROOM, ("Transfer-Encoding: chunked",), "nobody", 403),
    ],
)
def test_a_refusal_does_not_wait_for_the_body(kas, path, lines, who, status):
    """Only the head is ever sent."""
    token = {"nobody": "", "wrong": "no-such-token", "admin": kas.token}[who]
    with dial(kas) as s:
        s.settimeout(60)
        s.sendall(post(path, *lines, token=token))
        assert answer(s)[0] == status


@pytest.mark.parametrize("size", [1, 70_000, 2_000_000])
def test_a_connection_continues_after_an_unwanted_body(kas, size):
    with dial(kas) as s:
        s.settimeout(60)
        for _ in range(2):
            s.sendall(post(ROOM, f"Content-Length: {size}"))
            assert answer(s)[0] == 403
            s.sendall(b"x" * size)
            s.sendall(b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n")
            status, body = answer(s)
            assert status == 200 and b"gitVersion" in body


def test_a_client_that_sends_its_body_first_gets_the_refusal(kas):
    with dial(kas) as s:
        s.settimeout(60)
        s.sendall(post(ROOM, "Content-Length: 3000000") + b"x" * 3_000_000)
        assert answer(s)[0] == 403


class Http2:
    """One stream after the other on a connection."""

    def __init__(self, s) -> None:
        self.s, self.c = s, h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        self.c.initiate_connection()
        self.flush()

    def flush(self) -> None:
        self.s.sendall(self.c.data_to_send())

    def begin(self, method: str, path: str, token: str, *more: tuple[str, str], end: bool = False) -> int:
        stream = self.c.get_next_available_stream_id()
        head = [(":method", method), (":path", path), (":authority", "x"), (":scheme", "https")]
        if token:
            head.append(("authorization", f"Bearer {token}"))
        self.c.send_headers(stream, [*head, ("content-type", "application/json"), *more], end_stream=end)
        self.flush()
        return stream

    def send(self, stream: int, data: bytes, end: bool) -> None:
        self.c.send_data(stream, data, end_stream=end)
        self.flush()

    def cancel(self, stream: int) -> None:
        self.c.reset_stream(stream, ErrorCodes.CANCEL)
        self.flush()

    def status(self, stream: int) -> int:
        while True:
            data = self.s.recv(65536)
            assert data, "the connection was closed"
            for event in self.c.receive_data(data):
                if isinstance(event, h2.events.ResponseReceived) and event.stream_id == stream:
                    return int(dict(event.headers)[b":status"])
            self.flush()


@pytest.fixture
def http2(kas):
    with dial(kas, "h2") as s:
        s.settimeout(60)
        yield Http2(s)


@pytest.mark.parametrize("told", [True, False], ids=["with-length", "without-length"])
@pytest.mark.parametrize("sent", [b"", b'{"preconditions":'], ids=["nothing", "half"])
def test_a_cancelled_stream_deletes_nothing(kas, client, namespace, http2, told, sent):
    """Its end looks like that of a complete body, and an empty body would delete the object."""
    url = f"/api/v1/namespaces/{namespace}/configmaps"
    name = f"c-{told}-{len(sent)}".lower()
    assert client("POST", url, {"metadata": {"name": name}})[0] == 201
    for _ in range(10):
        stream = http2.begin("DELETE", f"{url}/{name}", kas.token, *([("content-length", "40")] if told else []))
        if sent:
            http2.send(stream, sent, end=False)
        http2.cancel(stream)
    # The connection answers after all of these were processed.
    assert http2.status(http2.begin("GET", "/version", kas.token, end=True)) == 200
    for _ in range(20):
        assert client("GET", f"{url}/{name}")[0] == 200


@pytest.mark.parametrize("told", [True, False], ids=["with-length", "without-length"])
def test_complete_bodies_of_http2(kas, client, namespace, http2, told):
    url, body = f"/api/v1/namespaces/{namespace}/configmaps", json.dumps({"metadata": {"generateName": "h"}, "data": {"k": "x" * 9000}})
    stream = http2.begin("POST", url, kas.token, *([("content-length", str(len(body)))] if told else []))
    http2.send(stream, body[:5000].encode(), end=False)
    http2.send(stream, body[5000:].encode(), end=True)
    assert http2.status(stream) == 201
    stream = http2.begin("DELETE", f"{url}?labelSelector=none", kas.token, end=True)
    assert http2.status(stream) == 200


def test_a_refused_stream_does_not_affect_the_others(kas, http2):
    first = http2.begin("POST", ROOM, "", ("content-length", "40000"))
    assert http2.status(first) == 403
    second = http2.begin("GET", "/version", kas.token, end=True)
    assert http2.status(second) == 200


# --- the inlet by itself


def messages(*given: dict | bytes):
    """Returns an ASGI ``receive`` that returns the parts of a body, the last without ``more_body``, then the other messages, then nothing.
    """
    left = [{"type": "http.request", "body": g, "more_body": True} if isinstance(g, bytes) else g for g in given]

    async def receive():
        await asyncio.sleep(0)
        if left:
            return left.pop(0)
        await asyncio.Event().wait()

    return receive


LAST, GONE = {"type": "http.request", "body": b"", "more_body": False}, {"type": "http.disconnect"}


def read(inlet: Inlet) -> bytes:
    return asyncio.run(inlet.read())


def test_parts_are_joined():
    assert read(Inlet(messages(b"a", b"b", LAST), -1)) == b"ab"
    assert read(Inlet(messages(b"a", b"b", LAST), 2)) == b"ab"


def test_an_http1_body_is_complete_when_its_length_has_arrived():
    async def go():
        inlet = Inlet(messages(b"a", b"b"), 2)  # no message says that this was all
        async with asyncio.timeout(60):
            assert await inlet.read() == b"ab" and inlet.ended
        left = asyncio.Event()
        then = Inlet(messages(b"ab", LAST, GONE), 2)
        assert await then.read() == b"ab"
        then.watch(left.set)  # late messages of granian are ignored
        async with asyncio.timeout(60):
            await left.wait()

    asyncio.run(go())


@pytest.mark.parametrize(
    ("given", "length", "multiplexed"),
    [((b"a", GONE), -1, False), ((GONE,), 5, False), ((b"a", LAST), 5, False), ((b"a", LAST), 5, True), ((b"a", LAST, GONE), -1, True)],
)
def test_a_truncated_body_is_refused(given, length, multiplexed):
    with pytest.raises(ApiError) as e:
        read(Inlet(messages(*given), length, multiplexed))
    assert (e.value.code, e.value.message) == (400, "unexpected EOF")


def test_a_too_large_body_is_refused_as_soon_as_that_is_known():
    with pytest.raises(ApiError) as e:
        read(Inlet(messages(), MAX_BODY_BYTES + 1))
    assert e.value.code == 413
    inlet = Inlet(messages(*[b"x" * (1 << 20)] * 20, LAST), -1)
    with pytest.raises(ApiError) as e:
        read(inlet)
    assert e.value.code == 413 and inlet._taken <= MAX_BODY_BYTES + (1 << 20)


def test_data_received_while_watching_for_a_disconnect_are_kept():
    async def go():
        left = []
        inlet = Inlet(messages(b"ab", b"cd", LAST), 4)
        inlet.watch(lambda: left.append(1))
        for _ in range(20):
            await asyncio.sleep(0)
        assert await inlet.read() == b"abcd" and left == []
        inlet.close()

    asyncio.run(go())


def test_a_disconnect_while_watching_is_reported_once():
    async def go():
        left = []
        inlet = Inlet(messages(b"ab", LAST, GONE), 2)
        inlet.watch(lambda: left.append(1))
        for _ in range(20):
            await asyncio.sleep(0)
        assert left == [1]

    asyncio.run(go())
