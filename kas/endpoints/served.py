"""A resource in one version it is served in: how its records become answers of that version."""

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

if TYPE_CHECKING:  # wanted by custom resources only
    from kas.apiextensions.columns import Printer

CONVERTED_AT_ONCE = 4  # lists
# A definition of so many bytes may have some 40 versions, named in half of them, that share a schema in the other half: 90 kB in all, as
# each shows it. It is the square of the bytes.
GROWN = 4 << 10
_PARTIAL = builtin_kind("meta.k8s.io", "v1", "PartialObjectMetadata").type


def go_types(record: Resource) -> tuple[str, str]:
    """The Go types of an object and of a list, as refusals name them."""
    package = record.group.split(".")[0] or "core"
    return f"*{package}.{record.kind}", f"*{package}.{record.list_kind}"


class Served(Version):
    """``record`` is the Resource record of the served version; ``registry`` is shared by all versions of the kind.

    ``native``: stored bytes are served as they are. Otherwise records are converted on the way out (``convert``); what encodes takes
    records that are in this version already.
    """

    costly = False  # whether what is written is worked on beside the loop however small it is

    def __init__(self, record: Resource, registry: Registry, converter: Converter = BUILT_IN) -> None:
        super().__init__(record, converter)
        self.registry = registry
        self.group, self.version, self.resource, self.kind = record.group, record.version, record.resource, record.kind
        self.api_version = f"{record.group}/{record.version}" if record.group else record.version
        self.oldest = 0  # the revision from which on it can be watched, as long as the history reaches back
        self.unindexed = False  # whether what is stored may be without fields that it can be selected by
        # Lists that wait for a converter keep nobody else's waiting.
        self.converting = None if self.streams else FairSemaphore(CONVERTED_AT_ONCE)
        self.deprecation = deprecation.of_kind(record.group, record.version, record.kind)
        self.kind_record = record.kind_record
        self.schema: Any = None  # merge schema of server-side apply, made on first use
        # The same of a write that has answers, where versions are converted by waiting.
        self.answered: Callable[[Answers], Schema] | None = None
        self.reset_sets: dict[str, Any] = {}  # see endpoints/managedfields.py
        self.unowned: dict[str, dict[str, Any]] = {}  # of each, what a create through it leaves to nobody
        # What frames of its events are kept under.
        self.identity: tuple[Any, ...] = (record.group, record.version, record.resource)
        self.columns: Printer | None = None  # of a custom resource
        self.plain = respond.plain_gets(registry.root, record.namespaced)
        self.go_type, self.go_list_type = go_types(record)
        self.list_kind = record.list_kind or ""
        self.list_meta: dict[str, Any] = {}  # what each list of it says
        self.list_type = record.list_type
        self._list_head = f'{{"kind":"{self.list_kind}","apiVersion":"{self.api_version}","metadata":'.encode()
        self._item_prefix = len(f'{{"kind":"{record.kind}","apiVersion":"{self.api_version}",')

    @property
    def subresources(self) -> Container[str]:
        """The names of those it has."""
        found: Container[str] = self.record.subresources
        return found

    @property
    def converts_from(self) -> int:  # type: ignore[override]
        """What grows by its number of parts may be large from where it has room for enough of them."""
        return GROWN if not self.native and self.registry.strategy.grows else LARGE

    def type_of(self, api_version: str) -> TypeDesc:
        """What objects are read as that say they are of this version of the group."""
        return self.type

    def large(self, req: Request) -> bool:
        """Whether a write is worked on beside the loop."""
        return self.costly or ((len(req.body) >= LARGE_YAML or b"*" in req.body) and respond.large(req))

    def merge_schema(self) -> Schema:
        """The merge schema of server-side apply."""
        return builtin(self.group, self.version, self.kind)

    def list_frame(self, meta: dict[str, Any]) -> tuple[bytes, bytes]:
        """What stands before and behind the items of a list with this metadata, as JSON."""
        return b"".join((self._list_head, orjson.dumps(meta), b',"items":[')), b"]}\n"

    def resetting(self, subresource: str) -> frozenset[str]:
        """The versions of a custom resource whose managers are told what writes through this endpoint reset."""
        return frozenset((self.api_version,))

    def protobuf(self, rec: Shown) -> bytes:
        """The object as this version's protobuf message, without envelope."""
        stored = rec.protobuf
        return stored if stored is not None else transcode_json_to_protobuf(self.type, rec.json)

    def protobuf_at(self, rec: Shown, revision: int) -> bytes:
        """``protobuf``, under another revision."""
        stored = rec.protobuf_at(revision)
        return stored if stored is not None else transcode_json_to_protobuf(self.type, rec.json_at(revision))

    def partial_protobuf(self, rec: Shown, revision: int) -> bytes:
        """The object's PartialObjectMetadata at a revision as a message, without envelope. Both versions of it are alike."""
        stored = rec.partial_protobuf_at(revision)
        if stored is not None:
            return stored
        return encode_protobuf(_PARTIAL, {"metadata": {**self.object(rec)["metadata"], "resourceVersion": str(revision)}})

    def item(self, rec: Shown) -> bytes:
        """The object as it stands in a list: without kind and apiVersion."""
        return b"{" + rec.json[self._item_prefix :]
