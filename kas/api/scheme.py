"""SCHEME: every built-in kind and resource, read from ``kas/api/tables``, and the codecs that work on their descriptors.

``SCHEME.kind`` also knows what is no resource: lists, options, Status, Table, Scale, Eviction. Nothing is compiled before it is used.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

from kas import _fast_types
from kas._fast_types import (
    DecodeError,
    EncodeError,
    Field,
    TypeDesc,
    decode,
    decode_plain,
    decode_protobuf,
    duplicate_fields,
    encode_json,
    encode_json_split,
    encode_protobuf,
    encode_stored,
    envelope,
    envelope_head,
    go_quote,
    open_envelope,
    pretty_json,
    protobuf_list,
    transcode_json_to_protobuf,
    write_json,
    zero,
)
from kas.api import quantity, scalars

__all__ = [
    "SCHEME", "DecodeError", "EncodeError", "Field", "Group", "Kind", "Resource", "Scheme", "Subresource", "TypeDesc", "convert",
    "decode", "decode_plain", "decode_protobuf", "default", "duplicate_fields", "encode_json", "encode_json_split", "encode_protobuf",
    "encode_stored", "envelope", "envelope_head", "go_quote", "open_envelope", "pretty_json", "protobuf_list",
    "transcode_json_to_protobuf", "write_json", "zero",
]  # fmt: skip

_fast_types.install_scalars(quantity.canonical, scalars.canonical_time, scalars.canonical_micro_time, scalars.canonical_duration)
_fast_types.install_durations(scalars.parse_duration, scalars.format_duration)

TABLES = Path(__file__).parent / "tables"
_META = "io.k8s.apimachinery.pkg.apis.meta.v1."
# metav1.AddToGroupVersion registers these in every group version; in a group's own package the kind "List" is meta's too.
_EVERYWHERE = ("WatchEvent", "ListOptions", "GetOptions", "DeleteOptions", "CreateOptions", "UpdateOptions", "PatchOptions")
# metav1's own types live in the unversioned group version "v1" and in meta.k8s.io/v1.
_UNVERSIONED = ("Status", "APIVersions", "APIGroup", "APIGroupList", "APIResourceList")
_META_TABLE = ("Table", "TableOptions", "PartialObjectMetadata", "PartialObjectMetadataList")


class Kind:
    """A kind in one version. ``type`` describes its fields."""

    __slots__ = ("api_version", "group", "kind", "type", "version")

    def __init__(self, group: str, version: str, kind: str, type: TypeDesc) -> None:
        self.group, self.version, self.kind, self.type = group, version, kind, type
        self.api_version = f"{group}/{version}" if group else version

    def __repr__(self) -> str:
        return f"Kind({self.api_version}, {self.kind})"


class Group:
    """An API group: versions in order of preference, and the numbers of its APIService objects."""

    __slots__ = ("group", "group_priority_minimum", "path", "preferred_version", "served_by_default", "version_priority", "versions")

    def __init__(self, record: dict[str, Any]) -> None:
        self.group: str = record["group"]
        self.path: str = record["path"]
        self.versions: tuple[str, ...] = tuple(record["versions"])
        self.served_by_default: tuple[str, ...] = tuple(record["servedByDefault"])
        self.preferred_version: str = record["preferredVersion"]
        self.group_priority_minimum: int | None = record["groupPriorityMinimum"]
        self.version_priority: dict[str, int] = record["versionPriority"]

    def __repr__(self) -> str:
        return f"Group({self.group or 'core'})"


class Subresource:
    """``pods/status`` and its like; ``query_options`` is the TypeDesc of a connect subresource's query, ``connect`` a bool."""

    __slots__ = (
        "api_version", "connect", "feature_gate", "group", "kind", "name", "path_suffix", "query_options", "reset", "returns", "type",
        "verbs", "version",
    )  # fmt: skip

    def __init__(self, record: dict[str, Any], scheme: Scheme) -> None:
        self.name: str = record["name"]
        self.group: str = record["group"]
        self.version: str = record["version"]
        self.kind: str = record["kind"]
        self.verbs: tuple[str, ...] = tuple(record["verbs"])
        self.reset: tuple[str, ...] = tuple(record.get("reset", ()))
        self.connect: bool = record.get("connect", False)
        self.feature_gate: str | None = record.get("featureGate")
        self.path_suffix: str | None = record.get("pathSuffix")
        self.returns: str | None = record.get("returns")
        self.query_options: TypeDesc | None = scheme.types[record["queryOptions"]] if "queryOptions" in record else None
        self.api_version = f"{self.group}/{self.version}" if self.group else self.version
        kind = scheme.kind(self.group, self.version, self.kind)
        self.type: TypeDesc | None = kind.type if kind else None

    def __repr__(self) -> str:
        return f"Subresource({self.name})"


