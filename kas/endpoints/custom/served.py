"""A custom resource in one of its versions.

Stored bytes are served unchanged if pruning, defaulting and conversion under the current definition would not change them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Container, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import orjson

from kas.apiextensions import customtypes, traits
from kas.apiextensions.columns import Printer
from kas.apiextensions.definition import DefinedVersion, Definition
from kas.endpoints.custom.merging import MergeSchemas
from kas.endpoints.deprecation import Deprecation
from kas.endpoints.served import CONVERTED_AT_ONCE, Served
from kas.meta.fairqueue import FairSemaphore
from kas.meta.offload import LARGE, POOL, is_large, step
from kas.meta.stored import object_of
from kas.meta.waiting import awaited
from kas.patch.fieldmanager.schema import Schema
from kas.registry.generic import Registry
from kas.registry.strategy import Obj
from kas.registry.versions import Converter, Decoded, Family, Shown
from kas.store import Record
from kas.types.scheme import Resource, TypeDesc, drop_nulls, schema_type

_NOTHING = schema_type("", {})


class Types(Mapping[str, TypeDesc]):
    """The types of all versions of a definition by name, built on first use."""

    def __init__(self, names: Collection[str], make: Callable[[str], TypeDesc]) -> None:
        self._names, self._make, self._made = names, make, dict[str, TypeDesc]()

    def __getitem__(self, name: str) -> TypeDesc:
        found = self._made.get(name)
        if found is None:
            if name not in self._names:
                raise KeyError(name)
            found = self._made[name] = self._make(name)
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class State:
    """The state that the versions of one definition share, some of which changes while they are served.

    - ``clean`` says that every stored object was written under the current spec and in its storage version, so that there is
      nothing to prune, default or convert.
    - ``types`` are the types of all versions, and ``merging`` their merge schemas.
    - ``make`` builds a version on first use: a definition can have thousands.
    """

    def __init__(
        self, definition: Definition, types: Mapping[str, TypeDesc], clean: bool, merging: MergeSchemas,
        make: Callable[[State, DefinedVersion], CustomServed] | None = None,
    ) -> None:  # fmt: skip
        self.definition, self.types, self.clean, self.merging, self._make = definition, types, clean, merging, make
        self.requested = False  # whether objects were requested while ``clean`` was false
        self.versions: dict[str, CustomServed] = {}  # the served versions that were requested so far
        self.made: dict[str, CustomServed] = {}  # all versions that were requested so far, served or not
        self._defined = {v.name: v for v in definition.versions}
        self._family: Family | None = None

    def find(self, version: str) -> CustomServed | None:
        """Return the version, or None if it is not served."""
        found = self.versions.get(version)
        if found is None and (defined := self._defined.get(version)) is not None and defined.served:
            return self.one(version)
        return found

    def one(self, version: str) -> CustomServed | None:
        """Return the version, served or not, or None if it does not exist."""
        found = self.made.get(version)
        if found is None and self._make is not None and (defined := self._defined.get(version)) is not None:
            return self._make(self, defined)
        return found

    @property
    def family(self) -> Family:
        """All versions. A version is built only when more is needed than ``Offered`` knows."""
        if self._family is None:
            found = Family(Offered(self, v) for v in self.definition.versions)
            if self._make is None:  # retired: do not create a reference cycle
                return found
            self._family = found
        return self._family

    def became_clean(self) -> None:
        """Serve stored bytes from now on."""
        self.clean = True
        for served in self.versions.values():
            served.native = served.stores
            served.streams = served.native or served.converter.total
            served.unindexed = served.sifts

    def retire(self) -> None:
        """Break the reference cycles, so that the state is freed with the last request that uses it. The cycle collector runs rarely."""
        self.versions, self.made, self._make, self._family = {}, {}, None, None
        self.merging.forget()

    def type_of(self, api_version: str) -> TypeDesc:
        """Return the type of objects that declare that version. If the definition lacks it, returns a type without fields."""
        return self.types.get(api_version.rpartition("/")[2], _NOTHING)

    def read(self, obj: Obj) -> Obj:
        """Prune and default a stored object in place, by the current schema of the version it is stored in."""
        type_ = self.types.get(obj["apiVersion"].rpartition("/")[2])
        if type_ is not None:
            customtypes.decode(type_, obj, stored=True)
            customtypes.default(type_, obj)
        return obj


class Offered:
    """A version with its name and subresources only; the rest is built on first use."""

    __slots__ = ("_defined", "_state", "group", "kind", "resource", "version")

    def __init__(self, state: State, defined: DefinedVersion) -> None:
        d = state.definition
        self._state, self._defined = state, defined
        self.group, self.version, self.resource, self.kind = d.group, defined.name, d.names["plural"], d.names["kind"]

    @property
    def subresources(self) -> Container[str]:
        """The names of its subresources."""
        v = self._defined
        return tuple(name for name, there in (("status", v.status), ("scale", v.scale is not None)) if there)

    @property
    def _made(self) -> CustomServed:
        made = self._state.one(self.version)
        assert made is not None  # the caller got this object from the state just now
        return made

    @property
    def record(self) -> Resource:
        """The record of the version."""
        return self._made.record

    @property
    def converter(self) -> Converter:
        """Converts objects of this version to another."""
        return self._made.converter


class CustomServed(Served):
    """A custom resource in the version ``defined``.

    Writes are validated in it (``own_strategy``) and then converted to the storage version.
    """

    own_strategy = True

    def __init__(self, record: Resource, registry: Registry, converter: Converter, state: State, defined: DefinedVersion) -> None:
        super().__init__(record, registry, converter)
        self.state, self.defined = state, defined
        self.stores = self.own == self.stored
        self.native = self.stores and state.clean
        # At older revisions objects looked different. Their watchers have to list again, as when upstream's cache starts.
        self.oldest = state.definition.since
        # An object that a webhook converts may have other fields than the stored one.
        self.sifts = bool(defined.selectable) and not self.stores and not converter.total
        self.unindexed = bool(defined.selectable) and (self.sifts or not state.clean)
        # Even in the storage version there may be older objects, stored in another, which a webhook has to convert.
        self.streams = self.native or converter.total
        if not self.streams:
            self.converting = FairSemaphore(CONVERTED_AT_ONCE)
        self.answered = None if converter.total else partial(state.merging.answered, defined.name)
        self.identity = (*self.identity, state.definition.uid, state.definition.generation)
        self.deprecation = Deprecation(defined.warning) if defined.warning else None
        self.columns = self.printer = Printer(defined.columns)
        self.go_type, self.go_list_type = "*unstructured.Unstructured", "*unstructured.UnstructuredList"
        self._list_head = f'{{"apiVersion":"{self.api_version}","items":['.encode()
        self._list_tail = f'],"kind":"{self.list_kind}","metadata":'.encode()
        self.list_meta = {"continue": ""}
        self._item_prefix = 1
        self.loaded = False  # whether the schemas that requests need are loaded
        state.made[defined.name] = self
        if defined.served:
            state.versions[defined.name] = self

    def type_of(self, api_version: str) -> TypeDesc:
        """Return the type of that version. If the definition lacks it, returns a type without fields."""
        return self.state.type_of(api_version)

    def list_frame(self, meta: dict[str, Any]) -> tuple[bytes, bytes]:
        """Return the JSON around the items; keys are sorted, as in everything without a Go type."""
        return self._list_head, b"".join((self._list_tail, orjson.dumps(meta, option=orjson.OPT_SORT_KEYS), b"}\n"))

    def resetting(self, subresource: str) -> frozenset[str]:
        """Return, for the status, all versions that have it as a subresource."""
        if not subresource:
            return super().resetting(subresource)
        return frozenset(f"{self.group}/{v.name}" for v in self.state.definition.versions if v.status)

    def load(self) -> None:
        """Load the schemas that requests need. May be called in a thread. Raises 404 if the definition is gone."""
        for resource in (self.record, self.registry.resource):
            resource.type.fields  # noqa: B018 (asking makes them)
        self.schema = self.merge_schema()
        customtypes.bound_defaults(self.type, {}, b"")
        self.costly = traits.is_costly(self.type.schema)
        self.printer.costly  # noqa: B018 (asking reads their paths)
        self.loaded = True

    # --- records, when they are read

    def convert(self, records: Sequence[Shown], revisions: Sequence[int] | None = None) -> Sequence[Shown] | Awaitable[Sequence[Shown]]:
        """Return stored records in this version, pruned, defaulted and converted under the current definition.

        Records that were written under it in this version are returned unchanged.
        """
        if self.native or not records:
            return records
        self.state.requested = True
        if not self.converter.total and sum(len(rec.json) for rec in records) >= LARGE:
            return self._convert_in_pool(records, revisions)
        places, objects = self._read(records, revisions)
        if not places:
            return records
        found = self._to_this_version(objects)
        if isinstance(found, list):
            return _filled(self.type, records, places, found, revisions)
        return self._fill_when_converted(found, records, places, revisions)

    def _read(self, records: Sequence[Shown], revisions: Sequence[int] | None) -> tuple[list[int], list[Obj]]:
        """Return the places of the records that have to be converted, and their objects pruned and defaulted."""
        since, places, objects = self.state.definition.since, list[int](), list[Obj]()
        for i, rec in enumerate(records):
            if self.stores and isinstance(rec, Record) and rec.revision > since:
                continue
            written = self._as_written(rec.key, rec.revision) if isinstance(rec, Record) else None
            obj = self.state.read(written or object_of(rec))
            if revisions is not None:
                obj["metadata"]["resourceVersion"] = str(revisions[i])
            places.append(i)
            objects.append(obj)
        return places, objects

    def _as_written(self, key: str, revision: int) -> Obj | None:
        """Return the object as stored, if a previous definition filled in defaults when the cached record was first read, otherwise None.
        """
        if revision > self.state.definition.since:
            return None
        value = self.registry.store.bare(key, revision)
        if value is None:
            return None
        obj: Obj = orjson.loads(value)
        obj["metadata"]["resourceVersion"] = str(revision)
        return obj

    async def _convert_in_pool(self, records: Sequence[Shown], revisions: Sequence[int] | None) -> Sequence[Shown]:
        """Like ``convert``, for large records and a converter that may wait."""
        places, objects = await POOL.run(self._read, records, revisions)
        if not places:
            return records
        return _filled(self.type, records, places, await awaited(self._to_this_version(objects)), revisions)

    async def _fill_when_converted(
        self, pending: Awaitable[list[Obj]], records: Sequence[Shown], places: Sequence[int], revisions: Sequence[int] | None
    ) -> Sequence[Shown]:
        return _filled(self.type, records, places, await pending, revisions)

    def _to_this_version(self, objects: list[Obj]) -> list[Obj] | Awaitable[list[Obj]]:
        """Return objects of any versions in this version."""
        if all(obj["apiVersion"] == self.api_version for obj in objects):
            return objects
        found = self.converter.convert(objects, self.own)
        return _pruned(self.type, found) if isinstance(found, list) else _prune_when_converted(self.type, found)

    # --- objects, during a write

    async def from_storage(self, obj: Obj, large: bool = False) -> Obj:
        """Return a stored object in this version, pruned and defaulted under the current definition.

        If it is stored in this version, the same object is returned, modified in place if necessary. ``large`` has no effect here:
        objects that are read together are converted together.
        """
        if self.native or (self.stores and int(obj["metadata"].get("resourceVersion") or 0) > self.state.definition.since):
            return obj
        meta = obj["metadata"]
        key = self.registry.key(meta.get("namespace", ""), meta["name"])
        written = self._as_written(key, int(meta.get("resourceVersion") or 0))
        found = self._to_this_version([self.state.read(written or obj)])
        return (found if isinstance(found, list) else await found)[0]

    async def to_storage(self, obj: Obj, large: bool = False) -> Obj:
        """Return an object of this version in the storage version.

        Fields that admission or a Scale set and that the schema does not know are pruned here, unless the store prunes when it reads.
        """
        if self.stores:
            if not self.registry.store.fills:
                customtypes.decode(self.type, obj)
            return obj
        found = self.converter.convert([obj], self.stored)
        type_ = self.registry.type
        return (_pruned(type_, found) if isinstance(found, list) else await _prune_when_converted(type_, found))[0]

    # --- server-side apply

    def merge_schema(self) -> Schema:
        """Return the merge schema of the version."""
        return self.state.merging.of(self.version)


def _filled(
    type_: TypeDesc, records: Sequence[Shown], places: Sequence[int], objects: list[Obj], revisions: Sequence[int] | None
) -> list[Shown]:
    """Return the records with the objects at their places, with these revisions or else their own."""
    out = list(records)
    for i, obj in zip(places, objects, strict=True):
        out[i] = Decoded(type_, obj, records[i].revision if revisions is None else revisions[i])
    return out


def _pruned(type_: TypeDesc, objects: list[Obj]) -> list[Obj]:
    """Return converted objects pruned by the schema of their version."""
    out = []
    for obj in objects:
        own = copied(obj)  # conversions may share parts
        customtypes.decode(type_, own)
        drop_nulls(type_, own)
        out.append(own)
    return out


async def _prune_when_converted(type_: TypeDesc, pending: Awaitable[list[Obj]]) -> list[Obj]:
    found = await pending
    return await step(is_large(found), _pruned, type_, found)


def copied(obj: Any) -> Any:
    """Copy a JSON value; the copy shares no map and no list with it."""
    if isinstance(obj, dict):
        return {k: copied(v) for k, v in obj.items()}
    return [copied(v) for v in obj] if isinstance(obj, list) else obj
