"""Rate limit of an upgraded connection (--max-connection-bytes-per-sec; upstream's ``flowrate`` readers and writers)."""

from __future__ import annotations

import asyncio

from kas.request.websocket import Conversation, Socket


def throttled(talk: Conversation, bytes_per_second: int) -> Conversation:
    """Return ``talk`` limited to ``bytes_per_second`` in each direction; a single message may exceed it."""

    async def run(client: Socket) -> int:
        return await talk(_Throttled(client, bytes_per_second))

    return run


class _Pace:
    """Delays each message until the previous ones have used up their time."""

    __slots__ = ("_free", "_rate")

    def __init__(self, rate: int) -> None:
        self._rate, self._free = rate, 0.0

    async def take(self, size: int) -> None:
        now = asyncio.get_running_loop().time()
        before = self._free
        self._free = max(now, before) + size / self._rate
        if before > now:
            await asyncio.sleep(before - now)


class _Throttled:
    """The client's socket for a ``Conversation``, rate-limited."""

    __slots__ = ("_client", "_down", "_up")

    def __init__(self, client: Socket, rate: int) -> None:
        self._client, self._up, self._down = client, _Pace(rate), _Pace(rate)

    async def receive(self) -> bytes | str | None:
        message = await self._client.receive()
        if message is not None:
            await self._up.take(len(message))
        return message

    async def send(self, message: bytes | str) -> None:
        await self._down.take(len(message))
        await self._client.send(message)
