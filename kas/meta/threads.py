"""A thread pool that copes with the system's limit on threads being reached while the server runs."""

from __future__ import annotations

import logging
import time
from concurrent.futures import ThreadPoolExecutor

from kas.meta.errors import ApiError, service_unavailable

log = logging.getLogger("kas.threads")

LOG_EVERY_S = 10.0
NO_THREAD = "the system gives the server no more threads"


class _Logged:
    """When the error was last logged, and how many errors were suppressed since."""

    at = float("-inf")
    suppressed = 0


def no_thread(clock: float | None = None) -> ApiError:
    """The 503 error for a request for whose work there is no thread. Logs it at most once in ``LOG_EVERY_S``."""
    now = time.monotonic() if clock is None else clock
    if now - _Logged.at >= LOG_EVERY_S:
        log.error("%s (RLIMIT_NPROC, pids.max): requests that want one are answered 503, %d before this one", NO_THREAD, _Logged.suppressed)
        _Logged.at, _Logged.suppressed = now, 0
    else:
        _Logged.suppressed += 1
    return service_unavailable(NO_THREAD, 1)


class Threads(ThreadPoolExecutor):
    """A ``ThreadPoolExecutor`` that continues with the threads it has when the system refuses more.

    When it has none at all, ``submit`` raises an ``ApiError`` and the work is removed from the queue, so that it is not run later when
    nothing waits for it.
    """

    def _adjust_thread_count(self) -> None:
        try:
            super()._adjust_thread_count()
        except RuntimeError:
            if not self._threads:
                self._work_queue.get_nowait()  # the queue holds only this item: each earlier one was removed likewise
                raise no_thread() from None
