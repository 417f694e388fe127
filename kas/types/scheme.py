"""The kinds and resources of an API, and the codecs that work on their descriptors.

``BUILTIN`` holds what Kubernetes itself defines, read from ``kas/types/tables``; it never changes. A ``Scheme`` belongs to a server: the
built-in kinds and those that are added and removed while it runs. Both include kinds that are not resources: lists, options, Status, Table,
Scale, Eviction. Nothing is compiled before its first use.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol

import orjson

from kas import _codecs
from kas._codecs import (
    DecodeError,
    EncodeError,
    Field,
    Pairs,
    TypeDesc,
    apply_schema_defaults,
    decode,
    decode_plain,
    decode_protobuf,
    decode_protobuf_whole,
    drop_nulls,
    duplicate_fields,
    encode_both,
    encode_json,
    encode_json_split,
    encode_protobuf,
    encode_stored,
    envelope,
    envelope_head,
    go_quote,
    has_digits,
    lazy_schema_type,
    open_envelope,
    pretty_json,
    protobuf_list,
    prune,
    prune_value,
    read_pairs,
    schema_type,
    strict_fields,
    strict_operations,
    transcode_json_to_protobuf,
    varint,
    without_member,
    write_json,
    zero,
)
from kas.meta import quantity, scalars
from kas.meta.records import NamedTuple
from kas.observe import caches

__all__ = [
    "BUILTIN", "BuiltIn", "Change", "DecodeError", "EncodeError", "Field", "Group", "Kind", "Pairs", "Resource", "Scheme", "Subresource",
    "TypeDesc", "apply_schema_defaults", "builtin_field", "builtin_kind", "builtin_type", "decode", "decode_plain", "decode_protobuf",
    "decode_protobuf_whole", "default", "drop_nulls", "duplicate_fields", "encode_both", "encode_json", "encode_json_split",
    "encode_protobuf", "encode_stored", "envelope", "envelope_head", "find_builtin_kind", "go_quote", "has_digits", "in_namespaces",
    "lazy_schema_type", "open_envelope", "pretty_json", "protobuf_list", "prune", "prune_value", "read_pairs", "schema_type",
    "strict_fields", "strict_operations", "transcode_json_to_protobuf", "varint", "without_member", "write_json", "zero",
]  # fmt: skip

_codecs.install_scalars(quantity.canonical, scalars.canonical_time, scalars.canonical_micro_time, scalars.canonical_duration)
_codecs.install_durations(scalars.parse_duration, scalars.format_duration)
_KEYS_BYTES = 1024 * (64 + 64)  # KEYS of KEY_LENGTH (plain.pxi); a table, not a dictionary
caches.register("json_keys", "keys of maps in JSON", _KEYS_BYTES, lambda: _KEYS_BYTES)
caches.register("shared_fields", "sets of managed fields that objects share", _codecs.shared_bytes()[1], lambda: _codecs.shared_bytes()[0])

TABLES = Path(__file__).parent / "tables"
_META = "io.k8s.apimachinery.pkg.apis.meta.v1."
# metav1.AddToGroupVersion registers these in every group version. In a group's own package, the kind "List" is metav1's as well.
_EVERYWHERE = ("WatchEvent", "ListOptions", "GetOptions", "DeleteOptions", "CreateOptions", "UpdateOptions", "PatchOptions")
# metav1's own types live in the unversioned group version "v1" and in meta.k8s.io/v1.
UNVERSIONED = ("Status", "APIVersions", "APIGroup", "APIGroupList", "APIResourceList")
_META_TABLE = ("Table", "TableOptions", "PartialObjectMetadata", "PartialObjectMetadataList")


class Kind:
    """A kind in one version. ``type`` describes its fields; ``plan`` caches how it is defaulted (kas.types.defaults)."""

    __slots__ = ("api_version", "group", "kind", "plan", "type", "version")

    def __init__(self, group: str, version: str, kind: str, type: TypeDesc) -> None:
        self.group, self.version, self.kind, self.type = group, version, kind, type
        self.plan: Any = None
        self.api_version = sys.intern(f"{group}/{version}") if group else version

    def __repr__(self) -> str:
        return f"Kind({self.api_version}, {self.kind})"


class Group:
    """An API group: its versions in order of preference, and the priorities of its APIService objects."""

    __slots__ = ("group", "group_priority_minimum", "path", "served_by_default", "version_priority", "versions")

    def __init__(self, record: dict[str, Any]) -> None:
        self.group: str = record["group"]
        self.path: str = record["path"]
        self.versions: tuple[str, ...] = tuple(record["versions"])
        self.served_by_default: tuple[str, ...] = tuple(record["servedByDefault"])
        self.group_priority_minimum: int | None = record["groupPriorityMinimum"]
        self.version_priority: dict[str, int] = record["versionPriority"]

    def __repr__(self) -> str:
        return f"Group({self.group or 'core'})"


class Subresource:
    """A subresource such as ``pods/status``. ``query_options`` is the TypeDesc of a connect subresource's query parameters; ``connect`` is
    a bool.
    """

    __slots__ = (
        "api_version", "connect", "feature_gate", "group", "kind", "name", "path_suffix", "query_options", "reset", "type", "verbs",
        "version",
    )  # fmt: skip

    def __init__(self, record: dict[str, Any], scheme: Kinds) -> None:
        self.name: str = record["name"]
        self.group: str = record["group"]
        self.version: str = record["version"]
        self.kind: str = record["kind"]
        self.verbs: tuple[str, ...] = tuple(record["verbs"])
        self.reset: tuple[str, ...] = tuple(record.get("reset", ()))
        self.connect: bool = record.get("connect", False)
        self.feature_gate: str | None = record.get("featureGate")
        self.path_suffix: str | None = record.get("pathSuffix")
        self.query_options: TypeDesc | None = scheme.types[record["queryOptions"]] if "queryOptions" in record else None
        self.api_version = f"{self.group}/{self.version}" if self.group else self.version
        kind = scheme.kind(self.group, self.version, self.kind)
        self.type: TypeDesc | None = kind.type if kind else None

    def __repr__(self) -> str:
        return f"Subresource({self.name})"


class Resource:
    """One resource in one version. The attributes are the keys of the resource table in snake case.

    ``kind_record``, ``list_record`` and ``storage_kind`` are the Kinds of its objects, lists and stored form. ``plan`` is as in Kind.
    ``strategy`` caches its write strategy (``kas.registry.strategy``). For resources that are not stored, ``etcd_prefix``, ``storage_gvk``
    and the attributes after them are None, False or empty.
    """

    __slots__ = (
        "__weakref__", "allow_create_on_update", "allow_unconditional_update", "api_version", "categories", "delete_returns",
        "etcd_prefix", "feature_gate", "field_selectors", "gc_default", "generation", "graceful_delete", "group", "kind", "kind_record",
        "list_kind", "list_record", "list_type", "namespaced", "plan", "reset_on_spec_write", "resource", "served_by_default",
        "short_names", "singular", "storage_gvk", "storage_kind", "storage_version_hash", "strategy", "subresources", "type", "verbs",
        "version",
    )  # fmt: skip

    def __init__(self, record: dict[str, Any], scheme: Kinds) -> None:
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
        self.served_by_default: bool = record["servedByDefault"]
        self.api_version = f"{self.group}/{self.version}" if self.group else self.version
        self.type: TypeDesc = scheme.types[record["type"]]
        self.kind_record = scheme.kind(self.group, self.version, self.kind) or Kind(self.group, self.version, self.kind, self.type)
        self.list_record = scheme.kind(self.group, self.version, self.list_kind) if self.list_kind else None
        self.list_type: TypeDesc | None = self.list_record.type if self.list_record else None
        self.plan: Any = None
        self.strategy: Any = None
        self.storage_version_hash: str = get("storageVersionHash", "")
        self.etcd_prefix: str | None = get("etcdPrefix")
        self.storage_gvk: tuple[str, str, str] | None = tuple(record["storageGVK"]) if "storageGVK" in record else None
        self.storage_kind = scheme.kind(*self.storage_gvk) if self.storage_gvk is not None else None
        self.field_selectors: tuple[str, ...] = tuple(get("fieldSelectors", ()))
        self.allow_create_on_update: bool = get("allowCreateOnUpdate", False)
        self.allow_unconditional_update: bool = get("allowUnconditionalUpdate", False)
        self.reset_on_spec_write: tuple[str, ...] = tuple(get("resetOnSpecWrite", ()))
        self.generation: str | None = get("generation")
        self.graceful_delete: str | None = get("gracefulDelete")
        self.gc_default: str | None = get("gcDefault")
        self.delete_returns: str | None = get("deleteReturns")
        self.feature_gate: str | None = get("featureGate")
        self.subresources: dict[str, Subresource] = {s["name"]: Subresource(s, scheme) for s in record["subresources"]}

    def __repr__(self) -> str:
        return f"Resource({self.api_version}, {self.resource})"


class Kinds(Protocol):
    """The source of a resource's types: descriptors by name, and kinds."""

    types: dict[str, TypeDesc]

    def kind(self, group: str, version: str, kind: str) -> Kind | None:
        """The kind, or None when it is unknown."""


