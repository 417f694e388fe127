"""Validation of a CustomResourceDefinition's spec (upstream ``apiextensions-apiserver/pkg/apis/apiextensions/validation``).

The object is in its stored form (v1beta1): parts that all versions share are at the top of the spec, as in upstream's internal type, and
the paths of errors reflect that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kas.apiextensions import schema as crdschema
from kas.apiextensions import structural
from kas.apiextensions.schema import FieldPathError, Rules, Schema, find_path
from kas.apiextensions.schemadefaults import default_values, unpruned
from kas.kinds.apiextensions.acceptance import ca_bundle_errors
from kas.kinds.core.webhookclient import ca_bundle, client_config
from kas.meta import field, names
from kas.meta.checks import immutable, invalid_each, unsupported
from kas.meta.equality import semantic_equal
from kas.meta.field import FieldError
from kas.types.scheme import builtin_type

Spec = dict[str, Any]

SCOPES = ("Cluster", "Namespaced")
COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
COLUMN_FORMATS = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
REVIEW_VERSIONS = ("v1", "v1beta1")
MAX_SELECTABLE_FIELDS = 8


_ALL_RULES = Rules()


@dataclass(frozen=True, slots=True)
class Options:
    """The requirements for this write. An update has none that the stored object does not fulfil."""

    known_review_version: bool = True
    immutable_names: bool = False
    usable_ca_bundle: bool = False
    schema_required: bool = True
    structural: bool = True
    pruned_defaults: bool = True
    rules: Rules = _ALL_RULES
    unchanged: frozenset[str] = frozenset()  # versions with an unchanged schema, whose rules may exceed the cost limit
    many_fields: frozenset[str] = frozenset()  # versions, "" for all, that already exceed the limit of selectable fields


# -- schemas of a spec ---------------------------------------------------------------------------------------------------


def schema_of(validation: dict[str, Any] | None) -> Schema | None:
    """Return the openAPIV3Schema of a CustomResourceValidation; None if either is absent."""
    return (validation or {}).get("openAPIV3Schema")


def schemas(spec: Spec) -> list[Schema]:
    """Return all schemas of the definition: the shared one of v1beta1 first, then those of the versions in order."""
    found = [schema_of(spec.get("validation")), *(schema_of(v.get("schema")) for v in spec.get("versions") or ())]
    return [s for s in found if s is not None]


def _any(spec: Spec, test) -> bool:
    return any(test(inner) for schema in schemas(spec) for inner in crdschema.walk(schema))


def _has_extensions(schema: Schema) -> bool:
    return bool(
        schema.get(crdschema.EMBEDDED)
        or schema.get(crdschema.PRESERVE) is not None
        or schema.get(crdschema.INT_OR_STRING)
        or schema.get(crdschema.KEYS)
        or schema.get(crdschema.LIST_TYPE) is not None
        or schema.get(crdschema.RULES)
    )


def _non_atomic_set(schema: Schema) -> bool:
    items = schema.get("items")
    return schema.get(crdschema.LIST_TYPE) == "set" and isinstance(items, dict) and bool(crdschema.atomic_items(items, ""))


def version_schemas(spec: Spec) -> dict[str, Schema | None]:
    """Return the schema of each version by name: its own if any version has one, else the shared one."""
    versions, shared = spec.get("versions") or (), schema_of(spec.get("validation"))
    own = any(schema_of(v.get("schema")) is not None for v in versions)
    found: dict[str, Schema | None] = {}
    for v in versions:
        found.setdefault(v.get("name") or "", schema_of(v.get("schema")) if own else shared)
    return found


def _is_structural(schema: Schema) -> bool:
    return not crdschema.unstructurable(schema) and not structural.structural(schema, "")


def _kept_fields(spec: Spec, old: Spec) -> frozenset[str]:
    before = {v.get("name"): v.get("selectableFields") for v in old.get("versions") or ()} | {"": old.get("selectableFields")}
    now = {v.get("name"): v.get("selectableFields") for v in spec.get("versions") or ()} | {"": spec.get("selectableFields")}
    return frozenset(name or "" for name, said in before.items() if said and len(said) > MAX_SELECTABLE_FIELDS and now.get(name) == said)


def _unchanged(now: dict[str, Schema | None], before: dict[str, Schema | None]) -> frozenset[str]:
    return frozenset(name for name, schema in now.items() if name in before and schema == before[name])


def update_options(spec: Spec, old: Spec, established: bool) -> Options:
    """Return the requirements for a new spec, given the stored one."""
    conversion = old.get("conversion") or {}
    reviews = conversion.get("conversionReviewVersions") or []
    has_all = schema_of(old.get("validation")) is not None or all(schema_of(v.get("schema")) is not None for v in old.get("versions") or ())
    return Options(
        known_review_version=not reviews or bool(set(reviews).intersection(REVIEW_VERSIONS)),
        immutable_names=established,
        usable_ca_bundle=established and not ca_bundle_errors(old),
        schema_required=has_all,
        structural=all(map(_is_structural, schemas(old))),
        pruned_defaults=not any(_is_structural(schema) and unpruned(schema) for schema in schemas(old)),
        rules=Rules(
            valid_types=not _any(old, lambda s: bool(s.get("type")) and s["type"] not in crdschema.TYPES),
            atomic_sets=not _any(old, _non_atomic_set),
            map_keys=not _any(old, lambda s: bool(crdschema.map_keys(s, ""))),
        ),
        unchanged=_unchanged(version_schemas(spec), version_schemas(old)),
        many_fields=_kept_fields(spec, old),
    )  # fmt: skip


# -- the spec ------------------------------------------------------------------------------------------------------------


def validate_spec(spec: Spec, options: Options) -> list[FieldError]:
    """``validateCustomResourceDefinitionSpec``; ``options`` are the requirements that stored objects may not fulfil."""
    errs = _group(spec.get("group") or "") + _enum(spec.get("scope") or "", SCOPES, "spec.scope")
    versions = spec.get("versions") or []
    preserve = spec.get("preserveUnknownFields") is not False
    wants_structural = options.structural or not preserve
    if schema_of(spec.get("validation")) is None:
        for i, version in enumerate(versions):
            if schema_of(version.get("schema")) is None:
                path = field.index("spec.versions", i) + ".schema.openAPIV3Schema"
                if options.schema_required:
                    errs.append(field.required(path))
                elif not preserve and version.get("served"):
                    errs.append(field.required(path, "because otherwise all fields are pruned"))
    if _any(spec, lambda s: "default" in s):
        wants_structural = True
        if preserve:
            errs.append(field.invalid("spec.preserveUnknownFields", True, "must be false in order to use defaults in the schema"))
    wants_structural = wants_structural or _any(spec, _has_extensions)
    errs += _versions(spec, versions, options, wants_structural)
    version = spec.get("version") or ""
    if version:
        found = names.is_dns1035_label(version)
        if found:
            errs.append(field.invalid("spec.version", version, ",".join(found)))
        if versions and versions[0].get("name") != version:
            errs.append(field.invalid("spec.version", version, "must match the first version in spec.versions"))
    spec_names = spec.get("names") or {}
    errs += [field.required(f"spec.names.{name}") for name in ("plural", "singular", "kind", "listKind") if not spec_names.get(name)]
    errs += crd_names(spec_names, "spec.names")
    shared = _status_enabled(spec.get("subresources")) or any(_status_enabled(v.get("subresources")) for v in versions)
    errs += _validation(spec.get("validation"), shared, options, wants_structural, "spec.validation", version in options.unchanged)
    errs += _subresources(spec.get("subresources"), "spec.subresources")
    errs += _columns(spec.get("additionalPrinterColumns"), "spec.additionalPrinterColumns")
    if spec.get("selectableFields"):
        errs += _selectable(spec, "validations.schema is included", "" in options.many_fields)
    conversion = spec.get("conversion")
    if conversion is not None:
        strategy = conversion.get("strategy") or ""
        if strategy != "None" and preserve:
            errs.append(field.invalid("spec.conversion.strategy", strategy, "must be None if spec.preserveUnknownFields is true"))
        errs += _conversion(conversion, options, "spec.conversion")
    return errs


def validate_spec_update(spec: Spec, old: Spec, options: Options) -> list[FieldError]:
    """Validate the new spec, and that group, plural and, with ``immutable_names``, scope and kind do not change."""
    errs = validate_spec(spec, options)
    new_names, old_names = spec.get("names") or {}, old.get("names") or {}
    if options.immutable_names:
        errs += immutable(spec.get("scope") or "", old.get("scope") or "", "spec.scope")
        errs += immutable(new_names.get("kind") or "", old_names.get("kind") or "", "spec.names.kind")
    errs += immutable(spec.get("group") or "", old.get("group") or "", "spec.group")
    return errs + immutable(new_names.get("plural") or "", old_names.get("plural") or "", "spec.names.plural")


def _group(group: str) -> list[FieldError]:
    if not group:
        return [field.required("spec.group")]
    found = names.is_dns1123_subdomain(group)
    if found:
        return [field.invalid("spec.group", group, ",".join(found))]
    return [] if "." in group else [field.invalid("spec.group", group, "should be a domain with at least one dot")]


def _enum(value: str, accepted: tuple[str, ...], path: str) -> list[FieldError]:
    if not value:
        return [field.required(path)]
    return [] if value in accepted else [unsupported(path, value, accepted)]


def _status_enabled(subresources: dict[str, Any] | None) -> bool:
    return (subresources or {}).get("status") is not None


# (per version, at the top, name in messages)
_SHARED = (
    ("schema", "validation", "schemas", "validation"),
    ("subresources", "subresources", "subresources", "subresources"),
    ("additionalPrinterColumns", "additionalPrinterColumns", "additionalPrinterColumns", "additionalPrinterColumns"),
)


def _versions(spec: Spec, versions: list[dict[str, Any]], options: Options, wants_structural: bool) -> list[FieldError]:
    errs: list[FieldError] = []
    per_version = any(v.get("subresources") is not None for v in versions)
    for i, version in enumerate(versions):
        path, name = field.index("spec.versions", i), version.get("name") or ""
        found = names.is_dns1035_label(name)
        if found:
            errs.append(field.invalid(f"{path}.name", name, ",".join(found)))
        subresources = version.get("subresources") if per_version else spec.get("subresources")
        errs += invalid_each(f"{path}.deprecationWarning", version.get("deprecationWarning"), _deprecation(version))
        enabled, known = _status_enabled(subresources), name in options.unchanged
        errs += _validation(version.get("schema"), enabled, options, wants_structural, f"{path}.schema", known)
        errs += _subresources(version.get("subresources"), f"{path}.subresources")
        errs += _columns(version.get("additionalPrinterColumns"), f"{path}.additionalPrinterColumns")
        if version.get("selectableFields"):
            errs += _selectable_of(version["selectableFields"], schema_of(version.get("schema")), f"{path}.selectableFields",
                                   "`version.schema.openAPIV3Schema` is not included", name in options.many_fields)  # fmt: skip
    for own, top, words, _ in _SHARED:
        if spec.get(top) and any(v.get(own) for v in versions):
            errs.append(field.forbidden(f"spec.{top}", f"top-level and per-version {words} are mutually exclusive"))
    version_type = builtin_type("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1beta1.CustomResourceDefinitionVersion")
    for own, _, words, top_words in _SHARED:
        if versions and all(v.get(own) and semantic_equal(v[own], versions[0].get(own), version_type.by_name[own]) for v in versions):
            text = f"per-version {words} may not all be set to identical values (top-level {top_words} should be used instead)"
            errs.append(field.invalid("spec.versions", _shown_versions(spec), text))
    all_names = [v.get("name") or "" for v in versions]
    if len(set(all_names)) < len(all_names):
        errs.append(field.invalid("spec.versions", _shown_versions(spec), "must contain unique version names"))
    if sum(1 for v in versions if v.get("storage")) != 1:
        text = "must have exactly one version marked as storage version"
        errs.append(field.invalid("spec.versions", _shown_versions(spec), text))
    return errs


def _shown_versions(spec: Spec) -> list[dict[str, Any]] | None:
    """Return the internal version structs as they print in an error."""
    versions = spec.get("versions")
    if versions is None:
        return None

    def validation(value: dict[str, Any] | None) -> dict[str, Any] | None:
        return None if value is None else {"OpenAPIV3Schema": crdschema.shown(value.get("openAPIV3Schema"))}

    def column(value: dict[str, Any]) -> dict[str, Any]:
        return {
            "Name": value.get("name") or "", "Type": value.get("type") or "", "Format": value.get("format") or "",
            "Description": value.get("description") or "", "Priority": value.get("priority") or 0, "JSONPath": value.get("JSONPath") or "",
        }  # fmt: skip

    def subresources(value: dict[str, Any] | None) -> dict[str, Any] | None:
        if value is None:
            return None
        scale = value.get("scale")
        shown_scale = scale and {
            "SpecReplicasPath": scale.get("specReplicasPath") or "", "StatusReplicasPath": scale.get("statusReplicasPath") or "",
            "LabelSelectorPath": scale.get("labelSelectorPath"),
        }  # fmt: skip
        return {"Status": None if value.get("status") is None else {}, "Scale": shown_scale}

    def selectable(values: list[dict[str, Any]] | None) -> list[dict[str, Any]] | None:
        return [{"JSONPath": f.get("jsonPath") or ""} for f in values] if values else None

    return [
        {
            "Name": v.get("name") or "",
            "Served": bool(v.get("served")),
            "Storage": bool(v.get("storage")),
            "Deprecated": bool(v.get("deprecated")),
            "DeprecationWarning": v.get("deprecationWarning"),
            "Schema": validation(v.get("schema")),
            "Subresources": subresources(v.get("subresources")),
            "AdditionalPrinterColumns": [column(c) for c in v["additionalPrinterColumns"]] if v.get("additionalPrinterColumns") else None,
            "SelectableFields": selectable(v.get("selectableFields")),
        }
        for v in versions
    ]


def _deprecation(version: dict[str, Any]) -> list[str]:
    text = version.get("deprecationWarning")
    if text is None:
        return []
    if not version.get("deprecated"):
        return ["can only be set for deprecated versions"]
    found = []
    if len(text.encode()) > 256:
        found.append("must be <= 256 characters long")
    if not text:
        found.append("must not be an empty string")
    at = 0
    for c in text:
        if not c.isprintable():
            found.append(f"must only contain printable UTF-8 characters; non-printable character found at index {at}")
            break
        at += len(c.encode())
    return found


def crd_names(crd: dict[str, Any], path: str) -> list[FieldError]:
    """Validate the names of the spec or the accepted names of the status; empty ones are reported elsewhere."""
    errs: list[FieldError] = []

    def label(value: str, at: str) -> None:
        found = names.is_dns1035_label(value)
        if found:
            errs.append(field.invalid(at, value, ",".join(found)))

    for name in ("plural", "singular"):
        if crd.get(name):
            label(crd[name], f"{path}.{name}")
    for name in ("kind", "listKind"):
        value = crd.get(name) or ""
        found = names.is_dns1035_label(value.lower()) if value else []
        if found:
            text = "may have mixed case, but should otherwise match: " + ",".join(found)
            errs.append(field.invalid(f"{path}.{name}", value, text))
    for i, value in enumerate(crd.get("shortNames") or ()):
        label(value, field.index(f"{path}.shortNames", i))
    if crd.get("kind") and crd["kind"] == crd.get("listKind"):
        errs.append(field.invalid(f"{path}.listKind", crd["listKind"], "kind and listKind may not be the same"))
    for i, value in enumerate(crd.get("categories") or ()):
        label(value, field.index(f"{path}.categories", i))
    return errs


def _validation(
    validation: dict[str, Any] | None, status_enabled: bool, options: Options, wants_structural: bool, path: str, known: bool
) -> list[FieldError]:
    schema = schema_of(validation)
    if schema is None:
        return []
    at = f"{path}.openAPIV3Schema"
    if not known and crdschema.deeper(schema, crdschema.MAX_LEVELS):
        return [field.invalid(at, "", f"must not have more than {crdschema.MAX_LEVELS} nested objects and arrays")]
    costly = structural.costly_patterns(schema, at)
    if costly:
        return costly
    errs = crdschema.root(schema, at, status_enabled)
    shape: list[FieldError] = []
    unstructurable = crdschema.unstructurable(schema) if wants_structural else ""
    wants_structural = wants_structural and not unstructurable
    if wants_structural:
        shape = structural.structural(schema, at) or default_values(schema, at, options.pruned_defaults)
        errs += shape
    faulty: set[str] = set()
    errs += crdschema.every_level(schema, at, options.rules, faulty, is_root=True)
    if wants_structural and not shape and any(inner.get(crdschema.RULES) for inner in crdschema.walk(schema)):
        from kas.apiextensions import rules as crdrules  # most schemas have no rules

        errs += crdrules.rules(schema, at, faulty, limited=not known)
    if unstructurable and not errs:  # all else that no structural schema can hold was named above
        errs.append(field.invalid(at, "", unstructurable))
    return errs


def _json_path(text: str, path: str) -> list[FieldError]:
    return [] if text.startswith(".") else [field.invalid(path, text, "must be a simple json path starting with .")]


def _subresources(subresources: dict[str, Any] | None, path: str) -> list[FieldError]:
    scale = (subresources or {}).get("scale")
    if scale is None:
        return []
    errs: list[FieldError] = []
    for name, root in (("specReplicasPath", ".spec"), ("statusReplicasPath", ".status")):
        text, at = scale.get(name) or "", f"{path}.scale.{name}"
        if not text:
            errs.append(field.required(at))
            continue
        found = _json_path(text, at)
        if not found and not text.startswith(f"{root}."):
            found.append(field.invalid(at, text, f"should be a json path under {root}"))
        errs += found
    text, at = scale.get("labelSelectorPath") or "", f"{path}.scale.labelSelectorPath"
    if text:
        found = _json_path(text, at)
        if not found and not text.startswith((".spec.", ".status.")):
            found.append(field.invalid(at, text, "should be a json path under either .spec or .status"))
        errs += found
    return errs


def _columns(columns: list[dict[str, Any]] | None, path: str) -> list[FieldError]:
    errs: list[FieldError] = []
    for i, column in enumerate(columns or ()):
        at = field.index(path, i)
        kind, form, text = column.get("type") or "", column.get("format") or "", column.get("JSONPath") or ""
        if not column.get("name"):
            errs.append(field.required(f"{at}.name"))
        types = "must be one of " + ",".join(COLUMN_TYPES)
        if not kind:
            errs.append(field.required(f"{at}.type", types))
        elif kind not in COLUMN_TYPES:
            errs.append(field.invalid(f"{at}.type", kind, types))
        if form and form not in COLUMN_FORMATS:
            errs.append(field.invalid(f"{at}.format", form, "must be one of " + ",".join(COLUMN_FORMATS)))
        errs += _json_path(text, f"{at}.JSONPath") if text else [field.required(f"{at}.JSONPath")]
    return errs


def _selectable(spec: Spec, when: str, many: bool = False) -> list[FieldError]:
    return _selectable_of(spec["selectableFields"], schema_of(spec.get("validation")), "spec.selectableFields", when, many)


def _selectable_of(fields: list[dict[str, Any]], schema: Schema | None, path: str, when: str, many: bool = False) -> list[FieldError]:
    if schema is None:
        return [field.invalid(path, "", f"may only be set when {when}")]
    unstructurable = crdschema.unstructurable(schema)
    holder = path.removesuffix(".selectableFields")
    errs = [field.invalid(f"{holder}.schema.openAPIV3Schema", "", unstructurable)] if unstructurable else []
    seen: set[str] = set()
    for i, item in enumerate(fields):
        at, text = field.index(path, i) + ".jsonPath", item.get("jsonPath") or ""
        if not text:
            errs.append(field.required(at))
            continue
        try:
            target = find_path(schema, text, brackets=False)
        except FieldPathError as e:
            errs.append(field.invalid(at, text, f"is an invalid path: {e}"))
            continue
        if target.text == "metadata" or target.text.startswith(("metadata.", "metadata[")):
            errs.append(field.invalid(at, text, "must not point to fields in metadata"))
        if target.schema is None or target.schema.get("type") not in ("string", "boolean", "integer"):
            words = "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed."
            errs.append(field.invalid(at, text, words))
        if target.text in seen:
            errs.append(field.duplicate(at, text))
        seen.add(target.text)
    if len(seen) > MAX_SELECTABLE_FIELDS and not many:
        errs.append(field.too_many(path, len(seen), MAX_SELECTABLE_FIELDS))
    return errs


def _conversion(conversion: dict[str, Any], options: Options, path: str) -> list[FieldError]:
    strategy = conversion.get("strategy") or ""
    errs = _enum(strategy, ("None", "Webhook"), f"{path}.strategy")
    client, reviews = conversion.get("webhookClientConfig"), conversion.get("conversionReviewVersions") or []
    at = f"{path}.conversionReviewVersions"
    if strategy != "Webhook":
        text = "should not be set when strategy is not set to Webhook"
        if client is not None:
            errs.append(field.forbidden(f"{path}.webhookClientConfig", text))
        if reviews:
            errs.append(field.forbidden(at, text))
        return errs
    if client is None:
        errs.append(field.required(f"{path}.webhookClientConfig", "required when strategy is set to Webhook"))
    else:
        errs += client_config(f"{path}.webhookClientConfig", client)
        errs += ca_bundle(f"{path}.webhookClientConfig", client) if options.usable_ca_bundle else []
    if not reviews:
        return [*errs, field.required(at)]
    seen: set[str] = set()
    for i, version in enumerate(reviews):
        here = field.index(at, i)
        if version in seen:
            errs.append(field.invalid(here, version, "duplicate version"))
            continue
        seen.add(version)
        errs += invalid_each(here, version, names.is_dns1035_label(version))
    if options.known_review_version and not seen.intersection(REVIEW_VERSIONS):
        errs.append(field.invalid(at, reviews, "must include at least one of " + ", ".join(REVIEW_VERSIONS)))
    return errs


# -- around the spec -----------------------------------------------------------------------------------------------------


def stored_versions(stored: list[str] | None, versions: list[dict[str, Any]], path: str) -> list[FieldError]:
    """Check that stored versions include the storage version, and that all of them are still listed in the spec."""
    if not stored:
        return [field.invalid(path, stored, "must have at least one stored version")]
    errs: list[FieldError] = []
    left = {name: i for i, name in enumerate(stored)}  # each counts once
    for version in versions:
        found = left.pop(version.get("name") or "", None)
        if version.get("storage") and found is None:
            errs.append(field.invalid(path, stored, f"must have the storage version {version.get('name') or ''}"))
    for name, i in left.items():
        text = (
            f"missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a storage "
            f"migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
        )
        errs.append(field.invalid(field.index(path, i), name, text))
    return errs


def preserve_unknown_fields(spec: Spec, old: Spec | None) -> list[FieldError]:
    """Only a CRD that already keeps unknown fields may go on doing so."""
    if spec.get("preserveUnknownFields") is False or (old is not None and old.get("preserveUnknownFields") is not False):
        return []
    text = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
    return [field.invalid("spec.preserveUnknownFields", True, text)]
