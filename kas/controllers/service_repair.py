"""Compares Services with the records of their addresses and ports: creates missing records and deletes orphaned ones.

Upstream: ``pkg/registry/core/service/{ipallocator,portallocator}/controller``. Differences result from imported data, or from objects
that users created or deleted by hand. Runs once when this worker becomes the leader, then every few minutes; the addresses of a Service
are compared after each write to it, too. Each difference is reported by an event on the Service or the IPAddress.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import Sequence
from typing import cast

from kas.controllers.client import Client, split_key
from kas.controllers.queue import WorkQueue, follow
from kas.kinds.core.service.allocation import (
    CONTROLLER,
    FAMILY_LABEL,
    MANAGED_BY,
    ServiceAllocator,
    addresses,
    held_addresses,
    held_ports,
    port_op,
    ports,
)  # fmt: skip
from kas.kinds.core.service.allocation.families import family_of
from kas.meta.errors import ApiError
from kas.meta.ip import parse_ip
from kas.meta.offload import LARGE, step
from kas.meta.records import NamedTuple
from kas.meta.scalars import format_micro_time, parse_time
from kas.meta.stored import object_of
from kas.meta.waiting import TimeSlice
from kas.observe import counted
from kas.registry.registries import Registries
from kas.registry.strategy import Obj
from kas.store import Conflict, Event, Op, Record, StoreError, TransformError

log = logging.getLogger("kas.controllers")

EVERY_S = 180.0
# The Service of a new address may still follow; upstream's allocator writes the address first.
ORPHAN_S, STRAY_S = 60, 5
# A persistent fault is reported again after this time.
TELL_AGAIN_S = 3600.0
IP_REPORTER, PORT_REPORTER = "ipallocator-repair-controller", "portallocator-repair-controller"
SERVICE, ADDRESS = ("v1", "Service"), ("networking.k8s.io/v1", "IPAddress")
CREATE, RECREATE, LEAVE = "create", "recreate", "leave"
Fault = tuple[str, str, str]
# Labels in upstream's metrics by the reason of the event.
TYPES = {
    "ClusterIPOutOfRange": "outOfRange", "ClusterIPNotAllocated": "repair", "ClusterIPAlreadyAllocated": "duplicate",
    "IPAddressNotAllocated": "leak", "IPAddressWrongReference": "repair", "PortAlreadyAllocated": "duplicate",
    "PortOutOfRange": "outOfRange", "PortNotAllocated": "repair",
}  # fmt: skip
KEPT = ("name", "namespace", "uid", "creationTimestamp", "labels")


class _Seen(NamedTuple):
    """The revision at which a key was read."""

    key: str
    revision: int


class ServiceRepair:
    """Compares the addresses and ports of Services with their records, and repairs the records."""

    name = "service-ip-and-port-repair-controller"

    def __init__(self, registries: Registries) -> None:
        self.client = Client(registries, "kube-apiserver", "system:apiserver")
        self.services = registries.of("", "services")
        self.addresses = registries.of("networking.k8s.io", "ipaddresses")
        self.cidrs = registries.of("networking.k8s.io", "servicecidrs")
        self._told: dict[tuple[str, str], float] = {}  # times of reports, by the monotonic clock
        self._repairing = asyncio.Lock()  # a pass and the work on one Service do not mix
        self._stray: set[tuple[str, int]] = set()  # ports without an owner in the last pass: key and revision

    @property
    def _allocator(self) -> ServiceAllocator:
        return cast("ServiceAllocator", self.services.allocator)

    async def run(self) -> None:
        """Repair every ``EVERY_S`` seconds, and the addresses of each Service that is written, until cancelled. Raises what a pass does."""
        queue = WorkQueue(self._sync, self.name)

        def written(events: Sequence[Event]) -> None:
            for e in events:
                if e.record is not None:
                    queue.add(e.key)

        following = asyncio.create_task(follow(queue, [self.client.reflector(self.services.root, written)]))
        try:
            while not following.done():
                async with self._repairing:
                    await self._pass()
                await asyncio.wait([following], timeout=EVERY_S)
            following.result()
        finally:
            following.cancel()
            await asyncio.wait([following])

    async def _pass(self) -> None:
        try:
            await self.repair()
        except Exception:  # counted, then handled like any controller's failure
            counted.UNREPAIRED_ADDRESSES.inc()
            counted.UNREPAIRED_PORTS.inc()
            raise

    async def _sync(self, key: str) -> None:
        async with self._repairing:
            await self.repair_addresses(key)

    async def repair_addresses(self, key: str) -> None:
        """Compare the addresses of one Service with their records. Those that kas wrote have none that differ."""
        try:
            rec = self.client.store.get(key)
            service = await step(len(rec.json) >= LARGE, _kept, rec) if rec is not None else None
            differ = [ip for ip in sorted(held_addresses(service)) if service is not None and not self._is_recorded(service, ip)]
        except TransformError:  # a pass leaves it alone, too
            return
        if rec is None or service is None or not differ:
            return
        await self.client.rest_fresh(self.services.root, (self.addresses.root, self.cidrs.root))
        cidrs = self.client.paced(self.cidrs.root)
        known = addresses.given_out([r async for found in cidrs for r in addresses.ranges_of(object_of(found))])
        for ip in differ:
            try:
                address = self.client.get("networking.k8s.io", "ipaddresses", "", ip)
                named = _named(address) if address is not None else ("", "")
                other = self.client.get("", "services", *named)
            except TransformError:  # the address is held, but its record or the Service that it names cannot be read
                continue
            await self._service_address(_Seen(key, rec.revision), service, ip, {named: other} if other is not None else {}, known)

    def _is_recorded(self, service: Obj, ip: str) -> bool:
        address, meta = self.client.get("networking.k8s.io", "ipaddresses", "", ip), service["metadata"]
        return address is not None and _named(address) == (meta.get("namespace"), meta["name"]) and _is_labelled(address, ip)

    async def repair(self) -> None:
        """Run one pass. Before a repair, each difference is checked again, to exclude those caused by a concurrent write."""
        now = time.monotonic()
        self._told = {key: at for key, at in self._told.items() if now - at < TELL_AGAIN_S}
        # The records are read before the Services, so that records of Services created meanwhile are not included. There may be many of
        # all, and large Services, so the reads yield to other tasks.
        held: dict[str, Obj] = {}
        async for rec in self.client.paced(self.addresses.root):
            held[rec.key[len(self.addresses.root) :]] = await step(len(rec.json) >= LARGE, _kept, rec)
        port_records = {int(rec.key[len(ports.ROOT) :]): _Seen(rec.key, rec.revision) async for rec in self.client.paced(ports.ROOT)}
        await self.client.rest_fresh(ports.ROOT, (self.services.root,))
        records, services = list[_Seen](), dict[tuple[str, str], Obj]()
        async for rec in self.client.paced(self.services.root):
            services[split_key(self.services, rec.key)] = await step(len(rec.json) >= LARGE, _kept, rec)
            records.append(_Seen(rec.key, rec.revision))
        # Read after the Services, so that the range of a new Service's address is included.
        await self.client.rest_fresh(self.services.root, (self.cidrs.root,))
        known = addresses.given_out([r async for rec in self.client.paced(self.cidrs.root) for r in addresses.ranges_of(object_of(rec))])
        time_slice = TimeSlice()
        owner: dict[int, Obj] = {}
        for seen, service in zip(records, services.values(), strict=True):
            if time_slice.over:
                await time_slice.pause()
            for ip in sorted(held_addresses(service)):
                if service_fault(service, ip, held.get(ip), services, known) is not None:
                    await self._service_address(seen, service, ip, services, known)
            for port in sorted(held_ports(service)):
                await self._service_port(seen, service, port, port_records, owner)
        for ip, address in held.items():
            if time_slice.over:
                await time_slice.pause()
            if address_fault(address, services.get(_named(address)), int(time.time())) is not None:
                await self._address(ip, address)
        stray = {port: rec for port, rec in port_records.items() if port not in owner}
        kept = {port for port, rec in stray.items() if self._is_of_unreadable(rec)}
        await self._free([rec for port, rec in stray.items() if port not in kept])
        portmap = self._allocator.portmap
        if portmap is not None and (op := portmap.repaired({*owner, *kept})) is not None:
            await self._commit(op)

    def _is_of_unreadable(self, rec: _Seen) -> bool:
        """Return whether the Service that a port's record names exists but cannot be read: what it holds is unknown."""
        record = self.client.store.get(rec.key)
        namespace, _, name = (object_of(record).get("service") or "" if record is not None else "").partition("/")
        return self._is_unreadable(namespace, name)

    def _is_unreadable(self, namespace: str, name: str) -> bool:
        try:
            self.client.get("", "services", namespace, name)
        except TransformError:
            return True
        return False

    async def _free(self, records: Sequence[_Seen]) -> None:
        """Release ports without an owner. If Services are kept in another store, a Service is written in a transaction after its port's;
        then a port must have no owner in two passes."""
        store, stray = self.client.store, {(rec.key, rec.revision) for rec in records}
        together = store.part(ports.ROOT) is store.part(self.services.root)
        for rec in records:
            if together or (rec.key, rec.revision) in self._stray:
                counted.REPAIRED_PORTS.inc(("leak",))
                await self._commit(Op(rec.key, None, rec.revision))
        self._stray = stray

    async def _service_address(
        self, rec: _Seen, service: Obj, ip: str, services: dict[tuple[str, str], Obj], known: addresses.Covered
    ) -> None:
        try:
            address = self.client.get("networking.k8s.io", "ipaddresses", "", ip)
        except TransformError:  # the address is held, but its record cannot be read
            return
        fault = service_fault(service, ip, address, services, known)
        if fault is None or self._changed(rec):
            return
        if address is not None and self._is_unreadable(*_named(address)):  # that Service exists and may hold the address
            return
        reason, message, action = fault
        if reason:
            counted.REPAIRED_ADDRESSES.inc((TYPES[reason],))
        await self._tell(IP_REPORTER, "ClusterIPAllocation", SERVICE, service, reason, message)
        if action == RECREATE:
            await self._delete(ip)
        if action != LEAVE:
            await self._commit(self._allocator.address_op(self.client.context(), ip, service))

    async def _service_port(self, rec: _Seen, service: Obj, port: int, records: dict[int, _Seen], owner: dict[int, Obj]) -> None:
        low, high = self._allocator.node_ports
        if port in owner:
            fault = ("PortAlreadyAllocated", f"Port {port} was assigned to multiple services; please recreate service")
        elif not low <= port <= high:
            fault = ("PortOutOfRange", f"Port {port} is not within the port range {low}-{high}; please recreate service")
        elif port not in records and self.client.store.get(ports.key(port)) is None:
            fault = ("PortNotAllocated", f"Port {port} is not allocated; repairing")
        else:
            fault = ("", "")
        owner.setdefault(port, service)
        if not fault[0] or self._changed(rec):
            return
        counted.REPAIRED_PORTS.inc((TYPES[fault[0]],))
        await self._tell(PORT_REPORTER, "PortAllocation", SERVICE, service, *fault)
        if fault[0] == "PortNotAllocated":
            await self._commit(port_op(port, service))

    async def _address(self, ip: str, address: Obj) -> None:
        named = _named(address)
        if self._is_unreadable(*named):  # the Service exists and may hold the address
            return
        fault = address_fault(address, self.client.get("", "services", *named), int(time.time()))
        if fault is not None and await self._delete(ip, address["metadata"].get("uid", "")):
            counted.REPAIRED_ADDRESSES.inc((TYPES[fault[0]],))
            await self._tell(IP_REPORTER, "IPAddressAllocation", ADDRESS, address, *fault)

    async def _delete(self, ip: str, uid: str = "") -> bool:
        try:
            return await self.client.delete(self.addresses, "", ip, uid)
        except (ApiError, StoreError) as e:
            log.warning("%s: %s: %s", self.name, ip, e)
            return False

    def _changed(self, rec: _Seen) -> bool:
        now = self.client.store.get(rec.key)
        return now is None or now.revision != rec.revision

    async def _commit(self, op: Op) -> None:
        with contextlib.suppress(Conflict):  # a Service came or went meanwhile
            await self.client.store.commit(op)

    async def _tell(self, reporter: str, action: str, kind: tuple[str, str], obj: Obj, reason: str, message: str) -> None:
        meta, now = obj["metadata"], time.time()
        uid = meta.get("uid", "")
        if not reason or (uid, message) in self._told:
            return
        self._told[uid, message] = time.monotonic()
        namespace = meta.get("namespace", "")
        involved = {"kind": kind[1], "namespace": namespace, "name": meta["name"], "uid": uid, "apiVersion": kind[0]}
        event = {
            "kind": "Event",
            "apiVersion": "v1",
            "metadata": {"name": f"{meta['name']}.{time.time_ns():x}", "namespace": namespace or "default"},
            "involvedObject": {key: value for key, value in involved.items() if value},
            "reason": reason,
            "message": message,
            "source": {},
            "type": "Warning",
            "eventTime": format_micro_time(int(now), int(now % 1 * 1e6) * 1000),
            "action": action,
            "reportingComponent": reporter,
            "reportingInstance": f"{reporter}-{socket.gethostname()}",
        }
        await self.client.create("", "events", event)


