"""What the health checks of a worker look at.

kube-apiserver has more names; one stands here when there is something behind it that can be unfinished or fail.
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
# Finished when the bootstrap objects are there.
WRITTEN = (
    "poststarthook/rbac/bootstrap-roles", "poststarthook/scheduling/bootstrap-system-priority-classes",
    "poststarthook/priority-and-fairness-config-producer", AUTOREGISTRATION,
)  # fmt: skip
# Requests for aggregated servers find their way; what those serve is known, or that it cannot be known.
REGISTERED, DISCOVERED = "poststarthook/apiservice-registration-controller", "poststarthook/apiservice-discovery-controller"
STEPS = (INFORMERS, DEFINITIONS, *WRITTEN, STORAGE, REGISTERED, DISCOVERED)
# The controllers of the worker that leads, and the hooks that start them.
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
# Of the gate CoordinatedLeaderElection; on etcd with --endpoint-reconciler-type=lease; where requests are passed on to other API servers.
ELECTION_LOOPS = {"leader-election-controller": "poststarthook/start-kube-apiserver-coordinated-leader-election-controller"}
LEASE_LOOPS = {"kubernetes-service-endpoint-lease": LOOPS["bootstrap-controller"]}
PEER_LOOPS = {"peer-endpoint-lease": "poststarthook/peer-endpoint-reconciler-controller"}
# Periodic work of every worker, by its name in ``Runner``, and the hook that starts it; the last two where the flags ask for it.
UPKEEP = {"discovery of backends": DISCOVERED}
FAIRNESS_UPKEEP = {"flow control": "poststarthook/priority-and-fairness-filter"}
RELOADING_UPKEEP = {"encryption configuration": "poststarthook/start-encryption-provider-config-automatic-reload"}
PROXY_CERTIFICATE = "poststarthook/aggregator-reload-proxy-client-cert"
# And of the gate StorageVersionAPI.
STORAGE_VERSIONS = "poststarthook/built-in-resources-storage-version-updater"
STORAGE_LOOPS = {"built-in-resources-storage-version-updater": STORAGE_VERSIONS}
# Names that upstream gives to parts of what one step or one loop does here.
PARTS = {
    "poststarthook/start-apiserver-admission-initializer": INFORMERS,
    "poststarthook/start-apiextensions-informers": DEFINITIONS,
    "poststarthook/start-kube-aggregator-informers": REGISTERED,
    "poststarthook/apiservice-openapi-controller": REGISTERED,
    "poststarthook/apiservice-openapiv3-controller": REGISTERED,
    "poststarthook/start-system-namespaces-controller": LOOPS["bootstrap-controller"],
    "poststarthook/start-cluster-authentication-info-controller": LOOPS["bootstrap-controller"],
    "poststarthook/start-kubernetes-service-cidr-controller": LOOPS["bootstrap-controller"],
    # The ConfigMap that says since when. That a Secret cannot be marked as used is no reason to start the server anew.
    "poststarthook/start-legacy-token-tracking-controller": LOOPS["bootstrap-controller"],
}


class Bound(Protocol):
    """What the flags say about hooks."""

    enable_priority_and_fairness: bool
    encryption_provider_config: str
    encryption_provider_config_automatic_reload: bool


def loops(own: Sequence[str], gates: Collection[str], leases: bool, peers: bool) -> dict[str, str]:
    """The controllers that have a hook, of those that run as the worker's ``own`` and by ``gates``; with ``leases`` and ``peers`` those
    that say where this server is."""
    out = {name: hook for name, hook in LOOPS.items() if name in own}
    if "CoordinatedLeaderElection" in gates:
        out |= ELECTION_LOOPS
    if "StorageVersionAPI" in gates:
        out |= STORAGE_LOOPS
    return {**out, **(LEASE_LOOPS if leases else {}), **(PEER_LOOPS if peers else {})}


def steps(gates: Collection[str]) -> tuple[str, ...]:
    """The steps of a start that have a hook."""
    had = STEPS if "WatchCacheInitializationPostStartHook" in gates else tuple(name for name in STEPS if name != STORAGE)
    return (*had, STORAGE_VERSIONS) if "StorageVersionAPI" in gates else had


def upkeep(o: Bound) -> dict[str, str]:
    """The periodic work that has a hook."""
    reloads = o.encryption_provider_config and o.encryption_provider_config_automatic_reload
    return {**UPKEEP, **(FAIRNESS_UPKEEP if o.enable_priority_and_fairness else {}), **(RELOADING_UPKEEP if reloads else {})}


class Getter(Protocol):
    """What of the store the checks use (see ``kas.store``). Raises StoreError when it does not answer."""

    def get(self, key: str) -> Any:
        """What is stored under the key; StoreError when the store cannot be read."""

    def full(self) -> str:
        """Why writes are refused for want of room, or ""."""

    def lost(self) -> str:
        """Why what is written now would be lost, or ""."""


class Sealed(Protocol):
    """What of encryption at rest the checks use."""

    @property
    def unreadable(self) -> str:
        """What in the store cannot be decrypted, or ""."""

    def checks(self) -> dict[str, Check]:
        """Those of KMS plug-ins, by name."""


class HealthChecks:
    """``behind()`` is how many revisions the worker's followers are behind the store, ``failing()`` how many of them have missed
    something and cannot read it; ``api_services`` are the keys of the APIServices of what is served here; ``stopping()`` whether the
    server has been told to end; ``sealed`` is encryption at rest, where there is some. ``remote`` say (given a limit in seconds) why a
    cluster behind the store does not answer: the one that keeps most, then those of ``--etcd-servers-overrides``; ``limits_s`` are those
    of health and of readiness. ``certificate`` says why that for aggregated servers is not the one of its files, where there is one.
    /livez says ok to what belongs to the start until ``grace_s`` after the checks were made."""

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
        """The checks of each path, in the order in which they are listed."""
        whole = {name: name for name in self._hooks.names}
        parts = {name: hook for name, hook in PARTS.items() if hook in whole}
        hooks: dict[str, Check] = {name: functools.partial(self._hooks.why, hook) for name, hook in {**whole, **parts}.items()}
        base: dict[str, Check] = {"ping": self._heartbeat.why, "log": log_check, "etcd": self.storage}
        # A plug-in that is away, or a certificate that was not taken, is no reason to start the server anew.
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
        """Whether the store can be read, and the cluster behind it answers within ``limit_s`` (else the limit of health): why not, or
        ""."""
        try:
            self._store.get("/registry/health")
        except StoreError as e:
            return str(e)
        return self._remote[0](limit_s if limit_s is not None else self._limits_s[0]) if self._remote else ""

    def space(self) -> str:
        """Whether the store takes writes: why not, or "". Deletes it takes always."""
        try:
            return self._store.full()
        except StoreError as e:
            return str(e)

    def informers(self) -> str:
        """Whether the informers have seen all of the store: why not, or ""."""
        behind = self._behind()
        if behind > 0:
            return f"{behind} revisions behind the store"
        if failing := self._failing():
            return f"{failing} followers of the store could not read what they missed"
        return self._hooks.why(INFORMERS) or (self._sealed.unreadable if self._sealed is not None else "")

    def registered(self) -> str:
        """Every local APIService has been stored; what becomes of them later is no matter of start-up."""
        while self._unregistered:
            key = self._unregistered[-1]
            try:
                if self._store.get(key) is None:
                    return f"missing APIService: {key.rpartition('/')[2]}"
            except TransformError as e:
                if not e.revision:  # else it is there, though nobody can read it, and what it names is served
                    return str(e)
            except StoreError as e:
                return str(e)
            self._unregistered.pop()
        return ""

    def shutdown(self) -> str:
        """Whether the process keeps running: why not, or ""."""
        return "process is shutting down" if self._stopping() else ""
