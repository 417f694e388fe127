"""The health checks of a worker process.

kube-apiserver has more checks. A name is listed here only if something behind it can be incomplete or fail.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

from kas.endpoints.health import Check
from kas.observe.heartbeat import Heartbeat
from kas.observe.hooks import Hooks
from kas.observe.logs import log_check
from kas.store import StoreError, TransformError

INFORMERS = "poststarthook/generic-apiserver-start-informers"
DEFINITIONS = "poststarthook/crd-informer-synced"
STORAGE = "poststarthook/storage-readiness"
AUTOREGISTRATION = "poststarthook/kube-apiserver-autoregistration"
# Complete when the bootstrap objects exist.
WRITTEN = (
    "poststarthook/rbac/bootstrap-roles", "poststarthook/scheduling/bootstrap-system-priority-classes",
    "poststarthook/priority-and-fairness-config-producer", AUTOREGISTRATION,
)  # fmt: skip
# Complete when requests for aggregated servers are routed, and when what those serve is known or known to be unavailable.
REGISTERED, DISCOVERED = "poststarthook/apiservice-registration-controller", "poststarthook/apiservice-discovery-controller"
STEPS = (INFORMERS, DEFINITIONS, *WRITTEN, STORAGE, REGISTERED, DISCOVERED)
# The controllers of the leading worker, and the hooks that start them.
LOOPS = {
    "bootstrap-controller": "poststarthook/bootstrap-controller",
    "priority-and-fairness-config-consumer": "poststarthook/priority-and-fairness-config-consumer",
    "service-ip-and-port-repair-controller": "poststarthook/start-service-ip-repair-controllers",
    "kube-apiserver-identity-lease-controller": "poststarthook/start-kube-apiserver-identity-lease-controller",
    "kube-apiserver-identity-lease-gc": "poststarthook/start-kube-apiserver-identity-lease-garbage-collector",
    "apiservice-status-local-available-controller": "poststarthook/apiservice-status-local-available-controller",
    "apiservice-status-remote-available-controller": "poststarthook/apiservice-status-remote-available-controller",
    "kube-apiserver-autoregistration": AUTOREGISTRATION,
    "crd-autoregistration": AUTOREGISTRATION,
    "crd-conditions-controller": "poststarthook/start-apiextensions-controllers",
    "crd-finalizer": "poststarthook/start-apiextensions-controllers",
}
# With the gate CoordinatedLeaderElection; on etcd with --endpoint-reconciler-type=lease; and with requests forwarded to peer API servers.
ELECTION_LOOPS = {"leader-election-controller": "poststarthook/start-kube-apiserver-coordinated-leader-election-controller"}
LEASE_LOOPS = {"kubernetes-service-endpoint-lease": LOOPS["bootstrap-controller"]}
PEER_LOOPS = {"peer-endpoint-lease": "poststarthook/peer-endpoint-reconciler-controller"}
# Periodic work of every worker, by its name in ``Runner``, and the hook that starts it. The last two depend on flags.
UPKEEP = {"discovery of backends": DISCOVERED}
FAIRNESS_UPKEEP = {"flow control": "poststarthook/priority-and-fairness-filter"}
RELOADING_UPKEEP = {"encryption configuration": "poststarthook/start-encryption-provider-config-automatic-reload"}
PROXY_CERTIFICATE = "poststarthook/aggregator-reload-proxy-client-cert"
# With the gate StorageVersionAPI.
STORAGE_VERSIONS = "poststarthook/built-in-resources-storage-version-updater"
STORAGE_LOOPS = {"built-in-resources-storage-version-updater": STORAGE_VERSIONS}
# Upstream's names for parts of what a single step or loop does here.
PARTS = {
    "poststarthook/start-apiserver-admission-initializer": INFORMERS,
    "poststarthook/start-apiextensions-informers": DEFINITIONS,
    "poststarthook/start-kube-aggregator-informers": REGISTERED,
    "poststarthook/apiservice-openapi-controller": REGISTERED,
    "poststarthook/apiservice-openapiv3-controller": REGISTERED,
    "poststarthook/start-system-namespaces-controller": LOOPS["bootstrap-controller"],
    "poststarthook/start-cluster-authentication-info-controller": LOOPS["bootstrap-controller"],
    "poststarthook/start-kubernetes-service-cidr-controller": LOOPS["bootstrap-controller"],
    # Covers the ConfigMap with the start date. That a Secret cannot be marked as used is no reason to restart the server.
    "poststarthook/start-legacy-token-tracking-controller": LOOPS["bootstrap-controller"],
}


class Bound(Protocol):
    """The flags that determine hooks."""

    enable_priority_and_fairness: bool
    encryption_provider_config: str
    encryption_provider_config_automatic_reload: bool


def loops(own: Sequence[str], gates: Collection[str], leases: bool, peers: bool) -> dict[str, str]:
    """Return the controllers that have a hook: of the worker's ``own`` controllers, and those enabled by ``gates``.

    ``leases`` and ``peers`` add those that publish this server's address.
    """
    out = {name: hook for name, hook in LOOPS.items() if name in own}
    if "CoordinatedLeaderElection" in gates:
        out |= ELECTION_LOOPS
    if "StorageVersionAPI" in gates:
        out |= STORAGE_LOOPS
    return {**out, **(LEASE_LOOPS if leases else {}), **(PEER_LOOPS if peers else {})}


def steps(gates: Collection[str]) -> tuple[str, ...]:
    """Return the steps of the start that have a hook."""
    had = STEPS if "WatchCacheInitializationPostStartHook" in gates else tuple(name for name in STEPS if name != STORAGE)
    return (*had, STORAGE_VERSIONS) if "StorageVersionAPI" in gates else had


def upkeep(o: Bound) -> dict[str, str]:
    """Return the periodic work that has a hook."""
    reloads = o.encryption_provider_config and o.encryption_provider_config_automatic_reload
    return {**UPKEEP, **(FAIRNESS_UPKEEP if o.enable_priority_and_fairness else {}), **(RELOADING_UPKEEP if reloads else {})}


class Getter(Protocol):
    """The part of the store that the checks use (see ``kas.store``). Raises StoreError if it does not respond."""

    def get(self, key: str) -> Any:
        """Return the value of a key. Raises StoreError if the store cannot be read."""

    def full(self) -> str:
        """Return why writes are rejected for lack of space, or ""."""

    def lost(self) -> str:
        """Return why new writes would be lost, or ""."""


class Sealed(Protocol):
    """The part of encryption at rest that the checks use."""

    @property
    def unreadable(self) -> str:
        """What in the store cannot be decrypted, or ""."""

    def checks(self) -> dict[str, Check]:
        """Return the checks of KMS plug-ins, by name."""


class HealthChecks:
    """The checks of all paths.

    - ``behind()``: how many revisions the worker's followers are behind the store.
    - ``failing()``: how many of them missed events and cannot read them again.
    - ``api_services``: the keys of the APIServices of what is served here.
    - ``stopping()``: whether the server has been told to stop.
    - ``sealed``: encryption at rest, if configured.
    - ``remote``: for each etcd cluster, why it does not respond, given a limit in seconds. The main one comes first, then those of
      ``--etcd-servers-overrides``.
    - ``limits_s``: the limits of health and of readiness.
    - ``certificate``: why the client certificate for aggregated servers is not that of its files, if there is one.

    /livez accepts incomplete start-up steps until ``grace_s`` after this object was created.
    """

    def __init__(
        self, store: Getter, hooks: Hooks, heartbeat: Heartbeat, behind: Callable[[], int], failing: Callable[[], int],
        api_services: Sequence[str], stopping: Callable[[], bool], sealed: Sealed | None = None,
        remote: Sequence[Callable[[float], str]] = (), limits_s: tuple[float, float] = (2.0, 2.0),
        grace_s: float = 0.0, certificate: Check | None = None,
    ) -> None:  # fmt: skip
        self._store, self._hooks, self._heartbeat, self._behind, self._stopping = store, hooks, heartbeat, behind, stopping
        self._failing = failing
        self._unregistered, self._sealed = list(api_services), sealed
        self._remote, self._limits_s = remote, limits_s
        self._grace_until, self._certificate = time.monotonic() + grace_s, certificate

    def paths(self) -> dict[str, dict[str, Check]]:
        """Return the checks of each path, in listing order."""
        whole = {name: name for name in self._hooks.names}
        parts = {name: hook for name, hook in PARTS.items() if hook in whole}
        hooks: dict[str, Check] = {name: functools.partial(self._hooks.why, hook) for name, hook in {**whole, **parts}.items()}
        base: dict[str, Check] = {"ping": self._heartbeat.why, "log": log_check, "etcd": self.storage}
        # A plug-in that does not respond, or a certificate that could not be loaded, is no reason to restart the server.
        sealed = self._sealed.checks() if self._sealed is not None else {}
        shown: dict[str, Check] = {PROXY_CERTIFICATE: self._certificate} if self._certificate is not None else {}
        health_s, ready_s = self._limits_s
        others: dict[str, Check] = {}
        ready: dict[str, Check] = {"etcd-readiness": lambda: self.storage(ready_s) or self._store.lost()}
        for i, other in enumerate(self._remote[1:]):
            others[f"etcd-override-{i}"] = ready[f"etcd-override-{i}"] = functools.partial(other, health_s)
            ready[f"etcd-override-readiness-{i}"] = functools.partial(other, ready_s)
        tail: dict[str, Check] = {**hooks, "autoregister-completion": self.registered}
        more: dict[str, Check] = {"etcd-space": self.space, "informer-sync": self.informers}
        return {
            "healthz": {**base, **sealed, **others, **shown, **tail},
            "livez": {**base, **others, **{name: functools.partial(self._alive, check) for name, check in tail.items()}},
            "readyz": {**base, **sealed, **ready, **more, **shown, **tail, "shutdown": self.shutdown},
        }

    def _alive(self, check: Check) -> str:
        return check() if time.monotonic() > self._grace_until else ""

    def storage(self, limit_s: float | None = None) -> str:
        """Return why the store cannot be read, or why its main cluster does not respond within ``limit_s``, or "".

        The default limit is that of health.
        """
        try:
            self._store.get("/registry/health")
        except StoreError as e:
            return str(e)
        return self._remote[0](limit_s if limit_s is not None else self._limits_s[0]) if self._remote else ""

    def space(self) -> str:
        """Return why the store rejects writes, or "". Deletes are always accepted."""
        try:
            return self._store.full()
        except StoreError as e:
            return str(e)

    def informers(self) -> str:
        """Return why the informers have not seen all of the store, or ""."""
        behind = self._behind()
        if behind > 0:
            return f"{behind} revisions behind the store"
        if failing := self._failing():
            return f"{failing} followers of the store could not read what they missed"
        return self._hooks.why(INFORMERS) or (self._sealed.unreadable if self._sealed is not None else "")

    def registered(self) -> str:
        """Return the name of a local APIService that has not been stored yet, or "". Later changes to them do not matter."""
        while self._unregistered:
            key = self._unregistered[-1]
            try:
                if self._store.get(key) is None:
                    return f"missing APIService: {key.rpartition('/')[2]}"
            except TransformError as e:
                if not e.revision:  # otherwise it exists but cannot be decrypted, and what it names is served
                    return str(e)
            except StoreError as e:
                return str(e)
            self._unregistered.pop()
        return ""

    def shutdown(self) -> str:
        """Return why the process does not keep running, or ""."""
        return "process is shutting down" if self._stopping() else ""
