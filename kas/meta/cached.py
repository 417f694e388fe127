"""Cached name checks: the same few names, keys and values recur in pod after pod.

Each function answers like its namesake in ``names``, but returns a tuple, which callers must not change.
"""

from __future__ import annotations

from collections.abc import Callable

from kas.meta import names
from kas.observe.caches import remembered

# Texts longer than any valid one are checked each time. The answers share their texts.
ENTRIES, LONGEST = 4096, 128


def _cached(what: str, check: Callable[[str], list[str]]) -> Callable[[str], tuple[str, ...]]:
    @remembered(f"name_checks_{what.replace(' ', '_')}", f"whether a text is a {what}", ENTRIES, LONGEST)
    def answer(text: str) -> tuple[str, ...]:
        return tuple(check(text))

    return answer


dns_label = _cached("dns label", names.is_dns1123_label)
dns_subdomain = _cached("dns subdomain", names.is_dns1123_subdomain)
qualified_name = _cached("qualified name", names.is_qualified_name)
label_value = _cached("label value", names.is_label_value)
port_name = _cached("port name", names.is_port_name)
env_name = _cached("environment variable", names.is_relaxed_env_var_name)
config_map_key = _cached("config map key", names.is_config_map_key)
