"""Whose value a key of the store is: what is configured for it, found on every write and every sealed read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kas.encryption.providers import GroupResource, Members, find

ROOT = "/registry/"


class Resources:
    """``records`` are the built-in resources' (``kas/types/scheme.py``); those of definitions are told by their keys."""

    def __init__(self, records: Iterable[Any]) -> None:
        self._roots: dict[str, GroupResource] = {}
        for r in records:
            # Two groups have Events, at one place; they count as the core's.
            if r.etcd_prefix is not None and (r.etcd_prefix not in self._roots or not r.group):
                self._roots[r.etcd_prefix] = (r.group, r.resource)
        deeper = {root.rpartition("/")[0] for root in self._roots}
        # Where the first part of a key says all.
        self.simple = frozenset(root for root in self._roots if root.count("/") == 2 and root not in deeper)

    def of(self, key: str) -> GroupResource | None:
        """The resource of a key, or of a prefix that ends with "/"; None for what has no API."""
        if not key.startswith(ROOT):
            return None
        first, _, rest = key[len(ROOT) :].partition("/")
        second = rest.partition("/")[0]
        found = self._roots.get(f"{ROOT}{first}/{second}") or self._roots.get(ROOT + first)
        if found is None and "." in first and second:
            return first, second
        return found

    def prefixes(self, members: dict[GroupResource, Members]) -> list[str]:
        """Where what is sealed may lie: of built-in resources each its own place, and of definitions each that is named."""
        out = [root + "/" for root, resource in self._roots.items() if find(members, resource) is not None]
        known = set(self._roots.values())
        return out + [f"{ROOT}{g}/{r}/" for g, r in members if "*" not in (g, r) and (g, r) not in known and "." in g]
