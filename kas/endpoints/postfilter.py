"""Selection of objects after their conversion, by what the store does not know about its records.

Used for shard selectors and for fields and labels of custom resources. Records are indexed by their labels and selectable fields as of
their last write. Records older than a selectable field lack it, and a version that a webhook converts may have the field under another
name, and other labels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kas.endpoints.listpages import PAGE_BYTES, PAGE_ITEMS, Listing, large
from kas.endpoints.options import ListOptions, list_options
from kas.endpoints.selection import matcher_of, with_served_fields
from kas.endpoints.served import Served
from kas.meta.offload import step
from kas.meta.records import NamedTuple
from kas.meta.selectors import FieldSelector, FieldTerm, LabelSelector
from kas.registry.strategy import Obj
from kas.registry.versions import Shown
from kas.request.http import Request
from kas.types.fieldlabels import custom_selectable_fields

Sieve = Callable[[Obj], bool]


# Length of a query from which it is parsed in the thread pool: 250 kB of selectors take some 200 ms.
LONG_QUERY = 16 << 10


class ListQuery(NamedTuple):
    """The parsed query of a list or watch: its options, the matcher of records, and the predicate for converted objects, if any."""

    options: ListOptions
    matcher: Any
    sieve: Sieve | None


class PostFilter(NamedTuple):
    """A page like that of a scan, with records that were selected after their conversion: as stored and as shown."""

    records: list[Any]
    shown: list[Shown]
    revision: int
    more: bool
    next_key: str
    remaining: int = -1


def selection_of(served: Served, o: ListOptions) -> tuple[Any, Sieve | None]:
    """Return the matcher of records, and the predicate for objects in the version of the request or None."""
    sieves: list[Sieve] = []
    if o.shards is not None:
        sieves.append(o.shards.matches)
    if o.label_selector is not None and not served.streams:
        sieves.append(_labelled(o.label_selector))
        o = o._replace(label_selector=None)
    fields = o.field_selector
    custom = [t for t in fields.requirements if not t.key.startswith("metadata.")] if fields is not None and served.unindexed else ()
    if fields is not None and custom:
        sieves.append(_with_fields(custom))
        stored = FieldSelector([t for t in fields.requirements if t.key.startswith("metadata.")])
        o = o._replace(field_selector=None if stored.empty else stored)
    if len(sieves) < 2:
        return matcher_of(o), sieves[0] if sieves else None
    return matcher_of(o), lambda obj: all(sieve(obj) for sieve in sieves)


def _labelled(wanted: LabelSelector) -> Sieve:
    return lambda obj: wanted.matches(obj["metadata"].get("labels"))


def _with_fields(custom: Sequence[FieldTerm]) -> Sieve:
    wanted, paths = FieldSelector(custom), tuple(t.key for t in custom)
    return lambda obj: wanted.matches(custom_selectable_fields(obj, False, paths))


def parse_list_query(req: Request, served: Served, force_watch: bool = False) -> ListQuery:
    """Parse, check and compile a request's options. Raises 400 and 422. To be called in the thread pool for a ``LONG_QUERY``."""
    o = with_served_fields(served, list_options(req.params, force_watch))
    return ListQuery(o, *selection_of(served, o))


async def converted(served: Served, records: Sequence[Any], sieve: Sieve) -> Sequence[Shown | None]:
    """Return the records in the version of the request, with None in place of those that are not selected."""
    shown = await served.converted(records)
    return await step(large(records), lambda: [s if sieve(served.object(s)) else None for s in shown])


async def filtered(q: Listing, sieve: Sieve, start: str, revision: int) -> PostFilter:
    """Return the selected records from ``start`` on, at most ``q.limit``; read and converted page by page at one revision."""
    store, records, shown = q.served.registry.pages, list[Any](), list[Shown]()
    while True:
        page = store.range_to_filter(q.prefix, start, PAGE_ITEMS, revision, q.matcher, max_bytes=PAGE_BYTES)
        revision = page.revision
        for i, s in enumerate(await converted(q.served, page.records, sieve)):
            if s is None:
                continue
            records.append(page.records[i])
            shown.append(s)
            if len(shown) == q.limit:
                store.count_selected(q.limit)
                more = page.more or i + 1 < page.count  # the rest may or may not be selected
                return PostFilter(records, shown, revision, more, page.records[i].key + "\0" if more else "")
        if not page.more:
            store.count_selected(len(shown))
            return PostFilter(records, shown, revision, False, "")
        start = page.next_key
