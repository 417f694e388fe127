"""The documents besides REST resources: discovery, OpenAPI, version, index, OIDC keys and Swagger UI.

They are encoded once for a set of served versions and cached; ``Documents.refresh`` drops them when the set changes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Container, Sequence
from functools import partial
from typing import Any, Protocol

import orjson

from kas import KUBERNETES_VERSION
from kas.config import capabilities
from kas.endpoints import discovery, openid, ranges, respond
from kas.endpoints.discovery import Version
from kas.endpoints.listpages import making, room, underway
from kas.endpoints.respond import moved, not_found
from kas.endpoints.rest import READ_TYPES, check_accept, method_not_allowed, not_acceptable
from kas.meta.errors import generic_not_found, timeout
from kas.meta.waiting import awaited
from kas.observe import counted
from kas.request.http import Request, Response, Result, Write, taken
from kas.request.mux import Mux
from kas.request.negotiation import SUPPORTED, is_pretty, parse_accept, takes_gzip
from kas.types.scheme import builtin_kind, encode_json, encode_protobuf, envelope, write_json

_AGGREGATED = ("APIGroupDiscoveryList", "apidiscovery.k8s.io")
DISCOVERY_KIND = f";g=apidiscovery.k8s.io;v={discovery.AGGREGATED};as=APIGroupDiscoveryList"
BUILD_DATE = "1970-01-01T00:00:00Z"
YEAR_S = 365 * 86400
ERROR_HEADERS = ((b"content-type", b"text/plain; charset=utf-8"), (b"x-content-type-options", b"nosniff"))  # the headers of Go's http.Error
Shaped = tuple[respond.Headers, bytes]  # an encoded body, and its headers about the encoding
# Above this number of names in a document, or of versions in all, a document is built in a thread and cached in its encoded form.
MANY = 500
# Bytes of a document to decompress at a time, at most, for clients that do not accept gzip.
UNPACKED_BYTES, PACKED_BYTES = 256 << 10, 16 << 10


def version_info() -> dict[str, str]:
    """Return ``version.Info`` as shown by ``/version`` and ``--version=raw``."""
    import platform

    major, minor, _ = KUBERNETES_VERSION.split(".")
    oldest_major, oldest_minor = capabilities.CURRENT.compatible or (major, int(minor) - 1)
    return {
        "major": major, "minor": minor, "emulationMajor": major, "emulationMinor": minor, "minCompatibilityMajor": str(oldest_major),
        "minCompatibilityMinor": str(oldest_minor), "gitVersion": capabilities.CURRENT.git_version, "gitCommit": "0" * 40,
        "gitTreeState": "clean", "buildDate": BUILD_DATE, "goVersion": "go1.26.6", "compiler": "gc",
        "platform": f"linux/{'arm64' if platform.machine() == 'aarch64' else 'amd64'}",
    }  # fmt: skip


class Aggregation(Protocol):
    """What other API servers serve, for the documents. The OpenAPI methods are called only while ``active``."""

    @property
    def active(self) -> bool:
        """Whether anything is served by other servers."""

    def listed(self, local: Sequence[Version]) -> Sequence[Version]:
        """Return the versions for ``/apis``, given those that are served here."""

    def discovered(self, local: Sequence[Version], with_peers: bool = True) -> Sequence[Version]:
        """Return the versions for aggregated discovery."""

    def openapi_v2(self, content_type: str) -> Awaitable[Any]:
        """Return the aggregated OpenAPI v2 document."""

    def openapi_v3_index(self) -> Awaitable[Any]:
        """Return the aggregated OpenAPI v3 index."""

    def openapi_v3(self, path: str, req: Request) -> Result | None:
        """Return the document of another server, or None if the path belongs to this server or to none."""


class Documents:
    """The documents of one server.

    - ``versions()`` returns the versions to show now.
    - ``make_openapi(before)`` returns their OpenAPI, which may reuse parts of the previous one.
    - ``oidc`` returns the two documents of the token issuer.
    - ``aggregation`` adds what other servers serve.
    - ``builtin_groups`` are Kubernetes' own groups, served or not.
    """

    def __init__(
        self,
        versions: Callable[[], Sequence[Version]],
        make_openapi: Callable[[Any], Any],
        address: str,
        oidc: Callable[[], tuple[bytes, bytes] | None],
        aggregation: Aggregation,
        builtin_groups: Container[str],
    ) -> None:
        self._list_versions, self._make_openapi, self._address, self._oidc = versions, make_openapi, address, oidc
        self._aggregation, self._builtin_groups = aggregation, builtin_groups
        self._cache: dict[Any, Any] = {}
        self._openapi: Any = None
        # one build at a time, of OpenAPI and of other encodings of discovery
        self._building, self._shaping = asyncio.Semaphore(1), asyncio.Semaphore(1)
        self._openapi_before: Any = None
        self.index_paths: Callable[[], list[str]] = list
        # With peer API servers: counts requests for aggregated discovery. Arguments: whether without peers, and whether it was cached.
        self.counts: Callable[[bool, bool], None] | None = None

    def refresh(self) -> None:
        """Drop every cached document, because the served versions have changed."""
        self.refresh_discovery()
        if self._openapi is not None:
            self._openapi_before, self._openapi = self._openapi, None

    def refresh_discovery(self) -> None:
        """Drop only the cached discovery documents."""
        self._cache = {}  # a new dict, so that a document that is still being built for the old versions is not found in it

    def install(self, mux: Mux, swagger: bool) -> None:
        """Register the paths of discovery, version, OpenAPI, OIDC keys, the index and, with ``swagger``, Swagger UI."""
        for path in ("/api", "/api/"):
            mux.exact(path, self.api)
        for path in ("/apis", "/apis/"):
            mux.exact(path, self.apis)
        mux.exact("/version", self.version)
        mux.exact("/version/", self.version)
        mux.exact("/openapi/v2", self.openapi_v2)
        mux.exact("/openapi/v3", self.openapi_v3_index)
        mux.prefix("/openapi/v3/", self.openapi_v3)
        mux.exact("/", self.index)
        mux.exact("/index.html", self.index)
        configuration, keys = openid.PATHS
        for end in ("", "/"):
            mux.exact(configuration + end, lambda req: self._oidc_answer(req, 0, b"application/json"))
            mux.exact(keys + end, lambda req: self._oidc_answer(req, 1, b"application/jwk-set+json"))
        if swagger:
            for path in ("/swagger-ui", "/swagger-ui/"):
                mux.exact(path, lambda req: Response(301, [(b"location", b"/swagger-ui/index.html")]))
            mux.prefix("/swagger-ui/", swagger_ui)
        mux.fallback(self.group_or_version)

    # --- discovery

    def _versions(self) -> Sequence[Version]:
        found: Sequence[Version] = self._cached("versions", lambda: [v for v in self._discovered() if v.answered])
        return found

    def _discovered(self) -> Sequence[Version]:
        """Return this server's versions for aggregated discovery.

        These are the served ones, and those of custom resources that are defined, but not served, in Kubernetes' own groups.
        """
        found: Sequence[Version] = self._cached("shown", self._list_versions)
        served = {(v.group, v.version) for v in found if v.answered}
        return [v for v in found if v.answered or (v.group, v.version) not in served]

    def serves(self, group: str, version: str, resource: str) -> bool:
        """Return whether the resource is served here."""
        known: set[tuple[str, str, str]] = self._cached(
            "resources", lambda: {(v.group, v.version, r["name"]) for v in self._versions() for r in v.resources}
        )
        return (group, version, resource) in known

    def _cached(self, key: Any, make: Callable[[], Any]) -> Any:
        if key not in self._cache:
            self._cache[key] = make()
        return self._cache[key]

    def _dict(self, key: Any, make: Callable[[], dict[str, Any] | None]) -> dict[str, Any] | None:
        found: dict[str, Any] | None = self._cached(key, make)
        return found

    def api(self, req: Request) -> Result:
        """Serve /api: the core versions, or aggregated discovery (KEP-3352) if the client accepts it."""
        return self._root(req, True)

    def apis(self, req: Request) -> Result:
        """Serve /apis: the groups, or aggregated discovery (KEP-3352) if the client accepts it."""
        return self._root(req, False)

    def _root(self, req: Request, core: bool) -> Result:
        if core:  # /apis and its groups bypass upstream's router and answer any method
            _get_only(req)
            check_accept(req, READ_TYPES)
        form = _aggregated_form(req.header(b"accept"))
        if form:
            return self._aggregated(req, core, form)
        if core:
            return self._plain(req, "api", self._dict("api", lambda: discovery.api_versions(self._versions(), self._address)))
        return self._plain(req, "apis", self._dict("apis", lambda: discovery.group_list(self._aggregation.listed(self._versions()))))

    def _aggregated(self, req: Request, core: bool, form: str) -> Result:
        """Return the APIGroupDiscoveryList in the media type ``form``. The ETag of every form is that of the JSON."""
        alone = "profile=nopeer" in req.header(b"accept")  # sent by the cluster's other API servers
        key, cache = ("aggregated", core, alone), self._cache
        if self.counts is not None:
            self.counts(alone, key in cache)
        if key in cache:
            return self._aggregated_response(req, key, form, cache[key])
        shown = self._aggregation.discovered(self._discovered(), not alone)

        def made() -> tuple[bytes, bytes]:
            body = write_json(discovery.aggregated(shown, core=core)) + b"\n"
            return body, discovery.etag(body).encode()

        if len(shown) <= MANY:
            counted.AGGREGATIONS.inc()
            cache[key] = made()
            return self._aggregated_response(req, key, form, cache[key])
        return self._build_aggregated(req, key, form, made)

    async def _build_aggregated(self, req: Request, key: Any, form: str, make: Callable[[], tuple[bytes, bytes]]) -> Response:
        cache = self._cache
        async with self._shaping:  # concurrent requests wait and then find it cached
            if key not in cache:
                counted.AGGREGATIONS.inc()
                cache[key] = await asyncio.to_thread(make)
        return await awaited(self._aggregated_response(req, key, form, cache[key]))

    def _aggregated_response(self, req: Request, key: Any, form: str, made: tuple[bytes, bytes]) -> Result:
        body, tag = made
        headers = [(b"content-type", (form + DISCOVERY_KIND).encode()), (b"etag", tag), (b"vary", b"Accept")]
        if req.header(b"if-none-match") == tag.decode():
            return Response(304, headers)
        pretty = form == respond.JSON and is_pretty(req.params.get("pretty") or "", req.header(b"user-agent"))
        zips = respond.compresses(req)
        if form == respond.JSON and not pretty and not zips:
            return Response(200, headers, body)
        return self._cached_response(headers, (*key, form, pretty, zips), lambda: _compressed(_reencoded(body, form, pretty), zips))

    def _cached_response(self, headers: respond.Headers, key: Any, make: Callable[[], Shaped]) -> Result:
        """Return a response that is cached under ``key`` and built in a thread: encoding YAML takes a millisecond per kilobyte."""
        cache = self._cache
        if key in cache:
            return _response_of(headers, cache[key])

        async def made() -> Response:
            async with self._shaping:  # concurrent requests wait and then find it cached
                if key not in cache:
                    cache[key] = await asyncio.to_thread(make)
            return _response_of(headers, cache[key])

        return made()

    def _plain(self, req: Request, key: Any, value: dict[str, Any] | None) -> Result:
        assert value is not None
        m = respond.media_of_document(req)
        kind, accepted, pretty = value["kind"], m.accepted, m.pretty
        type_ = builtin_kind("", "v1", kind).type

        def made() -> bytes:
            if accepted == respond.PROTOBUF:
                return envelope("v1", kind, encode_protobuf(type_, value))
            if accepted == respond.YAML:
                return respond.to_yaml(value)
            body = encode_json(type_, value)  # not all of them have an apiVersion
            return respond.pretty_json(body) if pretty else body + b"\n"

        if accepted != respond.YAML and not self._cached(("large", key), lambda: _names(value) > MANY):
            return respond.finish(req, 200, accepted, made())
        zips = respond.compresses(req)
        headers = respond.finish(req, 200, accepted, b"").headers
        return self._cached_response(headers, (accepted, pretty, key, zips), lambda: _compressed(made(), zips))

    def group_or_version(self, req: Request) -> Result | None:
        """Serve ``/apis/<group>``, ``/apis/<group>/<version>`` and ``/api/<version>``. As upstream, a missing version is a Status."""
        parts = req.path.strip("/").split("/")
        if parts[0] == "api" and len(parts) >= 2:
            return self._version(req, "", parts[1], len(parts) == 2)
        if parts[0] != "apis" or len(parts) < 2:
            return None
        groups: dict[str, list[Version]] = self._cached(
            "groups", lambda: discovery.by_group(self._aggregation.listed(self._versions()))
        )  # fmt: skip
        if parts[1] not in groups:
            return None  # names invented by clients are not cached
        key = "group", parts[1]
        group = self._dict(key, lambda: discovery.group(groups, parts[1]))
        if group is None:
            return None
        if len(parts) == 2:
            return self._plain(req, key, group)
        if parts[1] not in self._builtin_groups and (parts[1], parts[2]) not in self._by_name():
            return None  # an APIService declares it, but no server serves it
        return self._version(req, parts[1], parts[2], len(parts) == 3)

    def _by_name(self) -> dict[tuple[str, str], Version]:
        found: dict[tuple[str, str], Version] = self._cached("by name", lambda: {(v.group, v.version): v for v in self._versions()})
        return found

    def _version(self, req: Request, group: str, version: str, whole: bool) -> Result:
        found = self._by_name().get((group, version)) if whole else None
        if found is None:
            if group in self._cached("custom groups", lambda: {v.group for v in self._versions() if v.custom}):
                return not_found()
            raise generic_not_found()
        if not found.custom:  # versions of custom resources bypass upstream's router
            _get_only(req)
            check_accept(req, READ_TYPES)
        key = "resources", group, version
        return self._plain(req, key, self._dict(key, lambda: discovery.resource_list(found)))

    # --- OpenAPI

    @property
    def openapi(self) -> Any:
        """The OpenAPI documents of the served versions, built on first use."""
        if self._openapi is None:
            self._openapi = self._make_openapi(self._openapi_before)
            self._openapi_before = None
        return self._openapi

    def openapi_v2(self, req: Request) -> Result:
        """Serve /openapi/v2: one document of everything, custom resources included, built in a thread."""
        kind = _spec_type(req, "v2")
        if kind is None:
            return Response(406, [])
        if self._aggregation.active:
            return _await_document(req, self._aggregation.openapi_v2(kind))
        found = self.openapi.known_v2(kind)
        return _document(req, found) if found is not None else self._built_v2(req, kind)

    async def _built_v2(self, req: Request, kind: str) -> Response:
        openapi = self.openapi
        async with self._building:  # concurrent requests wait and then find it cached
            return _document(req, openapi.known_v2(kind) or await asyncio.to_thread(openapi.v2, kind))

    def openapi_v3_index(self, req: Request) -> Result:
        """Serve /openapi/v3: each group version with the address of its document."""
        if self._aggregation.active:
            return _await_document(req, self._aggregation.openapi_v3_index())
        found = self.openapi.known_v3_index()
        return _document(req, found) if found is not None else self._built_v3_index(req)

    async def _built_v3_index(self, req: Request) -> Response:
        openapi = self.openapi
        async with self._building:
            return _document(req, openapi.known_v3_index() or await asyncio.to_thread(openapi.v3_index))

    def openapi_v3(self, req: Request) -> Result:
        """Serve the document of one group version, built in a thread.

        At the address with its current digest it may be cached forever; another digest is redirected there with 301.
        """
        path = req.path[len("/openapi/v3/") :].strip("/")
        if not path:
            return self.openapi_v3_index(req)
        elsewhere = self._aggregation.openapi_v3(path, req) if self._aggregation.active else None
        if elsewhere is not None:
            return elsewhere
        if path not in self.openapi.paths:
            return Response(404, [])
        asked = req.params.get("hash")
        if asked and asked != self.openapi.v3_hash(path):
            return moved(req, self.openapi.v3_address(path))
        kind = _spec_type(req, "v3")
        if kind is None:
            return Response(406, [(b"vary", b"Accept")])
        found = self.openapi.known_v3(path, kind)
        return _addressed(req, found, asked) if found is not None else self._built_v3(req, path, kind, asked)

    async def _built_v3(self, req: Request, path: str, kind: str, asked: str) -> Response:
        openapi = self.openapi
        async with self._building:
            return _addressed(req, openapi.known_v3(path, kind) or await asyncio.to_thread(openapi.v3, path, kind), asked)

    # --- the rest

    def version(self, req: Request) -> Response:
        """Serve /version, always as JSON."""
        _get_only(req)
        check_accept(req, (respond.JSON,))
        return Response(200, [(b"content-type", b"application/json")], orjson.dumps(version_info(), option=orjson.OPT_INDENT_2))

    def index(self, req: Request) -> Response:
        """Serve the list of paths, as JSON."""
        value = {"paths": self.index_paths()}
        return Response(200, [(b"content-type", b"application/json")], orjson.dumps(value, option=orjson.OPT_INDENT_2))

    def _oidc_answer(self, req: Request, which: int, kind: bytes) -> Response:
        documents = self._oidc()
        if documents is None:
            return respond.not_found()
        _get_only(req)
        accept = req.header(b"accept")
        if accept and not any(a.partition(";")[0].strip() in (kind.decode(), "*/*") for a in accept.split(",")):
            raise not_acceptable((kind.decode(),))
        return Response(200, [(b"content-type", kind), (b"cache-control", b"public, max-age=3600")], documents[which])


def _aggregated_form(accept: str) -> str:
    """Return the media type in which the client prefers an APIGroupDiscoveryList to the plain document, or ""."""
    if "APIGroupDiscoveryList" not in accept:
        return ""
    for clause in parse_accept(accept):
        form = next((f for f in SUPPORTED if (clause.type, clause.sub) in (tuple(f.split("/")), ("application", "*"), ("*", "*"))), "")
        params = clause.params
        if form and not params.get("as"):
            return ""
        if form and (params["as"], params.get("g"), params.get("v")) == (*_AGGREGATED, discovery.AGGREGATED):
            return form
    return ""


def _reencoded(body: bytes, form: str, pretty: bool) -> bytes:
    """Convert an APIGroupDiscoveryList in JSON to YAML, protobuf or indented JSON."""
    if form == respond.JSON:
        return respond.pretty_json(body) if pretty else body
    value = orjson.loads(body)
    if form == respond.YAML:
        return respond.to_yaml(value)
    kind, group = _AGGREGATED
    type_ = builtin_kind(group, discovery.AGGREGATED, kind).type
    return envelope(f"{group}/{discovery.AGGREGATED}", kind, encode_protobuf(type_, value))


def _get_only(req: Request) -> None:
    """Raise 405 for any method but GET: upstream's router does not serve HEAD here."""
    if req.method != "GET":
        raise method_not_allowed()


