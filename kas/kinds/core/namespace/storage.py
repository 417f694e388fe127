"""Deletion of namespaces in two steps with two kinds of finalizers (upstream ``pkg/registry/core/namespace/storage``)."""

from __future__ import annotations

from kas.meta import errors
from kas.registry import deletion
from kas.registry.deletion import Deletion, Step
from kas.registry.generic import Registry
from kas.registry.strategy import Context, Obj


class NamespaceRegistry(Registry):
    """The first delete starts the termination; the object is removed when spec.finalizers and metadata.finalizers are empty."""

    def check_preconditions(self, name: str, obj: Obj, options: Obj) -> None:
        """As for every kind, with different error messages."""
        wanted = options.get("preconditions") or {}
        for member, label in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
            have = obj["metadata"].get(member, "")
            if wanted.get(member) is not None and wanted[member] != have:
                why = f"Precondition failed: {label} in precondition: {wanted[member]}, {label} in object meta: {have}"
                raise errors.conflict("", "namespaces", name, why)

    def delete_pending(self, obj: Obj, options: Obj) -> bool:
        """Whether it is Terminating and its spec still has finalizers."""
        return bool(obj["metadata"].get("deletionTimestamp") and (obj.get("spec") or {}).get("finalizers"))

    def begin_delete(self, ctx: Context, obj: Obj, options: Obj) -> Deletion:
        """Mark the namespace Terminating first; delete it like any object once nothing is pending."""
        meta = obj["metadata"]
        if not meta.get("deletionTimestamp"):
            meta["deletionTimestamp"] = ctx.now
            obj["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}
            deletion.set_finalizers(self.resource, obj, options)
            return Deletion(Step.MARK, graceful=False)
        return super().begin_delete(ctx, obj, options)

    def gone_with_update(self, obj: Obj, old: Obj) -> bool:
        """As for any object, but False while the spec has finalizers."""
        return not (obj.get("spec") or {}).get("finalizers") and super().gone_with_update(obj, old)
