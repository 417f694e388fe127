"""Namespaces (upstream ``pkg/registry/core/namespace/strategy.go``)."""

from __future__ import annotations

from kas.kinds.core.objectmeta import finalizer_name, object_meta, object_meta_update
from kas.meta import field, names
from kas.meta.field import FieldError
from kas.registry.strategy import Context, Obj, Strategy, strategy_for, take

NAME_LABEL = "kubernetes.io/metadata.name"
KUBERNETES = "kubernetes"


def _validate(obj: Obj) -> list[FieldError]:
    errs = object_meta(obj["metadata"], False, names.dns_label)
    for name in (obj.get("spec") or {}).get("finalizers") or ():
        errs += finalizer_name(name, "spec.finalizers")
    return errs


@strategy_for("", "namespaces")
class NamespaceStrategy(Strategy):
    """Namespaces; one is removed when its spec has no finalizers, which are written through the finalize subresource."""

    def prepare_for_create(self, ctx: Context, obj: Obj) -> None:
        """Set phase Active, and the finalizer ``kubernetes`` in the spec."""
        super().prepare_for_create(ctx, obj)
        obj["status"] = {"phase": "Active"}
        spec = obj.setdefault("spec", {})
        if KUBERNETES not in (spec.get("finalizers") or ()):
            spec["finalizers"] = [*(spec.get("finalizers") or ()), KUBERNETES]

    def prepare_for_update(self, ctx: Context, obj: Obj, old: Obj) -> None:
        """Carry over the spec's finalizers and the status."""
        obj.setdefault("spec", {})
        take(obj, old, "spec.finalizers")
        take(obj, old, "status")

    def canonicalize(self, obj: Obj) -> None:
        """Restore the label that selects a namespace by its name, which cannot be changed."""
        name = obj["metadata"].get("name")
        if name:
            obj["metadata"]["labels"] = {**(obj["metadata"].get("labels") or {}), NAME_LABEL: name}

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        """``ValidateNamespace``."""
        return _validate(obj)

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidateNamespaceUpdate``."""
        return _validate(obj) + object_meta_update(obj["metadata"], old["metadata"])

    def validate_status_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidateNamespaceStatusUpdate``: the phase is Terminating exactly when a deletion has begun."""
        errs = object_meta_update(obj["metadata"], old["metadata"])
        phase = (obj.get("status") or {}).get("phase") or ""
        deleted = bool(obj["metadata"].get("deletionTimestamp"))
        if not deleted and phase != "Active":
            errs.append(field.invalid("status.Phase", phase, "may only be 'Active' if `deletionTimestamp` is empty"))
        if deleted and phase != "Terminating":
            errs.append(field.invalid("status.Phase", phase, "may only be 'Terminating' if `deletionTimestamp` is not empty"))
        return errs

    def prepare_for_finalize_update(self, ctx: Context, obj: Obj, old: Obj) -> None:
        """Carry over the status."""
        take(obj, old, "status")

    def validate_finalize_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidateNamespaceFinalizeUpdate``: metadata, and the names of finalizers."""
        errs = object_meta_update(obj["metadata"], old["metadata"])
        for i, name in enumerate((obj.get("spec") or {}).get("finalizers") or ()):
            errs += finalizer_name(name, f"spec.finalizers[{i}]")
        return errs