def _spec_type(req: Request, version: str) -> str | None:
    """Return the content type of the response, or None for 406."""
    from kas.endpoints import openapi

    return openapi.negotiate(req.header(b"accept"), version)


async def made_v3(req: Request, digest: str, address: str, build: Callable[[str], Any]) -> Response:
    """Serve a v3 document that ``build`` builds for a content type; it returns None for an unsupported one.

    ``address`` ends with the document's ``digest``. A request with another digest is redirected there with 301.
    """
    asked = req.params.get("hash")
    if asked and asked != digest:
        return moved(req, address)
    kind = _spec_type(req, "v3")
    if kind is None:
        return Response(406, [])
    found = await asyncio.to_thread(build, kind)
    return _addressed(req, found, asked) if found is not None else Response(406, [])


async def _await_document(req: Request, document: Awaitable[Any]) -> Response:
    return _document(req, await document)


def _addressed(req: Request, d: Any, digest: str) -> Response:
    resp = _document(req, d)
    if digest and resp.status != 416:
        # Addressed by its digest, the document never changes. The cache-control filter keeps a header that is set. A 304 repeats it,
        # because caches take its headers over.
        until = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + YEAR_S))
        resp.headers += [(b"cache-control", b"public, immutable"), (b"expires", until.encode())]
    return resp


