"""Keeps the RBAC index in step with the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from kas.auth.authz.rbac import LargeBinding, RbacIndex
from kas.auth.authz.roles import Role
from kas.informers import Source
from kas.informers.reflector import Reflector, left_out, split_key
from kas.meta.largejson import let_go
from kas.meta.offload import LARGE, POOL
from kas.meta.stored import object_of
from kas.store import Event, Record

RESOURCES = ("clusterroles", "roles", "clusterrolebindings", "rolebindings")


def reflectors(index: RbacIndex, source: Source, prefixes: Mapping[str, str]) -> list[Reflector]:
    """Return a reflector for each of ``RESOURCES``, by key prefix. The index is complete once all of them have started."""
    return [Reflector(source, prefixes[resource], _Part(index, resource, prefixes[resource])) for resource in RESOURCES]


class _Part:
    """The target of one resource's reflector."""

    def __init__(self, index: RbacIndex, resource: str, prefix: str) -> None:
        self._index, self._resource, self._prefix = index, resource, prefix

    def replace(self, records: Sequence[Record]) -> None:
        for rec in records:
            self._put(rec)
        self._index.keep_only(self._resource, {split_key(self._prefix, rec.key) for rec in records})

    def apply(self, events: Sequence[Event]) -> None:
        for e in events:
            if e.record is not None:
                self._put(e.record)
            else:
                self._index.delete(self._resource, *split_key(self._prefix, e.key))

    def _put(self, rec: Record) -> None:
        if self._resource not in ("roles", "clusterroles"):
            if len(rec.json) < LARGE:
                self._index.put(self._resource, object_of(rec))
                return
            namespace, name = split_key(self._prefix, rec.key)
            binding = LargeBinding(namespace, lambda: object_of(rec))
            self._index.put_large_binding(namespace, name, binding)
            POOL.soon(binding.prepare)
            return
        length = len(rec.json)
        role = Role(lambda: () if left_out(rec) else object_of(rec).get("rules") or (), length)
        before = self._index.put_role(*split_key(self._prefix, rec.key), role)
        if before is not None and (parts := before.parts()):
            POOL.soon(partial(let_go, parts))
        if length >= LARGE:
            POOL.soon(role.prepare)
