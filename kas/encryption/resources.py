"""Finds the resource of a key of the store, for its encryption; called with every write and every sealed read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kas.encryption.providers import GroupResource, Members, find

ROOT = "/registry/"


class Resources:
    """``records`` are those of the built-in resources (``kas/types/scheme.py``); resources of definitions are recognized by
    their keys."""

    def __init__(self, records: Iterable[Any]) -> None:
        self._roots: dict[str, GroupResource] = {}
        for r in records:
            # Two groups serve Events at the same place; they count as the core group's.
            if r.etcd_prefix is not None and (r.etcd_prefix not in self._roots or not r.group):
                self._roots[r.etcd_prefix] = (r.group, r.resource)
        deeper = {root.rpartition("/")[0] for root in self._roots}
        # Where the first part of a key determines the resource.
        self.simple = frozenset(root for root in self._roots if root.count("/") == 2 and root not in deeper)

    def of(self, key: str) -> GroupResource | None:
        """Returns the resource of a key, or of a prefix that ends with "/"; None for keys without an API."""
        if not key.startswith(ROOT):
            return None
        first, _, rest = key[len(ROOT) :].partition("/")
        second = rest.partition("/")[0]
        found = self._roots.get(f"{ROOT}{first}/{second}") or self._roots.get(ROOT + first)
        if found is None and "." in first and second:
            return first, second
        return found

    def prefixes(self, members: dict[GroupResource, Members]) -> list[str]:
        """Returns the prefixes where sealed values may be: one for each built-in resource, and one for each named resource of
        a definition."""
        out = [root + "/" for root, resource in self._roots.items() if find(members, resource) is not None]
        known = set(self._roots.values())
        return out + [f"{ROOT}{g}/{r}/" for g, r in members if "*" not in (g, r) and (g, r) not in known and "." in g]
