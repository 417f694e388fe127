"""From what the store keeps to the object it says."""

from __future__ import annotations

from typing import Any, Protocol

import orjson

from kas._codecs import parse_sharing
from kas.meta.largejson import WHOLE, parse

Obj = dict[str, Any]


class Stored(Protocol):
    """What holds an object as canonical JSON: a ``Record`` of the store, and what stands in for one. ``json`` is the object as it is
    read, resourceVersion included, opened where the store keeps it sealed."""

    @property
    def json(self) -> bytes:
        """The object as canonical JSON."""
        ...


def object_of(record: Stored) -> Obj:
    """The object of a record as a new dict, in the version it is stored as. The one place where stored bytes become objects."""
    data = record.json
    found: Obj = orjson.loads(data) if len(data) <= WHOLE else parse(data)  # one call less for nearly all
    return found


class Replaced(Stored, Protocol):
    """A record of a built-in kind that a write is to take the place of. ``metadata_end`` is where the metadata end in ``json``, 0 where
    that is not known."""

    @property
    def metadata_end(self) -> int:
        """Bytes from the beginning."""
        ...


def object_to_replace(record: Replaced) -> Obj:
    """``object_of`` for who writes the object again: the sets of managed fields are shared with other objects."""
    data = record.json
    found: Obj = parse_sharing(data, record.metadata_end, orjson.loads) if len(data) <= WHOLE else parse(data)
    return found