def service_fault(
    service: Obj, ip: str, address: Obj | None, services: dict[tuple[str, str], Obj], known: addresses.Covered
) -> Fault | None:
    """Return what is wrong with a Service's hold on ``ip``: an event's reason ("" for none), its message, and the repair; or None."""
    meta, family = service["metadata"], family_of(ip)
    parsed = parse_ip(ip)
    if parsed is None or parsed not in known:
        message = f"Cluster IP [{family}]: {ip} is not within any configured Service CIDR; please recreate service"
        return "ClusterIPOutOfRange", message, LEAVE
    if address is None:
        return "ClusterIPNotAllocated", f"Cluster IP [{family}]: {ip} is not allocated; repairing", CREATE
    named = _named(address)
    other = services.get(named)
    if other is None:
        message = f"the ClusterIP [{family}]: {ip} for Service {meta['namespace']}/{meta['name']} has a wrong reference; repairing"
        return "ClusterIPNotAllocated", message, RECREATE
    if named != (meta["namespace"], meta["name"]) and ip in held_addresses(other):
        message = f"Cluster IP [{family}]:{ip} was assigned to multiple services; please recreate service"
        return "ClusterIPAlreadyAllocated", message, LEAVE
    return None if _is_labelled(address, ip) else ("", "", RECREATE)


