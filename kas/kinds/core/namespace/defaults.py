"""Computed defaults of namespaces."""

from __future__ import annotations

from typing import Any

from kas.types.defaults import defaults_for

Obj = dict[str, Any]


@defaults_for("", "v1", "Namespace")
def namespace(obj: Obj) -> None:
    """The label that selects a namespace by its name; set before managed fields, so that who creates it owns it."""
    name = obj["metadata"].get("name")
    if name:
        obj["metadata"]["labels"] = {**(obj["metadata"].get("labels") or {}), "kubernetes.io/metadata.name": name}
