"""A call that is sent again and again, with the same request."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from kas.store.etcd.client import AsyncClient, Begun, Call
from kas.store.etcd.rpc import Question, Stream

A = TypeVar("A", bound=Any)


class SharedCall(Question, Generic[A]):
    """As ``AsyncClient.begin`` and ``ended``, for one call at a time. ``Question`` (rpc/wire/question.pxi) handles the case
    that the connection does not change."""

    def __init__(self, client: AsyncClient, call: Call[Any, A], request: Any, within_s: float) -> None:
        super().__init__(client, request.SerializeToString(), within_s)
        self._call, self._request = call, request

    def _find(self) -> bool:
        """Returns whether there is a usable connection."""
        found = self._client.usable(self._call, self._within_s)
        if found is None:
            return False
        self._at, self._connection, self._block, self._metadata = found
        self._turn = self._client._turn
        return True

    def ended(self, stream: Stream) -> A | None:
        """See ``AsyncClient.ended``."""
        answer: A | None = self._client.ended(Begun(self._call, self._at, stream, self._metadata))
        return answer

    async def anew(self, within_s: float) -> A:
        """Returns the answer from ``AsyncClient.call``, which finds a server."""
        answer: A = await self._client.call(self._call, self._request, within_s)
        return answer
