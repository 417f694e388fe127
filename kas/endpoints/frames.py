"""Frames of a watch: one event in one encoding. Records are already in the version of the request."""

from __future__ import annotations

import time
from typing import Any

from kas._codecs import varint
from kas.endpoints import respond
from kas.endpoints.served import Served
from kas.meta.errors import ApiError
from kas.registry import printing as printers
from kas.registry.versions import Shown
from kas.request.negotiation import PROTOBUF
from kas.store import Record, frame_record
from kas.types.scheme import builtin_kind, encode_json, encode_protobuf, envelope

ADDED, MODIFIED, DELETED, BOOKMARK, ERROR = "ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"
_STATUS = builtin_kind("", "v1", "Status").type
_EVENT = {k: b"\x0a" + bytes((len(k),)) + k.encode() for k in (ADDED, MODIFIED, DELETED, BOOKMARK, ERROR)}


def wrap_json(kind: str, body: bytes) -> bytes:
    """Return a watch event of type ``kind`` around an object in JSON, with a newline."""
    return b'{"type":"' + kind.encode() + b'","object":' + body + b"}\n"


def wrap_protobuf(kind: str, body: bytes) -> bytes:
    """Return the 4-byte length and a bare WatchEvent {1: type, 2: RawExtension {1: the object in its envelope}}."""
    raw = b"\x0a" + varint(len(body))
    event = _EVENT[kind] + b"\x12" + varint(len(raw) + len(body)) + raw
    return b"".join(((len(event) + len(body)).to_bytes(4, "big"), event, body))


class Encoder:
    """Encodes frames in JSON. ``key`` names the encoding; streams with the same key share frames if ``shared`` is true."""

    shared = True
    protobuf = False
    copies = False  # whether frames copy stored bytes and so cost next to nothing
    costly = False  # whether a frame may be expensive even for a small object

    def __init__(self, served: Served) -> None:
        self._served = served
        self.key = self._where("json")

    def _where(self, *form: object) -> str:
        """Return the key as a string: thousands of streams look up each event's frame by it."""
        return " ".join(map(str, (*self._served.identity, *form, "")))

    def frame(self, kind: str, rec: Shown, revision: int) -> bytes:
        """Return the frame of an event about ``rec``, with ``revision`` as its resourceVersion."""
        return self._wrap(kind, self._body(rec, revision))

    def bookmark(self, revision: int, annotations: dict[str, str] | None) -> bytes:
        """Return a BOOKMARK event for the revision, with these annotations."""
        meta: dict[str, Any] = {"resourceVersion": str(revision)}
        if annotations:
            meta["annotations"] = annotations
        return self._wrap(BOOKMARK, self._object({"metadata": meta}))

    def error(self, e: ApiError) -> bytes:
        """Return an ERROR event with the error's Status."""
        status = e.status()
        if self.protobuf:
            return self._wrap(ERROR, envelope("v1", "Status", encode_protobuf(_STATUS, status)))
        return self._wrap(ERROR, encode_json(_STATUS, status))

    def _wrap(self, kind: str, body: bytes) -> bytes:
        return wrap_protobuf(kind, body) if self.protobuf else wrap_json(kind, body)

    def _body(self, rec: Shown, revision: int) -> bytes:
        return rec.json_at(revision)

    def _object(self, value: dict[str, Any]) -> bytes:
        """Encode an object that has only the fields of ``value``, in this encoding."""
        s = self._served
        return encode_json(s.type, {"kind": s.kind, "apiVersion": s.api_version, **value})


class JsonNative(Encoder):
    """Copies the stored bytes without decoding them."""

    copies = True

    def frame(self, kind: str, rec: Shown, revision: int) -> bytes:
        """Return the frame of a stored record, whose bytes are copied, with ``revision`` as its resourceVersion."""
        assert isinstance(rec, Record)  # the resource is native, so nothing was converted
        return frame_record(kind, rec, revision)


class Protobuf(Encoder):
    """Encodes events with whole objects in protobuf."""

    protobuf = True

    def __init__(self, served: Served) -> None:
        super().__init__(served)
        self.key = self._where("protobuf")

    def _body(self, rec: Shown, revision: int) -> bytes:
        s = self._served
        return envelope(s.api_version, s.kind, s.protobuf_at(rec, revision))

    def _object(self, value: dict[str, Any]) -> bytes:
        s = self._served
        return envelope(s.api_version, s.kind, encode_protobuf(s.type, value))


class Partial(Encoder):
    """Encodes events with PartialObjectMetadata, in JSON or protobuf."""

    def __init__(self, served: Served, version: str, protobuf: bool) -> None:
        super().__init__(served)
        self.version, self.protobuf = version, protobuf
        self.key = self._where("Partial", version, protobuf)

    def _body(self, rec: Shown, revision: int) -> bytes:
        if self.protobuf:
            return envelope(f"meta.k8s.io/{self.version}", respond.PARTIAL, self._served.partial_protobuf(rec, revision))
        return self._object(_at(self._served, rec, revision))

    def _object(self, value: dict[str, Any]) -> bytes:
        whole = respond.partial(value, self.version)
        type_ = builtin_kind("meta.k8s.io", self.version, respond.PARTIAL).type
        if self.protobuf:
            return envelope(whole["apiVersion"], respond.PARTIAL, encode_protobuf(type_, whole))
        return encode_json(type_, whole)


class TableRows(Encoder):
    """Encodes events with one-row Tables. The first frame of a stream has the columns, so each stream needs its own encoder."""

    shared = False

    def __init__(self, served: Served, version: str, include: str) -> None:
        super().__init__(served)
        self.version, self.include = version, include
        self.sent_columns = False
        self.costly = served.columns is not None and served.columns.costly

    def _body(self, rec: Shown, revision: int) -> bytes:
        return self._object(_at(self._served, rec, revision))

    def _object(self, value: dict[str, Any]) -> bytes:
        s = self._served
        t = printers.table(
            (s.group, s.version, s.kind), [value], now=time.time(), include_object=self.include, version=self.version,
            headers=not self.sent_columns, custom_columns=s.columns,
        )  # fmt: skip
        self.sent_columns = True
        return encode_json(builtin_kind("meta.k8s.io", self.version, respond.TABLE).type, t)


def _at(served: Served, rec: Shown, revision: int) -> dict[str, Any]:
    value = served.object(rec)
    return {**value, "metadata": {**value["metadata"], "resourceVersion": str(revision)}}


def encoder_for(served: Served, m: respond.Media, include: str) -> Encoder:
    """Return the encoder for a negotiated media type."""
    protobuf = m.accepted == PROTOBUF
    if m.convert is not None:
        if m.convert.kind == respond.TABLE:
            return TableRows(served, m.convert.version, include)
        return Partial(served, m.convert.version, protobuf)
    if protobuf:
        return Protobuf(served)
    return JsonNative(served) if served.native else Encoder(served)
