"""Values of etcd's keys: encodes objects byte for byte as kube-apiserver stores them, and decodes them (upstream's storage codecs).

Built-in kinds are protobuf messages of their storage version in the envelope ``k8s\\0``, unless JSON is requested; custom
resources, their definitions and APIServices are JSON. Values are read in any served version and form. resourceVersion and
selfLink are not stored.

This is the storage codec, not the conversion of answers (``kas.registry.versions``): a pure function of one value. It
converts only compiled-in versions, which never waits; a custom resource stays in the version in which it was written.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import orjson

from kas.meta import gojson
from kas.meta.errors import ApiError
from kas.meta.stored import object_of
from kas.registry.filling import Filling
from kas.registry.generic import Registry
from kas.registry.registries import Registries
from kas.store import Draft, Record, TransformError, build_record
from kas.store.etcd.layout import Undecodable
from kas.types import unknownfields
from kas.types.conversion import convert
from kas.types.defaults import apply_defaults
from kas.types.fieldlabels import custom_selectable_fields
from kas.types.scheme import (
    DecodeError,
    EncodeError,
    Kind,
    builtin_kind,
    decode,
    decode_protobuf,
    decode_protobuf_whole,
    encode_stored,
    envelope,
    find_builtin_kind,
    open_envelope,
    schema_type,
    transcode_json_to_protobuf,
)

Obj = dict[str, Any]
MAGIC = b"k8s\0"
JSON = "application/json"
# Groups with API servers of their own, which store JSON (apiextensions-apiserver, kube-aggregator).
AS_JSON = ("apiextensions.k8s.io", "apiregistration.k8s.io")
ROOT = "/registry/"
# See kas.controllers.masterleases and .peerleases.
LEASES = "/registry/masterleases/", "/registry/peerserverleases/"
# kube-apiserver's bitmaps, see kas.kinds.core.service.allocation.portmap.
RANGES = "/registry/ranges/servicenodeports", "/registry/ranges/serviceips", "/registry/ranges/secondaryserviceips"
NO_METADATA = b'{"metadata":{}'
UNSTRUCTURED = schema_type("Unstructured", {"type": "object", "x-kubernetes-preserve-unknown-fields": True})


class StoredValues:
    """``kas.store.etcd.layout.Values`` for everything in ``registries``."""

    def __init__(self, registries: Registries, as_json: bool = False, held: Callable[[str], Record | None] = lambda key: None) -> None:
        """``as_json``: all values are written as JSON. ``held`` returns the store's current record of a key, None if there is
        none; it may raise ``TransformError``."""
        self._as_json, self._held = as_json, held
        # Keys begin with /registry and the prefix of their resource, which has one to three segments.
        self._by_root = {registry.root: registry for registry in registries}
        for leases in LEASES:
            self._by_root[leases] = registries.of("", "endpoints")
        self._definitions = registries.of("apiextensions.k8s.io", "customresourcedefinitions")
        # By group and plural, the selectable fields of custom resources; from their definitions, which are decoded here too.
        self._paths: dict[tuple[str, str], tuple[str, ...]] = {}
        self._stored_as: dict[tuple[str, str], str] = {}  # likewise, the stored group and version
        self._filling: dict[tuple[str, str], Filling] = {}  # likewise, their defaults and pruning
        self._learned: dict[str, int] = {}  # revisions of definitions that were read, not decoded here
        self.first = (self._definitions.root,)
        self.whole = True

    def registry(self, key: str) -> Registry | None:
        """Returns the registry for a key; None for custom resources and keys without objects."""
        at = key.find("/", len("/registry/"))
        while at >= 0:
            found = self._by_root.get(key[: at + 1])
            if found is not None:
                return found
            at = key.find("/", at + 1)
        return None

    def before(self, key: str) -> str:
        """See ``Values``: returns the key of a custom resource's definition."""
        group, plural = _of_definition(key)
        return f"{self._definitions.root}{plural}.{group}" if self.registry(key) is None else ""

    def learn(self, key: str) -> None:
        """See ``Values``."""
        defining = self.before(key)
        definition = self._held(defining) if defining else None
        if definition is not None and self._learned.get(defining) != definition.revision:
            self._define(object_of(definition))
            self._learned[defining] = definition.revision

    def unseen(self, key: str) -> None:
        """See ``Values``."""
        if self.registry(key) is self._definitions:
            plural, _, group = key.removeprefix(self._definitions.root).partition(".")
            self._filling.pop((group, plural), None)

    def _define(self, definition: Obj) -> None:
        of = definition["spec"]["group"], definition["spec"]["names"]["plural"]
        self._paths[of], self._stored_as[of] = _selectable(definition), _stored_as(definition)
        self._filling[of] = Filling(definition)

    def encode(self, key: str, draft: Draft) -> bytes:
        """See ``Values``."""
        if key in RANGES:
            if self._as_json:
                return b'{"kind":"RangeAllocation","apiVersion":"v1",' + draft.json[1:] + b"\n"
            kind = builtin_kind("", "v1", "RangeAllocation")
            return envelope("v1", kind.kind, transcode_json_to_protobuf(kind.type, draft.json))
        registry = self.registry(key)
        if registry is None or self._json(registry):
            return draft.json + b"\n"
        kind = _kind(registry)
        return envelope(kind.api_version, kind.kind, draft.protobuf or transcode_json_to_protobuf(kind.type, draft.json))

    def _json(self, registry: Registry) -> bool:
        return self._as_json or registry.resource.group in AS_JSON

    def today(self, key: str, value: bytes) -> bytes:
        """Returns the value that a write of the same object would store: ``value`` itself, if its version and form are
        current. Raises ``Undecodable``."""
        if key in RANGES:
            return value if value.startswith(MAGIC) != self._as_json else self.encode(key, self.decode(key, value))
        registry = self.registry(key)
        if registry is None:
            return value
        kind = _kind(registry)
        try:
            if self._json(registry):
                given = {} if value.startswith(MAGIC) else orjson.loads(value)
                same = (given.get("apiVersion"), given.get("kind")) == (kind.api_version, kind.kind)
            else:
                api_version, name, _, content_type = open_envelope(value) if value.startswith(MAGIC) else ("", "", b"", "")
                same = (api_version, name) == (kind.api_version, kind.kind) and content_type != JSON
        except (DecodeError, ValueError, LookupError, TypeError, AttributeError) as e:
            raise Undecodable(f"{type(e).__name__}: {e}") from e
        return value if same else self.encode(key, self.decode(key, value))

    def decode(self, key: str, value: bytes) -> Draft:
        """See ``Values``."""
        registry, self.whole = self.registry(key), True
        try:
            if key in RANGES:
                return _range_allocation(value)
            if registry is None:
                of = _of_definition(key)
                if of not in self._filling:  # perhaps it could not be opened when it arrived
                    with contextlib.suppress(TransformError):
                        self.learn(key)
                return custom(value, self._paths.get(of, ()), self._stored_as.get(of, ""), partial(self._fill, of))
            obj, self.whole = _read(registry, value)
            if registry is self._definitions:
                self._define(obj)
            # Labels and selectable fields must be those of the object as read.
            registry.strategy.as_read(obj)
            return registry.draft(obj)
        except (Undecodable, DecodeError) as e:
            raise Undecodable(str(e)) from e
        except orjson.JSONDecodeError as e:
            why = gojson.syntax_error(value) if registry is None or not value.startswith(MAGIC) else None
            raise Undecodable(why or str(e)) from e
        except (EncodeError, ApiError, ValueError, LookupError, TypeError, AttributeError) as e:
            raise Undecodable(f"{type(e).__name__}: {e}") from e

    def _fill(self, of: tuple[str, str], obj: Obj) -> None:
        filling = self._filling.get(of)
        self.whole = filling is None or not filling.fill(obj)

    def handed_on(self, key: str, old: bytes, new: bytes) -> bytes:
        """See ``Values``; only if both are of the current version, and both are protobuf or both JSON."""
        registry = self.registry(key)
        if registry is None or old.startswith(MAGIC) != new.startswith(MAGIC):
            return new
        kind = _kind(registry)
        if not new.startswith(MAGIC):
            return _handed_on_json(kind, old, new)
        was, now = open_envelope(old), open_envelope(new)
        if was[:2] != now[:2] or now[:2] != (kind.api_version, kind.kind) or JSON in (was[3], now[3]):
            return new
        return envelope(kind.api_version, kind.kind, unknownfields.handed_on(kind.type, was[2], now[2]))