class BuiltIn:
    """The built-in types, kinds, resources and groups, whether they are served or not. Immutable."""

    def __init__(self) -> None:
        types = orjson.loads((TABLES / "types.json").read_bytes())
        resources = orjson.loads((TABLES / "resources.json").read_bytes())
        self.types: dict[str, TypeDesc] = _codecs.build_types(types["types"], (TABLES / "fields.jsonl").read_bytes().splitlines())
        self.enums: dict[str, tuple[bool, tuple[str, ...]]] = {name: (closed, tuple(values)) for name, closed, values in types["enums"]}
        self.groups: dict[str, Group] = {g["group"]: Group(g) for g in resources["groups"]}
        self._kinds: dict[tuple[str, str, str], Kind] = {}
        self._register_kinds(types["types"])
        self.resources: list[Resource] = [Resource(r, self) for r in resources["resources"]]
        self._resources = {(r.group, r.version, r.resource): r for r in self.resources}

    def _register(self, group: str, version: str, kind: str, type: TypeDesc) -> None:
        if (group, version, kind) not in self._kinds:
            self._kinds[group, version, kind] = Kind(group, version, kind, type)

    def _register_kinds(self, rows: list[tuple[str, dict[str, Any], int]]) -> None:
        packages: dict[str, tuple[str, str]] = {}
        for full, attributes, _ in rows:
            if attributes and isinstance(gvk := attributes.get("gvk"), list):
                package = full.rpartition(".")[0]
                for group, version, kind in gvk:
                    self._register(group, version, kind, self.types[full])
                    if package != _META[:-1]:
                        packages[package] = (group, version)
        # Kinds without a group in the tables: messages with kind and apiVersion in the package of a known group version.
        for full, attributes, has_type_meta in rows:
            if not has_type_meta or "gvk" in attributes:
                continue
            package, _, name = full.rpartition(".")
            gv = packages.get(package) or _package_group(package)
            if gv:
                self._register(*gv, name, self.types[full])
        versions = {(g, v) for g, v, _ in self._kinds} | {(g.group, v) for g in self.groups.values() for v in g.versions}
        versions.add(("meta.k8s.io", "v1"))
        for group, version in sorted(versions):
            for name in _EVERYWHERE:
                self._register(group, version, name, self.types[_META + name])
        for group, version in (("", "v1"), ("meta.k8s.io", "v1")):
            for name in UNVERSIONED:
                self._register(group, version, name, self.types[_META + name])
        for version in ("v1", "v1beta1"):
            for name in _META_TABLE:
                self._register("meta.k8s.io", version, name, self.types[_META + name])

    def type(self, name: str) -> TypeDesc:
        """The type with this full name (``io.k8s.api.core.v1.Pod``) or this name below ``io.k8s.api`` (``core.v1.PodSpec``). Raises
        KeyError.
        """
        return self.types.get(name) or self.types["io.k8s.api." + name]

    def field(self, name: str, field: str) -> Field:
        """A field of a type, which is named as in ``type``. Raises KeyError when there is none."""
        return self.type(name).by_name[field]

    def kind(self, group: str, version: str, kind: str) -> Kind | None:
        """The built-in kind, or None."""
        return self._kinds.get((group, version, kind))

    def known(self, group: str, version: str, kind: str) -> Kind:
        """Like ``kind``, for kinds that must exist. Raises LookupError otherwise."""
        found = self._kinds.get((group, version, kind))
        if found is None:
            raise LookupError(f"no kind {kind} in {group or 'core'}/{version}")
        return found

    @property
    def kinds(self) -> list[Kind]:
        """A new list of all built-in kinds."""
        return list(self._kinds.values())

    def resource(self, group: str, version: str, resource: str) -> Resource | None:
        """The built-in resource, or None."""
        return self._resources.get((group, version, resource))


