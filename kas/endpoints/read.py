"""get and list (apiserver's ``handlers/get.go`` and the cacher's rules for resource versions).

This module decides at which revision to read, which page to return and in which form to answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from time import monotonic
from typing import Any

from kas.config import features
from kas.endpoints import listing, respond, unsafedelete
from kas.endpoints.listing import Listing
from kas.endpoints.options import ListOptions, list_resource_version, resource_version
from kas.endpoints.postfilter import LONG_QUERY, ListQuery, parse_list_query
from kas.endpoints.selection import name_requirement
from kas.endpoints.served import Served
from kas.meta import errors
from kas.meta.errors import ApiError, bad_request
from kas.meta.names import is_valid_path_segment_name
from kas.meta.offload import LARGE_YAML, POOL
from kas.meta.waiting import awaited
from kas.observe import counted
from kas.registry.versions import Shown
from kas.request.http import Request, Response
from kas.store import Compacted, FutureRevision, TransformError, continuetoken

EXPIRED_LIST = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue "
    "parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided "
    "token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was "
    "returned and now may show up in the list."
)
EXPIRED_VERSION = "The resourceVersion for the provided list is too old."
ANY_VERSION = "resourceVersion=0"  # exactly as client-side caches send it, with no other parameter
FRESH_WAIT_S = 3.0  # the cacher's blockTimeout
FRESH_POLL_S = 0.02


def get(req: Request, served: Served, namespace: str, name: str) -> Response | Awaitable[Response]:
    """Answer a GET of one object. ``resourceVersion`` is a minimum: the server waits for that revision for a moment, then raises 504."""
    if not req.query or req.query == ANY_VERSION:
        if served.native and (answer := served.plain.answer(req, served.registry, namespace, name)) is not None:
            return answer
    else:
        respond.media(req)  # an unsupported media type is reported before invalid options
        refuse_export(req)
        if "resourceVersion" in req.query:
            rv = resource_version(req.params.get("resourceVersion"))
            if rv > served.registry.store.revision:
                return _get_when_fresh(req, served, namespace, name, rv)
    return _get_now(req, served, namespace, name)


def refuse_export(req: Request) -> None:
    """Raise 400 for ``export``, which stripped cluster-specific fields until v1.20. Ignoring it would mislead the client."""
    if "export" in req.query and req.params.flag("export"):
        raise bad_request("the export parameter, deprecated since v1.14, is no longer supported")


def _get_now(req: Request, served: Served, namespace: str, name: str) -> Response | Awaitable[Response]:
    rec = served.registry.find(namespace, name)
    if rec is None:
        respond.media(req)  # an unsupported media type is reported before a missing object
        raise served.registry.not_found(name)
    if served.native:
        return _encode(req, served, rec)
    if len(rec.json) >= served.converts_from:
        return _encode_converted(req, served, served.converted((rec,)))
    shown = served.convert((rec,))
    return _encode(req, served, shown[0]) if isinstance(shown, Sequence) else _encode_converted(req, served, shown)


def _encode(req: Request, served: Served, rec: Shown) -> Response | Awaitable[Response]:
    """Encode one object. A large object that is not answered as stored is encoded in the thread pool: YAML may take seconds."""
    size = len(rec.json)
    if (size >= LARGE_YAML and respond.long_to_write(respond.media(req), size)) or respond.prints_long(req, served):
        return POOL.run(respond.obj, req, served, rec)
    return respond.obj(req, served, rec)


async def _encode_converted(req: Request, served: Served, pending: Awaitable[Sequence[Shown]]) -> Response:
    return await awaited(_encode(req, served, (await pending)[0]))


async def _get_when_fresh(req: Request, served: Served, namespace: str, name: str, rv: int) -> Response:
    await fresh(served.registry.store, rv)
    result = _get_now(req, served, namespace, name)
    return result if isinstance(result, Response) else await result


async def fresh(store: Any, rv: int) -> None:
    """Wait until the store reaches revision ``rv``, at most as long as upstream's cacher does. Raises 504."""
    until = monotonic() + FRESH_WAIT_S
    while store.revision < rv:
        if monotonic() >= until:
            raise too_large(rv, store.revision)
        await asyncio.sleep(FRESH_POLL_S)


