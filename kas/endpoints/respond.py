"""Responses in the media type the client accepts: objects, lists, Statuses, Tables and PartialObjectMetadata.

The common cases, JSON and protobuf as stored, copy bytes; all others decode the object. Responses above 128 KiB are compressed with gzip
at level 1, as upstream does, if the client accepts gzip.
"""

from __future__ import annotations

import time
from typing import Any

import orjson

from kas._fastpath import PlainGet, known_form, plain_failure
from kas.config import features
from kas.meta.errors import ApiError
from kas.meta.field import go_quote
from kas.meta.offload import LARGE, LARGE_YAML
from kas.meta.records import NamedTuple
from kas.observe.caches import Cache
from kas.registry.versions import Shown
from kas.request.http import Headers, Request, Response
from kas.request.masking import request_uri
from kas.request.negotiation import (
    BUILT_IN,
    JSON,
    NO_CONVERSION,
    NO_TABLE,
    PROTOBUF,
    YAML,
    Convert,
    is_pretty,
    negotiate,
    negotiate_stream,
    takes_gzip,
)
from kas.types.scheme import builtin_kind, encode_json, encode_protobuf, envelope, pretty_json
from kas.types.strict import is_json

GZIP_FROM_BYTES = 128 * 1024
STAR, AMPERSAND = b"*&"  # as numbers: bytes look whether they contain bytes only after an exception
PARTIAL, PARTIAL_LIST, TABLE = "PartialObjectMetadata", "PartialObjectMetadataList", "Table"
CONTENT_TYPES = {JSON: b"application/json", YAML: b"application/yaml", PROTOBUF: b"application/vnd.kubernetes.protobuf"}


class Media(NamedTuple):
    """The negotiated form of a response: the media type, the conversion asked for, and whether it is JSON exactly as stored."""

    accepted: str
    convert: Convert | None
    pretty: bool
    plain_json: bool


_memo: Cache[tuple[bytes, bytes, bool, bool], Media] = Cache(
    "answer_forms", "headers of reads and the form of their answers", 2 << 20, 1024
)  # fmt: skip
RAW_JSON = Media(JSON, None, True, False)


def media(req: Request, watch: bool = False, table: bool = True) -> Media:
    """Negotiate the media type. A Table is not offered if ``table`` is false. Raises 406."""
    found: Media | None = known_form(req, _memo.entries, watch, table)
    if found is not None:
        return found
    accept, agent = req.raw_header(b"accept"), req.raw_header(b"user-agent")
    explicit = req.params.get("pretty") if req.query and "pretty" in req.query else ""
    text = accept.decode("latin-1")
    m = (negotiate_stream if watch else negotiate)(text, BUILT_IN if table else NO_TABLE)
    pretty = m.media_type == JSON and not watch and (m.pretty or is_pretty(explicit, agent.decode("latin-1")))
    found = Media(m.media_type, m.convert, pretty, m.media_type == JSON and m.convert is None and not pretty)
    if not explicit:
        _memo.put((accept, agent, watch, table), found, len(accept) + len(agent))
    return found


def media_of_list(req: Request, served) -> Media:
    """Negotiate the media type of a list, which cannot be converted to a single PartialObjectMetadata. Raises 406."""
    m = media(req)
    if m.convert is not None and m.convert.kind == PARTIAL:
        raise no_list_as_one(served)
    return m


def no_list_as_one(served) -> ApiError:
    """Return the 406 for a list that was asked for as a single PartialObjectMetadata."""
    return ApiError(406, "NotAcceptable", f"you requested {PARTIAL}, but the requested object is a list ({served.go_list_type})")


def obj(req: Request, served, rec: Shown, status: int = 200) -> Response:
    """Return a response with an object that is already in the version of the request (``Version.convert``)."""
    m = media(req)
    if m.plain_json:
        return finish(req, status, JSON, rec.json_line)
    if m.convert is None and m.accepted == PROTOBUF:
        return finish(req, status, PROTOBUF, envelope(served.api_version, served.kind, served.protobuf(rec)))
    return transformed(req, m, served, served.object(rec), status)


def plain_gets(root: str, namespaced: bool) -> PlainGet:
    """Return the fast path for a GET of an object below ``root``, used if the stored bytes are the answer and too few to compress."""
    return PlainGet(root, namespaced, _memo.entries, GZIP_FROM_BYTES)


def large(req: Request) -> bool:
    """Return whether the request body, and the response to it, are processed in the thread pool."""
    return long_to_read(req) or (len(req.body) >= LARGE_YAML and media(req).accepted == YAML)


def long_to_read(req: Request) -> bool:
    """Return whether the request body is decoded in the thread pool."""
    body, size = req.body, len(req.body)
    if size < LARGE_YAML:  # with YAML aliases, some 200 bytes can expand to 100,000 nodes
        return STAR in body and AMPERSAND in body and _brings_yaml(req)
    return size >= LARGE or _brings_yaml(req)


