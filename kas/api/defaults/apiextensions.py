"""Computed defaults of apiextensions.k8s.io (upstream ``apiextensions-apiserver/pkg/apis/apiextensions/<version>/defaults.go``)."""

from __future__ import annotations

from typing import Any

from kas.api.defaults import defaults_for

GROUP = "apiextensions.k8s.io"


def _default_names(spec: dict[str, Any]) -> None:
    names = spec.setdefault("names", {})
    kind = names.get("kind") or ""
    if not names.get("singular"):
        names["singular"] = kind.lower()
    if not names.get("listKind") and kind:
        names["listKind"] = f"{kind}List"


@defaults_for(GROUP, "v1", "CustomResourceDefinition")
def default_crd(obj: dict[str, Any]) -> None:
    """Names follow from the kind; the storage version counts as stored until the status says otherwise."""
    spec = obj.setdefault("spec", {})
    _default_names(spec)
    status = obj.setdefault("status", {})
    if not status.get("storedVersions"):
        stored = [v.get("name") or "" for v in spec.get("versions") or () if v.get("storage")]
        if stored:
            status["storedVersions"] = stored[:1]