class Change(NamedTuple):
    """A change of a group version in a scheme. ``resources`` are those it has now."""

    group: str
    version: str
    what: Literal["added", "changed", "removed"]
    resources: tuple[Resource, ...]


class _Own:
    """The kinds and resources of one group version that was added at run time."""

    __slots__ = ("by_name", "kinds", "types")

    def __init__(self, group: str, version: str, types: Mapping[str, TypeDesc], records: Iterable[dict[str, Any]]) -> None:
        self.types = dict(types)
        self.kinds = {(group, version, name): Kind(group, version, name, type) for name, type in types.items()}
        self.by_name: dict[str, Resource] = {}
        for record in records:
            self.put(record, group, version)

    @property
    def resources(self) -> tuple[Resource, ...]:
        return tuple(self.by_name.values())

    def put(self, record: dict[str, Any], group: str, version: str) -> Resource:
        found = self.by_name[record["resource"]] = Resource({**_CUSTOM, **record, "group": group, "version": version}, self)
        return found

    def own_kind(self, group: str, version: str, kind: str) -> Kind | None:
        """A kind of this group version, including those that every group version has, which are created on demand."""
        found = self.kinds.get((group, version, kind))
        if found is None and kind in _EVERYWHERE:
            found = self.kinds[group, version, kind] = Kind(group, version, kind, BUILTIN.types[_META + kind])
        return found

    def kind(self, group: str, version: str, kind: str) -> Kind | None:
        return self.own_kind(group, version, kind) or BUILTIN.kind(group, version, kind)


