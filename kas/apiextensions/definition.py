"""What a server keeps in memory of a CustomResourceDefinition: everything but its schemas.

The schemas are read from the store again when the first object of theirs arrives. Most definitions of a server are never used.
"""

from __future__ import annotations

from typing import Any

import orjson

from kas.meta.kubeversion import version_key
from kas.meta.records import NamedTuple
from kas.meta.stored import Stored, object_of
from kas.types.scheme import without_member

Obj = dict[str, Any]
NO_CA_BUNDLE = "InvalidCABundle"  # the reason why a definition with accepted names is not established
FINALIZER = "customresourcecleanup.apiextensions.k8s.io"
# In the stored form (v1beta1), fields of a version that are at the top of the spec if all versions agree.
_SHARED = ("subresources", "additionalPrinterColumns", "selectableFields")
Names = dict[str, Any]


class DefinedVersion(NamedTuple):
    """One version of a definition.

    ``status`` and ``scale`` say which subresources it has; ``columns`` and ``selectable`` are in the form of v1; ``warning`` is sent with
    every use of a deprecated version.
    """

    name: str
    served: bool
    storage: bool
    status: bool
    scale: Obj | None
    columns: tuple[Obj, ...]
    selectable: tuple[str, ...]
    warning: str


class Definition(NamedTuple):
    """A definition without its schemas.

    ``names`` are the accepted names, ``requested`` those of the spec. ``revision`` is that of the write it was read from; ``since`` is the
    first revision from which the spec is known to be unchanged, so later objects were written under it.
    """

    name: str
    uid: str
    generation: int
    revision: int
    since: int
    group: str
    namespaced: bool
    names: Names
    requested: Names
    versions: tuple[DefinedVersion, ...]
    conversion: Obj
    keeps_unknown: bool
    conditions: tuple[Obj, ...]
    deleting: bool

    def is_true(self, condition: str) -> bool:
        """Whether a condition has status True."""
        return any(c.get("type") == condition and c.get("status") == "True" for c in self.conditions)

    @property
    def served(self) -> bool:
        """Whether its objects are served. Names that were accepted stay valid until the condition is no longer True."""
        if self.is_true("Established"):
            return True
        return self.is_true("NamesAccepted") and not any(c.get("reason") == NO_CA_BUNDLE for c in self.conditions)

    @property
    def stored(self) -> DefinedVersion:
        """The version its objects are stored in."""
        return next(v for v in self.versions if v.storage)

    @property
    def contents(self) -> tuple[Any, ...]:
        """The parts on which the serving of its objects depends."""
        return self.uid, self.generation, self.served, repr(self.names)


def light(record: Stored) -> Obj:
    """Return a stored definition without its schemas, which are most of it."""
    found: Obj = orjson.loads(without_member(record.json, b"openAPIV3Schema"))
    return found


def read(record: Stored, revision: int, created: int, known: Definition | None = None) -> Definition:
    """Return the definition in a stored record of ``revision``, created at revision ``created``; ``known`` is the previous definition."""
    obj = light(record)
    meta, spec, status = obj["metadata"], obj["spec"], obj.get("status") or {}
    uid, generation = meta.get("uid", ""), meta.get("generation") or 0
    if known is not None and (known.uid, known.generation) == (uid, generation):
        since = known.since
    else:
        since = created if generation == 1 else revision
    shared = {name: spec.get(name) for name in _SHARED}
    accepted = status.get("acceptedNames") or {}
    raw = spec.get("versions") or [{"name": spec.get("version") or "", "served": True, "storage": True}]
    requested = spec["names"]
    best = _best(raw) if any(v.get("deprecated") for v in raw) else None
    own = _parts(shared)
    return Definition(
        meta["name"], uid, generation, revision, since, spec["group"], spec["scope"] == "Namespaced", accepted,
        requested, tuple([_version(v, own, spec["group"], requested["kind"], best) for v in raw]), spec.get("conversion") or {},
        bool(spec.get("preserveUnknownFields")), tuple(status.get("conditions") or ()), bool(meta.get("deletionTimestamp")),
    )  # fmt: skip


