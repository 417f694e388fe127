"""Service IPs and node ports: allocated before validation, committed together with the Service.

This is the hook of ``kas.registry.generic`` for Services (upstream ``storage/storage.go`` beginCreate/beginUpdate and ``alloc.go``).
``prepare_*`` fills in fields with free addresses and ports. ``ops`` turns the difference between the old and the new Service into writes:
an IPAddress object for each address and a key for each port, all with the precondition that they do not exist yet.

One commit holds these writes and the Service. So no two Services can get the same address or port, however many workers allocate
concurrently; the loser of a race starts over. Nothing is reserved before the commit, so a dry run or an error needs no release.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from time import perf_counter
from typing import Any

import orjson

from kas.kinds.core.service.allocation import addresses, ports
from kas.kinds.core.service.allocation.addresses import AllocationError
from kas.kinds.core.service.allocation.families import family_of, init_family_fields, is_headless, left_alone
from kas.kinds.core.service.allocation.held import Held
from kas.kinds.core.service.allocation.portmap import PortMap
from kas.kinds.core.service.strategy import carry_over_allocated, needs_node_port, normalize_cluster_ips
from kas.kinds.core.service.validation import needs_health_check
from kas.meta import errors, field
from kas.meta.ipchecks import validate_ip
from kas.meta.random import new_uid
from kas.meta.stored import object_of
from kas.observe import counted
from kas.observe.metrics import Counter
from kas.registry.strategy import Context, Obj
from kas.store import Op, build_record

MANAGED_BY, FAMILY_LABEL = "ipaddress.kubernetes.io/managed-by", "ipaddress.kubernetes.io/ip-family"
CONTROLLER = "ipallocator.k8s.io"
WITH_PORTS = ("NodePort", "LoadBalancer")


class ServiceAllocator:
    """Allocates addresses and ports for Services.

    ``families`` are the cluster's IP families, the default first; ``ip_registry`` and ``cidr_registry`` are those of IPAddress and
    ServiceCIDR. ``beside_others``: a kube-apiserver may allocate from the same store.
    """

    def __init__(
        self, families: list[str], node_ports: tuple[int, int], ip_registry: Any, cidr_registry: Any, beside_others: bool = False
    ) -> None:
        self.families, self.node_ports = families, node_ports
        self.ips, self.cidrs = ip_registry, cidr_registry
        self.store = ip_registry.whole
        self.portmap = PortMap(self.store, *node_ports) if beside_others else None
        self._held = {f: Held(self.store, self.ips.root, partial(addresses.number_of, f)) for f in ("IPv4", "IPv6")}
        self._held_ports = Held(self.store, ports.ROOT, int)
        self._turn = asyncio.Lock()
        self._known: tuple[dict[tuple[str, int], list[addresses.Range]], list[addresses.Range]] = {}, []  # by object, and of all

    # --- called by the registry

    def prepare_create(self, ctx: Context, obj: Obj) -> None:
        """Fill in families, addresses and ports. Raises 422 if what was requested is not available, 500 if none is left."""
        spec = obj.setdefault("spec", {})
        normalize_cluster_ips(obj, None)
        init_family_fields(_name(obj), spec, None, self.families)
        if _has_address(spec):
            self._all_addresses(ctx, obj)
        choice = self._ports(ctx)
        if spec.get("type") in WITH_PORTS:
            self._new_ports(obj, choice)
        if needs_health_check(spec):
            self._health_port(spec, choice)

    def prepare_update(self, ctx: Context, obj: Obj, old: Obj) -> None:
        """As ``prepare_create``, keeping what ``old`` has and the request omits."""
        spec, was = obj.setdefault("spec", {}), old.get("spec") or {}
        # The object may share parts with others, so copy what is changed.
        obj["spec"] = spec = {**spec, **({"ports": [dict(p) for p in spec["ports"]]} if spec.get("ports") else {})}
        carry_over_allocated(obj, old)
        normalize_cluster_ips(obj, old)
        init_family_fields(_name(obj), spec, was, self.families)
        self._update_addresses(ctx, obj, was)
        choice = self._ports(ctx)
        if spec.get("type") in WITH_PORTS:
            self._update_ports(obj, was, choice)
        if needs_health_check(spec) and not needs_health_check(was):
            self._health_port(spec, choice)

    def ops(self, ctx: Context, new: Obj | None, old: Obj | None) -> list[Op]:
        """Return the writes for the change from ``old`` to ``new`` (None: absent)."""
        out: list[Op] = []
        new, old = new or {}, old or {}
        want_ips, had_ips = held_addresses(new), held_addresses(old)
        for ip in want_ips - had_ips:
            out.append(self.address_op(ctx, ip, new))
        for ip in had_ips - want_ips:
            out += self._release_address(ip, old)
        want, had = held_ports(new), held_ports(old)
        for port in want - had:
            out.append(port_op(port, new))
        for port in had - want:
            rec = self.store.get(ports.key(port))
            if rec is not None and object_of(rec).get("service") == _ref(old):
                out.append(Op(ports.key(port), None, rec.revision))
        if self.portmap is not None:
            out += self.portmap.op(want - had, had - want)
        return out

    def turn(self, new: Obj | None, old: Obj | None) -> AbstractAsyncContextManager[object]:
        """Return a lock for writers of the port bitmap; without it one may lose against others of this process until it is refused."""
        return nullcontext() if self.portmap is None or held_ports(new) == held_ports(old) else self._turn

    # --- addresses

    def _ranges(self) -> list[addresses.Range]:
        """Return the ranges of all ServiceCIDRs, parsing only changed objects: there may be thousands."""
        before, known = self._known
        now, found = self.store.range(self.cidrs.root).records, {}
        for r in now:
            at = r.key, r.revision
            found[at] = before[at] if at in before else addresses.ranges_of(object_of(r))
        if found.keys() != before.keys():
            known = addresses.together(found.values())
            self._known = found, known
        return known

    def _taken(self, ip: str) -> bool:
        return self.store.get(self.ips.root + ip) is not None

    def _all_addresses(self, ctx: Context, obj: Obj) -> None:
        spec = obj["spec"]
        given = list(spec.get("clusterIPs") or ())
        spec["clusterIPs"] = given + [""] * (len(spec["ipFamilies"]) - len(given))
        got = [
            self._address(ctx, obj, family, spec["clusterIPs"][i]) for i, family in enumerate(spec["ipFamilies"])
        ]
        spec["clusterIPs"], spec["clusterIP"] = got, got[0]

    def _address(self, ctx: Context, obj: Obj, family: str, asked: str) -> str:
        known, began = self._ranges(), perf_counter()
        if not asked:
            try:
                ip = addresses.choose(known, family, self._taken, self._held[family].free, ctx.dry_run)
            except AllocationError as e:
                if not ctx.dry_run:
                    for each in known:
                        if each.ready and each.family == family:
                            counted.ADDRESS_ERRORS.inc((str(each.network), counted.DYNAMIC))
                raise errors.internal(f"failed to allocate a serviceIP: {e}") from None
            self._count(counted.ADDRESSES, known, ip, counted.DYNAMIC, ctx, began)
            return ip
        try:
            addresses.check(known, asked, self._taken, ctx.dry_run)
        except AllocationError as e:
            self._count(counted.ADDRESS_ERRORS, known, asked, counted.STATIC, ctx)
            message = f"failed to allocate IP {asked}: {e}"
            raise _invalid(obj, "spec.clusterIPs", obj["spec"]["clusterIPs"], message) from None
        self._count(counted.ADDRESSES, known, asked, counted.STATIC, ctx, began)
        return asked

    @staticmethod
    def _count(what: Counter, known: list[addresses.Range], ip: str, scope: str, ctx: Context, began: float = 0.0) -> None:
        found = addresses.range_of(known, ip) if not ctx.dry_run else None
        if found is not None:
            what.inc((str(found.network), scope))
            if began:
                counted.ADDRESS_SECONDS.observe((str(found.network),), perf_counter() - began)

    def _update_addresses(self, ctx: Context, obj: Obj, was: Obj) -> None:
        spec = obj["spec"]
        if left_alone(spec, was):
            return
        if was.get("type") == "ExternalName" and spec.get("type") != "ExternalName":
            if _has_address(spec):
                self._all_addresses(ctx, obj)
            return
        if (was.get("clusterIPs") or [""])[0] == "None" or spec.get("type") == "ExternalName":
            return
        had, families = was.get("ipFamilies") or [], spec.get("ipFamilies") or []
        # The second family may not be the cluster's if the Service is made headless, which the validation refuses.
        if len(had) == 1 and len(families) == 2 and families[1] in self.families:
            now = list(spec.get("clusterIPs") or ())
            spec["clusterIPs"] = now + [""] * (2 - len(now))
            spec["clusterIPs"] = [spec["clusterIPs"][0], self._address(ctx, obj, families[1], spec["clusterIPs"][1])]

    def address_op(self, ctx: Context, ip: str, service: Obj) -> Op:
        """Return the write that creates the IPAddress with which ``service`` holds ``ip``."""
        meta = service["metadata"]
        labels = {FAMILY_LABEL: family_of(ip), MANAGED_BY: CONTROLLER}
        parent = {"resource": "services", "namespace": meta["namespace"], "name": meta["name"]}
        owned: Obj = {
            "f:metadata": {"f:labels": {".": {}, f"f:{FAMILY_LABEL}": {}, f"f:{MANAGED_BY}": {}}},
            "f:spec": {"f:parentRef": {".": {}, "f:name": {}, "f:namespace": {}, "f:resource": {}}},
        }
        entry = {
            "manager": "kube-apiserver",
            "operation": "Update",
            "apiVersion": "networking.k8s.io/v1",
            "time": ctx.now,
            "fieldsType": "FieldsV1",
            "fieldsV1": owned,
        }
        obj = {
            "kind": "IPAddress",
            "apiVersion": "networking.k8s.io/v1",
            "metadata": {"name": ip, "uid": new_uid(), "creationTimestamp": ctx.now, "labels": labels, "managedFields": [entry]},
            "spec": {"parentRef": parent},
        }
        # The validation of the kind's strategy, which is not loaded for this: the first start of a server creates one IPAddress.
        if found := validate_ip("metadata.name", ip):
            raise errors.invalid("networking.k8s.io", "IPAddress", ip, found)
        return Op(self.ips.root + ip, self.ips.draft(obj), 0)

    def _release_address(self, ip: str, service: Obj) -> list[Op]:
        rec = self.store.get(self.ips.root + ip)
        if rec is None:
            return []
        obj = object_of(rec)
        meta, parent = service["metadata"], obj["spec"].get("parentRef") or {}
        if (parent.get("resource"), parent.get("namespace"), parent.get("name")) != ("services", meta["namespace"], meta["name"]):
            return []
        if not obj["metadata"].get("finalizers"):
            return [Op(rec.key, None, rec.revision)]
        if obj["metadata"].get("deletionTimestamp"):
            return []
        # It has finalizers: mark it for deletion; it is removed with the last finalizer.
        obj["metadata"].pop("resourceVersion", None)
        obj["metadata"] |= {"deletionTimestamp": self.ips.now()[0], "deletionGracePeriodSeconds": 0}
        return [self.ips.put(rec.key, obj, rec.revision)]

    # --- ports

    def _ports(self, ctx: Context) -> ports.PortChoice:
        store, held, others = self.store, self._held_ports, self.portmap
        return ports.PortChoice(
            self.node_ports,
            lambda port: store.get(ports.key(port)) is not None or (others is not None and others.taken(port)),
            lambda: held.numbers() if others is None else held.numbers() | others.all_taken(),
            ctx.dry_run,
        )

    def _new_ports(self, obj: Obj, choice: ports.PortChoice) -> None:
        """Allocate one node port for all protocols of a service port, unless different ones were requested."""
        spec = obj["spec"]
        of_port: dict[int | None, int] = {}
        asked_for: dict[int | None, int] = {}
        for port in spec.get("ports") or ():
            if port.get("nodePort"):
                asked_for.setdefault(port.get("port"), port["nodePort"])
        for i, port in enumerate(spec.get("ports") or ()):
            if not port.get("nodePort") and not needs_node_port(spec):
                continue
            got = of_port.get(port.get("port"))
            if got is None:
                asked = asked_for.get(port.get("port"), 0)
                if asked:
                    _take(obj, i, choice, asked)
                port["nodePort"] = of_port[port.get("port")] = asked or _take_any(choice)
            elif not port.get("nodePort"):
                port["nodePort"] = got
            elif port["nodePort"] != got:
                _take(obj, i, choice, port["nodePort"])

    def _update_ports(self, obj: Obj, was: Obj, choice: ports.PortChoice) -> None:
        spec = obj["spec"]
        had = {p["nodePort"] for p in was.get("ports") or () if p.get("nodePort")}
        seen = set()
        for i, port in enumerate(spec.get("ports") or ()):
            number = port.get("nodePort")
            if not number and not needs_node_port(spec):
                continue
            if not number:
                port["nodePort"] = number = _take_any(choice)
            elif number not in had and number not in choice.mine:
                _take(obj, i, choice, number)
            if (port.get("protocol"), number) in seen:
                raise errors.ApiError(500, "", f"duplicate nodePort: {{{port.get('protocol') or ''} {number}}}")
            seen.add((port.get("protocol"), number))

    def _health_port(self, spec: Obj, choice: ports.PortChoice) -> None:
        asked = spec.get("healthCheckNodePort") or 0
        try:
            if asked:
                choice.take(asked)
            else:
                spec["healthCheckNodePort"] = choice.take_any()
        except AllocationError as e:
            which = "requested HealthCheck NodePort" if asked else "a HealthCheck NodePort"
            raise errors.internal(f"failed to allocate {which} {asked}: {e}") from None


def _has_address(spec: Obj) -> bool:
    return spec.get("type") != "ExternalName" and not is_headless(spec)


def held_addresses(obj: Obj | None) -> set[str]:
    """Return the canonical addresses that a Service holds."""
    spec = (obj or {}).get("spec") or {}
    if not _has_address(spec):
        return set()
    return {addresses.canonical(ip) for ip in spec.get("clusterIPs") or [spec.get("clusterIP")] if ip}


def held_ports(obj: Obj | None) -> set[int]:
    """Return the node ports that a Service holds, including the health check's."""
    spec = (obj or {}).get("spec") or {}
    out = {p["nodePort"] for p in spec.get("ports") or () if p.get("nodePort")} if spec.get("type") in WITH_PORTS else set()
    return out | {spec["healthCheckNodePort"]} if spec.get("healthCheckNodePort") else out


def port_op(port: int, service: Obj) -> Op:
    """Return the write that creates the key with which ``service`` holds a node port."""
    tail = b'},"service":' + orjson.dumps(_ref(service)) + b"}"
    return Op(ports.key(port), build_record(b'{"metadata":{', tail, {}, {}, 1), 0)


def _ref(service: Obj) -> str:
    return f"{service['metadata']['namespace']}/{service['metadata']['name']}"


def _name(obj: Obj) -> str:
    return obj["metadata"].get("name") or ""


def _invalid(obj: Obj, path: str, value: Any, message: str) -> errors.ApiError:
    return errors.invalid("", "Service", _name(obj), [field.invalid(path, value, message)])


def _take(obj: Obj, i: int, choice: ports.PortChoice, number: int) -> None:
    try:
        choice.take(number)
    except AllocationError as e:
        raise _invalid(obj, f"spec.ports[{i}].nodePort", number, str(e)) from None


def _take_any(choice: ports.PortChoice) -> int:
    try:
        return choice.take_any()
    except AllocationError as e:
        raise errors.internal(f"failed to allocate a nodePort: {e}") from None
