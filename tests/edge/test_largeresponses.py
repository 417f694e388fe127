"""Large complete answers: written in parts, and counted until they are written."""

from __future__ import annotations

import asyncio
import itertools
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kas.auth.user import MASTERS, UserInfo
from kas.edge import largeresponses
from kas.edge.asgi import App
from kas.edge.body import Bounds, CallbackQueue, Inlet
from kas.edge.budget import Budget
from kas.edge.largeresponses import LARGE_BYTES, PIECE_BYTES, UNCONVERTED_BYTES, bounded
from kas.edge.listener import Listener
from kas.endpoints.listpages import LEAST_BYTES, PAGE_BYTES, SLACK_BYTES, Underway
from kas.meta.errors import ApiError
from kas.meta.fairqueue import whose
from kas.request.http import Request, Response
from kas.request.websocket import SUBPROTOCOLS, WebSocketRequest
from tests.filters.serving import until
from tests.hostile.attacker import SETTINGS, WINDOW, frame, get

BODY = b"x" * (2 * LARGE_BYTES + 1)
ALICE, BOB = UserInfo("alice"), UserInfo("bob")


def request(user: UserInfo = ALICE, method: str = "GET") -> Request:
    req = Request(method, "/api/v1/configmaps", "", [], b"")
    req.user = user
    return req


def answered(body: bytes = BODY) -> Response:
    return Response(200, [(b"content-type", b"application/json")], body)


def given(req: Request, resp: Response, read: Budget) -> Response:
    return bounded(req, resp, read, Budget())


async def taken(resp: Response) -> list[bytes]:
    pieces: list[bytes] = []

    async def write(piece: bytes) -> None:
        pieces.append(piece)

    assert resp.stream is not None
    await resp.stream(write)
    return pieces


def test_seats_are_released_at_the_end_or_after_a_while(monkeypatch: pytest.MonkeyPatch):
    """A client that does not read would otherwise occupy the seats of others."""
    given_back: list[int] = []

    async def story() -> None:
        b, whole = Budget(), answered()
        whole.finish = lambda: given_back.append(1)
        resp = given(request(), whole, b)
        assert not given_back
        await taken(resp)
        assert not given_back and resp.finish is not None
        resp.finish()
        assert given_back == [1] and b.held == 0
        monkeypatch.setattr(largeresponses, "LEAVES_S", 0.0)
        read = asyncio.Event()

        async def write(piece: bytes) -> None:
            await read.wait()

        assert resp.stream is not None
        sending = asyncio.ensure_future(resp.stream(write))
        await until(lambda: given_back == [1, 1])
        assert not sending.done()
        read.set()
        await sending

    monkeypatch.setattr(largeresponses, "LEAVES_S", 60.0)
    asyncio.run(story())


def test_a_refused_answer_releases_its_requests_seats():
    b, whole, given_back = Budget(worker_bytes=1), answered(), list[int]()
    b.take(ALICE, 1)
    whole.finish = lambda: given_back.append(1)
    refused = given(request(), whole, b)
    assert refused.status == 429 and refused.finish is not None
    refused.finish()
    assert given_back == [1]


def test_small_answers_are_not_changed():
    b = Budget()
    for req, resp in ((request(), answered(BODY[:LARGE_BYTES])), (request(method="HEAD"), answered())):
        assert given(req, resp, b) is resp
    assert b.held == 0


def test_a_large_answer_is_written_in_parts_and_counts_until_its_end():
    b = Budget()
    resp = given(request(), answered(), b)
    assert (b"content-length", str(len(BODY)).encode()) in resp.headers and b.by_user == {"alice": len(BODY)}
    pieces = asyncio.run(taken(resp))
    assert b"".join(pieces) == BODY and max(map(len, pieces)) <= PIECE_BYTES
    resp.finish()
    assert b.held == 0