def _brings_yaml(req: Request) -> bool:
    """Return whether a body has to be parsed as YAML. Most apply patches are sent as YAML but contain JSON."""
    if b"yaml" not in req.raw_header(b"content-type").lower():
        return False
    # YAML in flow style that is not JSON is the slowest to parse: up to 3 ms per KiB if the items are short.
    return not (req.body.startswith(b"{") and is_json(req.body))


def long_to_write(m: Media, size: int) -> bool:
    """Return whether an object of ``size`` stored bytes is encoded in this form in the thread pool."""
    return size >= LARGE_YAML and not m.plain_json and (size >= LARGE or m.accepted == YAML)


def prints_long(req: Request, served) -> bool:
    """Return whether the response is a Table whose rows may be expensive to print, even for small objects."""
    if served.columns is None or not served.columns.costly:
        return False
    convert = media(req).convert
    return convert is not None and convert.kind == TABLE


def transformed(req: Request, m: Media, served, value: dict[str, Any], status: int) -> Response:
    """Return a response with an object dict of a served kind, in any media type and conversion."""
    if m.convert is None:
        return typed(req, m, served.type, served.api_version, served.kind, value, status)
    if m.convert.kind == TABLE:
        from kas.registry import printing as printers

        t = printers.table(
            (served.group, served.version, served.kind), [value], now=time.time(),
            include_object=req.params.get("includeObject"), version=m.convert.version, custom_columns=served.columns,
        )  # fmt: skip
        return generic(req, m, t, status)
    if m.convert.kind == PARTIAL:
        return generic(req, m, partial(value, m.convert.version), status)
    if served.type.custom:
        raise ApiError(500, "", "content is not a list")
    raise ApiError(406, "NotAcceptable", f"you requested {m.convert.kind}, but the requested object is not a list ({served.go_type})")


def partial(value: dict[str, Any], version: str = "v1") -> dict[str, Any]:
    """Return a PartialObjectMetadata, in a version of meta.k8s.io, with the object's metadata."""
    return {"kind": PARTIAL, "apiVersion": f"meta.k8s.io/{version}", "metadata": value.get("metadata") or {}}


def generic(req: Request, m: Media, value: dict[str, Any], status: int = 200) -> Response:
    """Return a response with an object that names its own kind: a Status, a Table or a discovery document."""
    group, _, version = value["apiVersion"].rpartition("/")
    kind = builtin_kind(group, version, value["kind"])
    return typed(req, m, kind.type, value["apiVersion"], value["kind"], value, status)


def typed(req: Request, m: Media, type_, api_version: str, kind: str, value: dict[str, Any], status: int) -> Response:
    """Return a response with ``value`` encoded as an object of ``type_`` in the accepted media type; protobuf gets its envelope."""
    if m.accepted == PROTOBUF:
        return finish(req, status, PROTOBUF, envelope(api_version, kind, encode_protobuf(type_, value)))
    body = encode_json(type_, {"kind": kind, "apiVersion": api_version, **value})
    if m.accepted == YAML:
        return finish(req, status, YAML, to_yaml(orjson.loads(body)))
    if m.pretty:
        body = pretty_json(body)
        return finish(req, status, JSON, body)
    return finish(req, status, JSON, body + b"\n")


def to_yaml(value: Any) -> bytes:
    """Encode the value as YAML in the format of sigs.k8s.io/yaml."""
    from kas.types import yaml_codec  # PyYAML is large and few clients ask for YAML

    return yaml_codec.encode(value)


def status(req: Request, e: ApiError) -> Response:
    """Return an error as a Status in the accepted media type, or as indented JSON if the client accepts no supported one."""
    # A Status with more fields than these four is encoded like any other object.
    plain = type(e).status is ApiError.status
    resp = plain_failure(req, _memo.entries, e.code, e.reason, e.message, e.details) if plain else None
    if resp is None:
        resp = generic(req, _status_media(req), e.status(), e.code)
    if e.headers:
        resp.headers += [(k.encode(), v.encode()) for k, v in e.headers.items()]
    elif e.details and (e.details.get("retryAfterSeconds") or 0) > 0:
        resp.headers.append((b"retry-after", str(e.details["retryAfterSeconds"]).encode()))
    return resp


def late(e: ApiError) -> Response:
    """Return the response to a request that timed out, as upstream's timeout handler writes it.

    It is a Status without kind and apiVersion, in plain text whatever media type was asked for.
    """
    body = {k: v for k, v in e.status().items() if k not in ("kind", "apiVersion")}
    return plain(e.code, orjson.dumps(body).decode() + "\n")


