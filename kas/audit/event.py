"""The record of one request: audit.k8s.io/v1 Event, one entry for each stage that is recorded.

``pkg/apis/audit/types.go`` and ``apiserver/pkg/audit/request.go``. An ``Event`` lives on the request (``req.audit``) while it is served;
the endpoints tell it what they decoded. ``entry(stage)`` is what is known at that stage, ready for the backends.
"""

from __future__ import annotations

import ipaddress
import time
from typing import Any

import orjson

from kas.audit.policy import Verdict
from kas.meta import gojson
from kas.meta.duration import format_ns
from kas.meta.scalars import format_micro_time
from kas.observe import latencies
from kas.observe.caches import remembered
from kas.request.http import Request
from kas.request.masking import shown_target
from kas.types.scheme import TypeDesc, encode_json

Obj = dict[str, Any]

API_VERSION = "audit.k8s.io/v1"
RECEIVED, STARTED, COMPLETE, PANIC = "RequestReceived", "ResponseStarted", "ResponseComplete", "Panic"
METADATA, REQUEST, REQUEST_RESPONSE = "Metadata", "Request", "RequestResponse"
MAX_USER_AGENT = 1024
SLOW_S = 0.5
TRUNCATED = "audit.k8s.io/truncated"
CONSTRAINT = "authentication.kubernetes.io/impersonation-constraint"


class Entry:
    """What a backend writes: the event at one stage. ``fields`` are in the order of Go's struct, without kind and apiVersion."""

    __slots__ = ("_text", "fields")

    def __init__(self, fields: Obj) -> None:
        self.fields = fields
        self._text: bytes | None = None

    @property
    def text(self) -> bytes:
        """The event as JSON as Go writes it, as an item of an EventList."""
        if self._text is None:
            self._text = _escaped(orjson.dumps(self.fields))
        return self._text

    @property
    def line(self) -> bytes:
        """A line of the log: the event as an object of its own."""
        return b'{"kind":"Event","apiVersion":"audit.k8s.io/v1",' + self.text[1:] + b"\n"

    def truncated(self) -> Entry:
        """The same without the bodies, and an annotation that says so."""
        fields = {k: v for k, v in self.fields.items() if k not in ("requestObject", "responseObject")}
        fields["annotations"] = dict(sorted({**fields.get("annotations", {}), TRUNCATED: "true"}.items()))
        return Entry(fields)