def test_a_user_may_have_one_answer_of_any_size_and_more_within_the_budget():
    b = Budget(worker_bytes=3 * len(BODY), user_bytes=10)
    first = given(request(), answered(), b)
    assert first.status == 200 and given(request(), answered(), b).status == 429
    assert [given(request(UserInfo(f"u{i}")), answered(), b).status for i in range(3)] == [200, 200, 429]
    first.finish()
    assert given(request(BOB), answered(), b).status == 200
    alone = Budget(worker_bytes=1, user_bytes=1)
    assert given(request(), answered(), alone).status == 200 and given(request(BOB), answered(), alone).status == 429


def test_administrators_that_do_not_read_have_a_bounded_share():
    """They used not to be refused: all answers that they requested were held."""
    b, masters = Budget(worker_bytes=3 * len(BODY), user_bytes=10), [UserInfo(f"m{i}", [MASTERS]) for i in range(2)]
    held = [given(request(masters[i % 2]), answered(), b) for i in range(5)]
    assert [one.status for one in held] == [200, 200, 200, 429, 429] and b.held == 3 * len(BODY)
    assert given(request(), answered(), b).status == 200  # others have their own
    held[0].finish()
    assert given(request(masters[1]), answered(), b).status == 200


def test_memory_of_a_written_answer_counts_for_the_next_write():
    """A client that gets 429 writes again."""
    bounds = Bounds()
    bounds.written = Budget(worker_bytes=3 * len(BODY), user_bytes=2 * len(BODY))
    held = [bounded(request(method=m), answered(), bounds.answers, bounds.written) for m in ("POST", "PUT", "PATCH")]
    assert [one.status for one in held] == [200, 200, 200] and bounds.written.held == 3 * len(BODY)

    async def body(user: UserInfo) -> bytes | int:
        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"{}", "more_body": False}

        try:
            return await Inlet(receive, 2, bounds=bounds).read(user)
        except ApiError as e:
            return e.code

    assert asyncio.run(body(ALICE)) == 429 == asyncio.run(body(BOB))
    held[0].finish()
    assert asyncio.run(body(ALICE)) == 429 and asyncio.run(body(BOB)) == b"{}"
    held[1].finish()
    assert asyncio.run(body(ALICE)) == b"{}"


@pytest.mark.parametrize("window", [0, 60_000])
def test_an_answer_counts_until_the_connection_has_accepted_it(tmp_path: Path, window: int):
    """The HTTP server accepts the first parts of an answer at once, however large: 200 streams of one connection held 200 answers of 1 MB,
    which were not counted."""
    bounds, path, size = Bounds(), str(tmp_path / "s"), 3 * LARGE_BYTES

    def handler(req: Request) -> Response:
        req.user = ALICE
        return answered(b"x" * size)

    async def run() -> None:
        listener = Listener(App(handler, bounds=bounds), "", 0, uds=path)
        listener.start(1)
        reader, writer = await asyncio.open_unix_connection(path)
        settings = frame(SETTINGS, 0, 0, b"\0\4" + window.to_bytes(4, "big"))
        writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + settings + b"".join(get(1 + 2 * i) for i in range(4)))
        came = 0
        while window and came < 65_000:  # all that one connection may have
            came += len(await reader.read(65_536))
        await until(lambda: bounds.answers.held == 4 * size)
        for _ in range(20):
            await asyncio.sleep(0.01)
            assert bounds.answers.held == 4 * size
        writer.write(b"".join(frame(WINDOW, 0, n, (10 * size).to_bytes(4, "big")) for n in (0, 1, 3, 5, 7)))
        taking = asyncio.ensure_future(reader.read())
        await until(lambda: bounds.answers.held == 0)
        writer.close()
        await taking
        listener.stop()
        await listener.stopped

    asyncio.run(run())


def test_a_client_that_does_not_read_is_disconnected():
    async def run() -> None:
        req = request()
        req.deadline = time.monotonic() - 1
        resp = given(req, answered(), Budget())

        async def write(piece: bytes) -> None:
            await asyncio.Event().wait()

        assert resp.stream is not None
        with pytest.raises(ApiError) as e:
            await resp.stream(write)
        assert e.value.code == 504

    asyncio.run(run())


