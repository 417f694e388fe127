"""The admission chain: plug-ins that change, then plug-ins that judge what is about to be written.

A plug-in is an object with ``name``, ``handles(attributes) -> bool`` and ``mutate(attributes)`` and/or
``validate(attributes)``; each either returns None or an awaitable, and refuses by raising ApiError. Order is upstream's
(``kas/admission/order.py``), mutating before validating. Plug-ins know the store and the strategies, never HTTP.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any

from kas.api import errors

CREATE, UPDATE, DELETE, CONNECT = "CREATE", "UPDATE", "DELETE", "CONNECT"


class Attributes:
    """What is about to happen. ``obj`` and ``old`` are dicts in the storage version; a mutating plug-in changes ``obj``.

    ``version`` is the one in which the client speaks (webhooks need it); ``options`` are the decoded options of the verb.
    """

    __slots__ = (
        "annotate", "dry_run", "group", "kind", "name", "namespace", "now", "obj", "old", "operation", "options", "resource", "subresource",
        "user", "version", "warn",
    )  # fmt: skip
    # None where the operation has none (CREATE has no old, CONNECT and DELETE no obj). A plug-in rules these operations out in
    # ``handles``, which a type checker cannot follow; the Any keeps it from asking each of them again, not from checking the dict.
    obj: dict[str, Any] | Any
    old: dict[str, Any] | Any

    def __init__(
        self, operation: str, group: str, version: str, resource: str, subresource: str, kind: str, namespace: str, name: str,
        obj: dict[str, Any] | None, old: dict[str, Any] | None, user, options: dict[str, Any], dry_run: bool, now: str,
        warn: Callable[[str], None], annotate: Callable[[str, str], None],
    ) -> None:  # fmt: skip
        self.operation, self.group, self.version, self.resource, self.subresource = operation, group, version, resource, subresource
        self.kind, self.namespace, self.name, self.obj, self.old = kind, namespace, name, obj, old
        self.user, self.options, self.dry_run, self.now, self.warn, self.annotate = user, options, dry_run, now, warn, annotate

    def forbid(self, why: str) -> errors.ApiError:
        """``admission.NewForbidden``: names the object, or its generateName, or neither."""
        meta = (self.obj or {}).get("metadata") or {}
        name = self.name or meta.get("name") or ""
        if not name and meta.get("generateName"):
            name = meta["generateName"]
        return errors.forbidden(self.group, self.resource, name or "Unknown", why)


# (plug-in's name, what it does)
Steps = tuple[tuple[str, Callable[[Attributes], Any]], ...]


class Chain:
    """The plug-ins that are on, in order. ``observe(plugin, step, operation, rejected, seconds)`` feeds the metrics."""

    def __init__(self, plugins: list[Any], observe: Callable[[str, str, str, bool, float], None] | None = None) -> None:
        self.plugins, self._observe = plugins, observe
        self._cache: dict[tuple, tuple[Steps, Steps]] = {}

    def _plan(self, a: Attributes) -> tuple[Steps, Steps]:
        key = (a.operation, a.group, a.resource, a.subresource)
        plan = self._cache.get(key)
        if plan is None:
            on = [p for p in self.plugins if p.handles(a)]
            plan = (
                tuple((p.name, p.mutate) for p in on if hasattr(p, "mutate")),
                tuple((p.name, p.validate) for p in on if hasattr(p, "validate")),
            )
            self._cache[key] = plan
        return plan

    def mutates(self, a: Attributes) -> bool:
        return bool(self._plan(a)[0])

    async def mutate(self, a: Attributes) -> None:
        await self._run(self._plan(a)[0], "admit", a)

    async def validate(self, a: Attributes) -> None:
        await self._run(self._plan(a)[1], "validate", a)

    async def _run(self, steps: Steps, what: str, a: Attributes) -> None:
        observe = self._observe
        began = monotonic()
        for name, step in steps:
            try:
                pending = step(a)
                if pending is not None:
                    await pending
            except errors.ApiError:
                if observe is not None:
                    observe(name, what, a.operation, True, monotonic() - began)
                raise
            if observe is not None:
                now = monotonic()
                observe(name, what, a.operation, False, now - began)
                began = now
