"""Makes state that is derived from the store (roles, credentials, indexes) as new as any write acknowledged before the request came."""

from __future__ import annotations

from collections.abc import Callable

from kas.filters.handler import Filter
from kas.request.http import Request


def catch_up(to_newest: Callable[[], None]) -> Filter:
    """``to_newest()`` follows what other workers wrote; it costs next to nothing if they wrote nothing."""

    def before(req: Request) -> None:
        to_newest()

    return Filter("catch_up", before)