def exchange(scope: dict[str, Any], resp: Response) -> tuple[list[dict[str, Any]], Bounds]:
    """Returns what a connection is sent, and the bounds that applied."""
    bounds, sent = Bounds(), list[dict[str, Any]]()

    def handler(req: Request) -> Response:
        req.user, req.info = ALICE, SimpleNamespace(verb="list")
        return resp

    async def run() -> None:
        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        async def receive() -> dict[str, Any]:
            if scope["type"] == "http":
                await asyncio.Event().wait()
            return {"type": "websocket.connect"}

        await App(handler, bounds=bounds)(scope, receive, send)

    asyncio.run(run())
    return sent, bounds


def scope(kind: str) -> dict[str, Any]:
    return {
        "type": kind, "method": "GET", "path": "/api/v1/configmaps", "raw_path": b"/api/v1/configmaps", "query_string": b"",
        "headers": [(b"host", b"x")], "scheme": "https", "client": ("127.0.0.1", 1), "http_version": "1.1",
        "server": ("127.0.0.1", 2), "subprotocols": [],
    }  # fmt: skip


def test_a_connection_gets_the_whole_answer():
    (head, *pieces), bounds = exchange(scope("http"), answered())
    assert head["status"] == 200 and b"".join(p["body"] for p in pieces) == BODY and len(pieces) > 2
    assert not pieces[-1]["more_body"] and bounds.answers.held == 0


