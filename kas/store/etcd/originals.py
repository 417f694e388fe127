"""What the replica keeps of values that its records do not show as they are: with fields that no version here knows, that could not be
opened when they came, or of custom resources that reading fills in. For each a note, at the key's revision, with etcd's value.

A write of the same object hands unknown fields on, so that a newer server of the cluster finds them again. A custom resource is read anew
from its value when its definition has changed since. A note stands below a root of its own, where no resource lists; it goes when its key
does, or has a value that its record shows.
"""

from __future__ import annotations

import base64

from kas.store._engine import Draft, Record, build_record

ROOT = "/newer"
_VALUE = b'"value":"'


def note_key(key: str) -> str:
    """Where the note on a key stands."""
    return ROOT + key


def note(value: bytes) -> Draft:
    """A note."""
    return build_record(b'{"metadata":{', b"}," + _VALUE + base64.b64encode(value) + b'"}', {}, {}, 1)


def value_of(record: Record) -> bytes:
    """etcd's value, of the note on it."""
    json = record.json
    return base64.b64decode(json[json.rindex(_VALUE) + len(_VALUE) : -2])