class Resource:
    """One resource in one version; the attributes are the keys of the resource table in snake case.

    ``etcd_prefix``, ``storage_gvk`` and what follows are None, False or empty for resources that are not stored.
    """

    __slots__ = (
        "allow_create_on_update", "allow_unconditional_update", "api_version", "categories", "delete_returns", "etcd_prefix",
        "feature_gate", "field_selector_values", "field_selectors", "gc_default", "generation", "graceful_delete", "group", "introduced",
        "kind", "list_kind", "list_type", "name_validation", "namespaced", "removed_in", "reset_on_spec_write", "resource", "returns",
        "served_by_default", "short_names", "singular", "stability", "status_reset_on_spec_write", "storage_gvk", "storage_version_hash",
        "subresources", "type", "verbs", "version",
    )  # fmt: skip

    def __init__(self, record: dict[str, Any], scheme: Scheme) -> None:
        get = record.get
        self.group: str = record["group"]
        self.version: str = record["version"]
        self.resource: str = record["resource"]
        self.singular: str = record["singular"]
        self.kind: str = record["kind"]
        self.list_kind: str | None = record["listKind"]
        self.namespaced: bool = record["namespaced"]
        self.verbs: tuple[str, ...] = tuple(record["verbs"])
        self.short_names: tuple[str, ...] = tuple(record["shortNames"])
        self.categories: tuple[str, ...] = tuple(record["categories"])
        self.stability: str = record["stability"]
        self.served_by_default: bool = record["servedByDefault"]
        self.api_version = f"{self.group}/{self.version}" if self.group else self.version
        self.type: TypeDesc = scheme.types[record["type"]]
        list_kind = scheme.kind(self.group, self.version, self.list_kind) if self.list_kind else None
        self.list_type: TypeDesc | None = list_kind.type if list_kind else None
        self.storage_version_hash: str = get("storageVersionHash", "")
        self.etcd_prefix: str | None = get("etcdPrefix")
        self.storage_gvk: tuple[str, str, str] | None = tuple(record["storageGVK"]) if "storageGVK" in record else None
        self.field_selectors: tuple[str, ...] = tuple(get("fieldSelectors", ()))
        self.field_selector_values: Any = get("fieldSelectorValues")
        self.allow_create_on_update: bool = get("allowCreateOnUpdate", False)
        self.allow_unconditional_update: bool = get("allowUnconditionalUpdate", False)
        self.reset_on_spec_write: tuple[str, ...] = tuple(get("resetOnSpecWrite", ()))
        self.status_reset_on_spec_write: bool = get("statusResetOnSpecWrite", False)
        self.generation: str | None = get("generation")
        self.graceful_delete: str | None = get("gracefulDelete")
        self.gc_default: str | None = get("gcDefault")
        self.delete_returns: str | None = get("deleteReturns")
        self.name_validation: str | None = get("nameValidation")
        self.introduced: str | None = get("introduced")
        self.removed_in: str | None = get("removedIn")
        self.feature_gate: str | None = get("featureGate")
        self.returns: str | None = get("returns")
        self.subresources: dict[str, Subresource] = {s["name"]: Subresource(s, scheme) for s in record["subresources"]}

    def __repr__(self) -> str:
        return f"Resource({self.api_version}, {self.resource})"


