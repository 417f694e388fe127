"""What the objects of a kind in a namespace use, kept while they change: how many there are that count alike.

A quota is counted anew whenever something goes, and quotas may be many. To read each time all pods of a namespace for each of its quotas
would be quadratic in what is deleted. So they are read once, page by page, and brought on by events; where there are few, or nearly all
differ, nothing is kept and they are read again for each count, once for all quotas.
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
KEPT_FROM = 256  # objects: fewer are read again
DIFFERENT, ONE_IN = 64, 16  # kept where no more count differently than this, and one in so many
ZERO = Quantity(0)


class Use(NamedTuple):
    """What an object uses: under which names, in which scopes, and from when on no more than ``Evaluator.rest``."""

    amounts: tuple[tuple[str, Quantity], ...]
    scopes: tuple[bool, ...]
    until: float


class Tally:
    """The objects of a kind in a namespace by what they use, as quotas with ``scopes`` see them."""

    def __init__(self, evaluator: Evaluator, scopes: dict[bytes, Obj]) -> None:
        self._evaluator, self.scopes = evaluator, scopes
        self._alike: dict[Use, int] = {}
        self._ends: list[str] = []  # the last keys of the pages that were read, and
        self._revisions: list[int] = []  # which revision each was read at
        self._objects = 0
        self.whole = self.broken = False  # all is read; it met what cannot be

    async def read(self, client: Client, prefix: str) -> None:
        """All there is. What is written meanwhile is in the page that is read, or comes to ``apply``."""
        time_slice = TimeSlice()
        async for page in client.paced_pages(prefix):
            # Until the next page is read nothing behind this one is known.
            self._ends.append(page.records[-1].key if page.more else "\U0010ffff")
            self._revisions.append(page.revision)
            for rec in page.records:
                self._add(object_of(rec), 1)
                if time_slice.over:
                    await time_slice.pause()
        self.whole, self.broken = True, any(n < 0 for n in self._alike.values())

    def apply(self, e: Event) -> bool:
        """Takes in what happened; whether an object may use less than before."""
        at = bisect_left(self._ends, e.key)
        if at == len(self._ends) or e.revision <= self._revisions[at]:
            return True  # not read yet, or read already
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
        if left:  # below 0 while what went is in the page that is being read
            self._alike[use] = left
        else:
            del self._alike[use]
        self.broken |= self.whole and left < 0

    @property
    def worth_keeping(self) -> bool:
        """Whether there are many, most of them alike."""
        return self._objects >= KEPT_FROM and len(self._alike) <= DIFFERENT + self._objects // ONE_IN and not self.broken

    async def used(self, quota: Obj, names: Sequence[str]) -> pod_objects.Amounts:
        """How much of each of ``names`` those use that a quota is about."""
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
        self._kept: dict[tuple[str, str], Tally] = {}  # by root of the kind and namespace

    def clear(self) -> None:
        """Changes may have been missed: all is read anew."""
        self._kept.clear()

    def forget(self, namespace: str) -> None:
        """There is no quota any more."""
        self._kept = {key: tally for key, tally in self._kept.items() if key[1] != namespace}

    def apply(self, root: str, namespace: str, e: Event) -> bool | None:
        """Takes in what happened; whether there may be less than before, None where it is not known."""
        tally = self._kept.get((root, namespace))
        if tally is None:
            return None
        freed = tally.apply(e)
        if tally.broken or (tally.whole and not tally.worth_keeping):
            del self._kept[root, namespace]
        return freed

    async def read(self, reg: Registry, evaluator: Evaluator, namespace: str, scopes: dict[bytes, Obj]) -> Tally:
        """The tally of a kind in a namespace, as new as the store."""
        key = (reg.root, namespace)
        self._client.store.part(reg.root).hub.catch_up()
        tally = self._kept.get(key)
        if tally is not None and tally.whole and scopes.keys() <= tally.scopes.keys():
            return tally
        tally = Tally(evaluator, scopes)
        if evaluator.steady:
            self._kept[key] = tally  # so that it hears of what happens
        try:
            await tally.read(self._client, reg.prefix(namespace))
        finally:
            if self._kept.get(key) is tally and not (tally.whole and tally.worth_keeping):
                del self._kept[key]
        return tally


class Census:
    """One count in a namespace, for some of its quotas: each kind is read once for all of them."""

    def __init__(self, counts: Counts, namespace: str, quotas: Sequence[Obj]) -> None:
        self._counts, self._namespace = counts, namespace
        self._scopes = {_text(scope): scope for quota in quotas for scope in scopes_of(quota)}
        self._read: dict[str, Tally] = {}

    async def of(self, reg: Registry, evaluator: Evaluator) -> Tally:
        """The tally of a kind."""
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
