"""Deletion of definitions after their objects (apiextensions-apiserver ``pkg/registry/customresourcedefinition/etcd.go``)."""

from __future__ import annotations

from kas.apiextensions.definition import FINALIZER
from kas.meta.conditions import with_condition
from kas.registry.deletion import Deletion, Step
from kas.registry.generic import Registry
from kas.registry.strategy import Context, Obj

PENDING = {
    "type": "Terminating", "status": "True", "reason": "InstanceDeletionPending",
    "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
}  # fmt: skip


class DefinitionRegistry(Registry):
    """The first delete adds a finalizer to the definition, which is removed when its objects are gone."""

    def begin_delete(self, ctx: Context, obj: Obj, options: Obj) -> Deletion:
        """Mark the definition Terminating first; then delete it like any object."""
        meta = obj["metadata"]
        if meta.get("deletionTimestamp"):
            return super().begin_delete(ctx, obj, options)
        meta["deletionTimestamp"] = ctx.now
        if FINALIZER not in (meta.get("finalizers") or ()):
            meta["finalizers"] = [*(meta.get("finalizers") or ()), FINALIZER]
        status = obj.get("status") or {}
        conditions = with_condition(status.get("conditions") or [], {**PENDING, "lastTransitionTime": ctx.now})
        obj["status"] = {**status, "conditions": conditions}
        return Deletion(Step.MARK, graceful=False)
