"""Answers that are large and whole: taken piece by piece, and counted while they are."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest

from kas.auth.user import MASTERS, UserInfo
from kas.edge.answers import LARGE_BYTES, PIECE_BYTES, UNCONVERTED_BYTES, bounded
from kas.edge.asgi import App
from kas.edge.body import Bounds
from kas.edge.budget import Budget
from kas.endpoints.listpages import LEAST_BYTES, PAGE_BYTES, Underway
from kas.meta.errors import ApiError
from kas.request.http import Request, Response

BODY = b"x" * (2 * LARGE_BYTES + 1)
ALICE, BOB = UserInfo("alice"), UserInfo("bob")


def request(user: UserInfo = ALICE, method: str = "GET") -> Request:
    req = Request(method, "/api/v1/configmaps", "", [], b"")
    req.user = user
    return req


def answered(body: bytes = BODY) -> Response:
    return Response(200, [(b"content-type", b"application/json")], body)


async def taken(resp: Response) -> list[bytes]:
    pieces: list[bytes] = []

    async def write(piece: bytes) -> None:
        pieces.append(piece)

    assert resp.stream is not None
    await resp.stream(write)
    return pieces


def test_what_is_small_or_no_body_stays_as_it_is():
    b = Budget()
    for req, resp in ((request(), answered(BODY[:LARGE_BYTES])), (request(method="HEAD"), answered())):
        assert bounded(req, resp, b) is resp
    assert b.held == 0


def test_what_is_large_is_written_in_pieces_and_counts_until_its_end():
    b = Budget()
    resp = bounded(request(), answered(), b)
    assert (b"content-length", str(len(BODY)).encode()) in resp.headers and b.by_user == {"alice": len(BODY)}
    pieces = asyncio.run(taken(resp))
    assert b"".join(pieces) == BODY and max(map(len, pieces)) <= PIECE_BYTES
    resp.finish()
    assert b.held == 0


def test_a_user_takes_one_however_large_and_others_beside_it_as_far_as_there_is_room():
    b = Budget(worker_bytes=3 * len(BODY), user_bytes=10)
    first = bounded(request(), answered(), b)
    assert first.status == 200 and bounded(request(), answered(), b).status == 429
    assert [bounded(request(UserInfo(f"u{i}")), answered(), b).status for i in range(3)] == [200, 200, 429]
    first.finish()
    assert bounded(request(BOB), answered(), b).status == 200
    alone = Budget(worker_bytes=1, user_bytes=1)
    assert bounded(request(), answered(), alone).status == 200 and bounded(request(BOB), answered(), alone).status == 429


def test_administrators_that_take_nothing_hold_no_more_than_a_share():
    """They were not refused: as many answers as they asked for were held."""
    b, masters = Budget(worker_bytes=3 * len(BODY), user_bytes=10), [UserInfo(f"m{i}", [MASTERS]) for i in range(2)]
    held = [bounded(request(masters[i % 2]), answered(), b) for i in range(5)]
    assert [one.status for one in held] == [200, 200, 200, 429, 429] and b.held == 3 * len(BODY)
    assert bounded(request(), answered(), b).status == 200  # others have their own
    held[0].finish()
    assert bounded(request(masters[1]), answered(), b).status == 200


def test_who_does_not_take_it_is_left():
    async def run() -> None:
        req = request()
        req.deadline = time.monotonic() - 1
        resp = bounded(req, answered(), Budget())

        async def write(piece: bytes) -> None:
            await asyncio.Event().wait()

        assert resp.stream is not None
        with pytest.raises(ApiError) as e:
            await resp.stream(write)
        assert e.value.code == 504

    asyncio.run(run())


def exchange(scope: dict[str, Any], resp: Response) -> tuple[list[dict[str, Any]], Bounds]:
    """What a connection is given, and the bounds it was given within."""
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
        "type": kind, "method": "GET", "path": "/api/v1/configmaps", "query_string": b"", "headers": [(b"host", b"x")], "scheme": "https",
        "client": ("127.0.0.1", 1), "http_version": "1.1", "server": ("127.0.0.1", 2), "subprotocols": [],
    }  # fmt: skip


def test_a_connection_gets_all_of_it():
    (head, *pieces), bounds = exchange(scope("http"), answered())
    assert head["status"] == 200 and b"".join(p["body"] for p in pieces) == BODY and len(pieces) > 2
    assert not pieces[-1]["more_body"] and bounds.answers.held == 0


@pytest.mark.parametrize("streamed", [True, False])
def test_a_handshake_is_not_answered_with_a_list_that_is_large(streamed: bool):
    asked: list[int] = []

    async def stream(write: Any) -> None:
        for _ in range(100):
            asked.append(1)
            await write(b"x" * (UNCONVERTED_BYTES // 2))

    resp = Response(200, [], stream=stream) if streamed else answered(b"x" * (UNCONVERTED_BYTES + 1))
    (head, body), _ = exchange(scope("websocket"), resp)
    assert head["status"] == 400 and b"BadRequest" in body["body"] and len(asked) in (0, 3)


def test_a_websocket_has_spoken_whose_port_the_http_server_tells_as_text():
    """Taken for a silent connection it was cut 40 s after its handshake, unless its client sent something."""
    spoke: list[int] = []

    async def run() -> None:
        async def send(_: dict[str, Any]) -> None:
            pass

        async def receive() -> dict[str, Any]:
            return {"type": "websocket.connect"}

        await App(lambda req: Response(404, []), spoke=spoke.append)({**scope("websocket"), "client": ("127.0.0.1", "4711")}, receive, send)

    asyncio.run(run())
    assert spoke == [4711]


def test_pieces_of_lists_get_smaller_the_more_are_under_way():
    """The HTTP server keeps some pieces of each answer that nobody takes, whatever their size."""
    underway = Underway()
    few = underway.write_bytes
    underway.answers = 60
    assert few >= PAGE_BYTES and LEAST_BYTES <= underway.write_bytes <= PAGE_BYTES // 4
    underway.answers = 10_000
    assert underway.write_bytes == LEAST_BYTES
