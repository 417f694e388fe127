"""Pods that are bound to nodes: the one write that goes past the strategies (upstream ``pkg/registry/core/pod/storage``)."""

from __future__ import annotations

from typing import Any

import orjson

from kas.api import errors
from kas.api.field import go_quote
from kas.registry.generic import MAX_UPDATE_ATTEMPTS, Registry, precondition_failed
from kas.registry.strategy import Context, Obj
from kas.store import Conflict


class PodRegistry(Registry):
    async def bind(self, ctx: Context, name: str, binding: Obj) -> None:
        """Gives the pod the node of ``binding``, a Binding that passed validation; its uid and resourceVersion are preconditions.

        Raises 404, and 409 for a pod that is bound, being deleted, gated or another one than meant.
        """
        from kas.registry.core.pod import assign  # with the strategy of pods, which is large

        key = self.key(ctx.namespace, name)
        rec = self.store.get(key)
        for _ in range(MAX_UPDATE_ATTEMPTS):
            if rec is None:
                raise self.not_found(name)
            pod = orjson.loads(rec.json)
            why = _refusal(pod, binding, key, ctx.dry_run)
            if why:
                raise errors.conflict("", "pods/binding", name, why)
            bound = assign(pod, binding, ctx.now)
            if ctx.dry_run:
                return
            bound["metadata"].pop("resourceVersion", None)
            try:
                await self._commit(key, bound, rec.revision)
                return
            except Conflict as e:
                rec = e.current
        raise errors.conflict("", "pods/binding", name, errors.OBJECT_MODIFIED)


def _refusal(pod: Obj, binding: Obj, key: str, dry_run: bool) -> str:
    meta, spec, wanted = pod["metadata"], pod.get("spec") or {}, binding["metadata"]
    for field, label in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        have: Any = meta.get(field) or ""
        if wanted.get(field) and wanted[field] != have:
            return precondition_failed(key, label, wanted[field], have, dry_run)
    name = meta["name"]
    if meta.get("deletionTimestamp"):
        return f"pod {name} is being deleted, cannot be assigned to a host"
    if spec.get("nodeName"):
        return f"pod {name} is already assigned to node {go_quote(spec['nodeName'])}"
    if spec.get("schedulingGates"):
        return f"pod {name} has non-empty .spec.schedulingGates"
    return ""
