"""Name checks that remember: the same few names, keys and values come back in pod after pod.

Each answers like its namesake in ``names``, with a tuple that callers only read.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from kas.meta import names

SIZE = 8192


def _cached(check: Callable[[str], list[str]]) -> Callable[[str], tuple[str, ...]]:
    @lru_cache(maxsize=SIZE)
    def remembered(text: str) -> tuple[str, ...]:
        return tuple(check(text))

    return remembered


dns_label = _cached(names.is_dns1123_label)
dns_subdomain = _cached(names.is_dns1123_subdomain)
qualified_name = _cached(names.is_qualified_name)
label_value = _cached(names.is_label_value)
port_name = _cached(names.is_port_name)
env_name = _cached(names.is_relaxed_env_var_name)
config_map_key = _cached(names.is_config_map_key)
