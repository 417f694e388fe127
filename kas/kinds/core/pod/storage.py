"""Binding of pods to nodes: the only write that bypasses the strategies (upstream ``pkg/registry/core/pod/storage``)."""

from __future__ import annotations

from typing import Any

from kas.meta import errors
from kas.meta.field import go_quote
from kas.registry.generic import Registry
from kas.registry.strategy import Context, Obj
from kas.registry.write import Update, precondition_failed


class PodRegistry(Registry):
    """The registry of pods, which can also bind them to nodes."""

    async def bind(self, ctx: Context, name: str, binding: Obj) -> None:
        """Bind the pod to the node of ``binding``, a valid Binding; its uid and resourceVersion are preconditions.

        Raises 404, or 409 if the pod is already bound, being deleted, gated, or does not match the preconditions.
        """
        await _Bind(self, ctx, name, binding).run()


class _Bind(Update):
    """The write of a binding. No strategy validates it: whether the pod can be bound is the only check."""

    def __init__(self, pods: Registry, ctx: Context, name: str, binding: Obj) -> None:
        super().__init__(pods, ctx, name)
        self.binding = binding

    def mutate(self, live: Obj | None) -> Obj:
        from kas.kinds.core.pod.strategy import assign  # with the strategy of pods, which is large

        assert live is not None  # a binding creates no pod
        why = _refusal(live, self.binding, self.key, self.ctx.dry_run)
        if why:
            raise errors.conflict("", "pods/binding", self.name, why)
        return assign(live, self.binding, self.ctx.now)

    def validate(self, obj: Obj, old: Obj) -> tuple[Obj, list[str]]:
        return obj, []


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
