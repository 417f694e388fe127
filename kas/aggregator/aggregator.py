"""The aggregator of one worker, assembled from its parts."""

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
    """Follows the APIServices below ``root`` after ``start``.

    - ``claims`` maps group versions served by backends to handlers; the director consults it first.
    - ``local`` returns this server's own OpenAPI documents.
    - ``changed()`` is called when what is served may have changed.
    - ``most`` bounds the requests waiting for one backend; ``via`` is the route to backends.

    Raises OSError if the proxy client certificate cannot be loaded.
    """

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
        # Set by the worker that checks availability; registered in every worker, since any may serve the metrics.
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
        """The proxy to backends."""
        from kas.aggregator.proxy import Proxy  # loaded with the first APIService of another server

        return Proxy(self.resolver, self._contexts, *self._of_proxy)

    @functools.cached_property
    def openapi(self) -> OpenAPIs:
        """The documents of backends."""
        from kas.aggregator.openapi import OpenAPIs  # loaded when a backend's document is first requested

        return OpenAPIs(self.services, self.proxy, self._local)

    def start(self, synced: Callable[[], None]) -> None:
        """Follow the stored APIServices from now on; ``synced()`` is called after the first discovery of every backend."""
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
        """Cancel pending work and close connections."""
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

    # --- inputs of the discovery and OpenAPI documents

    @property
    def active(self) -> bool:
        """Whether any group version is served by a backend."""
        return bool(self.claims)

    def listed(self, local: Sequence[Version]) -> list[Version]:
        """Return the versions that ``/apis`` lists: every APIService, available or not, and local versions without one; with the
        APIServices' priorities."""
        out = {(v.group, v.version): v for v in local}
        for s in self.services.by_name.values():
            out[s.group_version] = Version(s.group, s.version, (), s.group_priority, s.version_priority)
        return list(out.values())

    def discovered(self, local: Sequence[Version], with_peers: bool = True) -> list[Version]:
        """Return the versions for aggregated discovery: the local ones, replaced or complemented by those of backends and of peer API
        servers."""
        found = [*(v for v in local if (v.group, v.version) not in self.claims), *self.discovery.versions()]
        return self.peers.merged(found) if self.peers is not None and with_peers else found

    def openapi_v2(self, content_type: str) -> Awaitable[Document]:
        """Return the merged document."""
        return self.openapi.v2(content_type)

    def openapi_v3_index(self) -> Awaitable[Document]:
        """Return the merged index."""
        return self.openapi.v3_index()

    def openapi_v3(self, path: str, req: Request) -> Result | None:
        """Return a backend's own document, None for a path no backend has."""
        return self.openapi.v3(path, req)

