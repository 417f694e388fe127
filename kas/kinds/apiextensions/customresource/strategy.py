"""The strategy of custom resources, one per version of a definition (apiextensions-apiserver ``pkg/registry/customresource``).

It works on objects in the request's version, not in the stored one: each version has its own schema, and objects are validated against that
of the version in which they are written.
"""

from __future__ import annotations

import weakref
from time import monotonic
from typing import Any

from kas.apiextensions import customtypes, scalepaths
from kas.apiextensions.definition import DefinedVersion
from kas.apiextensions.schemavalues import ABSENT
from kas.meta import field, names
from kas.meta.equality import semantic_equal
from kas.meta.field import FieldError, go_quote
from kas.meta.objectmeta import validate_object_meta, validate_object_meta_update
from kas.meta.offload import LOOP_BUDGET, LOOP_BUDGET_UNITS, BudgetSpentError
from kas.registry.gated import NOTHING_GATED
from kas.registry.strategy import Context, Obj, Strategy
from kas.types.scheme import Resource

LONG_S = 1.0  # after validating an object took more than a loop iteration, others are validated in a thread for this long
# Finalizers from before they had to have a domain.
_PREFER = "prefer a domain-qualified finalizer name{} to avoid accidental conflicts with other finalizer writers"
_OLD_FINALIZERS = frozenset({"orphan", "foregroundDeletion", "kubernetes"})


class CustomResourceStrategy(Strategy):
    """``version`` says which subresources exist; the schema is that of the resource's type."""

    validates_metadata = True
    generation_parts = ("*",)

    def __init__(self, resource: Resource, version: DefinedVersion) -> None:
        self._resource, self.type, self.version = weakref.ref(resource), resource.type, version
        self.reset = resource.reset_on_spec_write
        self.gated, self._long_until = NOTHING_GATED, 0.0

    def prepare_for_create(self, ctx: Context, obj: Obj) -> None:
        """Drop the status if it is a subresource, and start the generation."""
        if self.version.status:
            obj.pop("status", None)
        obj["metadata"]["generation"] = 1

    def prepare_for_update(self, ctx: Context, obj: Obj, old: Obj) -> None:
        """Carry over the status if it is a subresource; any change outside metadata increments the generation."""
        if self.version.status:
            _carry_over(obj, old, "status")
        if not semantic_equal(_content(obj), _content(old), self.type):
            obj["metadata"]["generation"] = (old["metadata"].get("generation") or 0) + 1

    def prepare_for_status_update(self, ctx: Context, obj: Obj, old: Obj) -> None:
        """Take only the status and its managedFields from the new object."""
        managed = obj["metadata"].get("managedFields")
        status = {"status": obj["status"]} if "status" in obj else {}
        obj.clear()
        obj.update({k: v for k, v in old.items() if k != "status"}, metadata=dict(old["metadata"]), **status)
        obj["metadata"].pop("managedFields", None)
        if managed is not None:
            obj["metadata"]["managedFields"] = managed

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        """Validate metadata, the schema, the scale's paths, embedded objects, lists that are sets or maps, and CEL rules."""
        if wrong := self._type_errors(obj):
            return wrong
        errs = validate_object_meta(obj["metadata"], self.resource.namespaced, names.dns_subdomain)
        return self._errors(ctx, obj, ABSENT, errs)

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """As for a new object, but errors in unchanged parts are tolerated."""
        if wrong := self._type_errors(obj):
            return wrong
        return self._errors(ctx, obj, old, validate_object_meta_update(obj["metadata"], old["metadata"]))

    def validate_status_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """As for any update, but with the status' schema only, and without embedded objects. The pipeline validates metadata."""
        if wrong := self._type_errors(obj):
            return wrong
        return self._errors(ctx, obj, old, [], status=True)

    def _type_errors(self, obj: Obj) -> list[FieldError]:
        r = self.resource
        wanted = (("kind", r.kind), ("apiVersion", r.api_version))
        return [field.invalid(name, obj.get(name), f"must be {value}") for name, value in wanted if obj.get(name) != value]

    def _errors(self, ctx: Context, obj: Obj, old: Any, errs: list[FieldError], status: bool = False) -> list[FieldError]:
        """Return all errors; ``errs`` are those of metadata. With ``status``, only the status was written."""
        if monotonic() < self._long_until:
            LOOP_BUDGET.spend(LOOP_BUDGET_UNITS + 1)  # a recent object exceeded a loop iteration in vain
        if "validated" not in self.type.derived:
            LOOP_BUDGET.spend(LOOP_BUDGET_UNITS + 1)  # what is compiled for the first object may be as large as a definition
            self.type.derived["validated"] = True
        try:
            return self._found(ctx, obj, old, errs, status)
        except BudgetSpentError:
            self._long_until = monotonic() + LONG_S
            raise

    def _found(self, ctx: Context, obj: Obj, old: Any, errs: list[FieldError], status: bool) -> list[FieldError]:
        passes = customtypes.check(self.type).passes(obj)
        if not passes:
            errs += customtypes.status_errors(self.type, obj, old) if status else customtypes.schema_errors(self.type, obj, old)
        errs += scalepaths.errors(self.version.scale, obj, status)
        if not status:
            errs += customtypes.embedded_errors(self.type, obj)
        if not passes:
            errs += customtypes.list_errors(self.type, obj, old)
        return self._rules(ctx, obj, old, errs)

    def _rules(self, ctx: Context, obj: Obj, old: Any, errs: list[FieldError]) -> list[FieldError]:
        from kas.apiextensions import celrules  # CEL is large, and only needed once there are custom resources

        if celrules.of_type(self.type) is None:
            return errs
        if any(e.type in customtypes.BLOCKING for e in errs):
            return [*errs, field.invalid(customtypes.NIL_PATH, None, customtypes.NOT_ALL_CHECKED)]
        found, warnings = celrules.errors(self.type, obj, old)
        ctx.warnings += warnings
        return errs + found

    def as_read(self, obj: Obj) -> None:
        """Apply this version's defaults, which another version, values added by admission, or a dropped status may lack."""
        customtypes.default(self.type, obj)

    def warnings_on_create(self, ctx: Context, obj: Obj) -> list[str]:
        """Return warnings for finalizers whose names may be ambiguous."""
        return _finalizer_warnings(obj["metadata"].get("finalizers") or (), ())

    def warnings_on_update(self, ctx: Context, obj: Obj, old: Obj) -> list[str]:
        """As on create, for new finalizers."""
        return _finalizer_warnings(obj["metadata"].get("finalizers") or (), old["metadata"].get("finalizers") or ())


def _carry_over(obj: Obj, old: Obj, name: str) -> None:
    if name in old:
        obj[name] = old[name]
    else:
        obj.pop(name, None)


def _content(obj: Obj) -> Obj:
    return {k: v for k, v in obj.items() if k != "metadata"}


def _finalizer_warnings(new: Any, old: Any) -> list[str]:
    out: list[str] = []
    for name in sorted(set(new) - set(old)):
        at = f"metadata.finalizers: {go_quote(name)}: "
        out += [at + text for text in names.is_qualified_name(name)]
        if "/" not in name and name not in _OLD_FINALIZERS:
            # A name with a dot has a domain: then upstream suggests adding a path.
            out.append(at + _PREFER.format(" including a path (/)" if "." in name else ""))
    return out