@pytest.mark.parametrize("streamed", [True, False])
def test_a_handshake_is_not_answered_with_a_large_list(streamed: bool):
    asked: list[int] = []

    async def stream(write: Any) -> None:
        for _ in range(100):
            asked.append(1)
            await write(b"x" * (UNCONVERTED_BYTES // 2))

    resp = Response(200, [], stream=stream) if streamed else answered(b"x" * (UNCONVERTED_BYTES + 1))
    (head, body), _ = exchange(scope("websocket"), resp)
    assert head["status"] == 400 and b"BadRequest" in body["body"] and len(asked) in (0, 3)


@pytest.mark.parametrize("form", ["http", "websocket"])
def test_a_client_whose_port_is_reported_as_text_is_not_silent(form: str):
    """Taken for a silent connection, a WebSocket or a quiet watch of HTTP/1.1 was closed after 30 s unless its client sent something."""
    spoke: list[int] = []

    async def run() -> None:
        async def send(_: dict[str, Any]) -> None:
            pass

        async def receive() -> dict[str, Any]:
            return {"type": f"{form}.connect"}

        await App(lambda req: Response(404, []), spoke=spoke.append)({**scope(form), "client": ("127.0.0.1", "4711")}, receive, send)

    asyncio.run(run())
    assert spoke == [4711]


def test_handshakes_are_begun_like_other_requests():
    """So that many of them do not make an iteration longer; of 100,000 subprotocols a hundred are examined."""
    found: list[Request] = []

    def handler(req: Request) -> Response:
        found.append(req)
        return Response(404, [])

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.connect"}

    async def send(_: dict[str, Any]) -> None:
        pass

    rest = App(handler).begin({**scope("websocket"), "subprotocols": [f"{i}.channel.k8s.io" for i in range(100_000)]}, receive, send)
    (req,) = found
    assert rest is not None and isinstance(req, WebSocketRequest) and len(req.subprotocols) == SUBPROTOCOLS
    assert req.subprotocols[0] == "0.channel.k8s.io"
    asyncio.run(cast("Any", rest))


def test_streams_of_a_dead_client_end_over_several_iterations():
    """The end of a process with 10,000 watches blocked the loop for 130 ms."""
    streams, began, ended = 10 * CallbackQueue.AT_ONCE, 0, 0

    async def endless(_: Any) -> None:
        nonlocal began, ended
        began += 1
        try:
            await asyncio.Event().wait()
        finally:
            ended += 1

    async def run() -> list[int]:
        died = asyncio.Event()

        async def receive() -> dict[str, Any]:
            await died.wait()
            return {"type": "http.disconnect"}

        async def send(_: dict[str, Any]) -> None:
            pass

        app = App(lambda req: Response(200, [], stream=endless))
        tasks = [asyncio.ensure_future(app(scope("http"), receive, send)) for _ in range(streams)]
        await until(lambda: began == streams)
        died.set()
        seen = [0]
        while ended < streams:
            await asyncio.sleep(0)
            seen.append(ended)
        await asyncio.gather(*tasks)
        return seen

    seen = asyncio.run(run())
    assert max(b - a for a, b in itertools.pairwise(seen)) <= CallbackQueue.AT_ONCE


def test_an_error_at_a_streams_end_does_not_affect_other_streams():
    async def run() -> list[str]:
        leaving, left, told = CallbackQueue(), list[str](), list[str]()

        def fail() -> None:
            left.append("failed")
            raise RuntimeError("no")

        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(str(context["exception"])))
        for one in (fail, partial(left.append, "second"), partial(left.append, "third")):
            leaving.put(one)
        await until(lambda: len(left) == 3)
        leaving.put(partial(left.append, "later"))
        await until(lambda: len(left) == 4)
        assert told == ["no"]
        return left

    assert asyncio.run(run()) == ["failed", "second", "third", "later"]


def test_a_handshake_of_a_disconnected_client_releases_its_answer():
    """It is answered before the disconnect is noticed: the request counter had already been told of the end."""
    given: list[bool] = []

    async def receive() -> dict[str, Any]:
        raise ConnectionError("gone")

    async def send(_: dict[str, Any]) -> None:
        raise AssertionError("there is nobody")

    def handler(_: Request) -> Response:
        resp = Response(404, [])
        resp.finish = lambda: given.append(True)
        return resp

    with pytest.raises(ConnectionError):
        asyncio.run(App(handler)(scope("websocket"), receive, send))
    assert given == [True]


def test_pages_of_lists_are_smaller_the_more_are_in_progress():
    """The HTTP server buffers some parts of each unread answer, whatever their size."""
    underway = Underway()
    few = underway.write_bytes
    underway.answers = 60
    assert few >= PAGE_BYTES and LEAST_BYTES <= underway.write_bytes <= PIECE_BYTES + SLACK_BYTES
    underway.answers = 10_000
    assert underway.write_bytes == LEAST_BYTES + SLACK_BYTES


def test_service_accounts_of_a_namespace_take_turns_as_one():
    """A user who may create one may create a hundred, and would otherwise have all threads for long work."""
    found: list[Any] = []

    async def later() -> Response:
        await asyncio.sleep(0)
        found.append(whose()[0])
        return answered(b"{}")

    async def run(name: str) -> None:
        def handler(req: Request) -> Any:
            req.user = UserInfo(name)
            return later()

        async def receive() -> dict[str, Any]:
            await asyncio.Event().wait()
            raise AssertionError

        async def send(_: dict[str, Any]) -> None:
            pass

        await App(handler)(scope("http"), receive, send)

    names = ["a:x", "a:y", "b:x"]
    for name in [*(f"system:serviceaccount:{name}" for name in names), "jane", "system:serviceaccount"]:
        asyncio.run(run(name))
    assert found == [*(f"system:serviceaccount:{name[:2]}" for name in names), "jane", "system:serviceaccount"]


@pytest.mark.parametrize("path", ["/large", "/small", "/watch"])
def test_a_large_answer_waits_as_its_hook_says(path: str) -> None:
    """Before its head is sent; small answers, and streams, do not wait."""
    order: list[str] = []

    async def events(write: Any) -> None:
        await write(b"{}\n")

    def handler(req: Request) -> Response:
        req.long_running = req.path == "/watch"
        return Response(200, [], stream=events) if req.long_running else answered(BODY if req.path == "/large" else b"{}")

    async def others() -> None:
        order.append("others")

    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: dict[str, Any]) -> None:
        order.append(message["type"])

    scope = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": b"", "headers": [],
             "client": None, "scheme": "http", "http_version": "1.1"}  # fmt: skip
    asyncio.run(App(handler, gives=others)(scope, receive, send))
    assert ("others" in order) == (path == "/large") and (order[0] == "others" or path != "/large")
