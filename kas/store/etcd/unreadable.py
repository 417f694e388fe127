"""Notes in the replica about values that cannot be decoded: one for each, at the key's revision, with the reason.

The object itself is not in the replica, so lists and watches of other objects work without it. A note is below a root of its
own that no resource lists; it is deleted with its key, or when the key gets a readable value.
"""

from __future__ import annotations

from kas.store._engine import Draft, Op, Record, build_record
from kas.store.errors import TransformError

ROOT = "/unreadable"
MOST_WHY = 1000  # characters
# For a sealed value without a configuration that opens it. It may be a valid object: it must not be overwritten.
NOBODY_OPENS = "identity transformer tried to read encrypted data"


class UnreadableOp(Op):
    """The delete of a key whose value cannot be read, with the put of the ``note`` about it."""

    note: Op


def note_key(key: str) -> str:
    """Returns the key of the note on a key."""
    return ROOT + key


def note(why: str) -> Draft:
    """Returns the draft of a note."""
    return build_record(b'{"metadata":{', b"}}", {"why": why[:MOST_WHY]}, {}, 1)


def error_of(key: str, record: Record) -> TransformError:
    """Returns the error of a read of the key, from the note on it."""
    return error(key, record.labels["why"], record.revision)


def error(key: str, why: str, revision: int) -> TransformError:
    """Returns the error for the value written at the revision."""
    return TransformError(key, why, revision=0 if why == NOBODY_OPENS else revision)
