"""A custom resource in one of its versions: stored bytes as they are, where they are what today's schema makes of them."""

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
    """The types of all versions of a definition by name, made when they are first asked for."""

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
    """What the versions of one definition share, and what changes while they are served. ``clean`` says that every stored object was
    written under today's spec, in its storage version: there is nothing to prune, to fill in or to convert. ``types`` are those of all
    versions, ``merging`` their merge schemas.

    A version is made (``make``) when it is first asked for: a definition has room for thousands."""

    def __init__(
        self, definition: Definition, types: Mapping[str, TypeDesc], clean: bool, merging: MergeSchemas,
        make: Callable[[State, DefinedVersion], CustomServed] | None = None,
    ) -> None:  # fmt: skip
        self.definition, self.types, self.clean, self.merging, self._make = definition, types, clean, merging, make
        self.asked = False  # for objects, while that was not known
        self.versions: dict[str, CustomServed] = {}  # those that are served, and were asked for
        self.made: dict[str, CustomServed] = {}  # and the others
        self._defined = {v.name: v for v in definition.versions}
        self._family: Family | None = None

    def find(self, version: str) -> CustomServed | None:
        """The version, None when it is not served."""
        found = self.versions.get(version)
        if found is None and (defined := self._defined.get(version)) is not None and defined.served:
            return self.one(version)
        return found

    def one(self, version: str) -> CustomServed | None:
        """The version, served or not, None when there is none."""
        found = self.made.get(version)
        if found is None and self._make is not None and (defined := self._defined.get(version)) is not None:
            return self._make(self, defined)
        return found

    @property
    def family(self) -> Family:
        """All versions, none of which is made before more is asked of it than ``Offered`` knows."""
        if self._family is None:
            found = Family(Offered(self, v) for v in self.definition.versions)
            if self._make is None:  # it is served no more, and leads to nothing
                return found
            self._family = found
        return self._family

    def became_clean(self) -> None:
        """From now on stored bytes are served."""
        self.clean = True
        for served in self.versions.values():
            served.native = served.stores
            served.streams = served.native or served.converter.total
            served.unindexed = served.sifts

    def retire(self) -> None:
        """Nothing here leads back to itself any more, so that it goes with the last request that uses it: a collection of cyclic
        garbage is rare."""
        self.versions, self.made, self._make, self._family = {}, {}, None, None
        self.merging.forget()

    def type_of(self, api_version: str) -> TypeDesc:
        """The type of objects that say they are of that version; one that knows no fields when the definition has none."""
        return self.types.get(api_version.rpartition("/")[2], _NOTHING)

    def read(self, obj: Obj) -> Obj:
        """A stored object as today's definition has it, in place: pruned and defaulted by the schema of the version it is stored in."""
        type_ = self.types.get(obj["apiVersion"].rpartition("/")[2])
        if type_ is not None:
            customtypes.decode(type_, obj, stored=True)
            customtypes.default(type_, obj)
        return obj


class Offered:
    """A version as rules ask for it: made when it is to be used."""

    __slots__ = ("_defined", "_state", "group", "kind", "resource", "version")

    def __init__(self, state: State, defined: DefinedVersion) -> None:
        d = state.definition
        self._state, self._defined = state, defined
        self.group, self.version, self.resource, self.kind = d.group, defined.name, d.names["plural"], d.names["kind"]

    @property
    def subresources(self) -> Container[str]:
        """The names of those it has."""
        v = self._defined
        return tuple(name for name, there in (("status", v.status), ("scale", v.scale is not None)) if there)

    @property
    def _made(self) -> CustomServed:
        made = self._state.one(self.version)
        assert made is not None  # who asks has just been given this
        return made

    @property
    def record(self) -> Resource:
        """That of the version."""
        return self._made.record

    @property
    def converter(self) -> Converter:
        """What makes objects of the version another's."""
        return self._made.converter


