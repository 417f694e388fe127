"""Discovery of the resources that backends serve, for aggregated discovery (upstream:
``kube-aggregator/pkg/apiserver/handler_discovery.go``).

Every worker queries backends itself, when an APIService changes and each minute: once per Service, however many group versions it has. A
backend without aggregated discovery is queried for the resource list of each version. Clients of this server never wait for it: a version
is shown as Stale and without resources until its backend has answered.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kas.aggregator.apiservices import APIService, APIServices, GroupVersion, ServiceReference
from kas.aggregator.transport import PROBER
from kas.client.http import BackendError
from kas.endpoints.discovery import Version, aggregated_resources
from kas.meta.largejson import parse
from kas.meta.offload import LARGE, step
from kas.meta.records import NamedTuple
from kas.types.scheme import builtin_kind, decode, find_builtin_kind

if TYPE_CHECKING:
    from kas.aggregator.proxy import Proxy

log = logging.getLogger("kas.aggregator")

TIMEOUT_S, MOST_BYTES, AT_ONCE = 5.0, 4 << 20, 2
_ACCEPT = b",".join(b"application/json;g=apidiscovery.k8s.io;v=%b;as=APIGroupDiscoveryList" % v for v in (b"v2", b"v2beta1"))
_NOTHING: dict[str, Any] = {"name": "", "singularName": "", "namespaced": False, "kind": "", "verbs": []}
_RESOURCE: dict[str, Any] = {"resource": "", "scope": "", "singularResource": "", "verbs": None}
_SUBRESOURCE: dict[str, Any] = {"subresource": "", "verbs": None}
_KIND: dict[str, Any] = {"group": "", "version": "", "kind": ""}
_LEGACY = builtin_kind("meta.k8s.io", "v1", "APIResourceList").type


class _LastResponse(NamedTuple):
    """The last good answer of one Service: resources in the form of APIGroupDiscoveryList, by group version. ``legacy``: it has no
    aggregated discovery."""

    etag: str = ""
    legacy: bool = False
    versions: Mapping[GroupVersion, tuple[dict[str, Any], ...]] = {}


class Discovery:
    """``changed()`` is called when the result of ``versions`` changes."""

    def __init__(self, services: APIServices, proxy: Proxy, changed: Callable[[], None]) -> None:
        self._services, self._proxy, self._changed = services, proxy, changed
        self._responses: dict[ServiceReference, _LastResponse] = {}
        self._shown: dict[str, tuple[tuple[dict[str, Any], ...], bool]] = {}  # APIService -> (resources, whether they are current)
        self._service_of: dict[str, ServiceReference] = {}  # the Services of APIServices at the last change
        self._dirty: set[ServiceReference] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(AT_ONCE)

    def versions(self) -> list[Version]:
        """Return the group versions of backends with their known resources."""
        out = []
        for s in self._services.remote.values():
            resources, current = self._shown.get(s.name, ((), False))
            freshness = "Current" if current else "Stale"
            out.append(
                Version(s.group, s.version, (), s.group_priority, s.version_priority, freshness, discovered=resources)
            )  # fmt: skip
        return out

    def touch(self, names: Iterable[str]) -> None:
        """Query the backends of these changed APIServices again, and drop deleted ones."""
        for name in names:
            service = self._services.by_name.get(name)
            before = self._service_of.pop(name, None)
            if before is not None and before not in self._services.by_service:
                self._responses.pop(before, None)
            if service is None or service.service is None:
                self._shown.pop(name, None)
            else:
                self._service_of[name] = service.service
                self._ask(service.service)

    def refresh(self) -> None:
        """Query every backend again."""
        self.touch(list(self._services.remote))

    async def idle(self) -> None:
        """Return when all pending queries have ended or timed out."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    async def close(self) -> None:
        """Cancel pending queries."""
        tasks = set(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ask(self, key: ServiceReference) -> None:
        if key in self._dirty:
            return  # a pending query will see this change, too
        self._dirty.add(key)
        task = asyncio.get_running_loop().create_task(self._fetch(key), name=f"discovery of {key.namespace}/{key.name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _fetch(self, key: ServiceReference) -> None:
        async with self._room:
            self._dirty.discard(key)
            services = list(self._services.by_service.get(key, {}).values())
            found: dict[str, tuple[tuple[dict[str, Any], ...], bool]] = {}
            available = next((s for s in services if s.available), None)
            response = await self._whole(key, available) if available is not None else None
            for s in services:
                if response is not None and not response.legacy:
                    # A version that the backend does not list has no resources, and that is current.
                    found[s.name] = (response.versions.get(s.group_version, ()), True)
                elif response is not None and s.available:
                    resources = await self._legacy(s)
                    found[s.name] = (resources or (), resources is not None)
                else:
                    found[s.name] = ((), False)
        before = {name: self._shown.get(name) for name in found}
        gone = {name for name in found if name not in self._services.by_name}
        self._shown.update({name: shown for name, shown in found.items() if name not in gone})
        if before != found:
            self._changed()

    async def _whole(self, key: ServiceReference, service: APIService) -> _LastResponse | None:
        """Query a Service; None if there is no good answer."""
        known = self._responses.get(key) or _LastResponse()
        headers = [(b"accept", _ACCEPT)] + ([(b"if-none-match", known.etag.encode("latin-1", "replace"))] if known.etag else [])
        try:
            status, response_headers, body = await self._proxy.ask(service, "GET", "/apis", PROBER, headers, MOST_BYTES, TIMEOUT_S)
            if status == 304 and known.etag:
                return known
            if status == 503:
                raise BackendError(f"returned non-success response code: {status}")
            found_headers = {k: v.decode("latin-1") for k, v in response_headers}
            if status != 200 or not _is_aggregated(found_headers.get(b"content-type", "")):
                return _LastResponse(legacy=True)
            found = _LastResponse(found_headers.get(b"etag", ""), versions=await step(len(body) >= LARGE, read_groups, body))
        except (BackendError, ValueError) as e:
            log.info("discovery of %s/%s: %s", key.namespace, key.name, e)
            return None
        self._responses[key] = found
        return found

    async def _legacy(self, service: APIService) -> tuple[dict[str, Any], ...] | None:
        try:
            status, _, body = await self._proxy.ask(
                service, "GET", service.path, PROBER, [(b"accept", b"application/json")], MOST_BYTES, TIMEOUT_S
            )
            if status != 200:
                raise BackendError(f"failed to download discovery for {service.path}: {status}")
            return await step(len(body) >= LARGE, read_resources, body)
        except (BackendError, ValueError) as e:
            log.info("discovery of %s: %s", service.name, e)
            return None


def _is_aggregated(content_type: str) -> bool:
    """Return whether the content type is the one ``_ACCEPT`` requests."""
    base, *params = (part.strip() for part in content_type.split(";"))
    parameters = {name.strip().lower(): value.strip().strip('"') for name, _, value in (p.partition("=") for p in params)}
    return (
        base.lower() == "application/json" and parameters.get("g") == "apidiscovery.k8s.io" and parameters.get("v") in ("v2", "v2beta1")
        and parameters.get("as") == "APIGroupDiscoveryList"
    )  # fmt: skip


def read_resources(body: bytes) -> tuple[dict[str, Any], ...]:
    """Return the resources of an APIResourceList. Raises ValueError."""
    obj = parse(body)
    if not isinstance(obj, dict) or obj.get("kind") != "APIResourceList":
        raise ValueError("no APIResourceList")
    obj, _ = decode(_LEGACY, obj)
    resources = [{**_NOTHING, **{k: v for k, v in r.items() if v is not None}} for r in obj.get("resources") or ()]
    return tuple(aggregated_resources(resources))


def read_groups(body: bytes) -> dict[GroupVersion, tuple[dict[str, Any], ...]]:
    """Return the resources of an APIGroupDiscoveryList by group version. Raises ValueError."""
    obj = parse(body)
    if not isinstance(obj, dict) or obj.get("kind") != "APIGroupDiscoveryList":
        raise ValueError("no APIGroupDiscoveryList")
    kind = find_builtin_kind(*str(obj.get("apiVersion", "")).partition("/")[::2], "APIGroupDiscoveryList")
    if kind is None:
        raise ValueError(f"no version of APIGroupDiscoveryList: {obj.get('apiVersion')!r}")
    obj, _ = decode(kind.type, obj)
    return {
        (group.get("metadata", {}).get("name", ""), version.get("version", "")): tuple(map(_complete, version.get("resources") or ()))
        for group in obj.get("items") or ()
        for version in group.get("versions") or ()
    }


def _complete(resource: dict[str, Any]) -> dict[str, Any]:
    """Return a backend's resource with the fields that it and its subresources always have, so that clients may read the kind without a
    check."""
    out = {**_RESOURCE, **resource, "responseKind": _KIND | (resource.get("responseKind") or {})}
    if resource.get("subresources"):
        out["subresources"] = [
            {**_SUBRESOURCE, **sub, "responseKind": _KIND | (sub.get("responseKind") or {})} for sub in resource["subresources"]
        ]
    return out
