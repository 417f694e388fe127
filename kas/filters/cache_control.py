"""``Cache-Control: no-cache, private`` on every answer that does not say otherwise."""

from __future__ import annotations

from kas._fastpath import forbid_caches
from kas.filters.handler import Filter


def cache_control() -> Filter:
    """Keep responses out of caches, unless their handler said otherwise."""
    return Filter("cache_control", None, forbid_caches)
