"""OpenAPI: ``/openapi/v2`` for the whole server and ``/openapi/v3`` by group version.

Documents are built on request and cached compressed. They are identified by a digest of their inputs, so the v3 index and the entity tags
need no build. An ``OpenAPI`` object is immutable; a new one is created when the served resources change. Source of the behaviour:
kube-openapi ``pkg/handler`` and ``pkg/handler3``, KEP-2896.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from kas.endpoints.openapi import custom, pieces, schemas, v2, v3
from kas.endpoints.openapi.custom import Part
from kas.endpoints.openapi.operations import (
    Operation,
    ServedResource,
    ServedSubresource,
    builtin,
    group_operations,
    issuer_operations,
    operations,
    root_operations,
    version_operations,
)
from kas.endpoints.openapi.pieces import PartIndex, Piece
from kas.endpoints.openapi.schemas import Schema

__all__ = ["Document", "OpenAPI", "Part", "ServedResource", "ServedSubresource", "builtin", "custom", "negotiate"]

JSON = "application/json"
V2_PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
V3_PROTOBUF = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"
# Upstream sets no content type for the index, so Go's server guesses this one.
INDEX_TYPE = "text/plain; charset=utf-8"
Extend = Callable[[dict[str, Any], PartIndex], None]  # extends the v2 document, given what the parts contribute
_FORMAT = "6"  # to be incremented when a change of this package changes its documents


@dataclass(frozen=True, slots=True)
class Document:
    """A document: gzip-compressed body, content type, and entity tag with its quotes."""

    gzipped: bytes
    content_type: str
    etag: str

    @property
    def size(self) -> int:
        """Size of the uncompressed body, from the gzip trailer (a document is shorter than 4 GiB)."""
        return int.from_bytes(self.gzipped[-4:], "little")

    @property
    def body(self) -> bytes:
        """The document, decompressed on each access."""
        return gzip.decompress(self.gzipped)


def negotiate(accept: str, version: str) -> str | None:
    """Return the content type for an Accept header: JSON or the protobuf of ``version`` ("v2", "v3"), or None for 406.

    The first acceptable clause with the highest weight wins. A missing or empty header means JSON. Clients also write the protobuf type
    with an ``@``.
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

    - ``parts`` are contributed by CustomResourceDefinitions and read when a document is built; built-in definitions are known.
    - ``issuer`` says whether the documents for verifying service account tokens are served.
    - ``before`` is the previous object. Its documents are reused where they are still the same.

    Thread-safe: two threads may build the same document at once, and either result is kept.
    """

    def __init__(
        self, served: Iterable[ServedResource], server_version: str, parts: Iterable[Part] = (), before: OpenAPI | None = None,
        issuer: bool = True,
    ) -> None:  # fmt: skip
        self._roots = [*root_operations(), *(issuer_operations() if issuer else ())]
        self._served: dict[tuple[str, str], list[ServedResource]] = {}
        for s in served:
            self._served.setdefault((s.group, s.version), []).append(s)
        self._parts: dict[tuple[str, str], list[Part]] = {}
        for part in parts:
            self._parts.setdefault((part.group, part.version), []).append(part)
        self._server_version = server_version
        self._cache: dict[tuple[str, str], Document] = {}
        self._old: dict[tuple[str, str], Document] = {}
        self._pieces: dict[tuple[str, str, str, str, str], Piece] = {}
        self._like: dict[tuple[str, ...], pieces.Like] = {} if before is None else dict(before._like)
        if before is not None:
            self._old = before._old | before._cache
            tags = {(part.group, part.version, part.tag) for found in self._parts.values() for part in found}
            self._pieces = {key: found for key, found in before._pieces.items() if key[:3] in tags}
        self._digests: dict[str, str] = {}
        self._paths = {o.path.strip("/"): ("", "") for o in self._roots}
        for group, version in sorted(self._served):
            if group:
                self._paths[f"apis/{group}"] = (group, "")
            self._paths[f"apis/{group}/{version}" if group else f"api/{version}"] = (group, version)
        for group, version in self._parts:
            self._paths[f"apis/{group}/{version}"] = (group, version)
        self._old = {key: document for key, document in self._old.items() if key[0] in self._paths or not key[0]}

    @functools.cached_property
    def paths(self) -> Sequence[str]:
        """The keys of the v3 index, sorted: ``api/v1``, ``apis/apps/v1`` ..."""
        return sorted(self._paths)

    def _digest(self, path: str) -> str:
        found = self._digests.get(path)
        if found is None:
            group, version = self._paths.get(path, ("", ""))
            parts: list[Any] = [_FORMAT, self._server_version, schemas.digest(), path or [o.path for o in self._roots]]
            if version or not path:
                gv = group, version
                served = self._served.values() if not path else [self._served.get(gv, ())]
                parts.append([repr(s) for found in served for s in found])
                shown = self._parts.values() if not path else [self._parts.get(gv, ()) if gv not in self._served else ()]
                tags = [part.tag for found in shown for part in found]
                if tags:
                    parts.append(sorted(tags))
            found = hashlib.sha512(orjson.dumps(parts, option=orjson.OPT_SORT_KEYS)).hexdigest().upper()
            self._digests[path] = found
        return found

    def _cached(self, key: str, content_type: str, build: Callable[[], bytes]) -> Document:
        """Return the document of a key. ``build`` is called for its compressed body if no valid one is cached."""
        found = self._cache.get((key, content_type))
        if found is None:
            tag = self._tag(key, content_type)
            found = self._old.get((key, content_type))
            if found is None or found.etag != tag:
                found = Document(build(), content_type, tag)
            self._cache[key, content_type] = found
        return found

    def _tag(self, key: str, content_type: str) -> str:
        tag = self._digest(key)
        if content_type != JSON:  # two encodings of a document are two entities
            tag = hashlib.sha512(f"{tag} {content_type}".encode()).hexdigest().upper()
        return f'"{tag}"'

    def known_v2(self, content_type: str) -> Document | None:
        """Return ``v2`` if it needs no build, otherwise None."""
        return self._reusable("", content_type)

    def _reusable(self, key: str, content_type: str) -> Document | None:
        found = self._cache.get((key, content_type)) or self._old.get((key, content_type))
        return found if found is not None and found.etag == self._tag(key, content_type) else None

    def v2(self, content_type: str = JSON) -> Document:
        """Return the v2 document in a content type from ``negotiate``. Only definitions that a served path needs are published."""
        return self._cached("", content_type, lambda: self._build_v2(content_type, None))

    def v2_tag(self) -> str:
        """Return the identity of the v2 document without building it."""
        return self._tag("", JSON)

    def extended_v2(self, content_type: str, extend: Extend) -> bytes:
        """Return the v2 document, compressed, after ``extend`` has added to its definitions and paths."""
        return self._build_v2(content_type, extend)

    def _build_v2(self, content_type: str, extend: Extend | None) -> bytes:
        found: list[Operation] = [*self._roots]
        for group in sorted({group for group, _ in self._served}):
            found += group_operations(group)
        for (group, version), served in self._served.items():
            found += version_operations(group, version)
            for s in served:
                found += operations(s)
        more = [self._piece(part, "v2", content_type) for parts in self._parts.values() for part in parts]
        document = v2.document(found, self._needed(found, more), self._server_version)
        if extend is not None:
            extend(document, PartIndex({gv: [self._piece(part, "v2", JSON) for part in parts] for gv, parts in self._parts.items()}))
        return pieces.gzipped("v2", document, more, content_type == JSON)

    @staticmethod
    def _needed(found: Iterable[Operation], more: Sequence[Piece]) -> dict[str, Schema]:
        """Return the built-in definitions that the operations and pieces need, except those that a piece replaces."""
        used = _named(found).union(*(piece.others for piece in more))
        in_parts = frozenset[str]().union(*(piece.names for piece in more))
        return {name: d for name, d in schemas.closure(sorted(used), schemas.definitions()).items() if name not in in_parts}

    def _piece(self, part: Part, document: str, content_type: str) -> Piece:
        """Return a part's contribution to a document of version "v2" or "v3"; it is encoded again only if it changed.

        In v2, definitions with the name of a built-in one are renamed (``MergeSpecsIgnorePathConflictRenamingDefinitionsAndParameters``).
        """
        key = part.group, part.version, part.tag, document, content_type
        found = self._pieces.get(key)
        if found is None:
            served, definitions = part.load()
            own = [o for s in served for o in operations(s)]
            named = _named(own)
            if document == "v3":
                shown, paths, others = v3.shown(definitions), v3.path_items(own), pieces.used(definitions, named)
            else:
                shown, paths = v2.shown({name: custom.structural_v2(schema) for name, schema in definitions.items()}), v2.path_items(own)
                taken = {name: f"{name}_v2" for name in shown.keys() & schemas.names()}
                if taken:
                    refs = {schemas.V2_PREFIX + name: schemas.V2_PREFIX + new for name, new in taken.items()}
                    shown = {taken.get(name, name): schemas.renamed(schema, refs) for name, schema in shown.items()}
                    paths, named = schemas.renamed(paths, refs), {taken.get(name, name) for name in named}
                others = pieces.used(shown, named)
            like = self._like.get(key[3:], (b"", b""))
            found, texts = pieces.piece(document, shown, paths, others, content_type == JSON, like)
            self._like.setdefault(key[3:], texts)
            self._pieces[key] = found
        return found

    def v3_hash(self, path: str) -> str | None:
        """Return the ``hash`` parameter of a v3 document's current address, or None if there is no such document.

        A request with another hash is redirected to the current one; a response with this hash may be cached forever.
        """
        return self._digest(path) if path in self._paths else None

    def v3_address(self, path: str) -> str:
        """Return path and query of the document, with the digest of its contents."""
        return f"/openapi/v3/{path}?hash={self._digest(path)}"

    def known_v3_index(self) -> Document | None:
        """Return ``v3_index`` if it needs no build, otherwise None."""
        return self._cache.get(("index", INDEX_TYPE))

    def v3_index(self) -> Document:
        """Return ``/openapi/v3``, the addresses of all documents."""
        found = self.known_v3_index()
        if found is None:
            body = orjson.dumps({"paths": {path: {"serverRelativeURL": self.v3_address(path)} for path in self.paths}})
            tag = hashlib.sha512(body).hexdigest().upper()
            found = self._cache["index", INDEX_TYPE] = Document(gzip.compress(body, 6, mtime=0), INDEX_TYPE, f'"{tag}"')
        return found

    def known_v3(self, path: str, content_type: str) -> Document | None:
        """Return ``v3`` if it needs no build, otherwise None."""
        return self._reusable(path, content_type)

    def v3(self, path: str, content_type: str = JSON) -> Document | None:
        """Return the v3 document at ``path`` (as in ``paths``), or None if there is none."""
        if path not in self._paths:
            return None
        group, version = self._paths[path]

        def build() -> bytes:
            if version and (group, version) not in self._served:  # upstream's documents of custom resources leave out their own discovery
                more = [self._piece(part, "v3", content_type) for part in self._parts[group, version]]
                return pieces.gzipped("v3", v3.document_of_definitions(self._needed((), more)), more, content_type == JSON)
            if (group, version) in self._served:  # what custom resources add to such a version is shown only in v2
                found = [*version_operations(group, version), *(o for s in self._served[group, version] for o in operations(s))]
            elif group:
                found = list(group_operations(group))
            else:
                found = [o for o in self._roots if o.path == f"/{path}/"]
            document = v3.document(found, self._needed(found, ()), self._server_version)
            return pieces.gzipped("v3", document, (), content_type == JSON)

        return self._cached(path, content_type, build)


def _named(found: Iterable[Operation]) -> set[str]:
    """Return the definitions that the operations refer to."""
    return {name for o in found for name in (o.body, o.response) if name}
