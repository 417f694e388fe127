"""Counts long-running requests other than watches: connections to pods, services and nodes, and logs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kas.request.http import Request, Response, Write
from kas.request.websocket import Socket, Upgrade

Place = tuple[str, str, str, str, str]  # group, resource, scope, subresource and version


class LongRunning:
    """``open`` counts the requests of each place while bytes may pass."""

    def __init__(self) -> None:
        self.open: Counter[Place] = Counter()

    def following(self, handler: Callable[..., Awaitable[Response]]) -> Callable[..., Awaitable[Response]]:
        """Wrap a handler so that its responses are counted while they are in progress."""

        async def handle(req: Request, *args: Any) -> Response:
            return self._counted(req, await handler(req, *args))

        return handle

    def _counted(self, req: Request, resp: Response) -> Response:
        info = req.info
        place = (info.api_group, info.resource, "resource", info.subresource, info.api_version)
        if isinstance(resp, Upgrade):
            conversation = resp.talk

            async def talk(client: Socket) -> int:
                with self._count(place):
                    return await conversation(client)

            resp.talk = talk
        elif resp.stream is not None:
            pieces = resp.stream

            async def stream(write: Write) -> None:
                with self._count(place):
                    await pieces(write)

            resp.stream = stream
        return resp

    @contextmanager
    def _count(self, place: Place) -> Iterator[None]:
        self.open[place] += 1
        try:
            yield
        finally:
            self.open[place] -= 1
