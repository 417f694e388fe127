"""How a controller reads and writes: the registries directly, as a system user, with managed fields as over HTTP.

Admission does not see these writes: they come from the server itself. Objects are dicts in the storage version.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import orjson

from kas.api.errors import ApiError
from kas.api.fieldmanager import apply, builtin, create, deduced_schema, field_set, update
from kas.api.scheme import SCHEME
from kas.registry import pipeline
from kas.registry.generic import Registry
from kas.registry.strategy import Context, Obj

NOT_FOUND, CONFLICT = 404, 409


class Client:
    """What one controller sees of the server. ``manager`` is its field manager, ``user`` whom its writes are by."""

    def __init__(self, server: Any, manager: str, user: str = "system:kube-controller-manager") -> None:
        self.server, self.store, self.manager = server, server.store, manager
        self._now = server.registry("", "namespaces").now
        self._user = {"username": user, "groups": ["system:authenticated"]}

    def context(self, namespace: str = "", subresource: str = "") -> Context:
        return Context(self._now(), namespace, self._user, subresource)

    # --- which registries there are

    def registries(self) -> Iterator[Registry]:
        """Every stored resource once, whatever number of groups or versions serve it."""
        seen = set()
        for reg in list(self.server.registries.values()):
            if reg.root not in seen:
                seen.add(reg.root)
                yield reg

    def registry(self, group: str, resource: str) -> Registry:
        return self.server.registry(group, resource)

    def registry_of_kind(self, api_version: str, kind: str) -> Registry | None:
        """Where objects of an owner reference's kind are kept; None for a kind nobody serves."""
        found = _stored_kinds().get((api_version, kind))
        if found is not None:
            return self.server.registries.get(found)
        group, _, version = api_version.rpartition("/")
        for reg in list(self.server.registries.values()):
            r = reg.resource
            if r.kind == kind and r.group == group and version in getattr(r, "versions", (r.version,)):
                return reg
        return None

    # --- reading

    def get(self, group: str, resource: str, namespace: str, name: str) -> Obj | None:
        return self.server.object(group, resource, namespace, name)

    def list(self, group: str, resource: str, namespace: str = "") -> list[Obj]:
        reg = self.registry(group, resource)
        return [orjson.loads(r.json) for r in self.store.range(reg.prefix(namespace)).records]

    # --- writing

    async def create(self, group: str, resource: str, obj: Obj) -> Obj | None:
        """Creates ``obj`` (kind and apiVersion of the storage version set); None when it exists already."""
        reg = self.registry(group, resource)
        obj, _ = pipeline.decode_input(reg.resource, obj)
        ctx = self.context(obj["metadata"].get("namespace", ""))
        entries = create(self._schema(reg), obj, self.manager, now=ctx.now, reset_fields=self._reset(reg, ""))
        if entries:
            obj["metadata"]["managedFields"] = entries
        try:
            rec, _ = await reg.create(ctx, obj)
        except ApiError as e:
            if e.reason == "AlreadyExists":
                return None
            raise
        return orjson.loads(rec.json)

    async def update(
        self, reg: Registry, namespace: str, name: str, change: Callable[[Obj], bool], subresource: str = "", uid: str = ""
    ) -> Obj | None:
        """Changes an object in place by ``change(obj)``, which says whether there is anything to write.

        Starts over when somebody else was quicker. None when the object is gone, or no longer the one with ``uid``.
        """
        ctx = self.context(namespace, subresource)

        def mutate(current: Obj | None) -> Obj:
            assert current is not None  # an update that may not create
            if uid and current["metadata"].get("uid") != uid:
                raise reg.not_found(name)
            live = orjson.dumps(current)
            if not change(current):
                raise _Unchanged
            old = orjson.loads(live)
            reset = self._reset(reg, subresource)
            entries = update(self._schema(reg), old, current, self.manager, now=ctx.now, subresource=subresource, reset_fields=reset)
            current["metadata"]["managedFields"] = entries
            if not entries:
                del current["metadata"]["managedFields"]
            return current

        try:
            rec, _, _ = await reg.update(ctx, name, mutate, subresource=subresource)
        except _Unchanged:
            return None
        except ApiError as e:
            if e.code == NOT_FOUND:
                return None
            raise
        return orjson.loads(rec.json)

    async def apply(self, reg: Registry, namespace: str, name: str, wanted: Obj, subresource: str = "") -> None:
        """Forced server-side apply of ``wanted`` (without identity) to an existing object; nothing happens when it is gone."""
        ctx = self.context(namespace, subresource)
        r = reg.resource
        head = {"kind": r.kind, "apiVersion": f"{r.group}/{r.version}" if r.group else r.version, "metadata": {"name": name}}
        if namespace:
            head["metadata"]["namespace"] = namespace

        def mutate(current: Obj | None) -> Obj:
            assert current is not None  # an update that may not create
            live = pipeline.from_storage(reg.resource, current)
            merged = apply(
                self._schema(reg), live, {**head, **wanted}, self.manager, now=ctx.now, subresource=subresource, force=True,
                reset_fields=self._reset(reg, subresource),
            )  # fmt: skip
            obj, _ = pipeline.decode_input(r, merged)
            return obj

        try:
            await reg.update(ctx, name, mutate, subresource=subresource)
        except ApiError as e:
            if e.code != NOT_FOUND:
                raise

    async def delete(self, reg: Registry, namespace: str, name: str, uid: str = "", **options: Any) -> bool:
        """True when the object was there and was deleted or marked. Another object under the name is left alone."""
        if uid:
            options["preconditions"] = {"uid": uid}
        try:
            await reg.delete(self.context(namespace), name, options)
        except ApiError as e:
            if e.code == NOT_FOUND or (e.code == CONFLICT and uid):
                return False
            raise
        return True

    async def warn(self, involved: Obj, reason: str, message: str, component: str) -> None:
        """A warning event about ``involved``, an object reference."""
        now, namespace = self.context().now, involved.get("namespace") or ""
        event = {
            "kind": "Event",
            "apiVersion": "v1",
            "metadata": {"name": f"{involved['name']}.{time.time_ns():x}", "namespace": namespace or "default"},
            "involvedObject": {k: v for k, v in involved.items() if v},
            "reason": reason,
            "message": message,
            "source": {"component": component},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
            "type": "Warning",
            "reportingComponent": component,
        }
        await self.create("", "events", event)

    @staticmethod
    def _schema(reg: Registry) -> Any:
        r = reg.resource
        if SCHEME.kind(r.group, r.version, r.kind) is not None:
            return builtin(r.group, r.version, r.kind)
        # A custom resource: these writes are about its metadata, for which any schema will do.
        return deduced_schema(f"{r.group}/{r.version}", r.kind)

    @staticmethod
    def _reset(reg: Registry, subresource: str) -> Any:
        r = reg.resource
        if subresource:
            sub = r.subresources.get(subresource)
            return field_set(tuple(sub.reset) if sub is not None else ())
        return field_set(tuple(r.reset_on_spec_write))


@cache
def _stored_kinds() -> dict[tuple[str, str], tuple[str, str]]:
    """(apiVersion, kind) of the built-in kinds to the (group, etcd prefix) of their registry."""
    return {
        (f"{r.group}/{r.version}" if r.group else r.version, r.kind): (r.group, r.etcd_prefix)
        for r in SCHEME.resources
        if r.etcd_prefix is not None and "get" in r.verbs
    }


class _Unchanged(Exception):
    """Leaves an update that has nothing to write."""


def split_key(reg: Registry, key: str) -> tuple[str, str]:
    """(namespace, name) of a store key."""
    namespace, _, name = key[len(reg.root) :].rpartition("/")
    return namespace, name
