"""One resource in one of its versions: how what is stored becomes objects of that version, and how they become what is stored.

Conversion is one step that takes many objects and may wait, because a custom resource's versions are converted by a webhook that is sent
all of them at once. Nothing happens where the version is the stored one: no copy, no decoding, no task. Conversions between built-in
versions return at once.
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
    """Turns objects into another version of their kind. ``total`` promises that every stored object converts, at once: such a list can
    be sent while it is read, others are converted as a whole before their first byte leaves.

    ``convert`` returns the objects in their order, as new dicts (parts may be shared, what it was given stays unchanged), or something to
    be awaited that does. What version they are in they say themselves. Raises ``ApiError`` for what cannot be converted; the whole step
    has failed then.
    """

    total: bool

    def convert(self, objects: Sequence[Obj], target: GVK) -> list[Obj] | Awaitable[list[Obj]]:
        """The objects in the target version, in their order; an awaitable where one has to wait."""


class BuiltIn:
    """The functions of ``kas.types.conversion``."""

    total = True

    def convert(self, objects: Sequence[Obj], target: GVK) -> list[Obj]:
        """The objects in the target version, in their order; at once."""
        return [conversion.convert(obj, _gvk(obj), target) for obj in objects]


def _gvk(obj: Obj) -> GVK:
    group, _, version = obj["apiVersion"].rpartition("/")
    return group, version, obj["kind"]


BUILT_IN = BuiltIn()


class Family(tuple[Any, ...]):
    """What serves the same objects in other versions or groups (``served.Served`` and the like), itself included. There may be thousands:
    what is asked of all of them is found out once."""

    @cached_property
    def groups(self) -> frozenset[str]:
        """Those of its members."""
        return frozenset(served.group for served in self)

    @cached_property
    def by_version(self) -> dict[tuple[str, str], dict[str, tuple[int, Any]]]:
        """(group, resource) -> version -> how many members come before it, and the member."""
        found: dict[tuple[str, str], dict[str, tuple[int, Any]]] = {}
        for place, served in enumerate(self):
            found.setdefault((served.group, served.resource), {})[served.version] = place, served
        return found

    def of(self, group: str, version: str) -> Any | None:
        """The first member of that version, None where there is none."""
        found = [members[version] for (of, _), members in self.by_version.items() if of == group and version in members]
        return min(found, key=itemgetter(0))[1] if found else None


class Shown(Protocol):
    """What is encoded as an answer: a ``Record`` of the store, or a ``Decoded``. The methods show it under another revision; protobuf is
    None where there is nothing to copy."""

    @property
    def revision(self) -> int:
        """The revision at which the object became what it is."""

    @property
    def json(self) -> bytes:
        """The object as JSON, without a line end."""

    @property
    def json_line(self) -> bytes:
        """The object as JSON, with a line end."""

    @property
    def protobuf(self) -> bytes | None:
        """The message without envelope; None where there is nothing to copy."""

    def json_at(self, revision: int) -> bytes:
        """The object as JSON under another resourceVersion, where it can have one."""

    def protobuf_at(self, revision: int) -> bytes | None:
        """The message without envelope under another resourceVersion, where it can have one; None where there is nothing to copy."""

    def partial_protobuf_at(self, revision: int) -> bytes | None:
        """A PartialObjectMetadata cut out of the message; None where there is nothing to copy."""


class Decoded:
    """An object that answers like a ``Record`` though the store has none of these bytes: a record converted to another version, what a
    dry run would have stored, what a delete removed. ``object`` is not to be changed."""

    __slots__ = ("_json", "_revision", "object", "type")

    def __init__(self, type_: TypeDesc, obj: Obj, revision: int, text: bytes | None = None) -> None:
        """``text`` is its JSON, where that is known."""
        self.type, self.object, self._revision, self._json = type_, obj, revision, text

    @property
    def revision(self) -> int:
        """The revision it was made with."""
        return self._revision

    @property
    def json(self) -> bytes:
        """Canonical JSON. Raises EncodeError for what is nested too deep."""
        if self._json is None:
            self._json = encode_json(self.type, self.object)
        return self._json

    @property
    def json_line(self) -> bytes:
        """``json`` with a line end."""
        return self.json + b"\n"

    @property
    def protobuf(self) -> bytes:
        """The message, without envelope."""
        message: bytes = encode_protobuf(self.type, self.object)
        return message

    def json_at(self, revision: int) -> bytes:
        """The object as it was made; it has one revision only."""
        return self.json

    def protobuf_at(self, revision: int) -> bytes:
        """The message as it was made; it has one revision only."""
        return self.protobuf

    def partial_protobuf_at(self, revision: int) -> bytes | None:
        """None: nothing is cut out of what is no bytes yet."""
        return None


class Version:
    """A resource in one version. ``record`` is its Resource record; ``native`` says that it is stored in this version, ``own_strategy``
    that writes are validated in this version, by the strategy of ``record``, and converted afterwards."""

    own_strategy = False
    converts_from = LARGE  # bytes of what is stored, from which on it is converted beside the loop

    def __init__(self, record: Resource, converter: Converter = BUILT_IN) -> None:
        self.record, self.converter = record, converter
        self.own: GVK = (record.group, record.version, record.kind)
        self.stored: GVK = record.storage_gvk or self.own
        self.native = self.stored == self.own
        self.type: TypeDesc = record.type
        # Whether a list can be sent while it is read: no conversion fails or waits.
        self.streams = self.native or converter.total

    # --- records, on their way out

    def convert(self, records: Sequence[Shown], revisions: Sequence[int] | None = None) -> Sequence[Shown] | Awaitable[Sequence[Shown]]:
        """Stored records in this version, ready to be encoded; ``records`` itself where nothing is to be done.

        ``revisions`` says under which revisions they are shown (what was deleted is shown under that of its deletion), otherwise their own.
        To be awaited when the converter waits. Raises what the converter raises.
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
        """Whether they are converted beside the loop."""
        return not self.native and self.streams and sum(len(rec.json) for rec in records) >= self.converts_from

    async def converted(self, records: Sequence[Shown]) -> Sequence[Shown]:
        """``convert``, waited for; what is large is converted and encoded beside the loop."""
        if self.converts_long(records):
            return await POOL.run(self._encoded, records)
        found = self.convert(records)
        return found if isinstance(found, Sequence) else await found

    def _encoded(self, records: Sequence[Shown]) -> Sequence[Shown]:
        """``convert`` where nothing waits, and the JSON made that answers mostly want."""
        found = self.convert(records)
        assert isinstance(found, Sequence)
        for one in found:
            _ = one.json
        return found

    async def converted_one(self, record: Shown) -> Shown:
        """The record as this version shows it."""
        return (await self.converted((record,)))[0]

    @staticmethod
    def object(record: Shown) -> Obj:
        """The object of a record in this version, not to be changed."""
        return record.object if isinstance(record, Decoded) else object_of(record)

    # --- objects, on the way through a write

    async def from_storage(self, obj: Obj, large: bool = False) -> Obj:
        """A stored object in this version; the same one where that is the stored one. What is ``large`` is converted beside the loop."""
        if large and not self.native and self.converter is BUILT_IN:
            return (await POOL.run(BUILT_IN.convert, [obj], self.own))[0]
        return obj if self.native else (await self._converted([obj], self.own))[0]

    async def to_storage(self, obj: Obj, large: bool = False) -> Obj:
        """An object of this version as it is stored, with the storage version's defaults too. What is ``large`` is converted beside the
        loop."""
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
