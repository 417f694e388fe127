"""Writes stored objects again, as a write would store them today: after a change of the keys they are sealed with."""

from __future__ import annotations

from collections.abc import Iterator

from kas.store._engine import Draft, Op, Record, build_record
from kas.store.contract import Store
from kas.store.errors import TransformError

PAGE = 200


def redraft(record: Record, now_s: int) -> Draft:
    """The draft that gives the same object under the next revision. ``now_s`` (Unix seconds) is for what is left of a lease."""
    text, member = record.json, b'"resourceVersion":"%d"' % record.revision
    # Quotes stand in texts escaped, and nothing before metadata has such a member: the first one is the object's.
    at = text.index(member)
    end = at + len(member)
    comma = text[end : end + 1] == b","
    metadata = record.metadata_json
    ends = len(metadata) + record.type_prefix_len - end - comma if metadata is not None else 0
    lease_s = max(1, record.lease_expiry - now_s) if record.lease_expiry else 0
    return build_record(
        text[:at], text[end + comma :], record.labels, record.fields, record.type_prefix_len, lease_s, ends, record.protobuf
    )


class Rewritten:
    """What ``rewrite_stale`` did: objects looked at and written, and the errors of those that could not be read."""

    def __init__(self) -> None:
        self.seen = self.written = 0
        self.failed: list[TransformError] = []

    def __iadd__(self, other: Rewritten) -> Rewritten:
        self.seen, self.written, self.failed = self.seen + other.seen, self.written + other.written, self.failed + other.failed
        return self


def rewrite_stale(store: Store, prefix: str, now_s: int) -> Rewritten:
    """Writes every object under ``prefix`` again that is stored otherwise than it would be today, each under a new revision. An object that
    cannot be opened is left as it is. Blocks; nobody else writes meanwhile (``Conflict``)."""
    out = Rewritten()
    for records in _pages(store, prefix, out.failed):
        out.seen += len(records)
        ops = [Op(r.key, redraft(r, now_s), r.revision) for r in records if store.stale(r)]
        if ops:
            store.commit_now(*ops)
            out.written += len(ops)
    return out


def _pages(store: Store, prefix: str, failed: list[TransformError]) -> Iterator[list[Record]]:
    start, limit, more = "", PAGE, True
    while more:
        try:
            page = store.range(prefix, start, limit)
        except TransformError as e:
            # A page with one that cannot be opened is read one by one, up to that one.
            if limit == 1:
                failed.append(e)
                start, limit = e.key + "\0", PAGE
            else:
                limit = 1
            continue
        start, more = page.next_key, page.more
        yield page.records
