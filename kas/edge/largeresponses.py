"""Large responses with a complete body are given to the connection piece by piece, as it takes them, and what is
left counts against the user's budget. If a response were handed over as a whole, the HTTP server would hold it for
as long as its client does not read."""

from __future__ import annotations

import asyncio
import time

from kas.edge.budget import Budget
from kas.endpoints import respond
from kas.meta.errors import ApiError, timeout
from kas.meta.offload import LARGE as LARGE_BYTES
from kas.request.http import Request, Response, Write, taken

PIECE_BYTES = 256 << 10
# The request's seat in flow control is released when the response has been sent, but after this time in any case, so
# that clients that do not read hold up nobody for longer.
LEAVES_S = 0.02
WRITES = frozenset(("POST", "PUT", "PATCH"))  # a client that got 429 would repeat its write
# The largest response to a WebSocket handshake that is not upgraded: it cannot be sent in pieces.
UNCONVERTED_BYTES = 1 << 20


def bounded(req: Request, resp: Response, read: Budget, written: Budget) -> Response:
    """Returns ``resp``, or a stream in its place if its body is large.

    The stream holds its size in a budget until it has ended. The response to a read becomes 429 if the budget is
    exhausted. The response to a write is sent nevertheless; its size counts when the user's next write is admitted
    (``Inlet.read``).
    """
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
            # The head has been sent: the connection is closed before the end of the body.
            raise timeout(f"{req.path}: the answer was not taken in time", 0) from None

    out = Response(resp.status, [*resp.headers, (b"content-length", str(size).encode())], stream=run)

    def finish() -> None:
        budget.give_back(user, size)
        if held is not None:
            held()

    out.finish = finish
    return out
