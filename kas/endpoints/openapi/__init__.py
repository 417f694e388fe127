"""OpenAPI: ``/openapi/v2`` for the whole server and ``/openapi/v3`` by group version.

Documents are built when somebody asks, kept compressed, and identified by a digest of what goes into them, so the index
of v3 and the entity tags cost no build. An ``OpenAPI`` object is immutable: when the served resources change, make
another. Source of the behaviour: kube-openapi ``pkg/handler`` and ``pkg/handler3``, KEP-2896.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from kas.endpoints.openapi import custom, gnostic, schemas, v2, v3
from kas.endpoints.openapi.operations import (
    Operation,
    Served,
    ServedSubresource,
    builtin,
    group_operations,
    operations,
    root_operations,
    version_operations,
)

__all__ = ["Document", "OpenAPI", "Served", "ServedSubresource", "builtin", "custom", "negotiate"]

JSON = "application/json"
V2_PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
V3_PROTOBUF = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"
# The index is written without a type upstream, which Go's server then guesses.
INDEX_TYPE = "text/plain; charset=utf-8"
_FORMAT = "1"  # counts changes of this package that change its documents


@dataclass(frozen=True, slots=True)
class Document:
    """An answer: gzip-compressed body, content type, and entity tag with its quotes."""

    gzipped: bytes
    content_type: str
    etag: str

    @property
    def body(self) -> bytes:
        """The document, decompressed anew on each call."""
        return gzip.decompress(self.gzipped)


def negotiate(accept: str, version: str) -> str | None:
    """The content type to answer with for an Accept header: JSON or the protobuf of ``version`` ("v2", "v3"); None means 406.

    The first acceptable clause wins, an absent or empty header means JSON. Clients also write the protobuf type with an ``@``.
    """
    protobuf = V2_PROTOBUF if version == "v2" else V3_PROTOBUF
    known = {JSON: JSON, "application/*": JSON, "*/*": JSON, protobuf: protobuf, protobuf.replace(".v1.0", "@v1.0"): protobuf}
    if not accept.strip():
        return JSON
    clauses = []
    for index, clause in enumerate(accept.split(",")):
        media, *parameters = (part.strip() for part in clause.split(";"))
        quality = next((p[2:] for p in parameters if p.startswith("q=")), "1")
        try:
            weight = float(quality)
        except ValueError:
            weight = 0.0
        if media in known and weight > 0:
            clauses.append((-weight, index, known[media]))
    return min(clauses)[2] if clauses else None


class OpenAPI:
    """The documents of a fixed set of resources.

    ``definitions`` are those of custom resources by name (see ``custom.describe``); built-in ones are known. Thread-safe: two threads
    may build the same document at once, and either result stands.
    """

    def __init__(self, served: Iterable[Served], server_version: str, definitions: dict[str, dict[str, Any]] | None = None) -> None:
        self._served: dict[tuple[str, str], list[Served]] = {}
        for s in served:
            self._served.setdefault((s.group, s.version), []).append(s)
        self._server_version = server_version
        self._custom = definitions or {}
        self._cache: dict[tuple[str, str], Document] = {}
        self._paths = {"api": ("", ""), "apis": ("", ""), "version": ("", "")}
        for group, version in sorted(self._served):
            if group:
                self._paths[f"apis/{group}"] = (group, "")
            self._paths[f"apis/{group}/{version}" if group else f"api/{version}"] = (group, version)

    @property
    def paths(self) -> Sequence[str]:
        """The keys of the v3 index, sorted: ``api/v1``, ``apis/apps/v1`` ..."""
        return sorted(self._paths)

    def _digest(self, path: str) -> str:
        group, version = self._paths.get(path, ("", ""))
        parts: list[Any] = [_FORMAT, self._server_version, schemas.digest(), path]
        if version or not path:
            parts.append([repr(s) for gv, found in self._served.items() for s in found if not path or gv == (group, version)])
            parts.append(self._custom_of(group, version) if path else self._custom)
        return hashlib.sha512(orjson.dumps(parts, option=orjson.OPT_SORT_KEYS)).hexdigest().upper()

    def _custom_of(self, group: str, version: str) -> dict[str, Any]:
        names = {name for s in self._served.get((group, version), ()) for name in (s.type, s.list_type) if name}
        return schemas.closure(names, self._custom)

    def _document(self, key: str, content_type: str, build: Any, encode: Any) -> Document:
        found = self._cache.get((key, content_type))
        if found is None:
            body = orjson.dumps(build(), option=orjson.OPT_SORT_KEYS) if content_type == JSON else encode(build())
            tag = self._digest(key)
            if content_type != JSON:  # two forms of a document are two entities
                tag = hashlib.sha512(f"{tag} {content_type}".encode()).hexdigest().upper()
            found = Document(gzip.compress(body, 6, mtime=0), content_type, f'"{tag}"')
            self._cache[key, content_type] = found
        return found

    def _definitions(self) -> dict[str, Any]:
        return schemas.definitions() | self._custom

    def v2(self, content_type: str = JSON) -> Document:
        """The v2 document in a content type that ``negotiate`` gave. Only types a served path needs are published."""

        def build() -> dict[str, Any]:
            found: list[Operation] = [*root_operations()]
            for group in sorted({group for group, _ in self._served}):
                found += group_operations(group)
            for (group, version), served in self._served.items():
                found += version_operations(group, version)
                for s in served:
                    found += operations(s)
            used = {name for o in found for name in (o.body, o.response) if name}
            known = self._definitions() | {name: custom.structural_v2(schema) for name, schema in self._custom.items()}
            return v2.document(found, schemas.closure(sorted(used), known), self._server_version)

        return self._document("", content_type, build, gnostic.encode_v2)

    def v3_hash(self, path: str) -> str | None:
        """The ``hash`` parameter of a v3 document's current address, None when there is no such document.

        A request with another hash is redirected to the current one; one with this hash may be cached for ever.
        """
        return self._digest(path) if path in self._paths else None

    def v3_address(self, path: str) -> str:
        """Path and query of the document, with the digest of its contents."""
        return f"/openapi/v3/{path}?hash={self._digest(path)}"

    def v3_index(self) -> Document:
        """``/openapi/v3``: where each document is."""
        found = self._cache.get(("index", INDEX_TYPE))
        if found is None:
            body = orjson.dumps({"paths": {path: {"serverRelativeURL": self.v3_address(path)} for path in self.paths}})
            tag = hashlib.sha512(body).hexdigest().upper()
            found = self._cache["index", INDEX_TYPE] = Document(gzip.compress(body, 6, mtime=0), INDEX_TYPE, f'"{tag}"')
        return found

    def v3(self, path: str, content_type: str = JSON) -> Document | None:
        """The v3 document at ``path`` (as in ``paths``), None when there is none."""
        if path not in self._paths:
            return None
        group, version = self._paths[path]

        def build() -> dict[str, Any]:
            if version:
                found = [*version_operations(group, version), *(o for s in self._served[group, version] for o in operations(s))]
            elif group:
                found = list(group_operations(group))
            else:
                found = [o for o in root_operations() if o.path == f"/{path}/"]
            return v3.document(found, self._definitions())

        return self._document(path, content_type, build, gnostic.encode_v3)
