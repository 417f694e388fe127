"""One resource in one of its versions: conversion of stored objects to that version, and back.

Conversion is a single step for many objects and may wait, because a webhook converts the versions of a custom resource, and
gets all objects at once. If the version is the stored one nothing happens: no copy, no decoding, no task. Conversions between
built-in versions return at once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from functools import cached_property
from operator import itemgetter
from typing import Any, Protocol

from kas._codecs import TypeDesc
from kas.meta.offload import LARGE, POOL
from kas.meta.stored import object_of
from kas.registry.strategy import Obj
from kas.types import conversion
from kas.types.defaults import apply_defaults
from kas.types.scheme import Resource, encode_json, encode_protobuf

GVK = tuple[str, str, str]


class Converter(Protocol):
    """Converts objects to another version of their kind. ``total`` promises that every stored object can be converted,
    without waiting: such a list is sent while it is read; other lists are converted completely before their first byte is
    sent.

    ``convert`` returns the objects in their order, as new dicts (which may share parts with the input; the input stays
    unchanged), or an awaitable of that. The objects name their current version themselves. Raises ``ApiError`` for an object
    that cannot be converted; the whole step has failed then.
    """

    total: bool

    def convert(self, objects: Sequence[Obj], target: GVK) -> list[Obj] | Awaitable[list[Obj]]:
        """Returns the objects in the target version, in their order; an awaitable if the conversion waits."""


class BuiltIn:
    """The functions of ``kas.types.conversion``."""

    total = True

    def convert(self, objects: Sequence[Obj], target: GVK) -> list[Obj]:
        """Returns the objects in the target version, in their order."""
        return [conversion.convert(obj, _gvk(obj), target) for obj in objects]


def _gvk(obj: Obj) -> GVK:
    group, _, version = obj["apiVersion"].rpartition("/")
    return group, version, obj["kind"]


BUILT_IN = BuiltIn()


class Family(tuple[Any, ...]):
    """All that serves the same objects in different versions or groups (``served.Served`` and the like). There may be
    thousands of members: properties of all of them are computed once."""

    @cached_property
    def groups(self) -> frozenset[str]:
        """The groups of the members."""
        return frozenset(served.group for served in self)

    @cached_property
    def by_version(self) -> dict[tuple[str, str], dict[str, tuple[int, Any]]]:
        """(group, resource) -> version -> (position of the member, the member)."""
        found: dict[tuple[str, str], dict[str, tuple[int, Any]]] = {}
        for place, served in enumerate(self):
            found.setdefault((served.group, served.resource), {})[served.version] = place, served
        return found

    def of(self, group: str, version: str) -> Any | None:
        """Returns the first member of that group and version, or None."""
        found = [members[version] for (of, _), members in self.by_version.items() if of == group and version in members]
        return min(found, key=itemgetter(0))[1] if found else None


class Shown(Protocol):
    """An object to be encoded in an answer: a ``Record`` of the store, or a ``Decoded``. The methods return it with another
    revision; protobuf is None if there is no encoded message to copy."""

    @property
    def revision(self) -> int:
        """The revision of the object's last change."""

    @property
    def json(self) -> bytes:
        """The object as JSON, without a newline."""

    @property
    def json_line(self) -> bytes:
        """The object as JSON, with a newline."""

    @property
    def protobuf(self) -> bytes | None:
        """The message without its envelope; None if there is none to copy."""

    def json_at(self, revision: int) -> bytes:
        """Returns the object as JSON with another resourceVersion, if the object supports that."""

    def protobuf_at(self, revision: int) -> bytes | None:
        """Returns the message without its envelope with another resourceVersion, if the object supports that; None if there
        is none to copy."""

    def partial_protobuf_at(self, revision: int) -> bytes | None:
        """Returns a PartialObjectMetadata cut out of the message; None if there is none to copy."""


class Decoded:
    """An object with the interface of a ``Record`` whose bytes are not those in the store: a record converted to another
    version, the result of a dry run, an object that a delete removed. ``object`` must not be changed."""

    __slots__ = ("_json", "_revision", "object", "type")

    def __init__(self, type_: TypeDesc, obj: Obj, revision: int, text: bytes | None = None) -> None:
        """``text`` is its JSON, if known."""
        self.type, self.object, self._revision, self._json = type_, obj, revision, text

    @property
    def revision(self) -> int:
        """The revision it was created with."""
        return self._revision

    @property
    def json(self) -> bytes:
        """Canonical JSON. Raises EncodeError for an object nested too deep."""
        if self._json is None:
            self._json = encode_json(self.type, self.object)
        return self._json

    @property
    def json_line(self) -> bytes:
        """``json`` with a newline."""
        return self.json + b"\n"

    @property
    def protobuf(self) -> bytes:
        """The message, without its envelope."""
        message: bytes = encode_protobuf(self.type, self.object)
        return message

    def json_at(self, revision: int) -> bytes:
        """Returns ``json``; a decoded object has a single revision."""
        return self.json

    def protobuf_at(self, revision: int) -> bytes:
        """Returns ``protobuf``; a decoded object has a single revision."""
        return self.protobuf

    def partial_protobuf_at(self, revision: int) -> bytes | None:
        """Returns None: there is no encoded message to cut from."""
        return None


