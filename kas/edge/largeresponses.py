"""Answers that are large and whole: they are given to the connection piece by piece, as it takes them, and what is left of them counts
against the user who asked. Handed over at once, the HTTP server would keep each for as long as its client does not read."""

from __future__ import annotations

import asyncio
import time

from kas.edge.budget import Budget
from kas.endpoints import respond
from kas.meta.errors import ApiError, timeout
from kas.meta.offload import LARGE as LARGE_BYTES
from kas.request.http import Request, Response, Write, taken

PIECE_BYTES = 256 << 10
# What its request holds of flow control is given back when it has left, but after so long in any case: clients that do not read hold up
# nobody for longer.
LEAVES_S = 0.02
WRITES = frozenset(("POST", "PUT", "PATCH"))  # a client that was told 429 would write again
# What a handshake for a WebSocket that becomes none is answered with at most: that cannot be sent in pieces.
UNCONVERTED_BYTES = 1 << 20


def bounded(req: Request, resp: Response, read: Budget, written: Budget) -> Response:
    """The answer itself; one that is large and whole as a stream that holds its share of a budget until it has ended, or 429 where there is
    no room for what was read. What was written is told all the same, and counts for the next write (``Inlet.read``)."""
    if resp.stream is not None or len(resp.body) <= LARGE_BYTES or req.method == "HEAD":
        return resp
    body, user, size, held = resp.body, req.user, len(resp.body), resp.finish
    budget = written if req.method in WRITES else read
    if budget is written:
        budget.add(user, size)
    else:
        try:
            budget.take(user, size, first=True)
        except ApiError as e:
            refused = respond.status(req, e)
            refused.finish = held
            return refused

    async def run(write: Write) -> None:
        if held is not None:
            asyncio.get_running_loop().call_later(LEAVES_S, held)
        try:
            async with asyncio.timeout(max(1.0, req.deadline - time.monotonic()) if req.deadline else None):
                last = (size - 1) // PIECE_BYTES * PIECE_BYTES
                for at in range(0, last, PIECE_BYTES):
                    await write(body[at : at + PIECE_BYTES])
                await taken(write, body[last:])
        except TimeoutError:
            # The head has left: the connection ends without the answer's end.
            raise timeout(f"{req.path}: the answer was not taken in time", 0) from None

    out = Response(resp.status, [*resp.headers, (b"content-length", str(size).encode())], stream=run)

    def finish() -> None:
        budget.give_back(user, size)
        if held is not None:
            held()

    out.finish = finish
    return out
