"""Pools of threads where the system may give no thread more: a limit of processes is reached while the server runs."""

from __future__ import annotations

import logging
import time
from concurrent.futures import ThreadPoolExecutor

from kas.meta.errors import ApiError, service_unavailable

log = logging.getLogger("kas.threads")

SAID_EVERY_S = 10.0
NO_THREAD = "the system gives the server no more threads"


class _Said:
    """When it was said last, and how often it would have been since."""

    at = float("-inf")
    unsaid = 0


def no_thread(clock: float | None = None) -> ApiError:
    """What is answered where there is no thread for a request's work, 503. It is logged, once in ``SAID_EVERY_S``."""
    now = time.monotonic() if clock is None else clock
    if now - _Said.at >= SAID_EVERY_S:
        log.error("%s (RLIMIT_NPROC, pids.max): requests that want one are answered 503, %d before this one", NO_THREAD, _Said.unsaid)
        _Said.at, _Said.unsaid = now, 0
    else:
        _Said.unsaid += 1
    return service_unavailable(NO_THREAD, 1)


class Threads(ThreadPoolExecutor):
    """A pool that does with the threads it has where the system gives none more. Where it has none at all, what was to be done is not done
    later, when nobody waits for it any more: ``submit`` raises an ``ApiError``."""

    def _adjust_thread_count(self) -> None:
        try:
            super()._adjust_thread_count()
        except RuntimeError:
            if not self._threads:
                self._work_queue.get_nowait()  # there is but what was given last: each before it was taken back, too
                raise no_thread() from None
