"""get and list (apiserver's ``handlers/get.go``): records to answers, without decoding where bytes will do."""

from __future__ import annotations

import time
from typing import Any

from kas.api import continuetoken, errors, printers
from kas.api.errors import ApiError, bad_request
from kas.api.negotiation import PROTOBUF
from kas.api.scheme import encode_protobuf, envelope, transcode_json_to_protobuf
from kas.api.validation.names import is_valid_path_segment_name
from kas.edge.http import Request, Response
from kas.endpoints import respond
from kas.endpoints.options import ListOptions, list_options, resource_version
from kas.endpoints.selection import matcher_of, name_requirement, with_served_fields
from kas.endpoints.served import Served
from kas.store import Compacted, FutureRevision

EXPIRED_LIST = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list."
EXPIRED_VERSION = "The resourceVersion for the provided list is too old."


def get(req: Request, served: Served, namespace: str, name: str) -> Response:
    """One object. ``resourceVersion`` asks for nothing older than it, which the store always satisfies or refuses (504)."""
    if req.query and "resourceVersion" in req.query:
        rv = resource_version(req.params.get("resourceVersion"))
        if rv > served.registry.store.revision:
            raise too_large(rv, served.registry.store.revision)
    return respond.obj(req, served, served.registry.get(namespace, name))


