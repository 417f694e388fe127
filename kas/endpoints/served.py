"""A resource in one served version, and how its records are encoded in that version."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import TYPE_CHECKING, Any

import orjson

from kas.endpoints import deprecation, respond
from kas.meta.fairqueue import FairSemaphore
from kas.meta.offload import LARGE, LARGE_YAML
from kas.patch.fieldmanager import Answers, Schema, builtin
from kas.registry.generic import Registry
from kas.registry.versions import BUILT_IN, Converter, Shown, Version
from kas.request.http import Request
from kas.types.scheme import Resource, TypeDesc, builtin_kind, encode_protobuf, transcode_json_to_protobuf

if TYPE_CHECKING:  # needed for custom resources only
    from kas.apiextensions.columns import Printer

CONVERTED_AT_ONCE = 4  # concurrent lists
# The conversion result can grow with the square of the input: a definition of so many bytes may have some 40 versions, whose names take
# half of it, and a schema in the other half that each version repeats, 90 kB in all.
GROWN = 4 << 10
_PARTIAL = builtin_kind("meta.k8s.io", "v1", "PartialObjectMetadata").type


def go_types(record: Resource) -> tuple[str, str]:
    """Return the Go types of an object and of a list, as error messages name them."""
    package = record.group.split(".")[0] or "core"
    return f"*{package}.{record.kind}", f"*{package}.{record.list_kind}"


class Served(Version):
    """A resource in one served version.

    ``record`` is the Resource record of the version; ``registry`` is shared by all versions of the kind. If ``native`` is true, stored
    bytes are served unchanged. Otherwise records are converted when they are read (``convert``), and the encoding methods expect
    converted ones.
    """

    costly = False  # whether writes run in the thread pool whatever their size

    def __init__(self, record: Resource, registry: Registry, converter: Converter = BUILT_IN) -> None:
        super().__init__(record, converter)
        self.registry = registry
        self.group, self.version, self.resource, self.kind = record.group, record.version, record.resource, record.kind
        self.api_version = f"{record.group}/{record.version}" if record.group else record.version
        self.oldest = 0  # the oldest revision to watch from, subject to compaction
        self.unindexed = False  # whether stored objects may lack fields that they can be selected by
        # A limit per resource: lists that wait for one conversion webhook do not block the lists of others.
        self.converting = None if self.streams else FairSemaphore(CONVERTED_AT_ONCE)
        self.deprecation = deprecation.of_kind(record.group, record.version, record.kind)
        self.kind_record = record.kind_record
        self.schema: Any = None  # merge schema of server-side apply, built on first use
        # The merge schema for a write whose conversions are answered already, for versions whose conversion waits.
        self.answered: Callable[[Answers], Schema] | None = None
        self.reset_sets: dict[str, Any] = {}  # see endpoints/managedfields.py
        self.unowned: dict[str, dict[str, Any]] = {}  # by subresource: what a create through it leaves without a field manager
        # Key prefix of the cached frames of its events.
        self.identity: tuple[Any, ...] = (record.group, record.version, record.resource)
        self.columns: Printer | None = None  # of a custom resource
        self.plain = respond.plain_gets(registry.root, record.namespaced)
        self.go_type, self.go_list_type = go_types(record)
        self.list_kind = record.list_kind or ""
        self.list_meta: dict[str, Any] = {}  # fields that the ListMeta of every list has
        self.list_type = record.list_type
        self._list_head = f'{{"kind":"{self.list_kind}","apiVersion":"{self.api_version}","metadata":'.encode()
        self._item_prefix = len(f'{{"kind":"{record.kind}","apiVersion":"{self.api_version}",')

    @property
    def subresources(self) -> Container[str]:
        """The names of its subresources."""
        found: Container[str] = self.record.subresources
        return found

    @property
    def converts_from(self) -> int:  # type: ignore[override]
        """The number of bytes from which a conversion counts as large: fewer if its result can grow with the number of parts."""
        return GROWN if not self.native and self.registry.strategy.grows else LARGE

    def type_of(self, api_version: str) -> TypeDesc:
        """Return the type to decode objects with that declare this version of the group."""
        return self.type

    def large(self, req: Request) -> bool:
        """Return whether a write is processed in the thread pool."""
        return self.costly or ((len(req.body) >= LARGE_YAML or respond.STAR in req.body) and respond.large(req))

    def merge_schema(self) -> Schema:
        """Return the merge schema of server-side apply."""
        return builtin(self.group, self.version, self.kind)

    def list_frame(self, meta: dict[str, Any]) -> tuple[bytes, bytes]:
        """Return the JSON before and after the items of a list with this metadata."""
        return b"".join((self._list_head, orjson.dumps(meta), b',"items":[')), b"]}\n"

    def resetting(self, subresource: str) -> frozenset[str]:
        """Return the apiVersions to which the reset fields of this endpoint apply."""
        return frozenset((self.api_version,))

    def protobuf(self, rec: Shown) -> bytes:
        """Return the object as a protobuf message of this version, without envelope."""
        stored = rec.protobuf
        return stored if stored is not None else transcode_json_to_protobuf(self.type, rec.json)

    def protobuf_at(self, rec: Shown, revision: int) -> bytes:
        """Return ``protobuf`` with another resourceVersion."""
        stored = rec.protobuf_at(revision)
        return stored if stored is not None else transcode_json_to_protobuf(self.type, rec.json_at(revision))

    def partial_protobuf(self, rec: Shown, revision: int) -> bytes:
        """Return the object's PartialObjectMetadata at a revision as a message, without envelope. It is the same in v1 and v1beta1."""
        stored = rec.partial_protobuf_at(revision)
        if stored is not None:
            return stored
        return encode_protobuf(_PARTIAL, {"metadata": {**self.object(rec)["metadata"], "resourceVersion": str(revision)}})

    def item(self, rec: Shown) -> bytes:
        """Return the object as an item of a list: without kind and apiVersion."""
        return b"{" + rec.json[self._item_prefix :]
