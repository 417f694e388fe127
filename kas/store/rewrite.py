"""Rewrites stored objects in the form a write would use today, after a change of encryption keys."""

from __future__ import annotations

from collections.abc import Iterator

from kas.store._engine import Draft, Op, Record, build_record
from kas.store.contract import Store
from kas.store.errors import TransformError

PAGE = 200


def redraft(record: Record, now_s: int) -> Draft:
    """Returns a draft that stores the same object under the next revision. ``now_s`` (Unix seconds) is used to compute the
    rest of a lease."""
    text, member = record.json, b'"resourceVersion":"%d"' % record.revision
    # Quotes inside strings are escaped, and no earlier member than metadata contains this text: the first match is the
    # object's own.
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
    """The result of ``rewrite_stale``: the numbers of objects seen and written, and the errors of those that could not be read."""

    def __init__(self) -> None:
        self.seen = self.written = 0
        self.failed: list[TransformError] = []

    def __iadd__(self, other: Rewritten) -> Rewritten:
        self.seen, self.written, self.failed = self.seen + other.seen, self.written + other.written, self.failed + other.failed
        return self


def rewrite_stale(store: Store, prefix: str, now_s: int) -> Rewritten:
    """Rewrites every stale object under ``prefix`` (``Store.stale``), each under a new revision. Objects that cannot be
    opened are left as they are. Blocks; raises ``Conflict`` if anything else writes these objects meanwhile."""
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
            # A page that contains an unreadable record is read record by record up to that one.
            if limit == 1:
                failed.append(e)
                start, limit = e.key + "\0", PAGE
            else:
                limit = 1
            continue
        start, more = page.next_key, page.more
        yield page.records
