"""Documents assembled from pieces, because a whole document of a large server or group takes too much memory.

The contribution of each definition is encoded separately and kept compressed. A definition that is added, removed or changed thus costs
only its own size, and a document is compressed definition by definition: neither the GIL nor memory is held for the whole.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from kas.endpoints.openapi import gnostic
from kas.endpoints.openapi.schemas import Schema, references

# Where a document of either version has what definitions add: their schemas and their paths.
SCHEMAS = {"v2": ("definitions",), "v3": ("components", "schemas")}
PATHS = ("paths",)
_GZIP = 31  # zlib's code for gzip with the largest window; the header then has no timestamp
_LEVEL, _QUICK = 6, 1
_WINDOW = 32 << 10  # zlib's maximum distance for matches

Like = tuple[bytes, bytes]  # schemas and paths of another piece, used as compression dictionaries because pieces are much alike


@dataclass(frozen=True, slots=True)
class Piece:
    """The contribution of one part to a document in one encoding.

    ``texts`` are its schemas and its paths, compressed with the dictionaries ``like``, and ``sizes`` their uncompressed bytes. ``names``
    are the definitions that it has, and ``others`` those that it only refers to.
    """

    texts: tuple[bytes, bytes]
    like: Like
    sizes: tuple[int, int]
    names: frozenset[str]
    others: frozenset[str]


def used(definitions: dict[str, Schema], others: Iterable[str]) -> frozenset[str]:
    """Return the definitions that these refer to but do not contain, and ``others``, those that paths name."""
    return frozenset(set(others).union(*(references(schema) for schema in definitions.values())) - definitions.keys())


def piece(
    version: str, schemas: dict[str, Schema], paths: dict[str, Any], others: frozenset[str], json: bool, like: Like = (b"", b"")
) -> tuple[Piece, Like]:
    """Return a part's schemas and paths as a piece for ``version`` ("v2", "v3"), and dictionaries for other pieces."""
    own = _entries(version, 0, schemas, json), _entries(version, 1, paths, json)
    texts = _packed(own[0], _QUICK, like[0]), _packed(own[1], _LEVEL, like[1])
    made = Piece(texts, like, (len(own[0]), len(own[1])), frozenset(schemas), others)
    return made, (own[0][-_WINDOW:], own[1][-_WINDOW:])


def _packed(text: bytes, level: int, like: bytes) -> bytes:
    made = zlib.compressobj(level, zdict=like)
    return made.compress(text) + made.flush()


def gzipped(version: str, document: dict[str, Any], pieces: Sequence[Piece], json: bool) -> bytes:
    """Return the compressed document, with the pieces in order after its own schemas and paths."""
    made = zlib.compressobj(_LEVEL, wbits=_GZIP)
    out = [made.compress(text) for text in (_json(version, document, pieces) if json else _protobuf(version, document, pieces))]
    return b"".join([*out, made.flush()])


class PartIndex:
    """Lookup in what parts contribute to the v2 document. ``made`` are the pieces of each group version, in JSON."""

    def __init__(self, made: dict[tuple[str, str], list[Piece]]) -> None:
        self._made = made
        self._paths: dict[tuple[str, str], frozenset[str]] = {}
        self._names = {name: found for several in made.values() for found in several for name in found.names}

    def has_path(self, path: str) -> bool:
        """Return whether a part has this path, which begins with ``/apis/``."""
        _, _, group, version, *_ = (*path.split("/", 4), "", "")
        if (group, version) not in self._paths:
            self._paths[group, version] = frozenset(name for found in self._made.get((group, version), ()) for name in _read(found, 1))
        return path in self._paths[group, version]

    def definition(self, name: str) -> Schema | None:
        """Return the definition of this name that a part has, or None."""
        found = self._names.get(name)
        return None if found is None else _read(found, 0)[name]


def _read(found: Piece, which: int) -> dict[str, Any]:
    value: dict[str, Any] = orjson.loads(b"{%b}" % _unpacked(found, which))
    return value


def _unpacked(found: Piece, which: int) -> bytes:
    return zlib.decompressobj(zdict=found.like[which]).decompress(found.texts[which])


def _entries(version: str, which: int, value: dict[str, Any], json: bool) -> bytes:
    if json:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)[1:-1]
    return gnostic.entries(version, which, value)


def _joined(which: int, own: bytes, pieces: Sequence[Piece], between: bytes) -> Iterator[bytes]:
    yield own
    some = bool(own)
    for found in pieces:
        if found.sizes[which]:
            if some:
                yield between
            yield _unpacked(found, which)
            some = True


def _json(version: str, document: dict[str, Any], pieces: Sequence[Piece], at: tuple[str, ...] = ()) -> Iterator[bytes]:
    listed = SCHEMAS[version], PATHS
    for i, (key, value) in enumerate(sorted(document.items())):
        here = (*at, key)
        yield b"%b%b:" % (b"," if i else b"{", orjson.dumps(key))
        if here in listed:
            yield b"{"
            which = listed.index(here)
            yield from _joined(which, _entries(version, which, value, True), pieces, b",")
            yield b"}"
        elif here == SCHEMAS[version][: len(here)]:
            yield from _json(version, value, pieces, here)
        else:
            yield orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    yield b"}"


def _protobuf(version: str, document: dict[str, Any], pieces: Sequence[Piece]) -> Iterator[bytes]:
    own = [_entries(version, which, value, False) for which, value in enumerate((_at(document, SCHEMAS[version]), document["paths"]))]
    sizes = [len(text) + sum(found.sizes[which] for found in pieces) for which, text in enumerate(own)]
    for text in gnostic.framed(version, document, sizes):
        if isinstance(text, int):
            yield from _joined(text, own[text], pieces, b"")
        else:
            yield text


def _at(document: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    for step in path:
        document = document[step]
    return document
