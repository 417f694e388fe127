"""Strategy of StorageVersionMigration (upstream ``pkg/registry/storagemigration``)."""

from __future__ import annotations

import re
from typing import Any

from kas.kinds.core.objectmeta import object_meta, object_meta_update
from kas.meta import field, names
from kas.meta.checks import IMMUTABLE, conditions, immutable
from kas.meta.field import FieldError
from kas.registry.printing.cells import part
from kas.registry.printing.rows import printer
from kas.registry.strategy import Context, Obj, Strategy, strategy_for
from kas.types.gostruct import render_list


@strategy_for("storagemigration.k8s.io", "storageversionmigrations")
class StorageVersionMigrationStrategy(Strategy):
    """StorageVersionMigrations; each migrates one resource once."""

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        """``ValidateStorageVersionMigration``: the resource is a DNS label, its group a DNS subdomain."""
        errs = object_meta(obj["metadata"], False, names.dns_subdomain)
        of = (obj.get("spec") or {}).get("resource") or {}
        resource, group = of.get("resource") or "", of.get("group") or ""
        problems = names.is_dns1035_label(resource) if resource else []
        if not resource:
            errs.append(field.required("spec.resource.resource", "resource is required to be set"))
        elif problems:
            errs.append(field.invalid("spec.resource.resource", resource, ",".join(problems)))
        problems = names.is_dns1123_subdomain(group) if group else []
        if problems:
            errs.append(field.invalid("spec.resource.group", group, ",".join(problems)))
        return errs

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidateStorageVersionMigrationUpdate``: the resource may not change."""
        errs = self.validate(ctx, obj) + object_meta_update(obj["metadata"], old["metadata"])
        new, before = (
            {name: ((o.get("spec") or {}).get("resource") or {}).get(name) or "" for name in ("group", "resource")} for o in (obj, old)
        )
        return errs + immutable(new, before, "spec", {"Resource": new})

    def validate_status_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """Check that a migration ends once, in success or failure, and keeps its resource version."""
        errs = object_meta_update(obj["metadata"], old["metadata"])
        status, before = obj.get("status") or {}, old.get("status") or {}
        version, path = status.get("resourceVersion") or "", "status.resourceVersion"
        if not re.fullmatch(r"[1-9][0-9]*", version):
            errs.append(field.invalid(path, version, f"resource version is not well formed: {version}"))
        errs += conditions(status.get("conditions"), "status.conditions")
        if before.get("resourceVersion") and before["resourceVersion"] != version:
            errs.append(field.invalid(path, version, IMMUTABLE))
        now, then = _true(status), _true(before)
        for both, text in (
            ({"Succeeded", "Failed"}, "Both success and failed conditions cannot be true at the same time"),
            ({"Succeeded", "Running"}, "Running condition cannot be true when success condition is true"),
            ({"Failed", "Running"}, "Running condition cannot be true when failed condition is true"),
        ):
            if both <= now:
                errs.append(field.invalid("status.conditions", render_list("meta.Condition", status.get("conditions")), text))
        for kind, word in (("Succeeded", "Success"), ("Failed", "Failed")):
            if kind in then and kind not in now:
                text = f"{word} condition cannot be set to false once it is true"
                errs.append(field.invalid("status.conditions", render_list("meta.Condition", status.get("conditions")), text))
        return errs


def _true(status: Obj) -> set[str]:
    return {c.get("type") or "" for c in status.get("conditions") or () if c.get("status") == "True"}


@printer("storagemigration.k8s.io", "StorageVersionMigration")
def storage_version_migration_row(obj: Obj, now: float) -> list[Any]:
    """The cells of a Table row: name, resource, state."""
    resource, state = part(obj, "spec", "resource"), "Unknown"
    for c in part(obj, "status").get("conditions") or ():
        if c.get("status") == "True" and c.get("type") in ("Running", "Failed", "Succeeded"):
            state = c["type"]
    group = resource.get("group")
    text = resource.get("resource", "") + (f".{group}" if group else "")
    return [obj["metadata"].get("name", ""), text, state]
