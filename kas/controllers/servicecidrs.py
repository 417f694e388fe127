"""Keeps ServiceCIDRs until no service address needs them, and says when they are ready (``pkg/controller/servicecidrs``)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from kas.controllers.client import Client, split_key
from kas.controllers.queue import WorkQueue, follow
from kas.kinds.core.service.allocation import CONTROLLER, MANAGED_BY
from kas.kinds.core.service.allocation.addresses import Network, networks
from kas.meta.aside import POOL
from kas.meta.ip import IP, parse_ip
from kas.meta.stored import object_of
from kas.registry.registries import Registries
from kas.store import Event, Record

GROUP = "networking.k8s.io"
FINALIZER = "networking.k8s.io/service-cidr-finalizer"
READY = "Kubernetes Service CIDR is ready"
IN_USE = "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR"
# Allocators of other workers and servers need a moment to see that the range is going away.
DELETION_GRACE_S = 1.0
RECHECK_S = 10.0


class ServiceCIDRs:
    """Says whether a ServiceCIDR is ready, and keeps one that addresses still need from going."""

    name = "service-cidr-controller"

    def __init__(self, registries: Registries) -> None:
        self.client = Client(registries, self.name, "system:serviceaccount:kube-system:service-cidrs-controller")
        self.registry = registries.of(GROUP, "servicecidrs")
        self.addresses = registries.of(GROUP, "ipaddresses")
        self.queue = WorkQueue(self._sync, self.name)
        self.going: set[str] = set()

    async def run(self) -> None:
        """Follow ranges and addresses until cancelled."""
        ranges = self.client.reflector(self.registry.root, self._events, self._listed)
        await follow(self.queue, [ranges, self.client.reflector(self.addresses.root, self._address_events)])

    def _listed(self, records: Sequence[Record]) -> None:
        for rec in records:
            self.queue.add(split_key(self.registry, rec.key)[1])

    def _events(self, events: Sequence[Event]) -> None:
        for e in events:
            if e.record is not None:
                self.queue.add(split_key(self.registry, e.key)[1])
        # A range that comes or goes changes what the others are needed for.
        self._look_again()

    def _address_events(self, events: Sequence[Event]) -> None:
        if self.going and any(e.record is None for e in events):
            self._look_again()

    def _look_again(self) -> None:
        """Of what goes by then: a look goes through all addresses, and a thousand of them may go one by one."""
        for name in self.going:
            self.queue.add_after(name, DELETION_GRACE_S)

    async def _sync(self, name: str) -> float | None:
        cidr = self.client.get(GROUP, "servicecidrs", "", name)
        if cidr is None:
            self.going.discard(name)
            return None
        meta = cidr["metadata"]
        if meta.get("deletionTimestamp"):
            if FINALIZER not in (meta.get("finalizers") or ()):
                return None
            if name not in self.going:
                self.going.add(name)
                return DELETION_GRACE_S
            if not await self._needed(cidr):  # as far as is known here
                await self.client.rest_fresh(self.registry.root, (self.client.registries.of(GROUP, "ipaddresses").root,))
            if await self._needed(cidr):
                await self._condition(cidr, "False", "Terminating", IN_USE)
                return RECHECK_S
            await self.client.update(self.registry, "", name, _let_go, uid=meta.get("uid", ""))
            return None
        if FINALIZER not in (meta.get("finalizers") or ()):
            await self.client.update(self.registry, "", name, _hold, uid=meta.get("uid", ""))
        await self._condition(cidr, "True", "", READY)
        return None

    async def _condition(self, cidr: dict[str, Any], status: str, reason: str, message: str) -> None:
        had = next((c for c in (cidr.get("status") or {}).get("conditions") or () if c.get("type") == "Ready"), None)
        if had is not None and had.get("status") == status and (status == "True" or had.get("message") == message):
            return
        now = self.client.context().now
        condition = {"type": "Ready", "status": status, "lastTransitionTime": now, "reason": reason, "message": message}
        await self.client.apply(self.registry, "", cidr["metadata"]["name"], {"status": {"conditions": [condition]}}, "status")

    async def _needed(self, cidr: dict[str, Any]) -> bool:
        """Is there a service address in it that no other range, which stays, covers?"""
        own, others = _Ranges(networks(cidr)), None
        async for rec in self.client.paced(self.addresses.root):
            ip = parse_ip(split_key(self.addresses, rec.key)[1])
            if ip is None or ip not in own or (object_of(rec)["metadata"].get("labels") or {}).get(MANAGED_BY) != CONTROLLER:
                continue
            if others is None:  # hundreds of ranges may go of which none holds an address
                others = await POOL.run(lambda: _Ranges(self._staying(cidr["metadata"]["name"])))
            if ip not in others:
                return True
        return False

    def _staying(self, but: str) -> Iterator[Network]:
        """What ranges that stay cover, but for one."""
        for o in self.client.list(GROUP, "servicecidrs"):
            if o["metadata"]["name"] != but and not o["metadata"].get("deletionTimestamp"):
                yield from networks(o)


class _Ranges:
    """Of addresses: whether one is in any of them is looked up, however many there are."""

    def __init__(self, covered: Iterable[Network]) -> None:
        found = sorted((n.version, int(n.network_address), int(n.broadcast_address)) for n in covered)
        self._first: list[tuple[int, int]] = []
        self._last: list[int] = []
        for version, first, last in found:
            if self._first and self._first[-1][0] == version and first <= self._last[-1] + 1:
                self._last[-1] = max(self._last[-1], last)
            else:
                self._first.append((version, first))
                self._last.append(last)

    def __contains__(self, ip: IP) -> bool:
        number = ip.number & 0xFFFFFFFF if ip.family == 4 else ip.number
        at = bisect_right(self._first, (ip.family, number)) - 1
        return at >= 0 and self._first[at][0] == ip.family and number <= self._last[at]


def _hold(obj: dict[str, Any]) -> bool:
    meta = obj["metadata"]
    if meta.get("deletionTimestamp") or FINALIZER in (meta.get("finalizers") or ()):
        return False
    meta["finalizers"] = [*(meta.get("finalizers") or ()), FINALIZER]
    return True


def _let_go(obj: dict[str, Any]) -> bool:
    meta = obj["metadata"]
    kept = [f for f in meta.get("finalizers") or () if f != FINALIZER]
    changed = len(kept) != len(meta.get("finalizers") or ())
    meta["finalizers"] = kept
    if not kept:
        del meta["finalizers"]
    return changed
