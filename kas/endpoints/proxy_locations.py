"""Addresses of kubelets, pods and services (upstream's ``ResourceLocation`` functions and ``NodeConnectionInfoGetter``).

A target is built from stored objects, which users write in part. So addresses of this host or its link are rejected where upstream
rejects them (``proxyutil.IsProxyableIP``), and a service leads only to pods that really have the address. Nothing is dialled here.
"""

from __future__ import annotations

import asyncio
import ipaddress
import random
import socket
import ssl
from collections.abc import Iterable
from pathlib import Path

from kas.client.http import Target, insecure_tls, verified_tls
from kas.client.reloadingtls import ReloadingTLS
from kas.client.services import SERVICE_NAME_LABEL
from kas.endpoints.kubelet import KubeletAccess
from kas.informers import Objects
from kas.meta import errors
from kas.meta.errors import ApiError, bad_request
from kas.meta.field import go_quote
from kas.meta.offload import LARGE, step
from kas.meta.scalars import decimal
from kas.meta.stored import Stored, object_of
from kas.meta.waiting import TimeSlice
from kas.registry.strategy import Obj

# An address, its port, and the object it claims to belong to.
Candidate = tuple[str, int, Obj]

KUBELET_PORT = "10250"
NOT_ALLOWED = "address not allowed"


class Locations:
    """Finds the addresses of kubelets, pods and services. Failures are ``ApiError``."""

    def __init__(self, objects: Objects, kubelet: KubeletAccess) -> None:
        self._get, self._labelled, self._access = objects.get, objects.labelled, kubelet
        self._contexts: dict[str, ReloadingTLS] = {}

    def kubelet(self, node: str, asked: tuple[str, str] = ("", "nodes"), verify: bool = True) -> Target:
        """Return a node's kubelet. ``asked`` is the group and resource of the request, which upstream's 404 names."""
        obj = self._get("", "nodes", "", node)
        if obj is None:
            raise errors.not_found(*asked, node)
        status = obj.get("status") or {}
        addresses = status.get("addresses") or []
        host = next((a["address"] for t in self._access.address_types for a in addresses if a.get("type") == t and a.get("address")), "")
        if not host:
            shown = " ".join(f"{{{a.get('type', '')} {a.get('address', '')}}}" for a in addresses)
            raise ApiError(500, "", f"no preferred addresses found; known addresses: [{shown}]")
        port = ((status.get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}).get("Port") or 0
        tls = self._tls("kubelet" if verify else "unverified")
        return Target("https", host, str(port) if port > 0 else KUBELET_PORT, tls=tls, via=self._access.via)

    def declares(self, node: str, feature: str) -> bool:
        """Return whether a node's kubelet declares a feature."""
        obj = self._get("", "nodes", "", node) or {}
        return feature in ((obj.get("status") or {}).get("declaredFeatures") or ())

    async def node(self, ident: str) -> Target:
        """Resolve ``nodes/[scheme:]name[:port]/proxy``: the kubelet, or another port of the node."""
        scheme, name, port = _split(ident, "node")
        kubelet = self.kubelet(name)
        await _check_host(kubelet.host)
        if port in ("", kubelet.port):
            return kubelet
        return self._target(scheme, kubelet.host, port)

    def pod(self, namespace: str, ident: str) -> Target:
        """Resolve ``pods/[scheme:]name[:port]/proxy``: the pod's address, at its first declared port unless one is named."""
        scheme, name, port = _split(ident, "pod")
        pod = self._get("", "pods", namespace, name)
        if pod is None:
            raise errors.not_found("", "pods", name)
        if not port:
            ports = (p for c in pod["spec"].get("containers") or () for p in c.get("ports") or ())
            port = next((str(p["containerPort"]) for p in ports if p.get("containerPort")), "")
        status = pod.get("status") or {}
        ips = status.get("podIPs") or []
        ip = (ips[0].get("ip") if ips else status.get("podIP")) or ""
        _check_ip(ip)
        return self._target(scheme, ip, port)

    async def service(self, namespace: str, ident: str) -> Target:
        """Resolve ``services/[scheme:]name[:port]/proxy``: a ready endpoint that is a pod of the namespace.

        The Service itself is read only to find the name of a port from its number.
        """
        scheme, name, port = _split(ident, "service")
        if _number(port) is not None:
            service = self._get("", "services", namespace, name)
            if service is None:
                raise errors.not_found("", "services", name)
            declared = next((p for p in service["spec"].get("ports") or () if p.get("port") == _number(port)), None)
            if declared is None:
                raise errors.service_unavailable(f"no service port {port} found for service {go_quote(name)}")
            port = declared.get("name") or ""
        endpoints = self._get("", "endpoints", namespace, name)
        records = self._labelled("discovery.k8s.io", "endpointslices", namespace, SERVICE_NAME_LABEL, name)
        if endpoints is None and not records:
            raise errors.not_found("", "endpoints", name)
        subsets = (endpoints or {}).get("subsets") or []
        # A service may have thousands of endpoints, none of which is a pod.
        candidates = await step(sum(len(r.json) for r in records) >= LARGE, _candidates, port, subsets, records)
        time_slice = TimeSlice()
        for ip, number, ref in candidates:
            if time_slice.over:
                await time_slice.pause()
            if self._is_pod(namespace, ip, ref):
                _check_ip(ip)
                return self._target(scheme, ip, str(number))
        raise errors.service_unavailable(f"no endpoints available for service {go_quote(ident if subsets or records else name)}")

    def _is_pod(self, namespace: str, ip: str, ref: Obj) -> bool:
        """Return whether an endpoint is a pod of the namespace that has the address."""
        if not ref.get("name") or ref.get("namespace") != namespace:
            return False
        status = (self._get("", "pods", namespace, ref["name"]) or {}).get("status") or {}
        return any(p.get("ip") == ip for p in status.get("podIPs") or ())

    def _target(self, scheme: str, host: str, port: str) -> Target:
        if port and not 0 < (_number(port) or 0) < 1 << 16:
            raise ApiError(503, "ServiceUnavailable", f"error trying to reach service: dial tcp: address {port}: invalid port")
        scheme = scheme or "http"
        return Target(scheme, host, port, tls=self._tls("any") if scheme == "https" else None, via=self._access.via)

    def _tls(self, which: str) -> ssl.SSLContext:
        found = self._contexts.get(which)
        if found is None:
            a = self._access
            if which == "any":
                found = _following("")
            else:
                found = _following(a.ca if which == "kubelet" else "", a.certificate, a.key)
            self._contexts[which] = found
        return found.context()