def _document(req: Request, d: Any) -> Response:
    headers = [(b"content-type", d.content_type.encode()), (b"etag", d.etag.encode()), (b"vary", b"Accept-Encoding"), (b"vary", b"Accept")]
    if _etag_matches(req.header(b"if-none-match"), d.etag):
        return Response(304, headers)
    headers.append((b"accept-ranges", b"bytes"))
    try:
        part = ranges.requested_part(req.header(b"range"), req.header(b"if-range"), d.etag, d.size)
    except ranges.RangeError as e:
        told = [] if e.overlaps else [(b"content-range", b"bytes */%d" % d.size)]
        return Response(416, [*told, *ERROR_HEADERS], f"{e}\n".encode())
    if part is not None:  # a range of the uncompressed document, whatever encodings the client accepts
        _check_room(req)
        headers += [(b"content-range", part.content_range.encode()), (b"content-length", b"%d" % part.length)]
        return Response(206, headers, stream=partial(_unpacked_part, req, b"" if req.method == "HEAD" else d.gzipped, part))
    if takes_gzip(req.header(b"accept-encoding")):
        return Response(200, [*headers, (b"content-encoding", b"gzip")], d.gzipped)
    if d.size <= UNPACKED_BYTES:
        return Response(200, headers, d.body)
    _check_room(req)
    headers.append((b"content-length", str(d.size).encode()))
    return Response(200, headers, stream=partial(_unpacked, req, b"" if req.method == "HEAD" else d.gzipped))


