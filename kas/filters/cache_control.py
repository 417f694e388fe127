"""``Cache-Control: no-cache, private`` on every response whose handler did not set it."""

from __future__ import annotations

from kas._fastpath import forbid_caches
from kas.filters.handler import Filter


def cache_control() -> Filter:
    """Keeps responses out of caches, unless their handler set the header."""
    return Filter("cache_control", None, forbid_caches)
