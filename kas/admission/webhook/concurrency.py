"""How much a worker has to do with webhooks at once."""

from __future__ import annotations

import os

from kas.admission.initializer import Settings

DEFAULT_ROOM, LEAST_ROOM = 132, 68


def room(settings: Settings) -> int:
    """How many calls of webhooks may be under way in a worker (see ``Shares``): as many as the writes it has room for. What would be one
    more is answered by the failure policy."""
    limit, workers = settings.max_mutating_requests_inflight, settings.workers or len(os.sched_getaffinity(0))
    return max(LEAST_ROOM, limit // workers) if limit else DEFAULT_ROOM