def too_large(requested: int, current: int) -> ApiError:
    """Return the 504 for a revision that has not been reached yet; the client may retry."""
    details = {"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}], "retryAfterSeconds": 1}
    return ApiError(504, "Timeout", f"Timeout: Too large resource version: {requested}, current: {current}", details, {"retry-after": "1"})


def list_(req: Request, served: Served, namespace: str, name: str = "") -> Response | Awaitable[Response]:
    """Answer a list of a collection. All pages of a list are read at one consistent revision."""
    try:
        result = _list(req, served, namespace)
    except TransformError as e:
        raise _unreadable_error(e, served, namespace) from None
    return result if isinstance(result, Response) else _with_unreadable_error(result, served, namespace)


async def _with_unreadable_error(pending: Awaitable[Response], served: Served, namespace: str) -> Response:
    try:
        return await pending
    except TransformError as e:
        raise _unreadable_error(e, served, namespace) from None


def _unreadable_error(e: TransformError, served: Served, namespace: str) -> Exception:
    """Return the error of a list for values that cannot be decrypted or decoded.

    It names the first one, or all of them with ``AllowUnsafeMalformedObjectDeletion``.
    """
    if not e.listed or not features.DEFAULT.enabled("AllowUnsafeMalformedObjectDeletion"):
        return e
    return unsafedelete.read_error(served, served.registry.prefix(namespace), e)


def _list(req: Request, served: Served, namespace: str) -> Response | Awaitable[Response]:
    if req.query:
        respond.media(req)  # an unsupported media type is reported before invalid options
    if len(req.query) >= LONG_QUERY:
        return _list_long_query(req, served, namespace)
    return _list_parsed(req, served, namespace, parse_list_query(req, served))


async def _list_long_query(req: Request, served: Served, namespace: str) -> Response:
    return await awaited(_list_parsed(req, served, namespace, await POOL.run(parse_list_query, req, served)))


def _list_parsed(req: Request, served: Served, namespace: str, query: ListQuery) -> Response | Awaitable[Response]:
    o, m = query.options, respond.media(req)
    revision, start, wanted = position(served, namespace, o)
    if wanted > served.registry.store.revision:
        return _list_when_fresh(req, served, namespace, query, revision, start, wanted, m)
    return _list_now(req, served, namespace, query, revision, start, m)


async def _list_when_fresh(
    req: Request, served: Served, namespace: str, query: ListQuery, revision: int, start: str, wanted: int, m: respond.Media
) -> Response:
    await fresh(served.registry.store, wanted)
    result = _list_now(req, served, namespace, query, revision, start, m)
    return result if isinstance(result, Response) else await result


def _list_now(
    req: Request, served: Served, namespace: str, query: ListQuery, revision: int, start: str, m: respond.Media
) -> Response | Awaitable[Response]:
    r = served.registry
    o, matcher, sieve = query
    try:
        if m.convert is not None and m.convert.kind == respond.PARTIAL:
            r.pages.range(r.prefix(namespace), start, 1, revision, matcher)  # an unreadable object is reported first
            raise respond.no_list_as_one(served)
        only = _only(served, namespace, o)
        q = Listing(req, served, m, r.prefix(namespace), matcher, start, limit_of(o), revision, sieve, o.shards)
        result = _list_one(q, r.key(namespace, only)) if only and sieve is None else listing.answer(q)
    except (Compacted, FutureRevision) as e:
        raise no_such_revision(e, served, namespace, o, start) from None
    return result if isinstance(result, Response) else _with_revision_error(result, served, namespace, o, start)


async def _with_revision_error(pending: Awaitable[Response], served: Served, namespace: str, o: ListOptions, start: str) -> Response:
    try:
        return await pending
    except (Compacted, FutureRevision) as e:
        raise no_such_revision(e, served, namespace, o, start) from None


def no_such_revision(e: Compacted | FutureRevision, served: Served, namespace: str, o: ListOptions, start: str) -> ApiError:
    """Return the error of a list at a revision that is compacted or not reached yet."""
    if isinstance(e, FutureRevision):
        return too_large(e.requested, e.current)
    return _expired_continue(served, namespace, start) if o.continue_token else errors.expired(EXPIRED_VERSION)


def limit_of(o: ListOptions) -> int:
    """Return the page size; 0 means no limit.

    With ``resourceVersion=0`` the limit is ignored, even with a continue token: upstream answers such a list from its cache, which does
    not page.
    """
    return 0 if o.resource_version == "0" else max(o.limit, 0)


def _only(served: Served, namespace: str, o: ListOptions) -> str:
    """Return the name of the only object that a list can match, or "" if the list must scan (``MatchesSingle``)."""
    if o.continue_token or (served.record.namespaced and not namespace):
        return ""
    name = name_requirement(o)
    return "" if is_valid_path_segment_name(name) else name


def position(served: Served, namespace: str, o: ListOptions, paged: bool = False) -> tuple[int, str, int]:
    """Return (revision to read at, 0 for the latest; key to start at; revision that must have been reached).

    ``paged`` says that the list has a limit whatever the options say. Raises 400.
    """
    if o.continue_token:
        try:
            key, rv = continuetoken.decode(o.continue_token, served.registry.prefix(namespace))
        except continuetoken.ContinueError as e:
            raise bad_request(f"invalid continue token: {e}") from None
        if o.resource_version not in ("", "0"):
            raise bad_request("specifying resource version is not allowed when using continue")
        return max(rv, 0), key, max(rv, 0)
    rv = list_resource_version(o.resource_version)
    # A limit without resourceVersionMatch asks for exactly that revision (the rule from before resourceVersionMatch existed), except when
    # the list can match only one object.
    if o.match == "Exact" or (o.match == "" and (paged or o.limit > 0) and not _only(served, namespace, o)):
        return rv, "", rv
    return 0, "", rv


def _expired_continue(served: Served, namespace: str, start: str) -> ApiError:
    """Return a 410 with a token that continues at the same key but at the latest revision, which makes the list inconsistent."""
    e = errors.expired(EXPIRED_LIST)
    out = ExpiredList(e.code, e.reason, e.message, e.details)
    out.token = continuetoken.encode(start, served.registry.prefix(namespace), -1)
    return out


class ExpiredList(ApiError):
    """A 410 whose Status carries a ListMeta with a continue token."""

    __slots__ = ("token",)

    token: str

    def status(self) -> dict[str, Any]:
        """Return the Status, with the token the client may continue with."""
        out = super().status()
        out["metadata"] = {"continue": self.token}
        return out


def _list_one(q: Listing, key: str) -> Response | Awaitable[Response]:
    """Answer a list that can match only one object: ``metadata.name=x`` in one namespace or of a cluster-scoped kind.

    Reads one key, no scan.
    """
    store = q.served.registry.store
    at = q.revision or store.revision
    rec = store.get(key, q.revision)
    counted.LISTS.inc((q.served.group, q.served.resource))
    found = [rec] if rec is not None and (q.matcher is None or q.matcher.matches(rec)) else []
    if rec is not None and not q.revision:
        at = max(at, rec.revision)
    q.served.registry.requests.listed(int(rec is not None), len(found))
    return listing.converted(q, listing.plain_meta(q, at), found)
