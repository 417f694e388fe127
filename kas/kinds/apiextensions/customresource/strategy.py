"""Strategy of custom resources, one for each version of a definition (apiextensions-apiserver ``pkg/registry/customresource``).

It sees objects in the request's version, not as they are stored: each version has a schema of its own, and validation is that of the
version somebody wrote.
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
from kas.meta.offload import LOOP_BUDGET_UNITS, TURN, BudgetSpentError
from kas.registry.gated import GatedFields
from kas.registry.strategy import Context, Obj, Strategy
from kas.types.scheme import Resource

LONG_S = 1.0  # for which objects are validated beside the loop from the beginning, after one that took more than a turn of it
# Finalizers that are older than the rule that they have a domain.
_PREFER = "prefer a domain-qualified finalizer name{} to avoid accidental conflicts with other finalizer writers"
_OLD_FINALIZERS = frozenset({"orphan", "foregroundDeletion", "kubernetes"})


class CustomResourceStrategy(Strategy):
    """``version`` says which subresources there are; the schema is that of the resource's type."""

    validates_metadata = True
    generation_parts = ("*",)

    def __init__(self, resource: Resource, version: DefinedVersion) -> None:
        self._resource, self.type, self.version = weakref.ref(resource), resource.type, version
        self.reset = resource.reset_on_spec_write
        self.gated, self._long_until = _NOTHING_GATED, 0.0

    def prepare_for_create(self, ctx: Context, obj: Obj) -> None:
        """Drop the status where it is a subresource, and start the generation."""
        if self.version.status:
            obj.pop("status", None)
        obj["metadata"]["generation"] = 1

    def prepare_for_update(self, ctx: Context, obj: Obj, old: Obj) -> None:
        """Carry over the status where it is a subresource; anything else than metadata that changes makes a new generation."""
        if self.version.status:
            _carry_over(obj, old, "status")
        if not semantic_equal(_content(obj), _content(old), self.type):
            obj["metadata"]["generation"] = (old["metadata"].get("generation") or 0) + 1

    def prepare_for_status_update(self, ctx: Context, obj: Obj, old: Obj) -> None:
        """Of the new object only the status and its managed fields."""
        managed = obj["metadata"].get("managedFields")
        status = {"status": obj["status"]} if "status" in obj else {}
        obj.clear()
        obj.update({k: v for k, v in old.items() if k != "status"}, metadata=dict(old["metadata"]), **status)
        obj["metadata"].pop("managedFields", None)
        if managed is not None:
            obj["metadata"]["managedFields"] = managed

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        """Metadata, the schema, scale's paths, embedded objects, lists that are sets or maps, rules."""
        if wrong := self._type_errors(obj):
            return wrong
        errs = validate_object_meta(obj["metadata"], self.resource.namespaced, names.dns_subdomain)
        return self._errors(ctx, obj, ABSENT, errs)

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """As of a new object, but what an update leaves alone may be wrong."""
        if wrong := self._type_errors(obj):
            return wrong
        return self._errors(ctx, obj, old, validate_object_meta_update(obj["metadata"], old["metadata"]))

    def validate_status_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """As of any update, but of values by the status' schema alone, and nothing of embedded objects. The pipeline looks at metadata."""
        if wrong := self._type_errors(obj):
            return wrong
        return self._errors(ctx, obj, old, [], status=True)

    def _type_errors(self, obj: Obj) -> list[FieldError]:
        r = self.resource
        wanted = (("kind", r.kind), ("apiVersion", r.api_version))
        return [field.invalid(name, obj.get(name), f"must be {value}") for name, value in wanted if obj.get(name) != value]

    def _errors(self, ctx: Context, obj: Obj, old: Any, errs: list[FieldError], status: bool = False) -> list[FieldError]:
        """What is wrong besides metadata, whose errors are ``errs``, with the object or, where only that is written, with its status."""
        if monotonic() < self._long_until:
            TURN.spend(LOOP_BUDGET_UNITS + 1)  # the loop has spent a turn on another one a moment ago, for nothing
        if "validated" not in self.type.derived:
            TURN.spend(LOOP_BUDGET_UNITS + 1)  # what is made with the first object may be as large as a definition
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
        from kas.apiextensions import celrules  # CEL is large, and wanted once there are custom resources

        if celrules.of_type(self.type) is None:
            return errs
        if any(e.type in customtypes.BLOCKING for e in errs):
            return [*errs, field.invalid(customtypes.NIL_PATH, None, customtypes.NOT_ALL_CHECKED)]
        found, warnings = celrules.errors(self.type, obj, old)
        ctx.warnings += warnings
        return errs + found

    def as_read(self, obj: Obj) -> None:
        """Another version has not all of this one's defaults, nor what admission made; a status that was dropped has some, too."""
        customtypes.default(self.type, obj)

    def warnings_on_create(self, ctx: Context, obj: Obj) -> list[str]:
        """Of finalizers whose names others may have, too."""
        return _finalizer_warnings(obj["metadata"].get("finalizers") or (), ())

    def warnings_on_update(self, ctx: Context, obj: Obj, old: Obj) -> list[str]:
        """As on create, of finalizers that are new."""
        return _finalizer_warnings(obj["metadata"].get("finalizers") or (), old["metadata"].get("finalizers") or ())


_NOTHING_GATED = GatedFields("", "", "")


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
            # Upstream sees the domain that is there.
            out.append(at + _PREFER.format(" including a path (/)" if "." in name else ""))
    return out
