"""The aggregator of one worker, put together."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from kas.aggregator.apiservices import GROUP, APIServices, GroupVersion
from kas.aggregator.discovery import Discovery
from kas.aggregator.transport import ProxyCertificate, TLSContexts
from kas.client.http import Via
from kas.client.services import ServiceResolver
from kas.endpoints.discovery import Version
from kas.informers import Source
from kas.informers.reflector import Reflector
from kas.meta.lazy import Lazy
from kas.observe.metrics import Registry as Metrics
from kas.request.http import Handler, Request, Result

if TYPE_CHECKING:
    from kas.aggregator.openapi import OpenAPIs
    from kas.aggregator.peers import Peers
    from kas.aggregator.proxy import Proxy
    from kas.endpoints.openapi import Document, OpenAPI

REFRESH_S = 60.0


class Settings(Protocol):
    """The flags that concern aggregation."""

    aggregator_reject_forwarding_redirect: bool
    proxy_client_cert_file: str
    proxy_client_key_file: str


class Aggregator:
    """Follows the APIServices below ``root``, from ``start`` on. ``claims`` is what the director asks first: who answers for a group
    version. ``local`` are this server's own OpenAPI documents, ``changed()`` is called when what is served may have, ``most`` bounds the
    requests that wait for one backend, ``via`` is the way there. Raises OSError when the proxy's certificate cannot be loaded."""

    def __init__(
        self, settings: Settings, source: Source, root: str, resolver: ServiceResolver, local: Callable[[], OpenAPI],
        changed: Callable[[], None], most: int, with_uid: bool, metrics: Metrics, via: Via | None = None,
    ) -> None:  # fmt: skip
        self.services = APIServices()
        self.resolver = resolver
        self.certificate = ProxyCertificate(settings.proxy_client_cert_file, settings.proxy_client_key_file)
        self._contexts = TLSContexts(self.certificate)
        self._of_proxy = most, with_uid, settings.aggregator_reject_forwarding_redirect, via
        later: Any = Lazy(lambda: self.proxy)
        self.discovery = Discovery(self.services, later, changed)
        self._local = local
        # Set by the worker that looks whether backends are available; every worker has to know them to show them.
        self.unavailable = metrics.gauge(
            "aggregator_unavailable_apiservice",
            "Gauge of APIServices which are marked as unavailable broken down by APIService name.", ("name",),
        )  # fmt: skip
        self.became_unavailable = metrics.counter(
            "aggregator_unavailable_apiservice_total",
            "Counter of APIServices which are marked as unavailable broken down by APIService name and reason.", ("name", "reason"),
        )  # fmt: skip
        self.claims: dict[GroupVersion, Handler] = {}
        self.peers: Peers | None = None
        self._changed = changed
        self._first_discovery: asyncio.Task[None] | None = None
        self._reflector = Reflector(source, root, self.services)
        self.services.listeners.append(self._follow)

    @functools.cached_property
    def proxy(self) -> Proxy:
        """The way of requests to backends."""
        from kas.aggregator.proxy import Proxy  # with the first APIService that another server answers

        return Proxy(self.resolver, self._contexts, *self._of_proxy)

    @functools.cached_property
    def openapi(self) -> OpenAPIs:
        """The documents of backends."""
        from kas.aggregator.openapi import OpenAPIs  # with the first backend whose document somebody asks for

        return OpenAPIs(self.services, self.proxy, self._local)

    def start(self, synced: Callable[[], None]) -> None:
        """From here on every stored APIService counts; ``synced()`` is called once each backend has been asked what it serves."""
        self._reflector.start()
        if self.peers is not None:
            self.peers.start()
        if not self.active:
            synced()
            return

        async def look() -> None:
            await self.discovery.idle()
            synced()

        self._first_discovery = asyncio.get_running_loop().create_task(look(), name="discovery of backends")

    async def close(self) -> None:
        """Ends what is under way."""
        self._reflector.stop()
        if self._first_discovery is not None:
            self._first_discovery.cancel()
        await self.discovery.close()
        if "openapi" in vars(self):
            await self.openapi.close()
        if self.peers is not None:
            await self.peers.close()
        if "proxy" in vars(self):
            self.proxy.close()

    def _follow(self, names: set[str]) -> None:
        for name in names:
            service = self.services.by_name.get(name)
            version, _, group = name.partition(".")
            if service is not None and service.service is not None and group != GROUP:
                self.claims[group, version] = functools.partial(self.proxy.handle, service)
            else:
                self.claims.pop((group, version), None)
        self._contexts.keep(self.services.trusted)
        self.discovery.touch(names)
        if "openapi" in vars(self):
            self.openapi.forget(names)
        self._changed()

    # --- what the documents are made of

    @property
    def active(self) -> bool:
        """Whether anything is answered elsewhere."""
        return bool(self.claims)

    def listed(self, local: Sequence[Version]) -> list[Version]:
        """What ``/apis`` names: every APIService, whether anybody answers or not, and what is served here and has none yet. With the
        priorities that the APIServices say."""
        out = {(v.group, v.version): v for v in local}
        for s in self.services.by_name.values():
            out[s.group_version] = Version(s.group, s.version, (), s.group_priority, s.version_priority)
        return list(out.values())

    def discovered(self, local: Sequence[Version], with_peers: bool = True) -> list[Version]:
        """What aggregated discovery shows: what is served here, and in its place or beside it what backends serve, and other API servers of
        the cluster."""
        found = [*(v for v in local if (v.group, v.version) not in self.claims), *self.discovery.versions()]
        return self.peers.merged(found) if self.peers is not None and with_peers else found

    def openapi_v2(self, content_type: str) -> Awaitable[Document]:
        """The merged document."""
        return self.openapi.v2(content_type)

    def openapi_v3_index(self) -> Awaitable[Document]:
        """The merged index."""
        return self.openapi.v3_index()

    def openapi_v3(self, path: str, req: Request) -> Result | None:
        """A backend's own document, None for a path no backend has."""
        return self.openapi.v3(path, req)

