"""What the replica knows of values that nobody can decode: for each a note, at the key's revision, that says why.

The object itself is not in the replica, so lists and watches of others go on without it. A note stands below a root of its own, where no
resource lists; it goes when its key does, or holds again what can be read.
"""

from __future__ import annotations

from kas.store._engine import Draft, Op, Record, build_record
from kas.store.errors import TransformError

ROOT = "/unreadable"
MOST_WHY = 1000  # characters
# Of a sealed value without a configuration that opens it. It may be an object all the same: nobody is to write over it.
NOBODY_OPENS = "identity transformer tried to read encrypted data"


class UnreadableOp(Op):
    """The delete of a key whose value cannot be read, and the put of the ``note`` on it."""

    note: Op


def note_key(key: str) -> str:
    """Where the note on a key stands."""
    return ROOT + key


def note(why: str) -> Draft:
    """A note."""
    return build_record(b'{"metadata":{', b"}}", {"why": why[:MOST_WHY]}, {}, 1)


def error_of(key: str, record: Record) -> TransformError:
    """What a read of the key is to raise, of the note on it."""
    return error(key, record.labels["why"], record.revision)


def error(key: str, why: str, revision: int) -> TransformError:
    """The same, of the value that was written at the revision."""
    return TransformError(key, why, revision=0 if why == NOBODY_OPENS else revision)