class CustomServed(Served):
    """``defined`` is the version. Writes are validated in it (``own_strategy``) and then converted to the storage version."""

    own_strategy = True

    def __init__(self, record: Resource, registry: Registry, converter: Converter, state: State, defined: DefinedVersion) -> None:
        super().__init__(record, registry, converter)
        self.state, self.defined = state, defined
        self.stores = self.own == self.stored
        self.native = self.stores and state.clean
        # Before that objects looked otherwise: who watched them lists them anew, as where upstream's cache begins.
        self.oldest = state.definition.since
        # What a webhook converts has fields of its own.
        self.sifts = bool(defined.selectable) and not self.stores and not converter.total
        self.unindexed = bool(defined.selectable) and (self.sifts or not state.clean)
        # In the version in which objects are stored there may be older ones, too, which a webhook has to convert.
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
        self.loaded = False  # whether the schemas that requests need have been read
        state.made[defined.name] = self
        if defined.served:
            state.versions[defined.name] = self

    def type_of(self, api_version: str) -> TypeDesc:
        """That of the version; one that knows no fields when the definition has none."""
        return self.state.type_of(api_version)

    def list_frame(self, meta: dict[str, Any]) -> tuple[bytes, bytes]:
        """Keys in order, as of everything that has no Go type."""
        return self._list_head, b"".join((self._list_tail, orjson.dumps(meta, option=orjson.OPT_SORT_KEYS), b"}\n"))

    def resetting(self, subresource: str) -> frozenset[str]:
        """Of the status all versions that have it as a subresource."""
        if not subresource:
            return super().resetting(subresource)
        return frozenset(f"{self.group}/{v.name}" for v in self.state.definition.versions if v.status)

    def load(self) -> None:
        """Reads the schemas that requests need. Raises 404 when the definition is gone. May be called beside the loop."""
        for resource in (self.record, self.registry.resource):
            resource.type.fields  # noqa: B018 (asking makes them)
        self.schema = self.merge_schema()
        customtypes.bound_defaults(self.type, {}, b"")
        self.costly = traits.is_costly(self.type.schema)
        self.printer.costly  # noqa: B018 (asking reads their paths)
        self.loaded = True

    # --- records, on their way out

    def convert(self, records: Sequence[Shown], revisions: Sequence[int] | None = None) -> Sequence[Shown] | Awaitable[Sequence[Shown]]:
        """Stored records in this version, as today's definition has them: pruned, with defaults, converted. What was written under it in
        this version stays as it is."""
        if self.native or not records:
            return records
        self.state.asked = True
        if not self.converter.total and sum(len(rec.json) for rec in records) >= LARGE:
            return self._read_aside(records, revisions)
        places, objects = self._read(records, revisions)
        if not places:
            return records
        found = self._here(objects)
        if isinstance(found, list):
            return _filled(self.type, records, places, found, revisions)
        return self._later(found, records, places, revisions)

    def _read(self, records: Sequence[Shown], revisions: Sequence[int] | None) -> tuple[list[int], list[Obj]]:
        """Which of the records are not yet as this version shows them, and their objects as today's definition has them."""
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
        """What was stored, where another definition than today's filled it in when it was read first; None where it is what was read."""
        if revision > self.state.definition.since:
            return None
        value = self.registry.store.bare(key, revision)
        if value is None:
            return None
        obj: Obj = orjson.loads(value)
        obj["metadata"]["resourceVersion"] = str(revision)
        return obj

    async def _read_aside(self, records: Sequence[Shown], revisions: Sequence[int] | None) -> Sequence[Shown]:
        """``convert`` of what is large where the converter may wait."""
        places, objects = await POOL.run(self._read, records, revisions)
        if not places:
            return records
        return _filled(self.type, records, places, await awaited(self._here(objects)), revisions)

    async def _later(
        self, pending: Awaitable[list[Obj]], records: Sequence[Shown], places: Sequence[int], revisions: Sequence[int] | None
    ) -> Sequence[Shown]:
        return _filled(self.type, records, places, await pending, revisions)

    def _here(self, objects: list[Obj]) -> list[Obj] | Awaitable[list[Obj]]:
        """Objects of any versions in this one."""
        if all(obj["apiVersion"] == self.api_version for obj in objects):
            return objects
        found = self.converter.convert(objects, self.own)
        return _pruned(self.type, found) if isinstance(found, list) else _pruned_later(self.type, found)

    # --- objects, on the way through a write

    async def from_storage(self, obj: Obj, large: bool = False) -> Obj:
        """A stored object in this version, as today's definition has it; the same one, changed in place where need be, if it is stored in
        this version. It is read here, ``large`` or not: what is read together is converted together."""
        if self.native or (self.stores and int(obj["metadata"].get("resourceVersion") or 0) > self.state.definition.since):
            return obj
        meta = obj["metadata"]
        key = self.registry.key(meta.get("namespace", ""), meta["name"])
        written = self._as_written(key, int(meta.get("resourceVersion") or 0))
        found = self._here([self.state.read(written or obj)])
        return (found if isinstance(found, list) else await found)[0]

    async def to_storage(self, obj: Obj, large: bool = False) -> Obj:
        """An object of this version in the stored one. What admission, or a Scale, left in it that the schema does not know is gone, unless
        reading does that."""
        if self.stores:
            if not self.registry.store.fills:
                customtypes.decode(self.type, obj)
            return obj
        found = self.converter.convert([obj], self.stored)
        type_ = self.registry.type
        return (_pruned(type_, found) if isinstance(found, list) else await _pruned_later(type_, found))[0]

    # --- what kinds have

    def merge_schema(self) -> Schema:
        """From the version's schema."""
        return self.state.merging.of(self.version)


def _filled(
    type_: TypeDesc, records: Sequence[Shown], places: Sequence[int], objects: list[Obj], revisions: Sequence[int] | None
) -> list[Shown]:
    """The records with the objects at their places, under these revisions or their own."""
    out = list(records)
    for i, obj in zip(places, objects, strict=True):
        out[i] = Decoded(type_, obj, records[i].revision if revisions is None else revisions[i])
    return out


def _pruned(type_: TypeDesc, objects: list[Obj]) -> list[Obj]:
    """Converted objects without what their version's schema does not know."""
    out = []
    for obj in objects:
        own = copied(obj)  # conversions may share parts
        customtypes.decode(type_, own)
        drop_nulls(type_, own)
        out.append(own)
    return out


async def _pruned_later(type_: TypeDesc, pending: Awaitable[list[Obj]]) -> list[Obj]:
    found = await pending
    return await step(is_large(found), _pruned, type_, found)


def copied(obj: Any) -> Any:
    """A copy of JSON that shares no map and no list with it."""
    if isinstance(obj, dict):
        return {k: copied(v) for k, v in obj.items()}
    return [copied(v) for v in obj] if isinstance(obj, list) else obj
