"""Forwarding to peer API servers that serve resources this one does not (upstream: ``apiserver/pkg/util/peerproxy``, KEP-4020).

While versions differ, during an upgrade, a client may reach either server. A request for a resource that only the peer serves is
forwarded once: an already forwarded request is answered locally. Peers are known by leases that they renew
(``kas.controllers.peerleases``) and are queried for their resources when they appear. A peer that left is remembered for
``REMEMBERED_S``: until then its resources are answered with 503, not 404, so that no client takes them for deleted.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kas.aggregator.apiservices import APIService, GroupVersion, ServiceReference
from kas.aggregator.discovery import read_groups
from kas.aggregator.proxy import Proxy
from kas.aggregator.transport import PROBER, ProxyCertificate, TLSContexts
from kas.client.http import BackendError
from kas.client.services import Address
from kas.endpoints.discovery import Version, aggregated_resources
from kas.informers import Source
from kas.informers.reflector import Reflector
from kas.meta.errors import ApiError, service_unavailable
from kas.meta.offload import LARGE, step
from kas.meta.stored import object_of
from kas.observe.metrics import Registry as Metrics
from kas.request.http import Request, Response, Result
from kas.request.requestinfo import RequestInfo
from kas.request.websocket import Upgrade
from kas.store import Event, Record
from kas.types.scheme import Group

log = logging.getLogger("kas.aggregator")

PROXIED = b"x-kubernetes-peer-proxied"
TIMEOUT_S, MOST_BYTES, AGAIN_S, REMEMBERED_S = 5.0, 4 << 20, 2.0, 3600.0
NOWHERE = "Error getting ip and port info of the remote server while proxying"
_ACCEPT = b"application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList;profile=nopeer"
Resources = Mapping[GroupVersion, Sequence[dict[str, Any]]]


@dataclass(slots=True)
class _Peer:
    """One server: its address (None if it left), the uid of its start, and the resources it serves by group version."""

    address: Address | None
    uid: str
    proxy: Proxy
    service: APIService
    serves: Resources = field(default_factory=dict)
    gone_at: float = 0.0
    asking: asyncio.Task[None] | None = None


class _Fixed:
    """Resolves to a peer's advertised address."""

    def __init__(self, address: Address) -> None:
        self._address = address

    def resolve(self, namespace: str, name: str, port: int) -> Address:
        """Return the address; see ``ServiceResolver``."""
        return self._address


class PeerMetrics:
    """Upstream's metric families about requests forwarded to peers."""

    def __init__(self, metrics: Metrics) -> None:
        at = ("group", "version", "resource")
        self._rerouted = metrics.counter(
            "apiserver_rerouted_request_total",
            "Total number of requests that were proxied to a peer kube-apiserver because the local apiserver was not capable of serving "
            "it, broken down by 'group', 'version', and 'resource' indicating the GVR of the request. If all three are empty (\"\"), the "
            "request is a discovery request.", ("code", *at),
        )  # fmt: skip
        self._failed = metrics.counter(
            "apiserver_peer_proxy_errors_total",
            "Total number of errors encountered while proxying requests to a peer kube apiserver", ("type", *at),
        )  # fmt: skip
        self._unknown = metrics.counter(
            "apiserver_peer_discovery_sync_errors_total",
            "Total number of errors encountered while syncing discovery information from a peer kube-apiserver", ("type",),
        )  # fmt: skip

        name, count = "aggregator_discovery_{}_total", "Counter of number of times"
        of_one = f"{count} no-peer (non peer-aggregated) discovery was requested"
        self._of_one = metrics.counter(name.format("nopeer_requests"), of_one)
        kept = f"{count} discovery was served from peer-aggregated cache"
        self._kept = metrics.counter(name.format("peer_aggregated_cache_hits"), kept)
        made = f"{count} discovery was aggregated across all API servers"
        self._made = metrics.counter(name.format("peer_aggregated_cache_misses"), made)

    def discovery(self, alone: bool, kept: bool) -> None:
        """Count a request for aggregated discovery: ``alone`` without peers, else with them, ``kept`` if it was cached."""
        (self._of_one if alone else self._kept if kept else self._made).inc()

    def answered(self, info: RequestInfo, code: int) -> None:
        """Count a peer's response, or the failure to get one."""
        self._rerouted.inc((str(code), info.api_group, info.api_version, info.resource))

    def nowhere(self, info: RequestInfo) -> None:
        """Count a request whose serving peers have all left."""
        self._failed.inc(("endpoint_resolution", info.api_group, info.api_version, info.resource))

    def no_address(self) -> None:
        """Count a peer without an address."""
        self._unknown.inc(("hostport_resolution",))

    def no_discovery(self) -> None:
        """Count a failed discovery of a peer."""
        self._unknown.inc(("fetch_discovery",))


