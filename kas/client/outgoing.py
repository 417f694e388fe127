"""Connections that clients' requests keep open to kubelets, pods, services and API servers behind this one.

Each holds a descriptor for as long as its backend likes: a backend that never answers holds it for minutes, and a
client can request a hundred over one HTTP/2 connection. So the descriptors are shared between clients, and enough
are left for webhooks, files and the store.
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
    """Limits the connections of this process that all clients together may hold to ``room``. A client may hold three
    times what others leave, and one without a connection may always have one. None removes the limit."""
    global _room, _shares
    _room, _shares = room, None


async def connect_for(client: Hashable, target: Target, upgrade: bool = False) -> Connection:
    """``connect`` for a request of ``client``. Raises BackendError, and 429 if the client holds too many connections."""
    give = _take(client)
    try:
        connection = await connect(target, upgrade=upgrade)
    except BaseException:
        give()
        raise
    connection.at_its_end(give)
    return connection


def hold(client: Hashable, connection: Connection) -> None:
    """Counts a connection that is open already; closes it if that raises 429."""
    try:
        connection.at_its_end(_take(client))
    except BaseException:
        connection.close()
        raise


class _Share:
    """A share that is released once, by whichever call comes first."""

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
        from kas.client._exchange import Shares  # few servers proxy requests

        _shares = Shares(_room)
    if not _shares.take(client):
        raise too_many_requests(REFUSED, ANEW_S)
    return _Share(_shares, client)
