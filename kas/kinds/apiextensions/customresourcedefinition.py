"""Strategy of CustomResourceDefinition (upstream ``apiextensions-apiserver/pkg/registry/customresourcedefinition``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from kas.apiextensions.schema import walk
from kas.kinds.apiextensions import validation as crd
from kas.kinds.apiextensions.acceptance import approval
from kas.meta import gojson, names
from kas.meta.field import FieldError, go_quote
from kas.meta.objectmeta import validate_object_meta, validate_object_meta_update
from kas.meta.strfmt import is_known
from kas.registry.strategy import Context, Obj, Strategy, strategy_for
from kas.types.defaults import defaults_for
from kas.types.scheme import write_json


@strategy_for("apiextensions.k8s.io", "customresourcedefinitions")
class CustomResourceDefinitionStrategy(Strategy):
    """Works on the stored form (v1beta1), in which parts that all versions share are at the top of the spec."""

    costly = grows = True

    def prepare_for_create(self, ctx: Context, obj: Obj) -> None:
        """Drop the status, start the generation and add the storage version to the stored versions."""
        super().prepare_for_create(ctx, obj)
        _bound_depth(obj)
        _count_storage_version(obj)

    def prepare_for_update(self, ctx: Context, obj: Obj, old: Obj) -> None:
        """Carry over the status, increment the generation if due and add the storage version to the stored versions."""
        super().prepare_for_update(ctx, obj, old)
        _bound_depth(obj)
        _count_storage_version(obj)

    def canonicalize(self, obj: Obj) -> None:
        """Normalize defaults, examples and enum values as Go's JSON does: sorted keys, and whole numbers without a fraction.

        Upstream's internal type holds them as values, not as text: 1.0 is validated as the float that was sent, and stored as an integer.
        """
        for schema, name in _values(obj):
            schema[name] = gojson.loads(write_json(schema[name]))

    def prepare_for_status_update(self, ctx: Context, obj: Obj, old: Obj) -> None:
        """Carry over the spec; a status without stored versions gets the storage version."""
        super().prepare_for_status_update(ctx, obj, old)
        if not (obj.get("status") or {}).get("storedVersions"):
            _count_storage_version(obj)

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        """``ValidateCustomResourceDefinition`` with all requirements for a new definition."""
        spec = obj.get("spec") or {}
        errs = validate_object_meta(obj["metadata"], False, name_check(spec))
        return errs + crd.validate_spec(spec, crd.Options()) + _rest(obj, None)

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidateCustomResourceDefinitionUpdate``: errors that the stored definition already has are tolerated."""
        spec, old_spec = obj.get("spec") or {}, old.get("spec") or {}
        errs = validate_object_meta_update(obj["metadata"], old["metadata"])
        errs += crd.validate_spec_update(spec, old_spec, crd.update_options(spec, old_spec, _established(old)))
        return errs + _rest(obj, old)

    def validate_status_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidateUpdateCustomResourceDefinitionStatus``: metadata and the form of the accepted names."""
        errs = validate_object_meta_update(obj["metadata"], old["metadata"])
        return errs + crd.crd_names((obj.get("status") or {}).get("acceptedNames") or {}, "status.acceptedNames")

    def warnings_on_create(self, ctx: Context, obj: Obj) -> list[str]:
        """Return a warning, in sorted order, for each format in the schemas that validation does not know."""
        return [f"unrecognized format {go_quote(form)}" for form in sorted(_unknown_formats(obj))]

    def warnings_on_update(self, ctx: Context, obj: Obj, old: Obj) -> list[str]:
        """As on create, but not for formats that the stored definition already has."""
        return [f"unrecognized format {go_quote(form)}" for form in sorted(_unknown_formats(obj) - _unknown_formats(old))]


def _unknown_formats(obj: Obj) -> set[str]:
    """Return the formats that are unknown for the type of their schema."""
    return {
        schema["format"]
        for top in crd.schemas(obj.get("spec") or {})
        for schema in walk(top)
        if schema.get("format") and not is_known(schema.get("type") or "", schema["format"])
    }


def name_check(spec: dict[str, Any]) -> Callable[[str, bool], list[str]]:
    """Return the check of metadata.name for this spec: a DNS subdomain equal to ``plural.group``."""
    required = f"{(spec.get('names') or {}).get('plural') or ''}.{spec.get('group') or ''}"

    def check(name: str, prefix: bool) -> list[str]:
        found = names.dns_subdomain(name, prefix)
        return found if name == required else [*found, 'must be spec.names.plural+"."+spec.group']

    return check


def _established(obj: Obj) -> bool:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return any(c.get("type") == "Established" and c.get("status") == "True" for c in conditions)


def _values(obj: Obj) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield each schema with the name of its default, example or enum if the value has more than one JSON form."""
    for top in crd.schemas(obj.get("spec") or {}):
        for schema in walk(top):
            for name in ("default", "example", "enum"):
                if isinstance(schema.get(name), (dict, list, float)):
                    yield schema, name


def _bound_depth(obj: Obj) -> None:
    """Raise for a value that is nested too deep to be encoded, before validation recurses into it."""
    for schema, name in _values(obj):
        write_json(schema[name])


def _count_storage_version(obj: Obj) -> None:
    """Add the storage version of this write to the stored versions."""
    current = next((v.get("name") or "" for v in (obj.get("spec") or {}).get("versions") or () if v.get("storage")), None)
    status = obj.get("status") or {}
    stored = status.get("storedVersions") or []
    if current is not None and current not in stored:
        obj["status"] = {**status, "storedVersions": [*stored, current]}


def _rest(obj: Obj, old: Obj | None) -> list[FieldError]:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    errs = crd.crd_names(status.get("acceptedNames") or {}, "status.acceptedNames")
    errs += crd.stored_versions(status.get("storedVersions"), spec.get("versions") or [], "status.storedVersions")
    errs += approval(obj, old)
    return errs + crd.preserve_unknown_fields(spec, None if old is None else old.get("spec") or {})


GROUP = "apiextensions.k8s.io"


def _default_names(spec: dict[str, Any]) -> None:
    names = spec.setdefault("names", {})
    kind = names.get("kind") or ""
    if not names.get("singular"):
        names["singular"] = kind.lower()
    if not names.get("listKind") and kind:
        names["listKind"] = f"{kind}List"


@defaults_for(GROUP, "v1", "CustomResourceDefinition")
def default_crd(obj: dict[str, Any]) -> None:
    """Derive names from the kind; the storage version counts as stored until the status says otherwise."""
    spec = obj.setdefault("spec", {})
    _default_names(spec)
    status = obj.setdefault("status", {})
    if not status.get("storedVersions"):
        stored = [v.get("name") or "" for v in spec.get("versions") or () if v.get("storage")]
        if stored:
            status["storedVersions"] = stored[:1]