def _check_room(req: Request) -> None:
    """Raise 429 where the user's clients do not read what they were sent."""
    room.check(req.user.name if req.user is not None else "")


async def _unpacked_part(req: Request, gzipped: bytes, part: ranges.Part, write: Write) -> None:
    await _unpacked(req, gzipped, ranges.Window(write, part))


async def _unpacked(req: Request, gzipped: bytes, write: Write) -> None:
    """Decompress ``gzipped`` while writing it, so that the document is never held whole and the event loop is not blocked.

    Its pieces are those of a list: together they have 5 ms of a loop iteration, are smaller where there are many, and count against the
    user until the client has read them.
    """
    import zlib  # imported late, like gzip

    user = req.user.name if req.user is not None else ""
    unpack, piece, held = zlib.decompressobj(31), b"", 0
    try:
        with underway:
            async with asyncio.timeout(max(1.0, req.deadline - time.monotonic()) if req.deadline else None):
                for at in range(0, len(gzipped), PACKED_BYTES):
                    packed = gzipped[at : at + PACKED_BYTES]
                    while packed or unpack.unconsumed_tail:
                        if piece:
                            await write(piece)
                            await asyncio.sleep(0)
                        if (throttle := making.throttle).exhausted:
                            await throttle.wait()
                        piece = unpack.decompress(packed or unpack.unconsumed_tail, min(UNPACKED_BYTES, underway.page_bytes))
                        packed = b""
                        room.add(user, len(piece) - held)
                        held = len(piece)
                await taken(write, piece + unpack.flush())
    except TimeoutError:
        # The headers have been sent: abort the connection, so that the client sees a truncated response.
        raise timeout(f"{req.path}: the answer was not taken in time", 0) from None
    finally:
        room.add(user, -held)


