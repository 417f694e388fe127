"""Managed fields and server-side apply (KEP-555): which manager owns which field of an object.

    schema = builtin("apps", "v1", "Deployment")            # or deduced_schema(...); custom resources: kas.apiextensions.mergeschema
    entries = create(schema, obj, "kubectl-create", now=now)                             # create
    entries = update(schema, live, new, "controller", now=now, subresource="status")     # PUT or PATCH of /status
    merged = apply(schema, live, config, "helm", now=now, force=False)                   # server-side apply

Everything here is a pure function over dicts; ``kas.patch._fieldsets`` walks the objects and field sets.
"""

from __future__ import annotations

from kas.patch._fieldsets import Field, Node, equal_but_metadata
from kas.patch.fieldmanager.applying import apply, shown_name
from kas.patch.fieldmanager.builtin import builtin, type_node
from kas.patch.fieldmanager.entries import manager_name, read, restore_after_admission
from kas.patch.fieldmanager.scale import to_parent, to_scale
from kas.patch.fieldmanager.schema import Answers, Schema, Unanswered, deduced_schema
from kas.patch.fieldmanager.timestamps import keep_timestamps
from kas.patch.fieldmanager.unowned import UnfitError, apply_unowned
from kas.patch.fieldmanager.updating import InVersions, Only, create, field_set, reset_of, unowned, update

__all__ = [
    "Answers",
    "Field",
    "InVersions",
    "Node",
    "Only",
    "Schema",
    "Unanswered",
    "UnfitError",
    "apply",
    "apply_unowned",
    "builtin",
    "create",
    "deduced_schema",
    "equal_but_metadata",
    "field_set",
    "keep_timestamps",
    "manager_name",
    "read",
    "reset_of",
    "restore_after_admission",
    "shown_name",
    "to_parent",
    "to_scale",
    "type_node",
    "unowned",
    "update",
]