class Event:
    """A request that is recorded. ``level`` is one of ``METADATA``, ``REQUEST`` and ``REQUEST_RESPONSE``. ``handed_on``: another server
    answers, whose words are not to be found in this log. ``panicked`` names the exception that was a bug, "" for none."""

    __slots__ = ("_omit_managed_fields", "_omitted", "_received", "_ref", "_req", "_user", "handed_on", "level", "panicked",
                 "request_object", "response_object", "response_status", "took")  # fmt: skip

    def __init__(self, req: Request, verdict: Verdict, now: float) -> None:
        self._req, self.level, self._received = req, verdict.level, now
        self._omitted, self._omit_managed_fields = verdict.omit_stages, verdict.omit_managed_fields
        # Impersonation changes the user of the request; the record shows who really asked.
        self._user = req.user
        self._ref = _object_reference(req)
        self.request_object: bytes | None = None
        self.response_object: bytes | None = None
        self.response_status: Obj | None = None
        self.handed_on = False
        self.panicked = ""
        self.took: latencies.Took = {latencies.AUTHENTICATION: req.authenticating}

    def records(self, stage: str) -> bool:
        """Whether the policy wants this stage."""
        return stage not in self._omitted

    def decoded(self, type_: TypeDesc, kind: str, api_version: str, obj: Obj) -> None:
        """What the request's body was decoded to, defaulted. Names in the reference what the URL did not."""
        if self._ref is not None:
            meta = obj.get("metadata") or {}
            named = {key: meta[key] for key in ("namespace", "name", "uid", "resourceVersion") if meta.get(key)}
            if named:
                ref = {**named, **self._ref}  # a new one: an entry that has not been written yet shows what was known then
                self._ref = {key: ref[key] for key in _REFERENCE if key in ref}
        if self.level != METADATA:
            if self._omit_managed_fields and (obj.get("metadata") or {}).get("managedFields"):
                obj = {**obj, "metadata": {k: v for k, v in obj["metadata"].items() if k != "managedFields"}}
            # Options are read into the internal version, and that is what upstream's record says.
            shown = "meta.k8s.io/__internal" if api_version.startswith("meta.k8s.io/") else api_version
            self.request_object = encode_json(type_, {**obj, "kind": kind, "apiVersion": shown})

    def patched(self, body: bytes) -> None:
        """The patch as it came. YAML, which only apply takes, becomes JSON; what is neither leaves no request object."""
        if self.level != METADATA:
            try:
                self.request_object = orjson.dumps(gojson.loads(body))
            except gojson.JSONError:
                self.request_object = _yaml_as_json(body)

    def answered(self, code: int, answer: bytes | None) -> None:
        """The answer: ``answer`` is its body as JSON when that is an object of the API, else None."""
        status: Obj = {"metadata": {}}
        if answer is not None:
            if answer.startswith(b'{"kind":"Status"'):
                told = orjson.loads(answer)
                status.update((k, told[k]) for k in ("status", "message", "reason", "details") if k in told)
            if self.level == REQUEST_RESPONSE:
                self.response_object = without_managed_fields(answer) if self._omit_managed_fields else answer.rstrip(b"\n")
        status["code"] = code
        self.response_status = status

    def broke(self) -> None:
        """There is no answer but that of a bug, ``panicked``. Its text may hold anything, and is for the server's own log."""
        message = f"APIServer panic'd: {self.panicked}"
        self.response_status = {"metadata": {}, "status": "Failure", "message": message, "reason": "InternalError", "code": 500}

    def ended(self) -> None:
        """The answer is over: of a request that took long it is told where its time went (``writeLatencyToAnnotation``)."""
        req = self._req
        total = time.monotonic() - req.started
        if total <= SLOW_S:
            return
        if req.ticket is not None and req.ticket.began:
            self.took[latencies.QUEUE] = req.ticket.began - req.ticket.arrived
        for what, seconds in (*self.took.items(), (latencies.TOTAL, total)):
            if seconds > 0:
                req.annotate(latencies.PREFIX + what, format_ns(int(seconds * 1e9)))

    def entry(self, stage: str) -> Entry:
        """What is known at this stage, with the time of now."""
        req, now = self._req, time.time()
        fields: Obj = {
            "level": self.level, "auditID": req.audit_id, "stage": stage,
            "requestURI": shown_target(req.raw_path, req.query), "verb": req.info.verb,
            "user": self._user.to_dict() if self._user is not None else {},
        }  # fmt: skip
        if self._user is not None and req.user is not self._user:
            fields["impersonatedUser"] = req.user.to_dict()
        annotations = _in_order(req.annotations) if req.annotations else None
        if annotations and CONSTRAINT in annotations:
            fields["authenticationMetadata"] = {"impersonationConstraint": annotations.pop(CONSTRAINT)}
        sources = source_ips(req)
        if sources:
            fields["sourceIPs"] = sources
        agent = req.header(b"user-agent")
        if agent:
            fields["userAgent"] = agent if len(agent) <= MAX_USER_AGENT else agent[:MAX_USER_AGENT] + "...TRUNCATED"
        if self._ref is not None:
            fields["objectRef"] = self._ref
        if self.response_status is not None and stage != RECEIVED:
            fields["responseStatus"] = self.response_status
        if self.request_object is not None:
            fields["requestObject"] = orjson.Fragment(self.request_object)
        if self.response_object is not None:
            fields["responseObject"] = orjson.Fragment(self.response_object)
        fields["requestReceivedTimestamp"] = _micro_time(self._received)
        fields["stageTimestamp"] = _micro_time(now)
        if annotations:
            fields["annotations"] = annotations
        return Entry(fields)


