"""The limit of concurrent webhook calls of a worker."""

from __future__ import annotations

import os

from kas.admission.initializer import Settings

DEFAULT_ROOM, LEAST_ROOM = 132, 68


def room(settings: Settings) -> int:
    """Return how many webhook calls may be in progress in a worker (see ``Shares``): as many as the mutating requests it accepts. Further
    calls fail, and the failure policy decides."""
    limit, workers = settings.max_mutating_requests_inflight, settings.workers or len(os.sched_getaffinity(0))
    return max(LEAST_ROOM, limit // workers) if limit else DEFAULT_ROOM
