"""Coordinated leader election (KEP-4355): selects the holder of a Lease from the LeaseCandidates for it.

A candidate is pinged (``pingTime``) and answers by renewing (``renewTime``). Of those that answered, the one with the oldest emulated
version becomes the Lease's holder, or its preferred holder, for which the current holder steps down. All state is in the objects.
Upstream: ``pkg/controlplane/controller/leaderelection``.
"""

from __future__ import annotations

import asyncio
import datetime
import logging
from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic
from typing import Any

from kas.config.options import Options
from kas.controllers.client import Client, Filling, split_key
from kas.controllers.election import LeaderElection, Times
from kas.controllers.queue import WorkQueue, follow
from kas.kinds.coordination.lease import OLDEST_EMULATION, Version, semantic_version
from kas.meta import offload
from kas.meta.records import NamedTuple
from kas.meta.stored import object_of
from kas.meta.waiting import TimeSlice
from kas.observe.hooks import Hooks
from kas.registry.registries import Registries
from kas.store import Event, Record

GROUP = "coordination.k8s.io"
MICRO_TIME = "%Y-%m-%dT%H:%M:%S.%fZ"
AGAIN_S = 5.0  # interval of checks whether the holder renews
LEASE_DURATION_S = 5
ELECTION = datetime.timedelta(seconds=5)  # time candidates have to answer, and for which an answer is valid
VALID = datetime.timedelta(minutes=30)  # a candidate that was not renewed for this long is ignored
COLLECT_EVERY_S = 3600.0
MANY = 1000  # from this many candidates on, they are compared in the thread pool
REST, LONGEST_REST_S = 4, 5.0  # pause after examining the candidates of a Lease, as a multiple of its duration: each may trigger another

CLOCK = partial(datetime.datetime.now, datetime.UTC)

Key = tuple[str, str]  # namespace and name of a Lease

log = logging.getLogger("kas.controllers")


class Candidate(NamedTuple):
    """The parts of a LeaseCandidate that elections use."""

    name: str
    created: str
    lease: str
    strategy: str
    binary: Version | None
    emulation: Version | None
    renewed: datetime.datetime | None
    pinged: datetime.datetime | None

    @classmethod
    def of(cls, obj: dict[str, Any]) -> Candidate:
        """Return the candidate of an API object."""
        meta, spec = obj["metadata"], obj.get("spec") or {}
        return cls(
            meta["name"], meta.get("creationTimestamp") or "", spec.get("leaseName") or "", spec.get("strategy") or "",
            semantic_version(spec.get("binaryVersion") or ""), semantic_version(spec.get("emulationVersion") or ""),
            _time(spec.get("renewTime")), _time(spec.get("pingTime")),
        )  # fmt: skip

    def expired(self, now: datetime.datetime) -> bool:
        """Return whether the candidate was not renewed for so long that it is ignored."""
        return self.renewed is None or self.renewed + VALID < now

    def alive(self, now: datetime.datetime) -> bool:
        """Return whether the candidate renewed just now."""
        return self.renewed is not None and self.renewed + ELECTION > now

    @property
    def owes_an_answer(self) -> bool:
        """Whether the candidate was pinged and has not answered."""
        return self.pinged is not None and (self.renewed is None or self.renewed < self.pinged)


class Disagreement(Exception):
    """Candidates of the newest version specify different strategies."""


def strategy_of(candidates: Sequence[Candidate]) -> str:
    """Return the strategy of the candidates with the newest binary. Raises Disagreement."""
    zero: Version = ((), True, ())
    best = candidates[0]
    for c in candidates[1:]:
        if (best.binary or zero) < (c.binary or zero):
            best = c
        elif (best.binary or zero) == (c.binary or zero) and best.strategy != c.strategy:
            raise Disagreement(f"candidates {best.name}, {c.name} of one version want {best.strategy} and {c.strategy}")
    return best.strategy


def best_of(candidates: Sequence[Candidate]) -> str:
    """Return the best leader: the oldest emulated version, then the oldest binary, then the first created; "" if there is none."""
    fit = [(c.emulation, c.binary, c.created, c.name) for c in candidates if c.emulation is not None and c.binary is not None]
    return min(fit, key=lambda c: c[:3])[3] if fit else ""


def _outcome(candidates: Sequence[Candidate], now: datetime.datetime) -> tuple[str, str] | None:
    """Return (strategy, leader) of an election among the candidates that answered; None if none did. Raises Disagreement."""
    alive = [c for c in candidates if c.alive(now)]
    if not alive:
        return None
    strategy = strategy_of(alive)
    return strategy, best_of(alive) if strategy == OLDEST_EMULATION else ""


