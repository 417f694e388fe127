"""Strategy of CustomResourceDefinition (upstream ``apiextensions-apiserver/pkg/registry/customresourcedefinition``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kas.api.field import FieldError, go_quote
from kas.api.validation import crd, names
from kas.api.validation.crdschema import walk
from kas.api.validation.metadata import validate_object_meta, validate_object_meta_update
from kas.registry.strategy import Context, Obj, Strategy, strategy_for

# Formats of strings that the validator knows; "-" does not count in a format's name.
FORMATS = frozenset(
    {
        "bsonobjectid", "uri", "email", "hostname", "ipv4", "ipv6", "cidr", "mac", "uuid", "uuid3", "uuid4", "uuid5", "isbn", "isbn10",
        "isbn13", "creditcard", "ssn", "hexcolor", "rgbcolor", "byte", "password", "date", "duration", "datetime", "k8sshortname",
        "k8slongname",
    }
)  # fmt: skip


@strategy_for("apiextensions.k8s.io", "customresourcedefinitions")
class CustomResourceDefinitionStrategy(Strategy):
    """Works on the stored form (v1beta1), where what all versions share stands once at the top of the spec."""

    def prepare_for_create(self, ctx: Context, obj: Obj) -> None:
        super().prepare_for_create(ctx, obj)
        _count_storage_version(obj)

    def prepare_for_update(self, ctx: Context, obj: Obj, old: Obj) -> None:
        super().prepare_for_update(ctx, obj, old)
        _count_storage_version(obj)

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        spec = obj.get("spec") or {}
        errs = validate_object_meta(obj["metadata"], False, name_check(spec))
        return errs + crd.validate_spec(spec, crd.Options()) + _rest(obj, None)

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        spec, old_spec = obj.get("spec") or {}, old.get("spec") or {}
        errs = validate_object_meta_update(obj["metadata"], old["metadata"])
        errs += crd.validate_spec_update(spec, old_spec, crd.update_options(old_spec, _established(old)))
        return errs + _rest(obj, old)

    def validate_status_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        errs = validate_object_meta_update(obj["metadata"], old["metadata"])
        return errs + crd.crd_names((obj.get("status") or {}).get("acceptedNames") or {}, "status.acceptedNames")

    def warnings_on_create(self, ctx: Context, obj: Obj) -> list[str]:
        unknown = {
            schema["format"]
            for top in crd.schemas(obj.get("spec") or {})
            for schema in walk(top)
            if schema.get("type") == "string" and schema.get("format") and schema["format"].replace("-", "") not in FORMATS
        }
        return [f"unrecognized format {go_quote(form)}" for form in sorted(unknown)]

    def warnings_on_update(self, ctx: Context, obj: Obj, old: Obj) -> list[str]:
        return self.warnings_on_create(ctx, obj)


def name_check(spec: dict[str, Any]) -> Callable[[str, bool], list[str]]:
    required = f"{(spec.get('names') or {}).get('plural') or ''}.{spec.get('group') or ''}"

    def check(name: str, prefix: bool) -> list[str]:
        found = names.dns_subdomain(name, prefix)
        return found if name == required else [*found, 'must be spec.names.plural+"."+spec.group']

    return check


def _established(obj: Obj) -> bool:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return any(c.get("type") == "Established" and c.get("status") == "True" for c in conditions)


def _count_storage_version(obj: Obj) -> None:
    """The storage version of this write is a stored version from now on."""
    current = next((v.get("name") or "" for v in (obj.get("spec") or {}).get("versions") or () if v.get("storage")), None)
    status = obj.get("status") or {}
    stored = status.get("storedVersions") or []
    if current is not None and current not in stored:
        obj["status"] = {**status, "storedVersions": [*stored, current]}


def _rest(obj: Obj, old: Obj | None) -> list[FieldError]:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    errs = crd.crd_names(status.get("acceptedNames") or {}, "status.acceptedNames")
    errs += crd.stored_versions(status.get("storedVersions"), spec.get("versions") or [], "status.storedVersions")
    errs += crd.approval(obj, old)
    return errs + crd.preserve_unknown_fields(spec, None if old is None else old.get("spec") or {})