def _is_labelled(address: Obj, ip: str) -> bool:
    labels = address["metadata"].get("labels") or {}
    return (labels.get(FAMILY_LABEL), labels.get(MANAGED_BY)) == (family_of(ip), CONTROLLER)


def _kept(rec: Record) -> Obj:
    """Return the identity of an address or Service and what it holds."""
    obj = object_of(rec)
    meta, spec = obj["metadata"], obj.get("spec") or {}
    if spec.get("ports"):
        spec["ports"] = [{"nodePort": p["nodePort"]} for p in spec["ports"] if p.get("nodePort")]
    return {"metadata": {name: meta[name] for name in KEPT if name in meta}, "spec": spec}


def _named(address: Obj) -> tuple[str, str]:
    """Return namespace and name of the Service that an address refers to; empty for a reference to something else."""
    parent = address["spec"].get("parentRef") or {}
    if parent.get("group") or parent.get("resource") != "services":
        return "", ""
    return parent.get("namespace") or "", parent.get("name") or ""


def _made(obj: Obj) -> int:
    """Return the creation time in seconds; 0 if it is missing."""
    created = obj["metadata"].get("creationTimestamp")
    return parse_time(created)[0] if created else 0


def address_fault(address: Obj, service: Obj | None, now: int) -> tuple[str, str] | None:
    """Return why an address must be deleted that ``service``, which it names, does not hold: an event's reason and message; or None."""
    meta, parent = address["metadata"], address["spec"].get("parentRef") or {}
    if (meta.get("labels") or {}).get(MANAGED_BY) != CONTROLLER:
        return None
    group, resource = parent.get("group") or "", parent.get("resource") or ""
    namespace, name = parent.get("namespace") or "", parent.get("name") or ""
    if (group, resource) != ("", "services"):
        ref = f"&ParentReference{{Group:{group},Resource:{resource},Namespace:{namespace},Name:{name},}}"
        message = f"IPAddress {meta['name']} appears to have been modified, not referencing a Service {ref}: cleaning up"
        return "IPAddressNotAllocated", message
    made = _made(address)
    which = f"IPAddress: {meta['name']} for Service {namespace}/{name}"
    if service is None:
        return ("IPAddressNotAllocated", f"{which} appears to have leaked: cleaning up") if now - made > ORPHAN_S else None
    if meta["name"] in held_addresses(service):
        return None
    if made > _made(service) and now - made <= STRAY_S:
        return None
    return "IPAddressWrongReference", f"{which} has a wrong reference; cleaning up"