class Scheme:
    """The registry of built-in types, kinds, resources and groups."""

    def __init__(self, tables: Path = TABLES) -> None:
        types = orjson.loads((tables / "types.json").read_bytes())
        resources = orjson.loads((tables / "resources.json").read_bytes())
        self.types: dict[str, TypeDesc] = _fast_types.build_types(types["types"], (tables / "fields.jsonl").read_bytes().splitlines())
        self.enums: dict[str, tuple[bool, tuple[str, ...]]] = {name: (closed, tuple(values)) for name, closed, values in types["enums"]}
        self.groups: dict[str, Group] = {g["group"]: Group(g) for g in resources["groups"]}
        self._kinds: dict[tuple[str, str, str], Kind] = {}
        self._register_kinds()
        self.resources: list[Resource] = [Resource(r, self) for r in resources["resources"]]
        self._resources = {(r.group, r.version, r.resource): r for r in self.resources}

    def _register(self, group: str, version: str, kind: str, type: TypeDesc) -> None:
        self._kinds.setdefault((group, version, kind), Kind(group, version, kind, type))

    def _register_kinds(self) -> None:
        packages: dict[str, tuple[str, str]] = {}
        for type in self.types.values():
            gvk = type.attributes.get("gvk")
            if isinstance(gvk, list):
                package = type.name.rpartition(".")[0]
                for group, version, kind in gvk:
                    self._register(group, version, kind, type)
                    if package != _META[:-1]:
                        packages[package] = (group, version)
        # Kinds the tables name no group for: messages with kind and apiVersion in the package of a known group version.
        for type in self.types.values():
            package, _, name = type.name.rpartition(".")
            gv = packages.get(package) or _package_group(package)
            if gv and "gvk" not in type.attributes and type.has_type_meta:
                self._register(*gv, name, type)
        versions = {(g, v) for g, v, _ in self._kinds} | {(g.group, v) for g in self.groups.values() for v in g.versions}
        versions.add(("meta.k8s.io", "v1"))
        for group, version in sorted(versions):
            for name in _EVERYWHERE:
                self._register(group, version, name, self.types[_META + name])
        for group, version in (("", "v1"), ("meta.k8s.io", "v1")):
            for name in _UNVERSIONED:
                self._register(group, version, name, self.types[_META + name])
        for version in ("v1", "v1beta1"):
            for name in _META_TABLE:
                self._register("meta.k8s.io", version, name, self.types[_META + name])

    def type(self, name: str) -> TypeDesc:
        """By full name (``io.k8s.api.core.v1.Pod``) or by its two last parts (``core.v1.PodSpec`` is ``io.k8s.api.core.v1.PodSpec``)."""
        return self.types.get(name) or self.types["io.k8s.api." + name]

    def kind(self, group: str, version: str, kind: str) -> Kind | None:
        return self._kinds.get((group, version, kind))

    def known(self, group: str, version: str, kind: str) -> Kind:
        """As kind(), for kinds that are certainly there. Raises LookupError otherwise."""
        found = self._kinds.get((group, version, kind))
        if found is None:
            raise LookupError(f"no kind {kind} in {group or 'core'}/{version}")
        return found

    def kind_for(self, api_version: str, kind: str) -> Kind | None:
        """As kind(), from an object's apiVersion."""
        group, _, version = api_version.rpartition("/")
        return self._kinds.get((group, version, kind))

    @property
    def kinds(self) -> list[Kind]:
        return list(self._kinds.values())

    def resource(self, group: str, version: str, resource: str) -> Resource | None:
        return self._resources.get((group, version, resource))


def _package_group(package: str) -> tuple[str, str] | None:
    """Group version of packages that hold kinds without being served."""
    known = {
        "io.k8s.api.admission": "admission.k8s.io",
        "io.k8s.api.imagepolicy": "imagepolicy.k8s.io",
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions": "apiextensions.k8s.io",
        "io.k8s.api.apidiscovery": "apidiscovery.k8s.io",
        "io.k8s.apiserver.pkg.apis.audit": "audit.k8s.io",
        "io.k8s.metrics.pkg.apis.metrics": "metrics.k8s.io",
    }
    base, _, version = package.rpartition(".")
    return (known[base], version) if base in known else None


def default(type: TypeDesc, obj: dict[str, Any]) -> None:
    """Apply the tables' constant defaults to a typed object, in place, at every level.

    Fields with a ``default_rule`` are left to the kind's own function (see kas.api.defaults).
    """
    _fast_types.apply_constant_defaults(type, obj)


def convert(obj: dict[str, Any], source: Any, target: Any, to_version: str | None = None, kind: str | None = None) -> dict[str, Any]:
    """``kas.api.conversion.convert``: ``(obj, gvk, gvk)`` or ``(obj, group, from_version, to_version, kind)``."""
    # The registry of conversions needs SCHEME, so it can only be imported once there is one.
    from kas.api import conversion

    return conversion.convert(obj, source, target, to_version, kind)


SCHEME = Scheme()