def _status_media(req: Request) -> Media:
    """Negotiate the media type of a failure Status, for which requested conversions are ignored."""
    try:
        m = media(req)
        if m.convert is None:
            return m
        found = negotiate(req.raw_header(b"accept").decode("latin-1"), NO_CONVERSION)
    except ApiError:
        return RAW_JSON
    agent = req.raw_header(b"user-agent").decode("latin-1")
    pretty = found.media_type == JSON and (found.pretty or is_pretty(req.params.get("pretty"), agent))
    return Media(found.media_type, None, pretty, found.media_type == JSON and not pretty)


def success(req: Request, details: dict[str, Any] | None = None, status_code: int = 200) -> Response:
    """Return a Status of success, with ``details`` if they are given, otherwise with the code."""
    value: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if details is not None:
        value["details"] = details
    else:
        value["code"] = status_code
    return generic(req, media_without_conversion(req), value, status_code)


def media_without_conversion(req: Request) -> Media:
    """Negotiate the media type of a response that is not an object of the resource: a Status is never converted to a Table."""
    m = media(req)
    return m if m.convert is None else m._replace(convert=None)


def media_of_document(req: Request) -> Media:
    """Negotiate the media type of a response that is never converted. Raises 406 if the client accepts only a Table or partial metadata."""
    m = media(req)
    if m.convert is None:
        return m
    found = negotiate(req.raw_header(b"accept").decode("latin-1"), NO_CONVERSION)
    pretty = found.media_type == JSON and m.pretty
    return Media(found.media_type, None, pretty, found.media_type == JSON and not pretty)


def media_without_table(req: Request) -> Media:
    """Negotiate the media type of a response whose storage prints no columns.

    Partial metadata is offered; accepting only a Table raises 406.
    """
    m = media(req)
    if m.convert is None or m.convert.kind != TABLE:
        return m
    found = negotiate(req.raw_header(b"accept").decode("latin-1"), NO_TABLE)
    pretty = found.media_type == JSON and m.pretty
    return Media(found.media_type, found.convert, pretty, found.media_type == JSON and found.convert is None and not pretty)


def virtual(req: Request, kind: Any, value: dict[str, Any], status: int) -> Response:
    """Return a response with an object of a kind that is never stored."""
    m = media_without_table(req)
    if m.convert is not None and m.convert.kind == PARTIAL:
        return generic(req, m, partial(value, m.convert.version), status)
    return typed(req, media_without_conversion(req) if m.convert is not None else m, kind.type, kind.api_version, kind.kind, value, status)


def compresses(req: Request) -> bool:
    """Return whether a large response to this request is compressed."""
    return takes_gzip(req.header(b"accept-encoding")) and features.DEFAULT.enabled("APIResponseCompression")


def finish(req: Request, status_code: int, kind: str, body: bytes, headers: Headers | None = None) -> Response:
    """Return a response with ``body``, compressed with gzip if it is large and the client accepts that."""
    out: Headers = [(b"content-type", CONTENT_TYPES[kind])]
    if headers:
        out += headers
    if len(body) > GZIP_FROM_BYTES and compresses(req):
        from isal import igzip

        body = igzip.compress(body, compresslevel=1)
        out += [(b"content-encoding", b"gzip"), (b"vary", b"Accept-Encoding")]
    return Response(status_code, out, body)


def text(status_code: int, body: str, headers: Headers | None = None) -> Response:
    """Return a plain-text response with ``X-Content-Type-Options: nosniff``, so that browsers do not treat it as another type."""
    out: Headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"x-content-type-options", b"nosniff")]
    return Response(status_code, out + (headers or []), body.encode())


def plain(status_code: int, body: str) -> Response:
    """Return a plain-text response without a nosniff header, as Go handlers that do not use ``http.Error`` write it."""
    return Response(status_code, [(b"content-type", b"text/plain; charset=utf-8")], body.encode())


def plain_internal_error(req: Request, why: str) -> Response:
    """Return a plain-text 500 for failures before a handler is found (``responsewriters.InternalError``)."""
    said = f"Internal Server Error: {go_quote(request_uri(req))}: {why}\n"
    return text(500, said.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"))
def too_many_requests(retry_after_s: int) -> Response:
    """Return the plain-text 429 (not a Status) of upstream's filters."""
    return text(429, "Too many requests, please try again later.\n", [(b"retry-after", str(retry_after_s).encode())])


def moved(req: Request, address: str) -> Response:
    """Return a 301 with the body that Go's ``http.Redirect`` writes."""
    headers = [(b"location", address.encode())]
    if req.method not in ("GET", "HEAD"):
        return Response(301, headers)
    headers.append((b"content-type", b"text/html; charset=utf-8"))
    shown = address.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&#34;").replace("'", "&#39;")
    return Response(301, headers, f'<a href="{shown}">Moved Permanently</a>.\n\n'.encode() if req.method == "GET" else b"")


def not_found() -> Response:
    """Return the 404 of Go's mux for an unregistered path."""
    return text(404, "404 page not found\n")
