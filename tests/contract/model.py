"""The store contract in plain Python: a dict and a list of events. The reference model of the contract's tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from kas.store import Compacted, Conflict, FutureRevision, Matcher, Op, StoreError
from kas.store.hub import Hub, Watcher


class ModelRecord(NamedTuple):
    key: str
    json: bytes
    revision: int
    create_revision: int
    version: int
    lease_expiry: int
    labels: dict[str, str]
    fields: dict[str, str]
    type_prefix_len: int

    @property
    def item_json(self) -> bytes:
        return b"{" + self.json[self.type_prefix_len :]


class ModelEvent(NamedTuple):
    revision: int
    op: int
    key: str
    record: ModelRecord | None
    previous: ModelRecord | None
    error: None = None

    def values(self, field: str) -> tuple[str, ...]:
        return tuple({r.fields.get(field, ""): None for r in (self.previous, self.record) if r is not None})

    def __len__(self) -> int:
        """The size in bytes, as the hub counts it."""
        return sum(len(r.json) for r in (self.record, self.previous) if r is not None)


class ModelResult(NamedTuple):
    records: list[ModelRecord]
    count: int
    revision: int
    more: bool
    next_key: str
    remaining: int
    body: bytes | None = None


class Done(NamedTuple):
    revision: int
    record: ModelRecord | None
    previous: ModelRecord | None


class ModelStore:
    def __init__(self) -> None:
        self.now_s = 1_000_000
        self.revision = 0
        self.compacted_revision = 0
        self._current: dict[str, ModelRecord] = {}
        self._events: list[ModelEvent] = []
        self.hub = Hub(self.events, lambda: self.revision, 0)

    def close(self) -> None:
        pass

    def _check(self, revision: int) -> None:
        if revision > self.revision:
            raise FutureRevision(revision, self.revision)
        if revision < self.compacted_revision:
            raise Compacted(revision, self.compacted_revision)

    def _state(self, revision: int) -> dict[str, ModelRecord]:
        if not revision:
            return self._current
        self._check(revision)
        state = dict(self._current)
        for event in reversed(self._events):
            if event.revision > revision:
                if event.previous is None:
                    state.pop(event.key, None)
                else:
                    state[event.key] = event.previous
        return state

    def get(self, key: str, revision: int = 0) -> ModelRecord | None:
        return self._state(revision).get(key)

    def range(
        self, prefix: str, start: str = "", limit: int = 0, revision: int = 0, matcher: Matcher | None = None, count: bool = False,
        *, max_bytes: int = 0,
    ) -> ModelResult:
        state = self._state(revision)
        keys = sorted((k for k in state if k.startswith(prefix) and k.encode() >= start.encode()), key=str.encode)
        records: list[ModelRecord] = []
        for at, key in enumerate(keys):
            if (limit and len(records) == limit) or (max_bytes and sum(len(r.json) for r in records) >= max_bytes):
                behind = records[-1].key + "\x00"
                return ModelResult(records, len(records), revision or self.revision, True, behind, len(keys) - at if count else -1)
            record = state[key]
            if matcher is None or matcher.matches_maps(record.labels, record.fields):
                records.append(record)
        return ModelResult(records, len(records), revision or self.revision, False, "", 0)

    def range_json(self, *args: Any, wrap: Callable[[Any], tuple[bytes, bytes]] | None = None, **kwargs: Any) -> ModelResult:
        result = self.range(*args, **kwargs)
        before, after = wrap(result) if wrap else (b"", b"")
        return result._replace(body=before + b",".join(r.item_json for r in result.records) + after, records=[])

    def count(self, prefix: str, most: int = 0) -> int:
        return len(self.range(prefix, limit=most).records)

    def commit_now(self, *ops: Op, one_revision: bool = False) -> list[Done]:
        self._check_all(ops)
        before, first = self.revision, len(self._events)
        done = []
        for op in (op for op in ops if not op.check):
            if not one_revision or not done:
                self.revision += 1
            done.append(self._apply(op))
        self.hub.publish(self._events[first:], before, self.revision)
        return done

    def apply(self, revision: int, ops: list[Op]) -> list[Done]:
        """Applies writes at a revision that another source has assigned."""
        if ops and revision <= self.revision:
            raise StoreError(f"revision {revision} is not newer than what is stored")
        self._check_all(ops)
        before, first = self.revision, len(self._events)
        self.revision = max(self.revision, revision)
        done = [self._apply(op) for op in ops]
        self.hub.publish(self._events[first:], before, self.revision)
        return done

    def _check_all(self, ops: Sequence[Op]) -> None:
        for op in ops:
            current = self._current.get(op.key)
            absent_ok = (op.draft is not None or op.check) and op.expected in (None, 0)
            if not (absent_ok if current is None else op.expected in (None, current.revision)):
                raise Conflict(current, op.key)

    def _apply(self, op: Op) -> Done:
        previous, record, draft = self._current.get(op.key), None, op.draft
        if draft is None:
            del self._current[op.key]
        else:
            comma = b"" if draft.tail.startswith(b"}") else b","
            record = ModelRecord(
                op.key,
                draft.head + b'"resourceVersion":"%d"' % self.revision + comma + draft.tail,
                self.revision,
                previous.create_revision if previous else self.revision,
                previous.version + 1 if previous else 1,
                self.now_s + draft.lease_s if draft.lease_s else 0,
                draft.label_map,
                draft.field_map,
                draft.type_prefix_len,
            )
            self._current[op.key] = record
        kind = 3 if record is None else 2 if previous else 1
        event = ModelEvent(self.revision, kind, op.key, record, previous)
        self._events.append(event)
        return Done(self.revision, record, previous)

    def events(self, prefix: str, after: int, limit: int = 1000, max_bytes: int = 4 << 20) -> tuple[list[ModelEvent], int]:
        self._check(after)
        found = [e for e in self._events if e.revision > after and e.key.startswith(prefix)]
        if limit <= 0:
            return [], after
        size, fit = 0, 0
        for _, group in groupby(found, key=lambda e: e.revision):
            events = list(group)
            size += sum(map(len, events))
            if fit and (fit >= limit or size > max_bytes):
                break
            fit += len(events)
        return found[:fit], found[fit - 1].revision if len(found) > fit else self.revision

    def watch(
        self, prefix: str, after: int, on_ready: Callable[[], None], key: str | None = None, limit: int = 1024, trigger: Any = None
    ) -> Watcher:
        return self.hub.watch(prefix, after, on_ready, key, limit, trigger)

    def listen(self, prefix: str, callback: Callable[[list[Any]], None], reset: Callable[[], None] | None = None) -> Callable[[], None]:
        return self.hub.listen(prefix, callback, reset)

    def catch_up(self, revision: int = 0) -> None:
        self.hub.catch_up(revision)

    def compact(self, revision: int, max_entries: int = 2000) -> bool:
        revision = min(revision, self.revision)
        self.compacted_revision = max(self.compacted_revision, revision)
        old = [e for e in self._events if e.revision <= revision]
        self._events = old[max_entries:] + [e for e in self._events if e.revision > revision]
        return len(old) <= max_entries

    def expire(self, now_s: int, limit: int = 500) -> int:
        due = sorted((r.lease_expiry, r.key.encode(), r) for r in self._current.values() if 0 < r.lease_expiry <= now_s)[:limit]
        for _, _, record in due:
            self.commit_now(Op(record.key, None, record.revision))
        return len(due)
