"""Runtime classes stored as node.k8s.io/v1alpha1, which is no longer served (``pkg/apis/node/v1alpha1/conversion.go``)."""

from __future__ import annotations

from kas.types.conversion import Obj, converts


@converts(("node.k8s.io", "v1alpha1", "RuntimeClass"), ("node.k8s.io", "v1", "RuntimeClass"))
def runtime_class(obj: Obj) -> Obj:
    """Move the fields of the former spec to the top level."""
    out = dict(obj)
    spec = out.pop("spec", None) or {}
    out["handler"] = spec.get("runtimeHandler") or ""
    return out | {name: spec[name] for name in ("overhead", "scheduling") if spec.get(name) is not None}
