"""StorageVersions: which versions each API server of the cluster writes and reads, for storage migration (the gate StorageVersionAPI).

Upstream: ``apiserver/pkg/storageversion`` (manager and updater) and kube-controller-manager's ``storageversiongc``, whose task, to remove
the entries of servers without a Lease, is done here along with the update. Writes of a resource wait until its StorageVersion is updated
(``kas.filters.storage_version``), and /readyz until all are.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kas.controllers.client import Client
from kas.controllers.identity import GROUP as LEASES
from kas.controllers.identity import LABEL, NAMESPACE, VALUE
from kas.meta.errors import ApiError
from kas.meta.records import NamedTuple
from kas.registry.registries import Registries
from kas.store.errors import StoreError
from kas.types.scheme import Resource, Scheme

GROUP, RESOURCE = "internal.apiserver.k8s.io", "storageversions"
EVERY_S = 600.0
LEASE_EVERY_S = 0.1
AT_ONCE = 16  # concurrent updates
LOOK_EVERY_S = 0.2  # while updates are pending
CONDITION = "AllEncodingVersionsEqual"
NO_ERROR = "<nil>"

log = logging.getLogger("kas.storageversions")


class Report(NamedTuple):
    """A stored resource: the name of its StorageVersion, the encoding version, decodable and served versions; and the (group, resource)
    pairs that share its place in the store."""

    name: str
    encoding: str
    decodable: list[str]
    served: list[str]
    places: frozenset[tuple[str, str]]

    def of(self, identity: str) -> dict[str, Any]:
        """Return the entry of the server with this name."""
        return {"apiServerID": identity, "encodingVersion": self.encoding, "decodableVersions": self.decodable,
                "servedVersions": self.served}  # fmt: skip


def reports(scheme: Scheme, served: Sequence[Resource]) -> Iterator[Report]:
    """Yield a report for each stored resource; if groups share a place in the store, it is the first group's, by name."""
    by_place: dict[str, list[Resource]] = {}
    for r in sorted(served, key=lambda r: (r.group, r.resource)):
        if r.etcd_prefix is not None and r.storage_kind is not None:
            by_place.setdefault(r.etcd_prefix, []).append(r)
    for all_ in by_place.values():
        first = all_[0]
        mine = [r for r in all_ if (r.group, r.resource) == (first.group, first.resource)]
        assert first.storage_kind is not None
        encoding = first.storage_kind.api_version
        group = scheme.groups.get(first.group)  # None for kinds of an embedding program
        versions = group.versions if group is not None else ()
        known = [_api_version(first.group, v) for v in versions if scheme.kind(first.group, v, first.kind)]
        decodable = list(dict.fromkeys([*known, encoding, *(r.api_version for r in all_)]))
        order = {version: i for i, version in enumerate(decodable)}
        yield Report(f"{first.group or 'core'}.{first.resource}", encoding, decodable,
                     sorted((r.api_version for r in mine), key=order.__getitem__),
                     frozenset((r.group, r.resource) for r in all_))  # fmt: skip


def _api_version(group: str, version: str) -> str:
    return f"{group}/{version}" if group else version


class Registration:
    """This server's entries, and whether they are stored. The leading worker writes them, and every worker finds them in the store.

    An equal entry of an earlier start counts, since it is true. Once an entry was found it is not checked again (as upstream).
    """

    def __init__(self, registries: Registries, identity: str, scheme: Scheme, served: Sequence[Resource]) -> None:
        """``identity`` is the name of this server's Lease, ``served`` are the built-in resources it serves."""
        self.client = Client(registries, "kube-apiserver", "system:apiserver")
        self.identity = identity
        self.reports = list(reports(scheme, served))
        self._open = {at: report for report in self.reports for at in report.places}
        self._errors: dict[str, str] = {}

    def awaited(self, group: str, resource: str) -> str | None:
        """Return the last error, or "<nil>", if writes of the resource must wait, else None; see ``kas.filters.storage_version``."""
        report = self._open.get((group, resource))
        if report is None or self._is_stored(report):
            return None
        return self._errors.get(report.name, NO_ERROR)

    def failed(self, report: Report, error: str) -> None:
        """Record the error of an update."""
        self._errors[report.name] = error

    def periodic(self, complete: Callable[[], object]) -> tuple[str, float, Callable[[], None]]:
        """Return periodic work for ``Runner``: ``complete()`` is called when everything is stored."""

        def look() -> None:
            for report in self.reports if self._open else ():
                self._is_stored(report)
            if not self._open:
                complete()

        return ("storage versions", LOOK_EVERY_S, look)

    def controller(self) -> StorageVersions:
        """Return the controller that writes the entries."""
        return StorageVersions(self)

    def _is_stored(self, report: Report) -> bool:
        found = self.client.get(GROUP, RESOURCE, "", report.name) or {}
        stored = report.of(self.identity) in ((found.get("status") or {}).get("storageVersions") or ())
        if stored:
            self._errors.pop(report.name, None)
            for at in report.places:
                self._open.pop(at, None)
        return stored


