"""Tracing: W3C trace context, and a span for each request that is sampled.

Upstream's ``WithTracing`` and, for the parts of a request, ``filterlatency``. The filter is behind authentication,
because only an administrator or ``system:monitoring`` may decide that a request is recorded, and only their traces
are continued; the trace of any other client is linked. Without ``--tracing-config-file`` a valid context is only
passed on with requests that this one causes.
"""

from __future__ import annotations

import re
from time import monotonic

from kas.auth.user import MASTERS
from kas.filters.handler import Before, Filter
from kas.observe.tracing import CURRENT, Attribute, Remote, Span, Tracer, current, parse
from kas.request.http import Handler, Request, Response, Result
from kas.request.masking import request_uri
from kas.request.negotiation import APPLY_PATCH

MONITORING = "system:monitoring"
_PORT = re.compile(r":[0-9]{1,5}$", re.ASCII)
# Filters with a span of their own, and upstream's name for it.
PARTS = {name: name for name in ("audit", "max_in_flight", "authorization", "consistent_read")}
PARTS |= {"priority_and_fairness": "priorityandfairness", "impersonation": "constrainedimpersonation"}
# Verbs whose handlers have a span, with its name.
_VERBS = {
    "create": ("Create", "POST"), "get": ("Get", "GET"), "list": ("List", "LIST"), "update": ("Update", "PUT"), "patch": ("Patch", "PATCH"),
    "delete": ("Delete", "DELETE"), "deletecollection": ("Delete", "DELETECOLLECTION"),
}  # fmt: skip


def tracing(tracer: Tracer | None = None) -> Filter:
    """Drops a malformed traceparent header, passes on a valid one, and begins and ends the request's span."""
    return _recording(tracer) if tracer is not None else Filter("tracing", _handed_on())


def _remote(req: Request) -> Remote | None:
    given = req.header(b"traceparent")
    if not given:
        return None
    found = parse(given)
    if found is None:
        req.drop_header(b"traceparent")
    return found


def _handed_on() -> Before:
    seen = False

    def before(req: Request) -> None:
        nonlocal seen
        if req.header(b"traceparent"):
            seen = True
            CURRENT.set(_remote(req))
        elif seen:  # the context may still be another request's
            CURRENT.set(None)

    return before


def _recording(tracer: Tracer) -> Filter:
    under_way: dict[Request, list[Span]] = {}  # the request's own span, then that of its response while it is streamed

    def before(req: Request) -> None:
        remote = _remote(req)
        groups = req.user.groups
        span = tracer.begin(span_name(req), remote, MASTERS in groups or MONITORING in groups)
        CURRENT.set(span if span is not None else remote)
        if span is None:
            return
        under_way[req] = [span]
        span.started_ns -= int((monotonic() - req.started) * 1e9)
        span.attributes = _server(req)
        who = span.child("authentication")  # includes the filters before it, which take no time
        if who is not None:
            who.started_ns = span.started_ns
            who.end()

    def after(req: Request, resp: Response) -> None:
        found = under_way.get(req)
        if found is None:
            return
        span = found[0]
        if size := len(req.body):
            span.attributes["http.request.body.size"] = size
        if size := len(resp.body):
            span.attributes["http.response.body.size"] = size
        span.attributes["http.response.status_code"] = resp.status
        span.failed = resp.status >= 500
        if resp.stream is not None and not req.long_running:
            encoding = span.child("SerializeObject")
            if encoding is not None:
                found.append(encoding)

    def release(req: Request) -> None:
        for span in reversed(under_way.pop(req, ())):
            span.end()

    return Filter("tracing", before, after, release)


def span_name(req: Request) -> str:
    """Upstream's name: the method and, for a resource, its path without names."""
    info = req.info
    if not info.is_resource_request:
        return req.method
    parts = [info.api_prefix, *filter(None, (info.api_group, info.api_version))]
    if info.namespace:
        parts += ["namespaces", "{:namespace}"]
    parts += filter(None, (info.resource, "{:name}" if info.name else "", info.subresource))
    return f"{req.method} /{'/'.join(parts)}"


def traced(tracer: Tracer, filters: list[Filter], endpoint: Handler) -> tuple[list[Filter], Handler]:
    """Wraps the filters in ``PARTS``, and the endpoint, in a span each."""
    spans = [f._replace(before=tracer.around(PARTS[f.name], f.before)) if f.name in PARTS and f.before else f for f in filters]

    def with_attributes(req: Request) -> Result:
        if (span := current()) is not None:
            span.attributes |= _fields(req)
        return endpoint(req)

    def run(req: Request) -> Result:
        verb = _VERBS.get(req.info.verb) if req.info.is_resource_request else None
        found: Result = tracer.around(verb[0], with_attributes)(req) if verb is not None else endpoint(req)
        return found

    return spans, run


def _protocol(req: Request) -> str:
    return "2.0" if req.http_version == "2" else req.http_version


def _server(req: Request) -> dict[str, Attribute]:
    """The attributes of OpenTelemetry's conventions for HTTP servers, and those that upstream adds."""
    name, _, port = req.header(b"host").rpartition(":") if _PORT.search(req.header(b"host")) else (req.header(b"host"), "", "")
    out: dict[str, Attribute] = {
        "server.address": name, "http.request.method": req.method, "url.scheme": req.scheme, "network.peer.address": req.client,
        "user_agent.original": req.header(b"user-agent"), "client.address": req.header(b"x-forwarded-for").partition(",")[0] or req.client,
        "url.path": req.path, "network.protocol.version": _protocol(req), "http.target": request_uri(req), "audit-id": req.audit_id,
    }  # fmt: skip
    if port:
        out["server.port"] = int(port)
    return out


def _fields(req: Request) -> dict[str, Attribute]:
    """The attributes that upstream's handlers add (``traceFields``)."""
    info = req.info
    scope = "resource" if info.name or info.verb == "create" else "namespace" if info.namespace else "cluster"
    verb = "APPLY" if info.verb == "patch" and req.header(b"content-type").startswith(APPLY_PATCH) else _VERBS[info.verb][1]
    return {
        "accept": req.header(b"accept"), "audit-id": req.audit_id, "client": req.client, "api-group": info.api_group,
        "api-version": info.api_version, "name": info.name, "subresource": info.subresource, "namespace": info.namespace,
        "protocol": f"HTTP/{_protocol(req)}", "resource": info.resource, "scope": scope, "url": req.path,
        "user-agent": req.header(b"user-agent"), "verb": verb,
    }  # fmt: skip
