"""The document of version 2 written in pieces, because all definitions of a large server in one are more than anybody should hold.

What a definition brings is encoded by itself and kept compressed, so that one that comes, goes or changes costs what it brings, and the
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

LISTED = ("definitions", "paths")  # the members of a document that definitions add to, in the order JSON has them
_GZIP = 31  # zlib's word for gzip with the largest window; its header tells no time
_LEVEL, _QUICK = 6, 1


@dataclass(frozen=True, slots=True)
class Piece:
    """What one part brings to the document in one form. ``texts`` and ``sizes`` are those of ``LISTED``, compressed and in bytes before
    that; ``others`` are the definitions it refers to and does not bring."""

    texts: tuple[bytes, ...]
    sizes: tuple[int, ...]
    others: frozenset[str]


def piece(definitions: dict[str, Schema], paths: dict[str, Any], others: Iterable[str], json: bool) -> Piece:
    """A part's definitions and paths, as version 2 has them. ``others`` are the definitions that its paths name."""
    encoded = [_entries(key, value, json) for key, value in zip(LISTED, (definitions, paths), strict=True)]
    found = set(others).union(*(references(schema) for schema in definitions.values())) - definitions.keys()
    texts = tuple(zlib.compress(text, _QUICK) for text in encoded)
    return Piece(texts, tuple(map(len, encoded)), frozenset(found))


def gzipped(document: dict[str, Any], pieces: Sequence[Piece], json: bool) -> bytes:
    """The document with the pieces, in the order they come, behind its own definitions and paths; compressed."""
    made = zlib.compressobj(_LEVEL, wbits=_GZIP)
    out = [made.compress(text) for text in (_json if json else _protobuf)(document, pieces)]
    return b"".join([*out, made.flush()])


def _entries(key: str, value: dict[str, Any], json: bool) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)[1:-1] if json else gnostic.v2_entries(key, value)


def _json(document: dict[str, Any], pieces: Sequence[Piece]) -> Iterator[bytes]:
    for i, key in enumerate(LISTED):
        yield b'%b"%b":{' % (b"," if i else b"{", key.encode())
        text = _entries(key, document[key], True)
        yield text
        for found in pieces:
            if found.sizes[i]:
                yield b"," if text else b""
                text = zlib.decompress(found.texts[i])
                yield text
        yield b"}"
    rest = {key: value for key, value in document.items() if key not in LISTED}
    yield b"," + orjson.dumps(rest, option=orjson.OPT_SORT_KEYS)[1:]


def _protobuf(document: dict[str, Any], pieces: Sequence[Piece]) -> Iterator[bytes]:
    for key in gnostic.v2_order(document):
        if key not in LISTED:
            yield gnostic.encode_v2({key: document[key]})
            continue
        i, text = LISTED.index(key), _entries(key, document[key], False)
        yield gnostic.v2_head(key, len(text) + sum(found.sizes[i] for found in pieces))
        yield text
        for found in pieces:
            yield zlib.decompress(found.texts[i])