def _kind(registry: Registry) -> Kind:
    r = registry.resource
    return r.storage_kind or builtin_kind(r.group, r.version, r.kind)


def _read(registry: Registry, value: bytes) -> tuple[Obj, bool]:
    """Decodes a value to an object of the storage version, with defaults; the bool says whether it had no unknown fields."""
    home, whole = _kind(registry), True
    if value.startswith(MAGIC):
        api_version, name, raw, content_type = open_envelope(value)
        kind = _of_version(home, api_version, name)
        obj, whole = _from_json(kind, orjson.loads(raw)) if content_type == JSON else decode_protobuf_whole(kind.type, raw)
    else:
        given = orjson.loads(value)
        if given is None:
            raise Undecodable("Object 'Kind' is missing in 'null'")
        if not isinstance(given, dict):
            raise Undecodable(f"couldn't get version/kind; json parse error: {gojson.cannot_unmarshal(given, gojson.TYPE_META)}")
        api_version, name = given.get("apiVersion") or "", given.get("kind") or ""
        kind = _of_version(home, api_version, name)
        obj, whole = _from_json(kind, given)
    apply_defaults(kind, obj)
    if kind is not home and (kind.group, kind.version, kind.kind) != (home.group, home.version, home.kind):
        obj = convert(obj, (kind.group, kind.version, kind.kind), (home.group, home.version, home.kind))
        apply_defaults(home, obj)
    obj["kind"], obj["apiVersion"] = home.kind, home.api_version
    obj["metadata"].pop("resourceVersion", None)
    obj["metadata"].pop("selfLink", None)
    return obj, whole