class CoordinatedElection:
    """Elects leaders for the Leases that have candidates."""

    name = "leader-election-controller"

    def __init__(self, registries: Registries, clock: Callable[[], datetime.datetime] = CLOCK) -> None:
        self._clock = clock
        self.client = Client(registries, "kube-apiserver", "system:apiserver")
        self.leases, self.candidates = registries.of(GROUP, "leases"), registries.of(GROUP, "leasecandidates")
        self.queue = WorkQueue(self._paced, self.name)
        self._known: dict[str, Key] = {}  # the Lease of a candidate, by the candidate's store key
        self._offers: dict[Key, set[str]] = {}  # names of candidates by Lease
        self._rested: dict[Key, float] = {}  # when a Lease may be examined again
        self._filling = Filling(self.client, self.candidates.root, self._clear, self._seen)

    async def run(self) -> None:
        """Follow candidates and Leases until cancelled."""
        self._filling.begin()
        candidates = self.client.reflector(self.candidates.root, self._candidates_changed, self._filling.listed, lists=False)
        leases = self.client.reflector(self.leases.root, self._leases_changed)
        await follow(self.queue, [candidates, leases], fill=self._filling.fill)

    def _clear(self) -> None:
        self._known.clear()
        self._offers.clear()
        self._rested.clear()

    def _candidates_changed(self, events: Sequence[Event]) -> None:
        for e in events:
            if e.record is not None:
                self._seen(e.record)
            elif (lease := self._withdrawn(e.key)) is not None:
                self.queue.add(lease)

    def _withdrawn(self, key: str) -> Key | None:
        """Remove a candidate; return the Lease it was for, or None if it is unknown."""
        lease = self._known.pop(key, None)
        if lease is not None:
            self._offers[lease].discard(split_key(self.candidates, key)[1])
            if not self._offers[lease]:
                del self._offers[lease]
                self._rested.pop(lease, None)
        return lease

    def _seen(self, record: Record) -> None:
        obj = object_of(record)
        candidate = Candidate.of(obj)
        lease = obj["metadata"]["namespace"], candidate.lease
        if self._known.get(record.key) != lease:
            self._withdrawn(record.key)
            self._known[record.key] = lease
            self._offers.setdefault(lease, set()).add(candidate.name)
        if not candidate.owes_an_answer:  # otherwise an election is in progress, which checks again itself
            self.queue.add(lease)

    def _leases_changed(self, events: Sequence[Event]) -> None:
        # Most Leases, of nodes and of others with an election of their own, have no candidates.
        for e in events if self._offers else ():
            lease = split_key(self.leases, e.key)
            if lease in self._offers:
                self.queue.add(lease)

    async def _paced(self, key: Key) -> float | None:
        """Run ``step``, with pauses."""
        began = monotonic()
        if (left := self._rested.get(key, 0.0) - began) > 0:
            return left
        try:
            return await self.step(key)
        finally:
            if key in self._offers:
                now = monotonic()
                self._rested[key] = now + min(LONGEST_REST_S, REST * (now - began))

    async def step(self, key: Key) -> float | None:
        """Run the election for a Lease as far as possible now; return after how many seconds to check again."""
        namespace, name = key
        now = self._clock()
        candidates = await self._offering(key, now)
        if not candidates:
            return None
        try:
            many, lease = len(candidates) >= MANY, self.client.get(GROUP, "leases", namespace, name)
            if not await offload.step(many, self._needed, candidates, lease, now):
                return AGAIN_S
            if await self._asked(namespace, candidates, now):
                return AGAIN_S
            found = await offload.step(many, _outcome, candidates, now)
        except Disagreement as e:
            log.warning("election for %s/%s: %s", namespace, name, e)
            return AGAIN_S
        if found is None:
            log.info("election for %s/%s: no candidate answers", namespace, name)
            return None  # the next renewal of a candidate starts it again
        await self._elect(key, *found, now)
        return AGAIN_S

    async def _offering(self, key: Key, now: datetime.datetime) -> list[Candidate]:
        """Return the valid candidates of a Lease, yielding to other tasks: a client may have created thousands, for it or for others."""
        namespace, name = key
        found, time_slice = [], TimeSlice()
        for offer in sorted(self._offers.get(key, ())):
            if time_slice.over:
                await time_slice.pause()
            obj = self.client.get(GROUP, "leasecandidates", namespace, offer)
            if obj is not None and (c := Candidate.of(obj)).lease == name and not c.expired(now):
                found.append(c)
        return found

    @staticmethod
    def _needed(candidates: Sequence[Candidate], lease: dict[str, Any] | None, now: datetime.datetime) -> bool:
        """Return whether the leader may have to change. From time to time all candidates are pinged, to find those that are gone."""
        spec = (lease or {}).get("spec") or {}
        if _ended(spec, now) or not spec.get("holderIdentity"):
            return True
        if any(c.renewed is not None and c.renewed + VALID / 2 < now for c in candidates):
            return True
        best = best_of(candidates) if strategy_of(candidates) == OLDEST_EMULATION else ""
        return bool(best) and best != spec["holderIdentity"]

    async def _asked(self, namespace: str, candidates: Sequence[Candidate], now: datetime.datetime) -> bool:
        """Ping candidates without a recent answer; return whether there are answers to wait for."""
        waiting, time_slice = False, TimeSlice()
        for c in candidates:
            if time_slice.over:
                await time_slice.pause()
            if c.owes_an_answer:
                # A candidate that did not answer in time is not pinged again: the election continues without it.
                waiting = waiting or (c.pinged is not None and c.pinged + ELECTION > now)
            elif not c.alive(now):
                await self.client.update(self.candidates, namespace, c.name, partial(_ask, now.strftime(MICRO_TIME)))
                waiting = True
        return waiting

    async def _elect(self, key: Key, strategy: str, leader: str, now: datetime.datetime) -> None:
        """Write the new leader into the Lease; without ``leader``, only the ``strategy`` by which another component decides."""
        namespace, name = key
        fresh = {"leaseDurationSeconds": LEASE_DURATION_S, "renewTime": now.strftime(MICRO_TIME), "strategy": strategy}
        if leader:
            fresh["holderIdentity"] = leader

        def change(lease: dict[str, Any]) -> bool:
            spec = lease.setdefault("spec", {})
            before, holder = dict(spec), spec.get("holderIdentity")
            spec["strategy"] = strategy
            if leader and (not holder or (_ended(spec, now) and holder != leader)):
                for old in ("preferredHolder", "acquireTime"):
                    spec.pop(old, None)
                spec.update(fresh)
            elif leader and holder != leader:
                spec["preferredHolder"] = leader
            return bool(spec != before)

        lease = {"kind": "Lease", "apiVersion": f"{GROUP}/v1", "metadata": {"name": name, "namespace": namespace}, "spec": fresh}
        if await self.client.create(GROUP, "leases", lease) is None:
            await self.client.update(self.leases, namespace, name, change)
        log.info("election for %s/%s: %s", namespace, name, leader or f"left to who knows {strategy}")


