"""Managed fields and server-side apply (KEP-555): which manager owns which field of an object.

    schema = builtin("apps", "v1", "Deployment")            # or crd_schema(...), deduced_schema(...)
    entries = create(schema, obj, "kubectl-create", now=now)                             # create
    entries = update(schema, live, new, "controller", now=now, subresource="status")     # PUT or PATCH of /status
    merged = apply(schema, live, config, "helm", now=now, force=False)                   # server-side apply

Everything here is a pure function over dicts; the walks are in ``kas._fast_fields``.
"""

from __future__ import annotations

from kas.api.fieldmanager.applying import apply, shown_name
from kas.api.fieldmanager.builtin import builtin, type_node
from kas.api.fieldmanager.crd import crd_schema
from kas.api.fieldmanager.entries import manager_name, read, restore_after_admission
from kas.api.fieldmanager.scale import to_parent, to_scale
from kas.api.fieldmanager.schema import Schema, deduced_schema
from kas.api.fieldmanager.timestamps import keep_timestamps
from kas.api.fieldmanager.updating import Only, create, field_set, unowned, update

__all__ = [
    "Only",
    "Schema",
    "apply",
    "builtin",
    "crd_schema",
    "create",
    "deduced_schema",
    "field_set",
    "keep_timestamps",
    "manager_name",
    "read",
    "restore_after_admission",
    "shown_name",
    "to_parent",
    "to_scale",
    "type_node",
    "unowned",
    "update",
]
