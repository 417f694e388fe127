"""Runtime classes as node.k8s.io/v1alpha1 stored them, which is not served any more (``pkg/apis/node/v1alpha1/conversion.go``)."""

from __future__ import annotations

from kas.types.conversion import Obj, converts


@converts(("node.k8s.io", "v1alpha1", "RuntimeClass"), ("node.k8s.io", "v1", "RuntimeClass"))
def runtime_class(obj: Obj) -> Obj:
    """There is no spec any more."""
    out = dict(obj)
    spec = out.pop("spec", None) or {}
    out["handler"] = spec.get("runtimeHandler") or ""
    return out | {name: spec[name] for name in ("overhead", "scheduling") if spec.get(name) is not None}
