"""The audit event of one request: audit.k8s.io/v1 Event, with one entry for each recorded stage.

``pkg/apis/audit/types.go`` and ``apiserver/pkg/audit/request.go``. An ``Event`` is attached to the request (``req.audit``) while it is
served; the endpoints pass it what they decoded. ``entry(stage)`` returns what is known at that stage, ready for the backends.
"""

from __future__ import annotations

from typing import Any

import orjson

from kas._fastpath import RequestInfo
from kas.audit._engine import Entry, Record, source_ips
from kas.meta import gojson
from kas.meta.duration import format_ns
from kas.meta.largejson import write_nested
from kas.observe import latencies
from kas.types.scheme import EncodeError, TypeDesc, encode_json

__all__ = [
    "COMPLETE", "METADATA", "PANIC", "RECEIVED", "REQUEST", "REQUEST_RESPONSE", "STARTED", "Entry", "Event", "source_ips",
    "without_managed_fields",
]  # fmt: skip

Obj = dict[str, Any]

API_VERSION = "audit.k8s.io/v1"
RECEIVED, STARTED, COMPLETE, PANIC = "RequestReceived", "ResponseStarted", "ResponseComplete", "Panic"
METADATA, REQUEST, REQUEST_RESPONSE = "Metadata", "Request", "RequestResponse"


class Event(Record):
    """An audited request: adds what depends on the kind of request to ``Record``.

    ``level`` is one of ``METADATA``, ``REQUEST`` and ``REQUEST_RESPONSE``. ``handed_on``: another server answers, and its response is not
    recorded. ``panicked`` names the exception of a server bug, "" for none.
    """

    __slots__ = ()

    def decoded(self, type_: TypeDesc, kind: str, api_version: str, obj: Obj) -> None:
        """Record the decoded and defaulted request body. Completes the object reference with names that the URL did not contain."""
        if self.req.info.is_resource_request:
            meta = obj.get("metadata") or {}
            named = {key: meta[key] for key in ("namespace", "name", "uid", "resourceVersion") if meta.get(key)}
            if named:
                ref = {**named, **(self.ref or _object_reference(self.req.info))}
                self.ref = {key: ref[key] for key in _REFERENCE if key in ref}
        if self.level != METADATA:
            if self.omit_managed_fields and (obj.get("metadata") or {}).get("managedFields"):
                obj = {**obj, "metadata": {k: v for k, v in obj["metadata"].items() if k != "managedFields"}}
            # Options are decoded into the internal version, which upstream records.
            shown = "meta.k8s.io/__internal" if api_version.startswith("meta.k8s.io/") else api_version
            self.request_object = encode_json(type_, {**obj, "kind": kind, "apiVersion": shown})

    def patched(self, body: bytes) -> None:
        """Record a patch as it was sent. YAML, which only apply accepts, becomes JSON; a patch that is neither is not recorded."""
        if self.level != METADATA:
            try:
                self.request_object = _nested(gojson.loads(body))
            except gojson.JSONError:
                self.request_object = _yaml_as_json(body)

    def answered(self, code: int, answer: bytes | None) -> None:
        """Record the response; ``answer`` is its body as JSON if that is an API object, else None."""
        self.code, self.response_status = code, None
        if answer is None:
            return
        if answer.startswith(b'{"kind":"Status"'):
            fields = orjson.loads(answer)
            self.response_status = {"metadata": {}, **{k: fields[k] for k in ("status", "message", "reason", "details") if k in fields}}
        if self.level == REQUEST_RESPONSE:
            self.response_object = without_managed_fields(answer) if self.omit_managed_fields else answer.rstrip(b"\n")

    def broke(self) -> None:
        """Record a server bug, ``panicked``. The exception's text may contain anything, and only goes to the server's log."""
        message = f"APIServer panic'd: {self.panicked}"
        self.code, self.response_status = 500, {"metadata": {}, "status": "Failure", "message": message, "reason": "InternalError"}

    def ended(self) -> None:
        """Add latency annotations to a slow request when its response is finished (``writeLatencyToAnnotation``). Watches are excluded:
        they take as long as the client wants."""
        req, total = self.req, self.slow()
        if not total or req.info.verb == "watch":
            return
        if req.ticket is not None and req.ticket.began:
            self.took[latencies.QUEUE] = req.ticket.began - req.ticket.arrived
        for what, seconds in (*self.took.items(), (latencies.TOTAL, total)):
            if seconds > 0:
                req.annotate(latencies.PREFIX + what, format_ns(int(seconds * 1e9)))


# The fields of an ObjectReference in Go's order; empty ones are omitted.
_REFERENCE = ("resource", "namespace", "name", "uid", "apiGroup", "apiVersion", "resourceVersion", "subresource")


def _object_reference(info: RequestInfo) -> dict[str, str]:
    """Return the object reference that follows from the request line."""
    fields = {
        "resource": info.resource, "namespace": info.namespace, "name": info.name, "apiGroup": info.api_group,
        "apiVersion": info.api_version, "subresource": info.subresource,
    }  # fmt: skip
    return {key: value for key, value in fields.items() if value}


def without_managed_fields(answer: bytes) -> bytes:
    """Return the JSON of an object, of a list's items or a Table's rows, without managedFields."""
    if b'"managedFields"' not in answer:
        return answer.rstrip(b"\n")
    value = orjson.loads(answer)
    rows = [row.get("object") for row in value.get("rows") or () if isinstance(row, dict)]
    for obj in (value, *(value.get("items") or ()), *rows):
        meta = obj.get("metadata") if isinstance(obj, dict) else None
        if isinstance(meta, dict):
            meta.pop("managedFields", None)
    return write_nested(value)


def _nested(patch: Any) -> bytes | None:
    try:
        return write_nested(patch)
    except EncodeError:  # which is refused for its depth
        return None


def _yaml_as_json(body: bytes) -> bytes | None:
    from kas.types import yaml_codec  # PyYAML is large and few clients send YAML

    try:
        return _nested(yaml_codec.decode(body)[0])
    except yaml_codec.YAMLError:
        return None