class CandidateCollector:
    """Deletes LeaseCandidates that were not renewed for long."""

    name = "leasecandidate-gc"

    def __init__(self, registries: Registries) -> None:
        self.client = Client(registries, "kube-apiserver", "system:apiserver")
        self.registry = registries.of(GROUP, "leasecandidates")

    async def run(self) -> None:
        """Collect every ``COLLECT_EVERY_S`` seconds until cancelled."""
        while True:
            await self.collect(datetime.datetime.now(datetime.UTC))
            await asyncio.sleep(COLLECT_EVERY_S)

    async def collect(self, now: datetime.datetime) -> None:
        """Delete expired candidates."""
        async for rec in self.client.paced(self.registry.root):
            obj = object_of(rec)
            if Candidate.of(obj).expired(now):
                meta = obj["metadata"]
                await self.client.delete(self.registry, meta["namespace"], meta["name"], meta.get("uid", ""))


def _ask(pinged: str, obj: dict[str, Any]) -> bool:
    obj["spec"]["pingTime"] = pinged
    return True


def _time(text: str | None) -> datetime.datetime | None:
    return datetime.datetime.fromisoformat(text) if text else None


def _ended(spec: dict[str, Any], now: datetime.datetime) -> bool:
    renewed, seconds = _time(spec.get("renewTime")), spec.get("leaseDurationSeconds")
    return renewed is None or seconds is None or renewed + datetime.timedelta(seconds=seconds) < now


def elections(registries: Registries, hooks: Hooks, raw: Options) -> LeaderElection:
    """Return the election that decides which server of the cluster runs the coordinated election."""
    times = Times(
        raw.coordinated_leadership_lease_duration, raw.coordinated_leadership_renew_deadline, raw.coordinated_leadership_retry_period
    )
    loops = lambda: (CoordinatedElection(registries), CandidateCollector(registries))  # noqa: E731
    return LeaderElection(registries, loops, hooks, CoordinatedElection.name, times)
