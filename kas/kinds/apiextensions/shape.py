"""Definitions stored before schemas had to be structural: apiextensions-apiserver ``pkg/controller/nonstructuralschema``."""

from __future__ import annotations

from typing import Any

from kas.apiextensions.schema import unstructurable
from kas.apiextensions.structural import structural
from kas.kinds.apiextensions.acceptance import SHAPE
from kas.kinds.apiextensions.validation import version_schemas
from kas.meta import field
from kas.meta.errors import aggregate


def shape_condition(spec: dict[str, Any]) -> dict[str, Any] | None:
    """Return the condition that reports non-structural schemas in a stored spec; None if all are structural."""
    errs = [field.invalid("spec.preserveUnknownFields", True, "must be false")] if spec.get("preserveUnknownFields") else []
    found = version_schemas(spec)
    for i, version in enumerate(spec.get("versions") or ()):
        name = version.get("name") or ""
        schema = found[name]
        if schema is None:
            continue
        if why := unstructurable(schema):
            text = f"failed to check validation schema for version {name}: {why}"
            return {"type": SHAPE, "status": "Unknown", "reason": "StructuralError", "message": text}
        errs += structural(schema, field.index("spec.versions", i) + ".schema.openAPIV3Schema")
    return {"type": SHAPE, "status": "True", "reason": "Violations", "message": aggregate(errs)} if errs else None
