"""Documents written in pieces, because all definitions of a large server, or of a large group, in one are more than anybody should hold.

What a definition brings is encoded by itself and kept compressed, so that one that comes, goes or changes costs what it brings, and a
document goes through the compressor definition by definition: neither the interpreter's lock nor memory is held for the sum of them.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from kas.endpoints.openapi import gnostic
from kas.endpoints.openapi.schemas import Schema, references

# Where in a document of either version stands what definitions add: their schemas, and their paths.
SCHEMAS = {"v2": ("definitions",), "v3": ("components", "schemas")}
PATHS = ("paths",)
_GZIP = 31  # zlib's word for gzip with the largest window; its header tells no time
_LEVEL, _QUICK = 6, 1
_WINDOW = 32 << 10  # as far back as zlib looks

Like = tuple[bytes, bytes]  # schemas and paths of some piece of a form, beside which others are compressed: they say much the same


@dataclass(frozen=True, slots=True)
class Piece:
    """What one part brings to a document in one form. ``texts`` and ``sizes`` are those of its schemas and of its paths, compressed beside
    ``like`` and in bytes before that; ``names`` are the definitions it brings, ``others`` those it refers to and does not."""

    texts: tuple[bytes, bytes]
    like: Like
    sizes: tuple[int, int]
    names: frozenset[str]
    others: frozenset[str]


def used(definitions: dict[str, Schema], others: Iterable[str]) -> frozenset[str]:
    """The definitions that these refer to and that are not among them, with ``others``, those that paths name."""
    return frozenset(set(others).union(*(references(schema) for schema in definitions.values())) - definitions.keys())


def piece(
    version: str, schemas: dict[str, Schema], paths: dict[str, Any], others: frozenset[str], json: bool, like: Like = (b"", b"")
) -> tuple[Piece, Like]:
    """A part's schemas and paths, as ``version`` ("v2", "v3") has them, and what others may be like."""
    own = _entries(version, 0, schemas, json), _entries(version, 1, paths, json)
    texts = _packed(own[0], _QUICK, like[0]), _packed(own[1], _LEVEL, like[1])
    made = Piece(texts, like, (len(own[0]), len(own[1])), frozenset(schemas), others)
    return made, (own[0][-_WINDOW:], own[1][-_WINDOW:])


def _packed(text: bytes, level: int, like: bytes) -> bytes:
    made = zlib.compressobj(level, zdict=like)
    return made.compress(text) + made.flush()


def gzipped(version: str, document: dict[str, Any], pieces: Sequence[Piece], json: bool) -> bytes:
    """The document with the pieces, in the order they come, behind its own schemas and paths; compressed."""
    made = zlib.compressobj(_LEVEL, wbits=_GZIP)
    out = [made.compress(text) for text in (_json(version, document, pieces) if json else _protobuf(version, document, pieces))]
    return b"".join([*out, made.flush()])


class Brought:
    """What parts bring to the document of v2, looked up for who adds to it. ``made`` are the pieces of each group version, in JSON."""

    def __init__(self, made: dict[tuple[str, str], list[Piece]]) -> None:
        self._made = made
        self._paths: dict[tuple[str, str], frozenset[str]] = {}
        self._names = {name: found for several in made.values() for found in several for name in found.names}

    def has_path(self, path: str) -> bool:
        """Whether a part brings this path, which begins with ``/apis/``."""
        _, _, group, version, *_ = (*path.split("/", 4), "", "")
        if (group, version) not in self._paths:
            self._paths[group, version] = frozenset(name for found in self._made.get((group, version), ()) for name in _read(found, 1))
        return path in self._paths[group, version]

    def definition(self, name: str) -> Schema | None:
        """The definition of this name that a part brings."""
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