class StorageVersions:
    """Maintains this server's entries in the StorageVersions."""

    name = "built-in-resources-storage-version-updater"

    def __init__(self, registration: Registration) -> None:
        self._registration, self.client = registration, registration.client
        self._registry = self.client.registries.of(GROUP, RESOURCE)

    async def run(self) -> None:
        """Update the entries every ``EVERY_S`` seconds while this server's Lease exists, until cancelled. A failed update does not
        prevent the others; the first such error is raised afterwards."""
        while True:
            living = self._living()
            if self._registration.identity not in living:  # other servers would remove the entries
                await asyncio.sleep(LEASE_EVERY_S)
                continue
            await self._tell_all(living)
            await asyncio.sleep(EVERY_S)

    async def _tell_all(self, living: set[str]) -> None:
        """Update several entries at a time, since they are independent: a first start has two writes for each."""
        waiting, failed = iter(self._registration.reports), list[Exception]()

        async def tell() -> None:
            for report in waiting:
                try:
                    await self._tell(report, living)
                except (ApiError, StoreError) as e:
                    log.warning("failed to update storage version for %s: %s", report.name, e)
                    self._registration.failed(report, str(e))
                    failed.append(e)

        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(tell())
        if failed:
            raise failed[0]

    def _living(self) -> set[str]:
        """Return the servers that have Leases."""
        leases = self.client.list(LEASES, "leases", NAMESPACE)
        return {o["metadata"]["name"] for o in leases if (o["metadata"].get("labels") or {}).get(LABEL) == VALUE}

    async def _tell(self, report: Report, living: set[str]) -> None:
        if self.client.get(GROUP, RESOURCE, "", report.name) is None:
            kind = {"kind": "StorageVersion", "apiVersion": f"{GROUP}/v1alpha1"}
            await self.client.create(GROUP, RESOURCE, {**kind, "metadata": {"name": report.name}, "spec": {}, "status": {}})
        identity = self._registration.identity
        own = report.of(identity)

        def change(obj: dict[str, Any]) -> bool:
            before = obj.get("status") or {}
            there = [s for s in before.get("storageVersions") or () if s.get("apiServerID") in living]
            mine = [own if s["apiServerID"] == identity else s for s in there]
            obj["status"] = self._status(before, mine if own in mine else [*mine, own])
            return bool(obj["status"] != before)

        await self.client.update(self._registry, "", report.name, change, "status")

    def _status(self, before: dict[str, Any], servers: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the status with these servers' entries."""
        versions = {s.get("encodingVersion") for s in servers}
        common = versions.pop() if len(versions) == 1 else None
        is_ = "Set" if common else "Unset"
        condition = {
            "type": CONDITION, "status": "True" if common else "False", "lastTransitionTime": self.client.registries.now(),
            "reason": f"CommonEncodingVersion{is_}", "message": f"Common encoding version {is_.lower()}",
        }  # fmt: skip
        others = [c for c in before.get("conditions") or () if c.get("type") != CONDITION]
        had: dict[str, Any] = next((c for c in before.get("conditions") or () if c.get("type") == CONDITION), {})
        was = before.get("commonEncodingVersion")
        if had.get("status") == condition["status"] and (was == common or not (was and common)):
            condition["lastTransitionTime"] = had.get("lastTransitionTime") or condition["lastTransitionTime"]
        status = {**before, "storageVersions": servers, "conditions": [*others, condition], "commonEncodingVersion": common}
        return {name: value for name, value in status.items() if value is not None}
