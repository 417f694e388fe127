"""A resource in one version it is served in: how stored records become answers of that version."""

from __future__ import annotations

from typing import Any

import orjson

from kas.api import deprecated
from kas.api.scheme import SCHEME, encode_json, encode_protobuf, transcode_json_to_protobuf
from kas.registry import pipeline
from kas.registry.generic import Registry

_PARTIAL = SCHEME.known("meta.k8s.io", "v1", "PartialObjectMetadata").type


class Served:
    """``record`` is the Resource record of the served version; ``registry`` is shared by all versions of the kind.

    ``native``: stored bytes are served as they are. Otherwise objects are converted on the way out (cold).
    """

    def __init__(self, record, registry: Registry) -> None:
        self.record, self.registry = record, registry
        self.group, self.version, self.resource, self.kind = record.group, record.version, record.resource, record.kind
        self.api_version = f"{record.group}/{record.version}" if record.group else record.version
        self.type = record.type
        self.deprecation = deprecated.WARNINGS.get((record.group, record.version, record.kind), "")
        self.kind_record = SCHEME.known(record.group, record.version, record.kind)
        self.schema: Any = None  # merge schema of server-side apply, made on first use
        self.reset_sets: dict[str, dict[str, Any]] = {}
        self.unowned: dict[str, dict[str, Any]] = {}  # of each, what a create through it leaves to nobody
        storage = record.storage_gvk
        self.storage_gvk = storage
        self.native = tuple(storage) == (record.group, record.version, record.kind)
        self.list_kind = record.list_kind
        kind = SCHEME.kind(record.group, record.version, record.list_kind)
        self.list_type = kind.type if kind is not None else None
        self.list_head = f'{{"kind":"{self.list_kind}","apiVersion":"{self.api_version}","metadata":'.encode()
        self._item_prefix = len(f'{{"kind":"{record.kind}","apiVersion":"{self.api_version}",')

    def json(self, rec) -> bytes:
        """The object as this version's canonical JSON."""
        return rec.json if self.native else encode_json(self.type, self.to_served(orjson.loads(rec.json)))

    def protobuf(self, rec) -> bytes:
        """The object as this version's protobuf message, without envelope."""
        stored = rec.protobuf if self.native else None
        return stored if stored is not None else transcode_json_to_protobuf(self.type, self.json(rec))

    def partial_protobuf(self, rec, revision: int) -> bytes:
        """The object's PartialObjectMetadata at a revision as a message, without envelope. Both versions of it are alike."""
        stored = rec.partial_protobuf_at(revision) if self.native else None
        if stored is not None:
            return stored
        meta = self.object(rec)["metadata"]
        meta["resourceVersion"] = str(revision)
        return encode_protobuf(_PARTIAL, {"metadata": meta})

    def item(self, rec) -> bytes:
        """The object as it stands in a list: without kind and apiVersion."""
        body = self.json(rec)
        return b"{" + body[self._item_prefix :]

    def object(self, rec) -> dict[str, Any]:
        """The object as a dict of this version."""
        obj = orjson.loads(rec.json)
        return obj if self.native else self.to_served(obj)

    def to_served(self, obj: dict[str, Any]) -> dict[str, Any]:
        """An object of the storage version in this one."""
        return obj if self.native else pipeline.from_storage(self, obj)

    def to_storage(self, obj: dict[str, Any]) -> dict[str, Any]:
        """An object of this version as it is stored, with the storage version's defaults."""
        return obj if self.native else pipeline.to_storage(self, obj)