def too_large(asked: int, current: int) -> ApiError:
    """504: a revision that has not happened yet; the client may wait for it."""
    details = {"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}], "retryAfterSeconds": 1}
    return ApiError(504, "Timeout", f"Timeout: Too large resource version: {asked}, current: {current}", details, {"retry-after": "1"})


def list_(req: Request, served: Served, namespace: str, name: str = "") -> Response:
    """A collection, at one consistent revision also over several pages."""
    o = list_options(req.params)
    o = with_served_fields(served, o)
    m = respond.media(req)
    if m.convert is not None and m.convert.kind == respond.PARTIAL:
        package = served.group.split(".")[0] or "core"
        raise ApiError(
            406, "NotAcceptable", f"you requested PartialObjectMetadata, but the requested object is a list (*{package}.{served.list_kind})"
        )
    revision, start, exact_token = _position(req, served, namespace, o)
    only = name_requirement(o)
    if only and not exact_token and is_valid_path_segment_name(only) == []:
        return _list_one(req, served, namespace, o, revision, only, m)
    # A list that any revision may answer comes from a cache upstream, which knows no pages.
    limit = 0 if o.resource_version == "0" and not o.continue_token else max(o.limit, 0)
    try:
        return _list_scanned(req, served, namespace, o, revision, start, limit, m)
    except Compacted:
        if exact_token:
            raise _expired_continue(served, namespace, start) from None
        raise errors.expired(EXPIRED_VERSION) from None
    except FutureRevision as e:
        raise too_large(e.requested, e.current) from None


def _list_scanned(
    req: Request, served: Served, namespace: str, o: ListOptions, revision: int, start: str, limit: int, m: respond.Media
) -> Response:
    if m.plain_json and served.native:
        return _list_bytes(req, served, namespace, o, revision, start, limit)
    return _list_decoded(req, served, namespace, o, revision, start, limit, m)


def _position(req: Request, served: Served, namespace: str, o: ListOptions) -> tuple[int, str, bool]:
    """(revision to read at, 0 for now; key to start at; whether it comes from a continue token). Raises 400, 504."""
    store = served.registry.store
    if o.continue_token:
        try:
            key, rv = continuetoken.decode(o.continue_token, served.registry.prefix(namespace))
        except continuetoken.ContinueError as e:
            raise bad_request(f"invalid continue token: {e}") from None
        if o.resource_version not in ("", "0"):
            raise bad_request("specifying resource version is not allowed when using continue")
        return (rv if rv > 0 else 0), key, rv > 0
    rv = resource_version(o.resource_version)
    if rv == 0:
        return 0, "", False
    if rv > store.revision:
        raise too_large(rv, store.revision)
    # Without a match, a limit asks for that very revision (the rule from before resourceVersionMatch).
    if o.match == "Exact" or (o.match == "" and o.limit > 0):
        return rv, "", False
    return 0, "", False


def _expired_continue(served: Served, namespace: str, start: str) -> ApiError:
    """410 with a token that goes on from the same key at whatever revision is current: an inconsistent continuation."""
    e = errors.expired(EXPIRED_LIST)
    token = continuetoken.encode(start, served.registry.prefix(namespace), -1)
    return _with_list_meta(e, token)


class ExpiredList(ApiError):
    """A 410 whose Status carries ListMeta with the token to go on with."""

    __slots__ = ("token",)

    def status(self) -> dict[str, Any]:
        out = super().status()
        out["metadata"] = {"continue": self.token}
        return out


def _with_list_meta(e: ApiError, token: str) -> ApiError:
    out = ExpiredList(e.code, e.reason, e.message, e.details)
    out.token = token
    return out


def _list_meta(served: Served, namespace: str, o: ListOptions, result) -> dict[str, Any]:
    meta: dict[str, Any] = {"resourceVersion": str(result.revision)}
    if result.more:
        meta["continue"] = continuetoken.encode(result.next_key, served.registry.prefix(namespace), result.revision)
        if o.label_selector is None and o.field_selector is None and result.remaining > 0:
            meta["remainingItemCount"] = result.remaining
    return meta


def _list_bytes(req: Request, served: Served, namespace: str, o: ListOptions, revision: int, start: str, limit: int) -> Response:
    """JSON as stored: one scan, one copy."""
    r = served.registry

    def wrap(result) -> tuple[bytes, bytes]:
        meta = _list_meta(served, namespace, o, result)
        text = f'{{"resourceVersion":"{meta["resourceVersion"]}"'
        if "continue" in meta:
            text += f',"continue":"{meta["continue"]}"'
        if "remainingItemCount" in meta:
            text += f',"remainingItemCount":{meta["remainingItemCount"]}'
        return served.list_head + text.encode() + b'},"items":[', b"]}\n"

    result = r.store.range_json(r.prefix(namespace), start, limit, revision, matcher_of(o), _counts(o, limit), wrap=wrap)
    return respond.raw_list(req, served, result.body)


def _list_one(req: Request, served: Served, namespace: str, o: ListOptions, revision: int, name: str, m: respond.Media) -> Response:
    """``metadata.name=x`` in one namespace (or of a cluster-scoped kind) can only mean one object: no scan."""
    r = served.registry
    if served.record.namespaced and not namespace:
        return _list_scanned(req, served, namespace, o, revision, "", max(o.limit, 0), m)
    at = revision or r.store.revision
    rec = r.store.get(r.key(namespace, name), revision)
    matcher = matcher_of(o)
    found = [rec] if rec is not None and (matcher is None or matcher.matches(rec)) else []
    meta = {"resourceVersion": str(max(at, rec.revision) if rec is not None and not revision else at)}
    if m.plain_json:
        head = served.list_head + f'{{"resourceVersion":"{meta["resourceVersion"]}"}},"items":['.encode()
        return respond.raw_list(req, served, b"".join((head, *(served.item(x) for x in found), b"]}\n")))
    return _encode_list(req, served, meta, found, m)


def _counts(o: ListOptions, limit: int) -> bool:
    return bool(limit) and o.label_selector is None and o.field_selector is None


def _list_decoded(
    req: Request, served: Served, namespace: str, o: ListOptions, revision: int, start: str, limit: int, m: respond.Media
) -> Response:
    r = served.registry
    result = r.store.range(r.prefix(namespace), start, limit, revision, matcher_of(o), _counts(o, limit))
    return _encode_list(req, served, _list_meta(served, namespace, o, result), result.records, m)


def _encode_list(req: Request, served: Served, meta: dict[str, Any], records: list[Any], m: respond.Media) -> Response:
    """Records as a list in any media type and form."""
    if m.convert is None and m.accepted == PROTOBUF:
        # A list message is {1: ListMeta, 2: items…}; without items the encoder writes just the first.
        parts = [encode_protobuf(served.list_type, {"metadata": meta})]
        for rec in records:
            item = transcode_json_to_protobuf(served.type, served.json(rec))
            parts += (b"\x12", varint(len(item)), item)
        return respond.finish(req, 200, PROTOBUF, envelope(served.api_version, served.list_kind, b"".join(parts)))
    objects = [served.object(rec) for rec in records]
    if m.convert is not None and m.convert.kind == respond.TABLE:
        t = printers.table(
            (served.group, served.version, served.kind), objects, now=time.time(), include_object=req.params.get("includeObject"),
            list_metadata=meta, version=m.convert.version,
        )  # fmt: skip
        return respond.generic(req, m, t)
    if m.convert is not None:
        version = m.convert.version
        value = {"kind": respond.PARTIAL_LIST, "apiVersion": f"meta.k8s.io/{version}", "metadata": meta,
                 "items": [respond.partial(x, version) for x in objects]}  # fmt: skip
        return respond.generic(req, m, value)
    for x in objects:
        x.pop("kind", None)
        x.pop("apiVersion", None)
    return respond.typed(req, m, served.list_type, served.api_version, served.list_kind, {"metadata": meta, "items": objects}, 200)


def varint(n: int) -> bytes:
    """Protobuf's variable-length integer."""
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)
