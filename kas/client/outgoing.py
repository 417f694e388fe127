"""Connections that requests of clients keep open to kubelets, pods, services and API servers behind this one.

Each is a descriptor for as long as its backend likes: one that never answers holds it for minutes, and one connection of HTTP/2 may ask for
a hundred. So they are shared out by clients, and what webhooks, files and the store need is left.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import partial
from typing import TYPE_CHECKING

from kas.client.http import Connection, Target, connect
from kas.meta.errors import too_many_requests

if TYPE_CHECKING:
    from kas.client._exchange import Shares

ANEW_S = 1
REFUSED = "too many connections to kubelets, pods, services and other API servers are open, please try again later"
_room: int | None = None
_shares: Shares | None = None


def share_out(room: int | None) -> None:
    """From now on so many connections of this process may be held by all clients together: one may hold three times what others leave, who
    has none may always have one. None: as many as anybody likes."""
    global _room, _shares
    _room, _shares = room, None


async def connect_for(client: Hashable, target: Target, upgrade: bool = False) -> Connection:
    """``connect``, for a request of ``client``. Raises BackendError, and 429 where it holds too many already."""
    give = _take(client)
    try:
        connection = await connect(target, upgrade=upgrade)
    except BaseException:
        give()
        raise
    connection.at_its_end(give)
    return connection


def hold(client: Hashable, connection: Connection) -> None:
    """Counts one that is open already. It is closed where that raises 429."""
    try:
        connection.at_its_end(_take(client))
    except BaseException:
        connection.close()
        raise


class _Share:
    """What is given back once, whoever says so first."""

    def __init__(self, shares: Shares | None, client: Hashable) -> None:
        self._give = partial(shares.give, client) if shares is not None else None

    def __call__(self) -> None:
        give, self._give = self._give, None
        if give is not None:
            give()


def _take(client: Hashable) -> _Share:
    global _shares
    if _room is None:
        return _Share(None, client)
    if _shares is None:
        from kas.client._exchange import Shares  # few servers have somebody who proxies

        _shares = Shares(_room)
    if not _shares.take(client):
        raise too_many_requests(REFUSED, ANEW_S)
    return _Share(_shares, client)