_Parts = tuple[bool, Obj | None, tuple[Obj, ...], tuple[str, ...]]


def _parts(v: Obj) -> _Parts:
    """Return whether there is a status, the scale, the columns and the selectable fields, of a version or of the part that all share."""
    subresources = v.get("subresources") or {}
    columns, selectable = v.get("additionalPrinterColumns") or (), v.get("selectableFields") or ()
    return (
        subresources.get("status") is not None, subresources.get("scale"),
        tuple({"jsonPath" if k == "JSONPath" else k: x for k, x in c.items()} for c in columns),
        tuple(f["jsonPath"].removeprefix(".") for f in selectable),
    )  # fmt: skip


def _version(v: Obj, shared: _Parts, group: str, kind: str, best: str | None) -> DefinedVersion:
    """Return one version; ``best`` is the name of the first served and not deprecated one, in the order that clients prefer."""
    status, scale, columns, selectable = shared  # nearly all versions share them
    if not v.keys().isdisjoint(_SHARED):
        own = _parts(v)
        if v.get("subresources"):
            status, scale = own[:2]
        columns, selectable = own[2] or columns, own[3] or selectable
    warning = ""
    if v.get("deprecated"):
        warning = v.get("deprecationWarning") or _deprecation(v["name"], group, kind, best)
    return DefinedVersion(v["name"], bool(v.get("served")), bool(v.get("storage")), status, scale, columns, selectable, warning)


def _best(versions: list[Obj]) -> str | None:
    return min((v["name"] for v in versions if v.get("served") and not v.get("deprecated")), key=version_key, default=None)


def _deprecation(version: str, group: str, kind: str, best: str | None) -> str:
    text = f"{group}/{version} {kind} is deprecated"
    better = best is not None and version_key(best) < version_key(version)
    return f"{text}; use {group}/{best} {kind}" if better else text


def schema(record: Stored, version: str) -> Obj:
    """Return the schema of a version of a stored definition; see ``schema_of``."""
    return schema_of(object_of(record), version)


def schema_of(definition: Obj, version: str) -> Obj:
    """Return the schema of a version, with pruned defaults and without descriptions; an empty one, without any fields, if there is none.

    ``definition`` is consumed: its contents are moved into the result.
    """
    from kas.apiextensions import schemadefaults  # like everything that only objects need

    spec = definition["spec"]
    found: Obj = next((v for v in spec.get("versions") or () if v["name"] == version), {})
    validation = found.get("schema") or spec.get("validation") or {}
    out: Obj = schemadefaults.pruned(validation.get("openAPIV3Schema") or {})
    _compact(out, {})
    return {**out, "x-kubernetes-preserve-unknown-fields": True} if spec.get("preserveUnknownFields") else out


_TEXTS = ("description", "title", "example", "externalDocs")
_ONE, _MANY = frozenset(("items", "additionalProperties", "not")), frozenset(("allOf", "anyOf", "oneOf"))


def _compact(schema: Obj, known: dict[tuple[Any, ...], Obj]) -> Obj:
    """Remove descriptive texts from the schema, in place, and share one object among equal subschemas.

    In real definitions one in three subschemas is a repetition: pods, selectors and references to secrets occur many times.
    """
    for name in _TEXTS:
        schema.pop(name, None)
    signature: list[Any] = []
    for name, value in schema.items():
        if name in _ONE and isinstance(value, dict):
            schema[name] = below = _compact(value, known)
            signature += name, id(below)
        elif name in _MANY and value:
            schema[name] = parts = [_compact(part, known) for part in value]
            signature += name, *map(id, parts)
        elif name == "properties" and value:
            for key, inner in value.items():
                value[key] = _compact(inner, known)
            signature += name, *value, *map(id, value.values())
        else:
            signature += name, repr(value)
    return known.setdefault(tuple(signature), schema)