class Version:
    """A resource in one version. ``record`` is its Resource record; ``native``: this is the stored version; ``own_strategy``:
    writes are validated in this version, by the strategy of ``record``, and converted afterwards."""

    own_strategy = False
    converts_from = LARGE  # bytes of the stored object from which conversion runs in a thread

    def __init__(self, record: Resource, converter: Converter = BUILT_IN) -> None:
        self.record, self.converter = record, converter
        self.own: GVK = (record.group, record.version, record.kind)
        self.stored: GVK = record.storage_gvk or self.own
        self.native = self.stored == self.own
        self.type: TypeDesc = record.type
        # Whether a list can be sent while it is read: conversion neither fails nor waits.
        self.streams = self.native or converter.total

    # --- records to be returned

    def convert(self, records: Sequence[Shown], revisions: Sequence[int] | None = None) -> Sequence[Shown] | Awaitable[Sequence[Shown]]:
        """Returns stored records in this version, ready to be encoded; ``records`` itself if no conversion is needed.

        ``revisions`` are the resourceVersions to return them with (a deleted object has that of its deletion); by default
        their own. Returns an awaitable if the converter waits. Raises the converter's errors.
        """
        if self.native or not records:
            return records
        objects = [object_of(rec) for rec in records]
        if revisions is None:
            revisions = [rec.revision for rec in records]
        else:
            for obj, revision in zip(objects, revisions, strict=True):
                obj["metadata"]["resourceVersion"] = str(revision)
        found = self.converter.convert(objects, self.own)
        return self._decoded(found, revisions) if isinstance(found, list) else self._decoded_later(found, revisions)

    def _decoded(self, objects: list[Obj], revisions: Sequence[int]) -> list[Shown]:
        return [Decoded(self.type, obj, revision) for obj, revision in zip(objects, revisions, strict=True)]

    async def _decoded_later(self, pending: Awaitable[list[Obj]], revisions: Sequence[int]) -> list[Shown]:
        return self._decoded(await pending, revisions)

    def converts_long(self, records: Sequence[Shown]) -> bool:
        """Returns whether the records should be converted in a thread."""
        return not self.native and self.streams and sum(len(rec.json) for rec in records) >= self.converts_from

    async def converted(self, records: Sequence[Shown]) -> Sequence[Shown]:
        """Awaits ``convert``; large records are converted and encoded in a thread."""
        if self.converts_long(records):
            return await POOL.run(self._encoded, records)
        found = self.convert(records)
        return found if isinstance(found, Sequence) else await found

    def _encoded(self, records: Sequence[Shown]) -> Sequence[Shown]:
        """``convert`` for a converter that does not wait; also encodes the JSON, which most answers need."""
        found = self.convert(records)
        assert isinstance(found, Sequence)
        for one in found:
            _ = one.json
        return found

    async def converted_one(self, record: Shown) -> Shown:
        """Returns the record in this version."""
        return (await self.converted((record,)))[0]

    @staticmethod
    def object(record: Shown) -> Obj:
        """Returns the object of a record that is in this version; it must not be changed."""
        return record.object if isinstance(record, Decoded) else object_of(record)

    # --- objects in the course of a write

    async def from_storage(self, obj: Obj, large: bool = False) -> Obj:
        """Returns a stored object in this version; the same dict if that is the stored version. A ``large`` object is
        converted in a thread."""
        if large and not self.native and self.converter is BUILT_IN:
            return (await POOL.run(BUILT_IN.convert, [obj], self.own))[0]
        return obj if self.native else (await self._converted([obj], self.own))[0]

    async def to_storage(self, obj: Obj, large: bool = False) -> Obj:
        """Returns an object of this version in the storage version, with that version's defaults. A ``large`` object is
        converted in a thread."""
        if self.native:
            return obj
        if large and self.converter is BUILT_IN:
            return await POOL.run(self._stored, obj)
        return self._defaulted((await self._converted([obj], self.stored))[0])

    def _stored(self, obj: Obj) -> Obj:
        return self._defaulted(BUILT_IN.convert([obj], self.stored)[0])

    def _defaulted(self, converted: Obj) -> Obj:
        if self.record.storage_kind is not None:
            apply_defaults(self.record.storage_kind, converted)
        return converted

    async def _converted(self, objects: list[Obj], target: GVK) -> list[Obj]:
        found = self.converter.convert(objects, target)
        return found if isinstance(found, list) else await found
