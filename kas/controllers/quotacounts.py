"""Usage of the objects of a kind in a namespace, maintained incrementally: the number of objects with equal usage.

A quota is recounted whenever an object goes, and there may be many quotas. Reading all pods of a namespace for each of them every time
would be quadratic in the deletions. So the objects are read once, page by page, and updated by events. If there are few objects, or
nearly all have different usage, nothing is kept; they are read again for each count, once for all quotas.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

import orjson

from kas.admission import pods as pod_objects
from kas.admission.quota_usage import Evaluator, scopes_of
from kas.controllers.client import Client
from kas.meta.quantity import Quantity
from kas.meta.records import NamedTuple
from kas.meta.stored import object_of
from kas.meta.waiting import TimeSlice
from kas.registry.generic import Registry
from kas.store import Event

Obj = dict[str, Any]
KEPT_FROM = 256  # objects; with fewer, nothing is kept
DIFFERENT, ONE_IN = 64, 16  # kept if at most this many usages differ, plus one in so many objects
ZERO = Quantity(0)


class Use(NamedTuple):
    """The usage of an object: amounts, membership in the scopes, and the time from which it is only ``Evaluator.rest``."""

    amounts: tuple[tuple[str, Quantity], ...]
    scopes: tuple[bool, ...]
    until: float


class Tally:
    """The objects of a kind in a namespace grouped by usage, for quotas with ``scopes``."""

    def __init__(self, evaluator: Evaluator, scopes: dict[bytes, Obj]) -> None:
        self._evaluator, self.scopes = evaluator, scopes
        self._alike: dict[Use, int] = {}
        self._ends: list[str] = []  # the last keys of the pages read,
        self._revisions: list[int] = []  # and the revisions they were read at
        self._objects = 0
        self.whole = self.broken = False  # all pages are read; a count became impossible

    async def read(self, client: Client, prefix: str) -> None:
        """Read all objects. A concurrent write is in the page being read, or is delivered to ``apply``."""
        time_slice = TimeSlice()
        async for page in client.paced_pages(prefix):
            # Until the next page is read, nothing beyond this one is known.
            self._ends.append(page.records[-1].key if page.more else "\U0010ffff")
            self._revisions.append(page.revision)
            for rec in page.records:
                self._add(object_of(rec), 1)
                if time_slice.over:
                    await time_slice.pause()
        self.whole, self.broken = True, any(n < 0 for n in self._alike.values())

    def apply(self, e: Event) -> bool:
        """Apply an event; return whether usage may have decreased."""
        at = bisect_left(self._ends, e.key)
        if at == len(self._ends) or e.revision <= self._revisions[at]:
            return True  # not read yet, or read with this change
        if e.record is not None and e.previous is not None:
            now, before = object_of(e.record), object_of(e.previous)
            if self._evaluator.same(now, before) or self._use(now) == self._use(before):
                return False
            self._add(before, -1)
            self._add(now, 1)
            return True
        if e.previous is not None:
            self._add(object_of(e.previous), -1)
        if e.record is not None:
            self._add(object_of(e.record), 1)
        return e.previous is not None

    def _use(self, obj: Obj) -> Use:
        until = self._evaluator.over_at(obj)
        if until != math.inf:
            obj = {**obj, "metadata": {k: v for k, v in obj["metadata"].items() if k != "deletionTimestamp"}}
        amounts = tuple(sorted(self._evaluator.usage(obj).items(), key=_name))
        return Use(amounts, tuple(self._evaluator.in_scope(scope, obj) for scope in self.scopes.values()), until)

    def _add(self, obj: Obj, n: int) -> None:
        use = self._use(obj)
        left = self._alike.get(use, 0) + n
        self._objects += n
        if left:  # negative while a deleted object is in the page being read
            self._alike[use] = left
        else:
            del self._alike[use]
        self.broken |= self.whole and left < 0

    @property
    def worth_keeping(self) -> bool:
        """Whether there are many objects, most of them with equal usage."""
        return self._objects >= KEPT_FROM and len(self._alike) <= DIFFERENT + self._objects // ONE_IN and not self.broken

    async def used(self, quota: Obj, names: Sequence[str]) -> pod_objects.Amounts:
        """Return how much of each of ``names`` the objects use to which the quota applies."""
        places = {text: i for i, text in enumerate(self.scopes)}
        about = [places[_text(scope)] for scope in scopes_of(quota)]
        total, time_slice, wanted, now = dict.fromkeys(names, ZERO), TimeSlice(), set(names), time.time()
        for use, n in list(self._alike.items()):
            if all(use.scopes[i] for i in about):
                for name, need in use.amounts if now <= use.until else self._evaluator.rest.items():
                    if name in wanted:
                        total[name] += _times(need, n)
            if time_slice.over:
                await time_slice.pause()
        return total


class Counts:
    """The tallies that are kept."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._kept: dict[tuple[str, str], Tally] = {}  # by (root of the kind, namespace)

    def clear(self) -> None:
        """Drop all tallies: changes may have been missed."""
        self._kept.clear()

    def forget(self, namespace: str) -> None:
        """Drop a namespace's tallies: it has no quota any more."""
        self._kept = {key: tally for key, tally in self._kept.items() if key[1] != namespace}

    def apply(self, root: str, namespace: str, e: Event) -> bool | None:
        """Apply an event; return whether usage may have decreased, None if there is no tally."""
        tally = self._kept.get((root, namespace))
        if tally is None:
            return None
        freed = tally.apply(e)
        if tally.broken or (tally.whole and not tally.worth_keeping):
            del self._kept[root, namespace]
        return freed

    async def read(self, reg: Registry, evaluator: Evaluator, namespace: str, scopes: dict[bytes, Obj]) -> Tally:
        """Return the tally of a kind in a namespace, as new as the store."""
        key = (reg.root, namespace)
        self._client.store.part(reg.root).hub.catch_up()
        tally = self._kept.get(key)
        if tally is not None and tally.whole and scopes.keys() <= tally.scopes.keys():
            return tally
        tally = Tally(evaluator, scopes)
        if evaluator.steady:
            self._kept[key] = tally  # so that it receives events while it reads
        try:
            await tally.read(self._client, reg.prefix(namespace))
        finally:
            if self._kept.get(key) is tally and not (tally.whole and tally.worth_keeping):
                del self._kept[key]
        return tally


class QuotaCount:
    """One count in a namespace for some of its quotas; each kind is read once for all of them."""

    def __init__(self, counts: Counts, namespace: str, quotas: Sequence[Obj]) -> None:
        self._counts, self._namespace = counts, namespace
        self._scopes = {_text(scope): scope for quota in quotas for scope in scopes_of(quota)}
        self._read: dict[str, Tally] = {}

    async def of(self, reg: Registry, evaluator: Evaluator) -> Tally:
        """Return the tally of a kind."""
        tally = self._read.get(reg.root)
        if tally is None:
            tally = self._read[reg.root] = await self._counts.read(reg, evaluator, self._namespace, self._scopes)
        return tally


def _text(scope: Obj) -> bytes:
    return orjson.dumps(scope, option=orjson.OPT_SORT_KEYS)


def _name(item: tuple[str, Quantity]) -> str:
    return item[0]


def _times(need: Quantity, n: int) -> Quantity:
    total = ZERO
    while n:
        if n & 1:
            total += need
        need, n = need + need, n >> 1
    return total
