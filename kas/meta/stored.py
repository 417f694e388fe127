"""Decoding of stored records to objects."""

from __future__ import annotations

from typing import Any, Protocol

import orjson

from kas._codecs import parse_sharing
from kas.meta.largejson import WHOLE, parse

Obj = dict[str, Any]


class Stored(Protocol):
    """A stored object as canonical JSON: a ``Record`` of the store or an equivalent. ``json`` includes the resourceVersion, and is
    decrypted where the store keeps it encrypted.
    """

    @property
    def json(self) -> bytes:
        """The object as canonical JSON."""
        ...


def object_of(record: Stored) -> Obj:
    """Decodes a record to a new dict, in the version in which it is stored. The only place where stored bytes become objects, besides
    ``object_to_replace``.
    """
    data = record.json
    found: Obj = orjson.loads(data) if len(data) <= WHOLE else parse(data)  # saves a call in nearly all cases
    return found


class Replaced(Stored, Protocol):
    """A record of a built-in kind that a write will replace. ``metadata_end`` is the offset of the end of the metadata in ``json``, 0 when
    unknown.
    """

    @property
    def metadata_end(self) -> int:
        """Offset in bytes."""
        ...


def object_to_replace(record: Replaced) -> Obj:
    """Like ``object_of``, for an object that will be written again: its managed field sets are shared with other objects."""
    data = record.json
    found: Obj = parse_sharing(data, record.metadata_end, orjson.loads) if len(data) <= WHOLE else parse(data)
    return found
