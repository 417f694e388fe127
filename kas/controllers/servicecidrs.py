"""Keeps ServiceCIDRs until no service address needs them, and sets their Ready condition (``pkg/controller/servicecidrs``)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from time import monotonic
from typing import Any

from kas.controllers.client import Client, split_key
from kas.controllers.queue import WorkQueue, follow
from kas.kinds.core.service.allocation import CONTROLLER, MANAGED_BY
from kas.kinds.core.service.allocation.addresses import Covered, Network, networks, number_in
from kas.meta.ip import IP, parse_ip
from kas.meta.stored import object_of
from kas.registry.registries import Registries
from kas.store import Event, Record

GROUP = "networking.k8s.io"
FINALIZER = "networking.k8s.io/service-cidr-finalizer"
READY = "Kubernetes Service CIDR is ready"
IN_USE = "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR"
# Allocators of other workers and servers need a moment to notice the deletion of a range.
DELETION_GRACE_S = 1.0
RECHECK_S = 10.0
REST, LONGEST_REST_S = 4, 10.0  # the pause after a scan of all addresses, as a multiple of its duration
LOOK = ""  # the item for a scan of all addresses, for all deleted ranges


class ServiceCIDRs:
    """Maintains the Ready condition of ServiceCIDRs, and keeps deleted ones that addresses still need."""

    name = "service-cidr-controller"

    def __init__(self, registries: Registries) -> None:
        self.client = Client(registries, self.name, "system:serviceaccount:kube-system:service-cidrs-controller")
        self.registry = registries.of(GROUP, "servicecidrs")
        self.addresses = registries.of(GROUP, "ipaddresses")
        self.queue = WorkQueue(self._sync, self.name)
        self.going: dict[str, float] = {}  # deleted ranges -> since when
        self._rested = 0.0  # when the next scan may begin

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
        # A new or deleted range changes which others are needed.
        self._look_again()

    def _address_events(self, events: Sequence[Event]) -> None:
        if self.going and any(e.record is None for e in events):
            self._look_again()

    def _look_again(self) -> None:
        """Schedule one scan for all ranges deleted by then: a scan reads all addresses, and a thousand addresses or ranges may be deleted
        one by one."""
        if self.going:
            self.queue.add_after(LOOK, max(DELETION_GRACE_S, self._rested - monotonic()))

    async def _sync(self, name: str) -> float | None:
        if name == LOOK:
            return await self._look()
        cidr = self.client.get(GROUP, "servicecidrs", "", name)
        if cidr is None:
            self.going.pop(name, None)
            return None
        meta = cidr["metadata"]
        if meta.get("deletionTimestamp"):
            if FINALIZER in (meta.get("finalizers") or ()) and name not in self.going:
                self.going[name] = monotonic()
                self._look_again()
            return None
        if FINALIZER not in (meta.get("finalizers") or ()):
            await self.client.update(self.registry, "", name, _hold, uid=meta.get("uid", ""))
        await self._condition(cidr, "True", "", READY)
        return None

    async def _look(self) -> float | None:
        """Release the deleted ranges that are not needed; return after how many seconds to scan again, or None."""
        began, going, young = monotonic(), dict[str, dict[str, Any]](), False
        if began < self._rested:  # requested during the last scan
            return self._rested - began
        for name, since in list(self.going.items()):
            cidr = self.client.get(GROUP, "servicecidrs", "", name)
            meta = cidr["metadata"] if cidr is not None else {}
            if cidr is None or not meta.get("deletionTimestamp") or FINALIZER not in (meta.get("finalizers") or ()):
                self.going.pop(name, None)  # another range may have its name now
            elif since + DELETION_GRACE_S > began:
                young = True
            else:
                going[name] = cidr
        needed = await self._needed(going)  # according to the local view
        if len(needed) < len(going):
            await self.client.rest_fresh(self.registry.root, (self.client.registries.of(GROUP, "ipaddresses").root,))
            needed |= await self._needed({name: cidr for name, cidr in going.items() if name not in needed})
        for name, cidr in going.items():
            if name in needed:
                await self._condition(cidr, "False", "Terminating", IN_USE)
            else:
                await self.client.update(self.registry, "", name, _let_go, uid=cidr["metadata"].get("uid", ""))
        now = monotonic()
        rest = min(LONGEST_REST_S, REST * (now - began))
        self._rested = now + rest
        return max(DELETION_GRACE_S, rest) if young else RECHECK_S if needed else None

    async def _condition(self, cidr: dict[str, Any], status: str, reason: str, message: str) -> None:
        had = next((c for c in (cidr.get("status") or {}).get("conditions") or () if c.get("type") == "Ready"), None)
        if had is not None and had.get("status") == status and (status == "True" or had.get("message") == message):
            return
        now = self.client.context().now
        condition = {"type": "Ready", "status": status, "lastTransitionTime": now, "reason": reason, "message": message}
        await self.client.apply(self.registry, "", cidr["metadata"]["name"], {"status": {"conditions": [condition]}}, "status")

    async def _needed(self, going: Mapping[str, dict[str, Any]]) -> set[str]:
        """Return the names of those ranges that contain a service address which no remaining range covers."""
        own, others, needed = _Nets(going), None, set[_Net]()
        if not going:
            return set()
        async for rec in self.client.paced(self.addresses.root):
            ip = parse_ip(split_key(self.addresses, rec.key)[1])
            of = own.of(ip) - needed if ip is not None else set()
            if ip is None or not of or (object_of(rec)["metadata"].get("labels") or {}).get(MANAGED_BY) != CONTROLLER:
                continue
            if others is None:  # only then: hundreds of ranges may be deleted of which none contains an address
                others = Covered([_bounds(net) async for net in self._staying()])
            if ip not in others:
                needed |= of
        return {name for net in needed for name in own.names[net]}

    async def _staying(self) -> AsyncIterator[Network]:
        """Yield the networks of the remaining ranges."""
        async for rec in self.client.paced(self.registry.root):
            cidr = object_of(rec)
            if not cidr["metadata"].get("deletionTimestamp"):
                for net in networks(cidr):
                    yield net


_Net = tuple[int, int, int]  # version, number of host bits, network prefix


class _Nets:
    """The networks of ranges and their ``names``; the networks of an address are found however many there are."""

    def __init__(self, cidrs: Mapping[str, dict[str, Any]]) -> None:
        self.names: dict[_Net, list[str]] = {}
        for name, cidr in cidrs.items():
            for net in networks(cidr):
                bits = net.max_prefixlen - net.prefixlen
                self.names.setdefault((net.version, bits, int(net.network_address) >> bits), []).append(name)
        self._sizes = {net[:2] for net in self.names}

    def of(self, ip: IP) -> set[_Net]:
        """Return the networks that contain ``ip``: at most one per prefix length."""
        number = number_in(ip)
        found = {(version, bits, number >> bits) for version, bits in self._sizes if version == ip.family}
        return found & self.names.keys()


def _bounds(net: Network) -> tuple[int, int, int]:
    return net.version, int(net.network_address), int(net.broadcast_address)


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