# The fields of an ObjectReference, as Go writes them; empty ones are left out.
_REFERENCE = ("resource", "namespace", "name", "uid", "apiGroup", "apiVersion", "resourceVersion", "subresource")


def _object_reference(req: Request) -> Obj | None:
    info = req.info
    if not info.is_resource_request:
        return None
    ref = {"resource": info.resource} if info.resource else {}
    if info.namespace:
        ref["namespace"] = info.namespace
    if info.name:
        ref["name"] = info.name
    if info.api_group:
        ref["apiGroup"] = info.api_group
    if info.api_version:
        ref["apiVersion"] = info.api_version
    if info.subresource:
        ref["subresource"] = info.subresource
    return ref


def source_ips(req: Request) -> list[str]:
    """Where a request came from, as the headers of proxies and the connection say: each address once (``utilnet.SourceIPs``)."""
    forwarded, real = req.header(b"x-forwarded-for"), req.header(b"x-real-ip")
    if not forwarded and not real:
        own = _address(req.client)
        return [own] if own else []
    found = dict.fromkeys(_address(text.strip()) for text in (*forwarded.split(","), real, req.client))
    return [address for address in found if address]


@remembered("audit_addresses", "addresses of clients as the audit log shows them", 1024, 64)
def _address(text: str) -> str:
    """The address as Go writes it, "" for what is none: a proxy may say "unknown"."""
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return ""


def without_managed_fields(answer: bytes) -> bytes:
    """An object, or the items of a list or rows of a Table, without who manages which field."""
    if b'"managedFields"' not in answer:
        return answer.rstrip(b"\n")
    value = orjson.loads(answer)
    rows = [row.get("object") for row in value.get("rows") or () if isinstance(row, dict)]
    for obj in (value, *(value.get("items") or ()), *rows):
        meta = obj.get("metadata") if isinstance(obj, dict) else None
        if isinstance(meta, dict):
            meta.pop("managedFields", None)
    return orjson.dumps(value)


def _in_order(annotations: dict[str, str]) -> dict[str, str]:
    """A copy, sorted by key: those of authorization, which most requests have and no others, are so already."""
    keys = list(annotations)
    if len(keys) == 2 and keys[0] < keys[1]:
        return annotations.copy()
    return {key: annotations[key] for key in sorted(keys)}


def _yaml_as_json(body: bytes) -> bytes | None:
    from kas.types import yaml_codec  # PyYAML is large and few clients send YAML

    try:
        return orjson.dumps(yaml_codec.decode(body)[0])
    except yaml_codec.YAMLError:
        return None


_ESCAPES = (b"<", b"\\u003c"), (b">", b"\\u003e"), (b"&", b"\\u0026")
_LINE_ENDS = ("\u2028".encode(), b"\\u2028"), ("\u2029".encode(), b"\\u2029")  # several bytes are looked for at a fifth of the speed


def _escaped(text: bytes) -> bytes:
    """Go's encoder escapes what HTML would read; in JSON these stand inside of strings only."""
    for char, escape in _ESCAPES if text.isascii() else (*_ESCAPES, *_LINE_ENDS):
        if char in text:
            text = text.replace(char, escape)
    return text


# The last whole second, and what its times begin with.
_second: tuple[int, str] = (-1, "")


def _micro_time(seconds: float) -> str:
    global _second
    micros = int(seconds * 1e6)
    whole, known = micros // 1_000_000, _second
    if known[0] != whole:
        known = _second = whole, format_micro_time(whole, 0)[:-7]
    return known[1] + str(micros + 1_000_000)[-6:] + "Z"  # six digits, also in the first second of all
