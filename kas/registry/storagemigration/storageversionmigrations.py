"""Strategy of StorageVersionMigration (upstream ``pkg/registry/storagemigration``)."""

from __future__ import annotations

import re

from kas.api import field
from kas.api.field import FieldError
from kas.api.validation import names
from kas.api.validation.checks import IMMUTABLE, conditions, immutable
from kas.api.validation.coremeta import object_meta, object_meta_update
from kas.registry.strategy import Context, Obj, Strategy, strategy_for


@strategy_for("storagemigration.k8s.io", "storageversionmigrations")
class StorageVersionMigrationStrategy(Strategy):
    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
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
        errs = self.validate(ctx, obj) + object_meta_update(obj["metadata"], old["metadata"])
        new, before = (
            {name: ((o.get("spec") or {}).get("resource") or {}).get(name) or "" for name in ("group", "resource")} for o in (obj, old)
        )
        return errs + immutable(new, before, "spec", {"Resource": new})

    def validate_status_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """A migration ends once, in success or failure, and keeps the revision it works from."""
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
                errs.append(field.invalid("status.conditions", status.get("conditions"), text))
        for kind, word in (("Succeeded", "Success"), ("Failed", "Failed")):
            if kind in then and kind not in now:
                text = f"{word} condition cannot be set to false once it is true"
                errs.append(field.invalid("status.conditions", status.get("conditions"), text))
        return errs


def _true(status: Obj) -> set[str]:
    return {c.get("type") or "" for c in status.get("conditions") or () if c.get("status") == "True"}