def _names(document: dict[str, Any]) -> int:
    """Return the number of groups, versions and resources that a document names."""
    lists = [v for v in document.values() if isinstance(v, list)]
    return sum(len(v) + sum(len(one.get("versions") or ()) for one in v if isinstance(one, dict)) for v in lists)


def _etag_matches(tags: str, tag: str) -> bool:
    """Return whether an If-None-Match header matches ``tag``.

    Compares as RFC 9110 (13.1.2), and so Go's file server, does: in a list, as ``*``, or weakened by a proxy that compressed the
    response.
    """
    return any(each.strip().removeprefix("W/") in (tag, "*") for each in tags.split(","))


def _compressed(body: bytes, zips: bool) -> Shaped:
    if not zips or len(body) <= respond.GZIP_FROM_BYTES:
        return [], body
    import gzip  # this also loads the decompressor; the most requested documents are cached compressed

    return [(b"content-encoding", b"gzip"), (b"vary", b"Accept-Encoding")], gzip.compress(body, 1)


def _response_of(headers: respond.Headers, shaped: Shaped) -> Response:
    more, body = shaped
    return Response(200, [*headers, *more], body)


def swagger_ui(req: Request) -> Response:
    """Serve the packaged Swagger UI."""
    _get_only(req)
    from kas.endpoints.openapi import ui

    found = ui.file(req.path[len("/swagger-ui/") :], accepts_gzip=takes_gzip(req.header(b"accept-encoding")))
    if found is None:
        return not_found()
    body, kind, encoding = found
    headers = [(b"content-type", kind.encode())]
    if encoding:
        headers.append((b"content-encoding", encoding.encode()))
    return Response(200, headers, body)