# Defaults of the records of resources added at run time.
_CUSTOM: dict[str, Any] = {
    "shortNames": (), "categories": (), "servedByDefault": True, "subresources": (), "listKind": None,
    "verbs": ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"),
}  # fmt: skip


class Scheme:
    """The kinds and resources of one server: the built-in ones, and group versions that are added and removed while it runs.

    Not thread-safe: for the thread of the server's event loop. A group version is replaced as a whole, so that no reader sees a partial
    one.
    """

    def __init__(self) -> None:
        self._own: dict[tuple[str, str], _Own] = {}
        self._listeners: list[Callable[[Change], None]] = []

    @property
    def groups(self) -> dict[str, Group]:
        """The built-in groups."""
        return BUILTIN.groups

    @property
    def resources(self) -> list[Resource]:
        """A new list of all resources, built in or added."""
        return [*BUILTIN.resources, *(r for own in self._own.values() for r in own.resources)]

    def kind(self, group: str, version: str, kind: str) -> Kind | None:
        """The kind, or None when it is unknown. For a group version that was added, only what was added counts."""
        own = self._own.get((group, version))
        return own.own_kind(group, version, kind) if own is not None else BUILTIN.kind(group, version, kind)

    def resource(self, group: str, version: str, resource: str) -> Resource | None:
        """The resource, or None when it is unknown. For a group version that was added, only what was added counts."""
        own = self._own.get((group, version))
        if own is None:
            return BUILTIN.resource(group, version, resource)
        return own.by_name.get(resource)

    def add(
        self, group: str, version: str, types: Mapping[str, TypeDesc], resources: Iterable[dict[str, Any]]
    ) -> tuple[Resource, ...]:
        """Adds or replaces a group version: its kinds with their descriptors, and its resources as records of the resource table, whose
        ``type`` is a name in ``types``. Returns the resources. Raises ValueError for one of Kubernetes' own groups.
        """
        if group in BUILTIN.groups:
            raise ValueError(f"{group}/{version} is built in")
        what: Literal["added", "changed"] = "changed" if (group, version) in self._own else "added"
        own = self._own[group, version] = _Own(group, version, types, resources)
        self._tell(Change(group, version, what, own.resources))
        return own.resources

    def put(self, group: str, version: str, types: Mapping[str, TypeDesc], record: dict[str, Any]) -> Resource:
        """Adds or replaces one resource; the other resources of its group version stay. Raises ValueError for one of Kubernetes' own
        groups.
        """
        if group in BUILTIN.groups:
            raise ValueError(f"{group}/{version} is built in")
        what: Literal["added", "changed"] = "changed" if (group, version) in self._own else "added"
        own = self._own.get((group, version))
        if own is None:
            own = self._own[group, version] = _Own(group, version, {}, ())
        own.types.update(types)
        own.kinds.update({(group, version, name): Kind(group, version, name, type) for name, type in types.items()})
        found = own.put(record, group, version)
        if self._listeners:
            self._tell(Change(group, version, what, own.resources))
        return found

    def drop(self, resource: Resource) -> None:
        """Removes a resource that ``put`` returned, and its group version with the last one. No effect if it was replaced or removed
        already.
        """
        own = self._own.get((resource.group, resource.version))
        if own is None or own.by_name.get(resource.resource) is not resource:
            return
        del own.by_name[resource.resource]
        for name in (resource.kind, resource.list_kind):
            if name and not any(name in (r.kind, r.list_kind) for r in own.by_name.values()):
                own.types.pop(name, None)
                own.kinds.pop((resource.group, resource.version, name), None)
        if not own.by_name:
            self.remove(resource.group, resource.version)
        elif self._listeners:
            self._tell(Change(resource.group, resource.version, "changed", own.resources))

    def remove(self, group: str, version: str) -> None:
        """Removes a group version, if it exists. Its descriptors are freed when their last user drops them."""
        if self._own.pop((group, version), None) is not None:
            self._tell(Change(group, version, "removed", ()))

    def on_change(self, listener: Callable[[Change], None]) -> Callable[[], None]:
        """Calls ``listener`` after each change, in order of registration. Returns a function that unregisters it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def _tell(self, change: Change) -> None:
        for listener in list(self._listeners):
            listener(change)


def _package_group(package: str) -> tuple[str, str] | None:
    """The group and version of a package that defines kinds but serves none; None for any other."""
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


def unknown_conversion(version: str, kind: str, to: tuple[str, str, str]) -> str:
    """Upstream's error for an object (version, kind) that cannot be converted to ``to`` (group, version, kind), with Go's type names."""
    return f"converting ({version}.{kind}) to ({to[0].split('.')[0] or 'core'}.{to[2]}): unknown conversion"


def default(type: TypeDesc, obj: dict[str, Any]) -> None:
    """Applies the tables' constant defaults to a typed object, in place, at every level.

    Fields with a ``default_rule`` are left to the kind's own function (see kas.types.defaults).
    """
    _codecs.apply_constant_defaults(type, obj)


BUILTIN = BuiltIn()

# For modules written for specific compiled-in types: a kind's own rules, or the reader of one configuration. Names that come from a client
# are looked up in the server's Scheme, except where upstream searches compiled-in kinds only (``find_builtin_kind``).
builtin_type = BUILTIN.type
builtin_field = BUILTIN.field
builtin_kind = BUILTIN.known
find_builtin_kind = BUILTIN.kind


def in_namespaces(kind: Kind) -> bool:
    """Whether objects of a compiled-in kind are namespaced."""
    return any(r.namespaced for r in BUILTIN.resources if (r.group, r.kind) == (kind.group, kind.kind) and r.etcd_prefix is not None)
