"""Notes in the replica with etcd's original values, where a record does not represent its value completely: it has fields
that no version here knows, could not be opened when it arrived, or is a custom resource that is filled when read.

A write of the same object copies the unknown fields, so that a newer server of the cluster finds them again. A custom
resource is read again from its value when its definition has changed since. Each note has its key's revision, below a root of
its own that no resource lists; it is deleted with its key, or when the key gets a value that its record represents.
"""

from __future__ import annotations

import base64

from kas.store._engine import Draft, Record, build_record

ROOT = "/newer"
_VALUE = b'"value":"'


def note_key(key: str) -> str:
    """Returns the key of the note on a key."""
    return ROOT + key


def note(value: bytes) -> Draft:
    """Returns the draft of a note."""
    return build_record(b'{"metadata":{', b"}," + _VALUE + base64.b64encode(value) + b'"}', {}, {}, 1)


def value_of(record: Record) -> bytes:
    """Returns etcd's value in a note."""
    json = record.json
    return base64.b64decode(json[json.rindex(_VALUE) + len(_VALUE) : -2])
