"""EventRateLimit: a flood of Events does not fill the store.

Two token buckets have to give: one of the namespace, one of the user, with the rates of upstream's documented example. The least
recently used buckets are forgotten beyond ``CACHE_SIZE``. Each worker counts for itself. Upstream: ``plugin/pkg/admission/eventratelimit``.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from kas.admission import CREATE, UPDATE, Attributes
from kas.api.errors import ApiError

CACHE_SIZE = 4096
# (what upstream calls the limit, tokens per second, tokens at once, whose)
LIMITS: tuple[tuple[str, float, float, Callable[[Attributes], str]], ...] = (
    ("Namespace", 50.0, 100.0, lambda a: a.namespace),
    ("User", 10.0, 50.0, lambda a: a.user.name),
)


class Bucket:
    """A token bucket; ``take`` says whether there was one."""

    __slots__ = ("burst", "filled", "rate", "tokens")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self.rate, self.burst, self.tokens, self.filled = rate, burst, burst, now

    def take(self, now: float) -> bool:
        self.tokens = min(self.burst, self.tokens + (now - self.filled) * self.rate)
        self.filled = now
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True


class Plugin:
    name = "EventRateLimit"

    def __init__(self, server: Any, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: OrderedDict[tuple[str, str], Bucket] = OrderedDict()

    def handles(self, a: Attributes) -> bool:
        return a.resource == "events" and a.group in ("", "events.k8s.io") and a.operation in (CREATE, UPDATE)

    def validate(self, a: Attributes) -> None:
        if a.dry_run:
            return
        now = self._clock()
        refused = []
        for kind, rate, burst, who in LIMITS:
            if not self._take(kind, who(a), rate, burst, now):
                refused.append(f"limit reached on type {kind} for key {who(a)}")
        if refused:
            text = refused[0] if len(refused) == 1 else "[" + ", ".join(refused) + "]"
            raise ApiError(429, "TooManyRequests", f"Too many requests: {text}")

    def _take(self, kind: str, who: str, rate: float, burst: float, now: float) -> bool:
        bucket = self._buckets.get((kind, who))
        if bucket is None:
            if len(self._buckets) >= CACHE_SIZE:
                self._buckets.popitem(last=False)
            bucket = self._buckets[kind, who] = Bucket(rate, burst, now)
        self._buckets.move_to_end((kind, who))
        return bucket.take(now)
