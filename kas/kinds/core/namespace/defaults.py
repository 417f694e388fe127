"""Computed defaults of namespaces."""

from __future__ import annotations

from typing import Any

from kas.types.defaults import defaults_for

Obj = dict[str, Any]


@defaults_for("", "v1", "Namespace")
def namespace(obj: Obj) -> None:
    """Set the label that selects a namespace by its name; before managed fields are computed, so that the creator owns it."""
    name = obj["metadata"].get("name")
    if name:
        obj["metadata"]["labels"] = {**(obj["metadata"].get("labels") or {}), "kubernetes.io/metadata.name": name}
