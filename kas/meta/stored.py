"""From what the store keeps to the object it says."""

from __future__ import annotations

from typing import Any, Protocol

import orjson

from kas.meta.pieces import WHOLE, parse

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
