"""OpenAPI documents of backends, merged with this server's own (upstream: ``kube-aggregator/pkg/controllers/openapi`` and ``openapiv3``).

- v3: only the index is merged. A document is the backend's own, forwarded on request, or converted from its v2 if it has no v3 (a 404).
- v2: all documents are merged into one, those of a higher priority first.
- Downloads are cached, and revalidated by entity tag when needed and older than ``FRESH_S``.
- A request waits only for documents that were never downloaded, and at most ``FIRST_S``: an answer without a backend's part is better
  than none.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import itertools
import logging
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any

import orjson

from kas.aggregator.apiservices import APIService, APIServices
from kas.aggregator.proxy import Proxy
from kas.auth.user import UserInfo
from kas.client.http import BackendError
from kas.meta.largejson import parse
from kas.request.http import Request, Response, Result

if TYPE_CHECKING:
    from kas.endpoints.openapi import Document, OpenAPI
    from kas.endpoints.openapi.pieces import PartIndex

log = logging.getLogger("kas.aggregator")

USER = UserInfo("system:aggregator")
FRESH_S, FIRST_S, TIMEOUT_S = 60.0, 5.0, 60.0
MOST_INDEX, MOST_SPEC = 1 << 20, 16 << 20
V2, V3 = "/openapi/v2", "/openapi/v3"
_REF = "#/definitions/"


@dataclass(slots=True)
class _Converted:
    """A v3 document converted from v2. ``etag`` is that of the v2 document, ``digest`` that of this one; ``protobuf`` says whether it can
    be encoded as such."""

    etag: str
    digest: str
    gzipped: bytes  # JSON
    protobuf: bool


@dataclass(slots=True)
class _Kept:
    """A cached document of one backend. ``value`` is its parsed form, None if there is none."""

    etag: str = ""
    value: Any = None
    asked: float = float("-inf")  # time of the last answer, good or bad
    converted: _Converted | None = None  # for v3: the document converted from v2
    task: asyncio.Task[None] | None = None


class OpenAPIs:
    """Merges the documents of the backends of ``services`` into ``local``, which returns this server's current ones."""

    def __init__(
        self, services: APIServices, proxy: Proxy, local: Callable[[], OpenAPI], clock: Callable[[], float] = monotonic
    ) -> None:
        self._services, self._proxy, self._local, self._clock = services, proxy, local, clock
        self._kept: dict[tuple[str, str], _Kept] = {}  # (name of an APIService, path)
        self._merging = asyncio.Semaphore(1)
        self._merged: dict[str, tuple[tuple[str, ...], Document]] = {}

    def forget(self, names: set[str]) -> None:
        """Drop the documents of these changed APIServices."""
        for key in itertools.product(names, (V2, V3)):
            kept = self._kept.pop(key, None)
            if kept is not None and kept.task is not None:
                kept.task.cancel()

    async def close(self) -> None:
        """Cancel pending downloads."""
        tasks = [kept.task for kept in self._kept.values() if kept.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- v3

    async def v3_index(self) -> Document:
        """Return the index with the backends' group versions."""
        from kas.endpoints import openapi  # large; loaded by the first kubectl

        found = await self._all(V3, MOST_INDEX, _read_index)
        local, said = self._local(), [(service.path[1:], kept.value) for service, kept in found]

        def made() -> Document:
            paths: dict[str, Any] = orjson.loads(local.v3_index().body)["paths"]
            for path, value in said:
                if path in value:
                    paths[path] = value[path]
                    group = path.rpartition("/")[0]
                    if group in value:
                        paths.setdefault(group, value[group])
            body = orjson.dumps({"paths": dict(sorted(paths.items()))})
            tag = hashlib.sha512(body).hexdigest().upper()
            return openapi.Document(gzip.compress(body, 6, mtime=0), openapi.INDEX_TYPE, f'"{tag}"')

        return await asyncio.to_thread(made)

    def v3(self, path: str, req: Request) -> Result | None:
        """Return the response for a backend's path below ``/openapi/v3/``; None if no backend has it."""
        parts = path.split("/")
        if parts[0] != "apis" or len(parts) not in (2, 3) or (len(parts) == 2 and path in self._local().paths):
            return None
        for service in self._services.remote.values():
            if service.group == parts[1] and (len(parts) == 2 or service.version == parts[2]):
                kept = self._kept.get((service.name, V3))
                if len(parts) == 2 or not service.available or (kept is not None and kept.value is not None and kept.converted is None):
                    return self._proxy.handle(service, req)
                return self._v3_of(service, req)
        return None

    async def _v3_of(self, service: APIService, req: Request) -> Response:
        """Return the document of a backend that may not publish v3."""
        from kas.endpoints.documents import made_v3
        from kas.endpoints.openapi import V3_PROTOBUF, Document, gnostic  # large; loaded by the first kubectl

        await self._all(V3, MOST_INDEX, _read_index)
        kept = self._kept.get((service.name, V3))
        made = kept.converted if kept is not None else None
        if made is None:
            found = self._proxy.handle(service, req)
            return found if isinstance(found, Response) else await found
        gzipped, digest, protobuf = made.gzipped, made.digest, made.protobuf

        def build(kind: str) -> Document | None:
            if kind != V3_PROTOBUF:
                return Document(gzipped, kind, f'"{digest}"')
            if not protobuf:
                return None
            body = gnostic.encode_v3(orjson.loads(gzip.decompress(gzipped)))
            return Document(gzip.compress(body, 6, mtime=0), kind, f'"{digest}-protobuf"')

        return await made_v3(req, digest, f"{V3}{service.path}?hash={digest}", build)

    # --- v2

    async def v2(self, content_type: str) -> Document:
        """Return the document of this server merged with those of all backends."""
        from kas.endpoints import openapi  # large; loaded by the first kubectl

        found = await self._all(V2, MOST_SPEC, _read_spec)
        local = self._local()
        if not found:
            async with self._merging:
                own = local.known_v2(content_type)
                return own if own is not None else await asyncio.to_thread(local.v2, content_type)
        sources = (local.v2_tag(), *(kept.etag for _, kept in found))
        async with self._merging:  # concurrent requests find the result cached
            known = self._merged.get(content_type)
            if known is not None and known[0] == sources:
                return known[1]
            tag = hashlib.sha512(orjson.dumps([content_type, *sources])).hexdigest().upper()
            specs = [kept.value for _, kept in found]

            def extend(document: dict[str, Any], part_index: PartIndex) -> None:
                for spec in specs:
                    merge(document, spec, part_index)

            document = openapi.Document(await asyncio.to_thread(local.extended_v2, content_type, extend), content_type, f'"{tag}"')
            self._merged[content_type] = (sources, document)
            return document

    # --- downloads

    async def _all(self, path: str, most: int, read: Callable[[bytes], Any]) -> list[tuple[APIService, _Kept]]:
        """Return the backends in order of priority, with their documents at ``path``."""
        services = [s for group in self._services.groups for s in group if s.service is not None]
        waiting = []
        for s in services:
            kept = self._kept.setdefault((s.name, path), _Kept())
            if kept.task is None and s.available and self._clock() - kept.asked >= FRESH_S:
                kept.task = asyncio.get_running_loop().create_task(self._fetch(s, path, most, read, kept))
            if kept.task is not None and kept.value is None:
                waiting.append(kept.task)
        if waiting:
            await asyncio.wait(waiting, timeout=FIRST_S)
        found = [(s, self._kept.get((s.name, path))) for s in services]
        return [(s, kept) for s, kept in found if kept is not None and kept.value is not None]

    async def _fetch(self, service: APIService, path: str, most: int, read: Callable[[bytes], Any], kept: _Kept) -> None:
        headers = [(b"accept", b"application/json")] + ([(b"if-none-match", kept.etag.encode("latin-1", "replace"))] if kept.etag else [])
        try:
            status, said, body = await self._proxy.ask(service, "GET", path, USER, headers, most, TIMEOUT_S)
            if status == 404 and path == V3:
                await self._convert(service, kept)
                return
            if status == 304 and kept.value is not None:
                return
            if status != 200:
                raise BackendError(f"returned non-success response code: {status}")
            etag = next((v.decode("latin-1") for k, v in said if k == b"etag"), "")
            kept.value, kept.etag = await asyncio.to_thread(_read_tagged, read, body, etag)
            kept.converted = None
        except (BackendError, ValueError) as e:
            log.info("%s of %s: %s", path, service.name, e)
        finally:
            kept.asked, kept.task = self._clock(), None


    async def _convert(self, service: APIService, kept: _Kept) -> None:
        """Convert the backend's v2 document to v3. Raises BackendError and ValueError."""
        made = kept.converted
        headers = [(b"accept", b"application/json")] + ([(b"if-none-match", made.etag.encode("latin-1", "replace"))] if made else [])
        status, said, body = await self._proxy.ask(service, "GET", V2, USER, headers, MOST_SPEC, TIMEOUT_S)
        if status == 304 and made is not None:
            return
        if status != 200:
            raise BackendError(f"returned non-success response code: {status}")
        etag = next((v.decode("latin-1") for k, v in said if k == b"etag"), "")
        path = service.path[1:]
        kept.converted = made = await asyncio.to_thread(_converted, body, etag)
        kept.etag, kept.value = "", {path: {"serverRelativeURL": f"{V3}/{path}?hash={made.digest}"}}


def _converted(body: bytes, etag: str) -> _Converted:
    """Convert a v2 document. Raises ValueError if it is none."""
    from kas.aggregator.openapiconv import to_v3
    from kas.endpoints.openapi import gnostic  # large, see above

    spec = orjson.loads(body)
    try:
        made = to_v3(spec)
        text = orjson.dumps(made, option=orjson.OPT_SORT_KEYS)
    except (TypeError, KeyError, AttributeError, RecursionError) as e:
        raise ValueError(f"no document of OpenAPI v2: {e}") from e
    protobuf = True
    try:
        gnostic.encode_v3(made)
    except (TypeError, KeyError, AttributeError):
        protobuf = False  # it has fields without a protobuf form
    return _Converted(etag, hashlib.sha512(text).hexdigest().upper(), gzip.compress(text, 6, mtime=0), protobuf)


def _read_tagged(read: Callable[[bytes], Any], body: bytes, etag: str) -> tuple[Any, str]:
    """Return what ``read`` makes of the document, and its entity tag: without one, the digest of its content identifies the version.
    Raises ValueError."""
    return read(body), etag or f'"{hashlib.sha512(body).hexdigest()}"'


def _read_index(body: bytes) -> dict[str, Any]:
    """Return the entries of an index by path. Raises ValueError."""
    obj = orjson.loads(body)
    paths = obj.get("paths") if isinstance(obj, dict) else None
    if not isinstance(paths, dict):
        raise ValueError("no index of OpenAPI v3")
    return {path: {"serverRelativeURL": _address(path, item)} for path, item in paths.items() if isinstance(item, dict)}


def _address(path: str, item: dict[str, Any]) -> str:
    """Return the document's URL if the backend names one below its own path: a backend must not send clients elsewhere."""
    own, said = f"{V3}/{path}", item.get("serverRelativeURL")
    return said if isinstance(said, str) and (said == own or said.startswith(own + "?")) else own


def _read_spec(body: bytes) -> dict[str, Any]:
    """Return the paths below ``/apis/`` of a v2 document, and its definitions. Raises ValueError."""
    obj = parse(body)
    if not isinstance(obj, dict) or not isinstance(obj.get("paths"), dict) or not isinstance(obj.get("definitions") or {}, dict):
        raise ValueError("no document of OpenAPI v2")
    paths = {path: item for path, item in obj["paths"].items() if path.startswith("/apis/") and isinstance(item, dict)}
    definitions = {name: d for name, d in (obj.get("definitions") or {}).items() if isinstance(d, dict)}
    wanted = _closure(paths, definitions)
    shared = obj.get("parameters") if isinstance(obj.get("parameters"), dict) else {}
    spec = {"paths": paths, "definitions": {k: v for k, v in definitions.items() if k in wanted}, "parameters": shared}
    from kas.endpoints.openapi import gnostic  # large, see above

    try:
        # A document that cannot be encoded must not be merged: the whole merged document would be lost.
        orjson.dumps(spec)
        gnostic.encode_v2({"swagger": "2.0", "info": {"title": "", "version": ""}, **spec})
    except (TypeError, KeyError, AttributeError, RecursionError) as e:
        raise ValueError(f"no document of OpenAPI v2: {e}") from e
    return spec


def merge(into: dict[str, Any], spec: dict[str, Any], part_index: PartIndex | None = None) -> None:
    """Add the paths that exist neither in ``into`` nor in ``part_index``, with the definitions and parameters they need. A definition whose
    name is taken by a different one is renamed (``MergeSpecsIgnorePathConflictRenamingDefinitionsAndParameters``). ``spec`` is not
    modified."""
    has_path: Callable[[str], bool] = part_index.has_path if part_index is not None else lambda path: False
    definition: Callable[[str], Any] = part_index.definition if part_index is not None else lambda name: None
    paths = {path: item for path, item in spec["paths"].items() if path not in into["paths"] and not has_path(path)}
    if not paths:
        return
    from kas.endpoints.openapi.schemas import renamed  # large, see above

    needed = _closure(paths, spec["definitions"])
    own, parameters = into["definitions"], into.setdefault("parameters", {})
    wanted = {name: value for name, value in spec["definitions"].items() if name in needed}
    names = _names(lambda name: own[name] if name in own else definition(name), wanted)
    shared = _names(parameters.get, spec["parameters"])
    refs = {_REF + k: _REF + v for k, v in names.items() if k != v} | {
        f"#/parameters/{k}": f"#/parameters/{v}" for k, v in shared.items() if k != v
    }
    for name, new in names.items():
        if definition(new) is None:
            own.setdefault(new, renamed(spec["definitions"][name], refs))
    for name, new in shared.items():
        parameters.setdefault(new, spec["parameters"][name])
    for path, item in paths.items():
        into["paths"][path] = renamed(item, refs)


def _names(have: Callable[[str], Any], more: dict[str, Any]) -> dict[str, str]:
    """Return the new name of each of ``more``; ``have`` returns what exists under a name, or None."""
    out: dict[str, str] = {}
    taken: set[str] = set()
    for name, value in more.items():
        new, number = name, 2
        while (there := have(new)) != value and (there is not None or new in taken):
            new, number = f"{name}_v{number}", number + 1
        taken.add(new)
        out[name] = new
    return out


def _closure(value: Any, definitions: dict[str, Any]) -> set[str]:
    """Return the names of the definitions that ``value`` references, directly or indirectly."""
    out: set[str] = set()
    todo = [value]
    while todo:
        v = todo.pop()
        if isinstance(v, dict):
            ref = v.get("$ref")
            if isinstance(ref, str) and ref.startswith(_REF) and ref[len(_REF) :] not in out and ref[len(_REF) :] in definitions:
                out.add(ref[len(_REF) :])
                todo.append(definitions[ref[len(_REF) :]])
            todo.extend(v.values())
        elif isinstance(v, list):
            todo.extend(v)
    return out