class Peers:
    """Follows the peers' keys below ``root`` of ``source``.

    - ``own`` is this server's address, ``address_of(obj)`` the one in a key's object.
    - ``served(group, version, resource)`` says whether this server serves a resource.
    - ``changed()`` is called when discovery may have changed.
    - ``most`` bounds the requests waiting for one peer; ``groups`` are the built-in API groups. The files are PEM.

    Raises OSError if a file cannot be loaded.
    """

    def __init__(
        self, source: Source, root: str, address_of: Callable[[dict[str, Any]], Address | None], own: Address, ca_file: str,
        certificate: tuple[str, str], served: Callable[[str, str, str], bool], changed: Callable[[], None], most: int, with_uid: bool,
        groups: Mapping[str, Group], metrics: PeerMetrics, clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._metrics, self._groups, self.discovery_asked = metrics, groups, metrics.discovery
        self._root, self._address_of, self._own, self._served, self._changed = root, address_of, own, served, changed
        self._most, self._with_uid, self._clock = most, with_uid, clock
        self._ca = base64.b64encode(Path(ca_file).read_bytes()).decode()
        self._contexts = TLSContexts(ProxyCertificate(*certificate))
        self._peers: dict[str, _Peer] = {}
        self._serving: dict[tuple[str, str, str], list[_Peer]] = {}
        self._reflector = Reflector(source, root, self)

    def start(self) -> None:
        """Begin to follow peers; requires a running event loop."""
        self._reflector.start()

    async def close(self) -> None:
        """Cancel pending work and close connections."""
        self._reflector.stop()
        asking = [peer.asking for peer in self._peers.values() if peer.asking is not None]
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        for peer in self._peers.values():
            peer.proxy.close()

    # -- requests

    def __call__(self, req: Request) -> Result | None:
        """Return a peer's response to a resource request; None if it is to be served locally. Raises 503 if the serving peers have
        left."""
        info = req.info
        serving = self._serving.get((info.api_group, info.api_version, info.resource))
        if not serving or req.header(PROXIED) == "true" or self._served(info.api_group, info.api_version, info.resource):
            return None
        there = [peer for peer in serving if peer.address is not None]
        if there:
            peer = random.choice(there)
            answer = peer.proxy.handle(peer.service, req)
            if isinstance(answer, Response):
                self._metrics.answered(info, answer.status)
                return answer
            return self._counted(info, answer)
        now = self._clock()
        if all(now - peer.gone_at > REMEMBERED_S for peer in serving):
            return None
        self._metrics.nowhere(info)
        raise service_unavailable(NOWHERE)

    async def _counted(self, info: RequestInfo, answer: Awaitable[Response]) -> Response:
        try:
            response = await answer
        except ApiError as e:
            self._metrics.answered(info, e.code)
            raise
        self._metrics.answered(info, 101 if isinstance(response, Upgrade) else response.status)
        return response

    # -- the target: peers that appear and leave

    def replace(self, records: Sequence[Record]) -> None:
        """Start over with these records; see ``Target``."""
        self._forget()
        for name in self._peers.keys() - {record.key[len(self._root) :] for record in records}:
            self._left(name)
        for record in records:
            self._met(record)

    def apply(self, events: Sequence[Event]) -> None:
        """Apply the changes; see ``Target``."""
        self._forget()
        for event in events:
            if event.record is None:
                self._left(event.key[len(self._root) :])
            else:
                self._met(event.record)

    def _forget(self) -> None:
        """Drop peers that left more than ``REMEMBERED_S`` ago: hosts may return under new names without end."""
        now = self._clock()
        long_gone = [name for name, peer in self._peers.items() if peer.address is None and now - peer.gone_at > REMEMBERED_S]
        for name in long_gone:
            del self._peers[name]
        if long_gone:
            self._index()

    def _left(self, name: str) -> None:
        peer = self._peers.get(name)
        if peer is not None and peer.address is not None:
            peer.address, peer.gone_at = None, self._clock()
            peer.proxy.close()
            self._changed()

    def _met(self, record: Record) -> None:
        name, obj = record.key[len(self._root) :], object_of(record)
        address, uid = self._address_of(obj), obj["metadata"].get("uid") or ""
        if address is None:
            self._metrics.no_address()
        if address is None or address == self._own:
            return
        known = self._peers.get(name)
        if known is not None and (known.address, known.uid) == (address, uid):
            return
        if known is not None:
            if known.asking is not None:
                known.asking.cancel()
            known.proxy.close()
        proxy = Proxy(_Fixed(address), self._contexts, self._most, self._with_uid, False, mark=[(PROXIED, b"true")])
        # A name for which every API server's certificate is valid.
        service = APIService(name, "", "", 0, 0, ServiceReference("default", "kubernetes", address[1]), self._ca, available=True)
        peer = self._peers[name] = _Peer(address, uid, proxy, service, known.serves if known is not None else {})
        self._index()
        peer.asking = asyncio.get_running_loop().create_task(self._ask(name, peer), name=f"discovery of {name}")

    async def _ask(self, name: str, peer: _Peer) -> None:
        """Query the peer until it has answered or has left."""
        while True:
            found: dict[GroupVersion, Sequence[dict[str, Any]]] = {}
            try:
                for path in ("/api", "/apis"):
                    status, _, body = await peer.proxy.ask(
                        peer.service, "GET", path, PROBER, [(b"accept", _ACCEPT), (PROXIED, b"true")], MOST_BYTES, TIMEOUT_S
                    )
                    if status != 200:
                        raise BackendError(f"returned non-success response code: {status}")
                    found |= await step(len(body) >= LARGE, read_groups, body)
                break
            except (BackendError, ValueError) as e:
                log.info("discovery of the API server %s: %s", name, e)
                self._metrics.no_discovery()
                if peer.address is None:
                    return
                await asyncio.sleep(AGAIN_S)
        peer.serves, peer.asking = found, None
        self._index()
        self._changed()

    def _index(self) -> None:
        serving: dict[tuple[str, str, str], list[_Peer]] = {}
        for peer in self._peers.values():
            for (group, version), resources in peer.serves.items():
                for resource in resources:
                    serving.setdefault((group, version, resource["resource"]), []).append(peer)
        self._serving = serving

    # -- discovery

    def merged(self, local: Sequence[Version]) -> list[Version]:
        """Return the ``local`` versions, extended by resources and versions that only peers serve."""
        more: dict[GroupVersion, dict[str, dict[str, Any]]] = {}
        for peer in self._peers.values():
            if peer.address is not None:
                for at, resources in peer.serves.items():
                    more.setdefault(at, {}).update({r["resource"]: r for r in resources})
        out = []
        for v in local:
            extra = more.pop((v.group, v.version), {})
            have = v.discovered if v.discovered is not None else tuple(aggregated_resources(list(v.resources)))
            for resource in have:
                extra.pop(resource["resource"], None)
            out.append(v._replace(resources=(), discovered=(*have, *extra.values())) if extra else v)
        for (group, version), found in more.items():
            known = self._groups.get(group)
            if known is None:
                out.append(Version(group, version, discovered=tuple(found.values())))
            else:
                of_group, of_version = known.group_priority_minimum or 0, known.version_priority.get(version, 1)
                out.append(Version(group, version, (), of_group, of_version, discovered=tuple(found.values())))
        return out
