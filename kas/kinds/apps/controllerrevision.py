"""ControllerRevisions (upstream ``pkg/registry/apps/controllerrevision``, ``pkg/apis/apps/validation``)."""

from __future__ import annotations

from typing import Any

from kas.kinds.core.objectmeta import object_meta, object_meta_update
from kas.meta import field, names
from kas.meta.age import age
from kas.meta.checks import nonnegative
from kas.meta.field import FieldError
from kas.registry.printing.cells import NONE
from kas.registry.printing.rows import printer
from kas.registry.strategy import Context, Obj, Strategy, strategy_for


@strategy_for("apps", "controllerrevisions")
class ControllerRevisionStrategy(Strategy):
    """Revisions; only their number and metadata may change."""

    def _common(self, obj: Obj) -> list[FieldError]:
        errs = object_meta(obj["metadata"], True, names.dns_subdomain)
        return errs + nonnegative(obj.get("revision") or 0, "revision")

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        """``ValidateControllerRevision`` of a create: the data is required and must be a JSON object."""
        errs, data = self._common(obj), obj.get("data")
        if data is None:
            errs.append(field.required("data", "data is mandatory"))
        elif not isinstance(data, dict):
            errs.append(field.required("data", "data must be a valid JSON object"))
        return errs

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidateControllerRevisionUpdate``: the data may not change."""
        errs = object_meta_update(obj["metadata"], old["metadata"]) + self._common(obj)
        if obj.get("data") != old.get("data"):
            errs.append(field.invalid("data", field.in_go_order(obj.get("data")), "field is immutable"))
        return errs


@printer("apps", "ControllerRevision")
def controller_revision_row(obj: Obj, now: float) -> list[Any]:
    """The cells of a Table row: name, controlling owner as ``kind.group/name``, revision, age."""
    owner = next((o for o in obj["metadata"].get("ownerReferences") or () if o.get("controller")), None)
    text = NONE
    if owner is not None:
        group, slash, _ = owner.get("apiVersion", "").partition("/")
        kind = f"{owner.get('kind', '')}.{group}" if group and slash else owner.get("kind", "")
        text = f"{kind.lower()}/{owner.get('name', '')}" if kind else owner.get("name", "")
    return [obj["metadata"].get("name", ""), text, obj.get("revision", 0), age(obj, now)]
