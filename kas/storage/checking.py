"""Checks the content of a place: every value can be read, is at its own key, and fits its derived data; for LMDB also that
the history leads to the current state."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import orjson

from kas.meta.stored import object_of
from kas.storage.lmdbplace import LMDBSource, entry
from kas.storage.places import PAGE, ROOT, Entry, Forms, Source
from kas.store import Record, StoreError, TransformError
from kas.store.etcd.layout import Undecodable
from kas.types.scheme import EncodeError, transcode_json_to_protobuf

# Values of kas and kube-apiserver below the prefix that are not objects of their key.
INTERNAL = ("/registry/ranges/", "/registry/masterleases/")
EVENTS, GONE = 1000, 3


@dataclass
class Checked:
    """The number of checked objects, and (key, problem) for each problem."""

    objects: int = 0
    bytes: int = 0
    writes: int = 0
    revision: int = 0
    wrong: list[tuple[str, str]] = field(default_factory=list)


def check(source: Source) -> Checked:
    """Checks everything at one revision. Raises ``StoreError`` if the place itself cannot be read."""
    forms, out = Forms(), Checked(revision=source.newest())
    for prefix in forms.values.first:
        for page in source.scan(out.revision, prefix):
            for e in page:
                with contextlib.suppress(Undecodable):  # reported later, with the other values
                    forms.values.decode(e.key, forms.value(e))
    if isinstance(source, LMDBSource):
        _lmdb(source, forms, out)
        return out
    for page in source.scan(out.revision):
        for e in page:
            out.objects, out.bytes = out.objects + 1, out.bytes + len(e.value or b"")
            _decoded(forms, e, out)
    return out


def _decoded(forms: Forms, e: Entry, out: Checked) -> None:
    try:
        draft = forms.draft(e)
    except Undecodable as why:
        out.wrong.append((e.key, e.why or f"cannot be read: {why}"))
        return
    out.wrong += [(e.key, why) for why in misplaced(forms, e.key, draft.json)]


def misplaced(forms: Forms, key: str, text: bytes) -> list[str]:
    """Returns how an object does not fit its key."""
    if key.startswith(INTERNAL):
        return []
    obj = orjson.loads(text)
    meta = obj.get("metadata") or {}
    name, namespace = meta.get("name", ""), meta.get("namespace", "")
    registry = forms.values.registry(key)
    if registry is None:  # a custom resource, or one of the server's own values
        if not name:
            return []
        group = obj.get("apiVersion", "").partition("/")[0]
        rest = key.removeprefix(f"{ROOT}{group}/")
        fits = rest != key and rest.partition("/")[2] == (f"{namespace}/{name}" if namespace else name)
        return [] if fits else [f"holds {obj.get('kind')} {namespace}/{name} of {group}"]
    out = []
    home = registry.resource.storage_kind
    if home is not None and (obj.get("apiVersion"), obj.get("kind")) != (home.api_version, home.kind):
        out.append(f"holds {obj.get('apiVersion')} {obj.get('kind')}")
    if key != registry.root + (f"{namespace}/{name}" if registry.resource.namespaced else name):
        out.append(f"holds {namespace}/{name}")
    return out


# -- LMDB


def _lmdb(source: LMDBSource, forms: Forms, out: Checked) -> None:
    leases = dict(source.store.leased())
    last = _history(source, out)
    compacted = source.store.compacted_revision
    for record in _records(source, out):
        out.objects, out.bytes = out.objects + 1, out.bytes + len(record.body)
        out.wrong += [(record.key, why) for why in _record(forms, record)]
        if record.lease_expiry and leases.pop(record.key, 0) != record.revision:
            out.wrong.append((record.key, "has a lease, and is not in the table of expiring keys"))
        written = last.pop(record.key, (0, False)) if last is not None else (record.revision, True)
        if record.revision > compacted and written != (record.revision, True):
            out.wrong.append((record.key, f"has revision {record.revision}, and the history has {written[0] or 'no write'}"))
    for key, (revision, there) in (last or {}).items():
        if there:
            out.wrong.append((key, f"was written at revision {revision}, and is missing"))
    newest = source.newest()
    if newest == out.revision:  # a server that writes renews leases meanwhile
        out.wrong += [(key, "is in the table of expiring keys, and has no lease") for key in leases]


def _records(source: LMDBSource, out: Checked) -> Iterator[Record]:
    start, limit, more = "", PAGE, True
    while more:
        try:
            page = source.store.range(ROOT, start, limit, out.revision)
        except TransformError as e:
            if limit == 1:
                out.wrong.append((e.key, f"cannot be opened: {e.why}"))
                start, limit = e.key + "\0", PAGE
            else:
                limit = 1  # a page that contains an unreadable record is read record by record up to that one
            continue
        start, more = page.next_key, page.more
        yield from page.records


def _record(forms: Forms, record: Record) -> Iterator[str]:
    """Yields the problems of a single record."""
    try:
        obj = object_of(record)
    except ValueError as e:
        yield f"cannot be read: {e}"
        return
    if obj.get("metadata", {}).get("resourceVersion") != str(record.revision):
        yield f"says resourceVersion {obj.get('metadata', {}).get('resourceVersion')}, and is of revision {record.revision}"
    written = entry(record)
    assert written.draft is not None
    try:
        derived = forms.values.decode(record.key, written.draft.json)
    except Undecodable as e:
        yield f"cannot be read: {e}"
        return
    yield from misplaced(forms, record.key, written.draft.json)
    if derived.label_map != record.labels:
        yield f"has the labels {derived.label_map}, and is found by {record.labels}"
    if derived.field_map != record.fields:
        yield f"has the fields {derived.field_map}, and is found by {record.fields}"
    registry = forms.values.registry(record.key)
    if registry is not None and registry.resource.storage_kind is not None and record.protobuf is not None:
        try:
            same = transcode_json_to_protobuf(registry.resource.storage_kind.type, record.json) == record.protobuf
        except EncodeError as e:
            same = False
            yield f"cannot be written as protobuf: {e}"
        if not same:
            yield "differs between protobuf and JSON"


def _history(source: LMDBSource, out: Checked) -> dict[str, tuple[int, bool]] | None:
    """Walks the log, where each state must lead to the next. Returns key → (revision of its last write, whether it existed
    after it), None if the log cannot be read. Memory grows with the number of keys in the history."""
    last: dict[str, tuple[int, bool]] = {}
    after = source.store.compacted_revision
    while after < out.revision:
        try:
            events, after = source.store.events(ROOT, after, EVENTS)
        except StoreError as e:
            out.wrong.append(("history", f"cannot be read behind revision {after}: {e}"))
            return None
        for event in events:
            if event.revision > out.revision:
                return last
            out.writes += 1
            last[event.key] = (event.revision, event.op != GONE)
    return last
