"""Selecting by what the store does not know of records: objects are converted first and looked at then. So it is with shards, and with
fields of custom resources.

Records carry their selectable fields as they were when they were written. Older ones are without a field that came later, and a version
that a webhook converts may have it under another name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kas.endpoints.listpages import PAGE_BYTES, PAGE_ITEMS, Listing, large
from kas.endpoints.options import ListOptions, list_options
from kas.endpoints.selection import matcher_of, with_served_fields
from kas.endpoints.served import Served
from kas.meta.aside import step
from kas.meta.records import NamedTuple
from kas.meta.selectors import FieldSelector
from kas.registry.strategy import Obj
from kas.registry.versions import Shown
from kas.request.http import Request
from kas.types.fieldlabels import custom_selectable_fields

Sieve = Callable[[Obj], bool]


# A query from here on is read beside the loop: 250 kB of selectors take some 200 ms.
LONG_QUERY = 16 << 10


class Asked(NamedTuple):
    """What a list or watch asks for: its options, the matcher of records, and what is to be asked of objects besides."""

    options: ListOptions
    matcher: Any
    sieve: Sieve | None


class Sifted(NamedTuple):
    """A page as a scan would give it, of records that were selected after they were converted: stored, and as they are shown."""

    records: list[Any]
    shown: list[Shown]
    revision: int
    more: bool
    next_key: str
    remaining: int = -1


def selection_of(served: Served, o: ListOptions) -> tuple[Any, Sieve | None]:
    """The matcher of records, and what is to be asked of objects in the version of the request besides; None when nothing is."""
    matcher, sieve = _by_fields(served, o)
    if o.shards is None:
        return matcher, sieve
    in_shards = o.shards.matches
    return matcher, in_shards if sieve is None else lambda obj: in_shards(obj) and sieve(obj)


def _by_fields(served: Served, o: ListOptions) -> tuple[Any, Sieve | None]:
    fields = o.field_selector
    if fields is None or not served.unindexed:
        return matcher_of(o), None
    custom = [t for t in fields.requirements if not t.key.startswith("metadata.")]
    if not custom:
        return matcher_of(o), None
    stored = FieldSelector([t for t in fields.requirements if t.key.startswith("metadata.")])
    wanted, paths = FieldSelector(custom), tuple(t.key for t in custom)

    def sieve(obj: Obj) -> bool:
        return wanted.matches(custom_selectable_fields(obj, False, paths))

    return matcher_of(o._replace(field_selector=None if stored.empty else stored)), sieve


def asked_of(req: Request, served: Served, force_watch: bool = False) -> Asked:
    """What a request asks for, its selectors checked and compiled. Raises 400 and 422. Of a ``LONG_QUERY`` to be called beside the loop."""
    o = with_served_fields(served, list_options(req.params, force_watch))
    return Asked(o, *selection_of(served, o))


async def converted(served: Served, records: Sequence[Any], sieve: Sieve) -> Sequence[Shown | None]:
    """The records in the version of the request; None for those that are not selected."""
    shown = await served.converted(records)
    return await step(large(records), lambda: [s if sieve(served.object(s)) else None for s in shown])


async def sifted(q: Listing, sieve: Sieve, start: str, revision: int) -> Sifted:
    """The selected ones from ``start`` on, ``q.limit`` at most; read and converted page by page at one revision."""
    store, records, shown = q.served.registry.pages, list[Any](), list[Shown]()
    while True:
        page = store.range(q.prefix, start, PAGE_ITEMS, revision, q.matcher, max_bytes=PAGE_BYTES)
        revision = page.revision
        for i, s in enumerate(await converted(q.served, page.records, sieve)):
            if s is None:
                continue
            if q.limit and len(shown) == q.limit:
                return Sifted(records, shown, revision, True, page.records[i].key)
            records.append(page.records[i])
            shown.append(s)
        if not page.more:
            return Sifted(records, shown, revision, False, "")
        start = page.next_key