def _following(ca: str, *pair: str) -> ReloadingTLS:
    """Return a TLS context that follows the files. It requires a certificate of ``ca`` (any if ""), and presents that of ``pair``."""
    files = [path for path in (ca, *pair) if path]

    def made(*_: bytes) -> ssl.SSLContext:
        try:
            return verified_tls(ca, *pair) if ca else insecure_tls(*pair)
        except ssl.SSLError as e:  # a certificate and key that do not match, while both are being replaced
            raise ValueError(e.reason or str(e)) from None

    return ReloadingTLS(files, [Path(path).read_bytes() for path in files], made(), made)


def _candidates(port: str, subsets: Iterable[Obj], records: Iterable[Stored]) -> list[Candidate]:
    """Return the ready endpoints with a port of this name, shuffled; ``records`` are EndpointSlices, ``subsets`` those of Endpoints."""
    out: list[Candidate] = []
    for subset in subsets:
        number = _port_of(subset, port)
        if number:
            out += [(a.get("ip") or "", number, a.get("targetRef") or {}) for a in subset.get("addresses") or ()]
    for s in map(object_of, records):
        number = _port_of(s, port)
        if not number:
            continue
        for e in s.get("endpoints") or ():
            if (e.get("conditions") or {}).get("ready") is not False and e.get("addresses"):
                out.append((e["addresses"][0], number, e.get("targetRef") or {}))
    random.shuffle(out)
    return out


def _port_of(part: Obj, name: str) -> int:
    """Return the number of the port with this name; 0 if there is none."""
    return next((p.get("port") or 0 for p in part.get("ports") or () if (p.get("name") or "") == name), 0)


def _split(ident: str, what: str) -> tuple[str, str, str]:
    """Split ``[scheme:]name[:port]`` into (scheme, name, port) (``utilnet.SplitSchemeNamePort``)."""
    parts = ident.split(":")
    scheme, name, port = {1: ("", ident, ""), 2: ("", parts[0], parts[-1]), 3: tuple(parts)}.get(len(parts), ("", "", ""))
    if not name or scheme not in ("", "http", "https"):
        raise bad_request(f"invalid {what} request {go_quote(ident)}")
    return scheme, name, port


_BROADCAST = ipaddress.IPv4Address("255.255.255.255")
# Networks whose last 32 bits are an IPv4 address.
_LAST_32 = [ipaddress.IPv6Network(text) for text in ("::/96", "64:ff9b::/96", "64:ff9b:1::/48")]
# Cloud metadata services, which serve credentials at addresses that are not link-local.
_METADATA = frozenset(ipaddress.IPv6Address(text) for text in ("fd00:ec2::254", "fd20:ce::254"))


def _check_ip(text: str) -> None:
    """Raise 400 unless the address is global unicast in Go's sense and not a cloud metadata service.

    Private ranges are allowed. Loopback, link-local, multicast, broadcast and unspecified addresses are not, in any notation.
    """
    try:
        ip = ipaddress.ip_address(text)
    except ValueError:
        raise bad_request(NOT_ALLOWED) from None
    forms = [ip, *_ipv4_of(ip)]
    if ip in _METADATA or any(f.is_loopback or f.is_link_local or f.is_multicast or f.is_unspecified or f == _BROADCAST for f in forms):
        raise bad_request(NOT_ALLOWED)


def _ipv4_of(ip: ipaddress.IPv4Address | ipaddress.IPv6Address) -> list[ipaddress.IPv4Address]:
    """Return the IPv4 addresses that an IPv6 address may lead to if a host or its network translates it.

    These are mapped and compatible addresses (RFC 4291), NAT64 (RFC 6052, RFC 8215), 6to4 (RFC 3056), Teredo (RFC 4380) and ISATAP (RFC
    5214).
    """
    if isinstance(ip, ipaddress.IPv4Address):
        return []
    out = [ip.ipv4_mapped, ip.sixtofour, *(ip.teredo or ())]
    number = int(ip)
    if any(ip in network for network in _LAST_32) or number >> 32 & 0xFDFFFFFF == 0x5EFE:
        out.append(ipaddress.IPv4Address(number & 0xFFFFFFFF))
    return [found for found in out if found is not None]


async def _check_host(host: str) -> None:
    """Call ``_check_ip`` for every address that a host name resolves to."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except OSError:
            raise bad_request(f"lookup {host}: no such host") from None
        for *_, address in found:
            _check_ip(str(address[0]).partition("%")[0])
    else:
        _check_ip(host)


def _number(text: str) -> int | None:
    return decimal(text) if text.isascii() and text.isdigit() else None