def _of_version(home: Kind, api_version: str, name: str) -> Kind:
    """Returns the kind that a value names: mostly the current storage kind."""
    if api_version == home.api_version and name == home.kind:
        return home
    kind = find_builtin_kind(*_group_version(api_version), name)
    if kind is None:
        raise Undecodable(_unregistered(api_version, name))
    return kind


def _range_allocation(value: bytes) -> Draft:
    """Returns the draft of an allocation bitmap, which has no resource."""
    if value.startswith(MAGIC):
        _, _, raw, _ = open_envelope(value)
        obj = decode_protobuf(builtin_kind("", "v1", "RangeAllocation").type, raw)
    else:
        obj = orjson.loads(value)
        transcode_json_to_protobuf(builtin_kind("", "v1", "RangeAllocation").type, value)  # raises for an invalid one
    tail = b'},"range":%b,"data":%b}' % (orjson.dumps(obj.get("range") or ""), orjson.dumps(obj.get("data") or ""))
    return build_record(NO_METADATA[:-1], tail, {}, {}, 1)


def _group_version(api_version: str) -> tuple[str, str]:
    group, _, version = api_version.rpartition("/")
    return group, version


def _unregistered(api_version: str, kind: str) -> str:
    return f'no kind "{kind}" is registered for version "{api_version}" in scheme "pkg/api/legacyscheme/scheme.go:30"'


def _from_json(kind: Kind, given: Obj) -> tuple[Obj, bool]:
    obj, unknown = decode(kind.type, given)
    return obj, not unknown


def _handed_on_json(kind: Kind, old: bytes, new: bytes) -> bytes:
    was, now = orjson.loads(old), orjson.loads(new)
    if any((obj.get("apiVersion"), obj.get("kind")) != (kind.api_version, kind.kind) for obj in (was, now)):
        return new
    unknownfields.handed_on_json(kind.type, was, now)
    return orjson.dumps(now) + b"\n"


def _of_definition(key: str) -> tuple[str, str]:
    """Returns group and plural from the key of a custom resource."""
    group, _, rest = key[len(ROOT) :].partition("/")
    return group, rest.partition("/")[0]


def _selectable(definition: Obj) -> tuple[str, ...]:
    """Returns the paths of the selectable fields of all versions of a definition, without the leading dot. A definition is
    stored as v1beta1, where fields common to all versions are at the top."""
    spec = definition.get("spec") or {}
    given = [spec, *(spec.get("versions") or ())]
    return tuple(sorted({field["jsonPath"].lstrip(".") for part in given for field in part.get("selectableFields") or ()}))


def _stored_as(definition: Obj) -> str:
    """Returns the group and version in which objects of a definition are stored."""
    spec = definition["spec"]
    version = next((v["name"] for v in spec.get("versions") or () if v.get("storage")), spec.get("version") or "")
    return f"{spec['group']}/{version}"


def custom(value: bytes, paths: Sequence[str], stored_as: str = "", fill: Callable[[Obj], None] | None = None) -> Draft:
    """Returns the draft of a custom resource, or of one of the server's own JSON values. ``fill`` fills an object in place,
    as when it is read. Raises ``Undecodable`` for an object of another group than that of ``stored_as``, which cannot be
    converted to any version of its definition."""
    text = value.rstrip()
    if text.startswith(NO_METADATA):
        orjson.loads(text)  # raises for invalid JSON, which would make lists invalid
        return build_record(text[: len(NO_METADATA) - 1], text[len(NO_METADATA) - 1 :], {}, {}, 1)
    obj = orjson.loads(text)
    given = obj.get("apiVersion") or ""
    if stored_as and _group_version(given)[0] != _group_version(stored_as)[0]:
        group, version = _group_version(given)
        gvk = f"{group}/{version}, Kind={obj.get('kind') or ''}"
        raise Undecodable(f'{gvk} is unstructured and is not suitable for converting to "{stored_as}"')
    meta = obj["metadata"]
    meta.pop("resourceVersion", None)
    meta.pop("selfLink", None)
    if fill is not None:
        fill(obj)
    head, tail, prefix_len, metadata_tail, message = encode_stored(UNSTRUCTURED, obj)
    fields = custom_selectable_fields(obj, "namespace" in obj["metadata"], paths)
    return build_record(head, tail, obj["metadata"].get("labels") or {}, fields, prefix_len, 0, metadata_tail, message)
