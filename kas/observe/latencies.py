"""Latency breakdown of a request for the audit log: upstream's latency trackers (``endpoints/request/webhook_duration.go``).

Each value is the seconds spent in one activity, under the name of its annotation. Code that has no request at hand adds to ``CURRENT``,
which holds the values of the current request's audit event, or None when the request is not audited.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from time import monotonic
from typing import Any

Took = dict[str, float]

PREFIX = "apiserver.latency.k8s.io/"
AUTHENTICATION, AUTHORIZATION, IMPERSONATION = "authentication", "authorization", "impersonation"
QUEUE, STORAGE = "apf-queue-wait", "etcd"
MUTATING_WEBHOOK, VALIDATING_WEBHOOK = "mutating-webhook", "validating-webhook"
SERIALIZATION, WRITING, TOTAL = "serialize-response-object", "response-write", "total"

CURRENT: ContextVar[Took | None] = ContextVar("latencies", default=None)


def observe(part: object, *methods: str) -> None:
    """Wraps methods of ``part`` so that the time of each call, until its awaitable result is complete, is added to the storage latency of
    the current request.
    """
    for method in methods:
        setattr(part, method, _timed(getattr(part, method)))


def _timed(call: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **more: Any) -> Any:
        took = CURRENT.get()
        if took is None:
            return call(*args, **more)
        began = monotonic()
        result = call(*args, **more)
        if isinstance(result, asyncio.Future):
            result.add_done_callback(lambda _: add(took, STORAGE, began))
        elif isinstance(result, Awaitable):
            return _to_the_end(result, took, began)
        else:
            add(took, STORAGE, began)
        return result

    return run


async def _to_the_end(waiting: Awaitable[Any], took: Took, began: float) -> Any:
    try:
        return await waiting
    finally:
        add(took, STORAGE, began)


def add(took: Took, what: str, began: float) -> None:
    """Adds the time since ``began`` (``time.monotonic``) to ``what``."""
    took[what] = took.get(what, 0.0) + monotonic() - began
