"""Gauges for ``/metrics`` of watches, stored objects, sizes and caches."""

from __future__ import annotations

import time
from collections import Counter as Tally
from collections.abc import Callable, Iterator
from functools import partial
from typing import Protocol, runtime_checkable

from kas.config import features
from kas.endpoints.documents import version_info
from kas.endpoints.longrunning import LongRunning
from kas.endpoints.watch import Watches
from kas.observe import caches, counted
from kas.observe.metrics import UNEXPECTED_TOTAL, Counter, Of
from kas.observe.metrics import Registry as Metrics
from kas.observe.stability import HIDDEN, deprecated_since, level_of
from kas.registry.registries import Registries
from kas.store import TransformError
from kas.store.hub import LOST

# The labels of kubernetes_build_info, and their names in /version.
BUILD_LABELS = {
    "build_date": "buildDate", "compiler": "compiler", "git_commit": "gitCommit", "git_tree_state": "gitTreeState",
    "git_version": "gitVersion", "go_version": "goVersion", "major": "major", "minor": "minor", "platform": "platform",
}  # fmt: skip

SOONER_S = 1.0  # tolerance of the count interval: it is checked once a second, and on each scrape
SAMPLE, SAMPLE_BYTES = 16, 1 << 20  # The sample of objects from which the size of all is estimated; fewer objects if they are large.
OF_LEASES = (10, 50, 100, 500, 1000, 2500, 5000)


@runtime_checkable
class Leasing(Protocol):
    """A store whose keys share leases and that reports how many keys a lease had."""

    lease_used_up: Callable[[int], object]


class Inventory:
    """Sets the gauges to the current values in ``collect``.

    ``first`` marks the one worker that reports what is the same for all, because gauges of workers are summed. Objects are counted every
    ``count_s`` seconds, never for 0. A resource without writes since the last count keeps its number.
    """

    def __init__(
        self, metrics: Metrics, registries: Registries, watches: Watches, others: LongRunning, first: bool, count_s: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._count_s, self._clock, self._due, self._written, self._lost = count_s, clock, 0.0, set[str](), False
        self._metrics, self._registries, self._watches, self._first = metrics, registries, watches, first
        self._others = others
        self._registered_count = 0  # number of metrics when ``registered_metrics_total`` was last set
        self._counts: dict[Of, int] = {}  # the objects of each resource at the last count
        gauge = metrics.gauge
        self._long = gauge(
            "apiserver_longrunning_requests",
            "Gauge of all active long-running apiserver requests broken out by verb, group, version, resource, scope and component. Not "
            "all requests are tracked this way.",
            ("component", "group", "resource", "scope", "subresource", "verb", "version"),
        )
        size = "Size of the storage database file physically allocated in bytes."
        gauge("apiserver_storage_size_bytes", size, ("storage_cluster_id",))
        failed = "In case of a fetching error, the value will be -1."
        objects = f"Number of stored objects at the time of last check split by kind. {failed}"
        self._objects = gauge("apiserver_resource_objects", objects, ("group", "resource"))
        self._sizes = gauge(
            "apiserver_resource_size_estimate_bytes",
            "Estimated size of stored objects in database. Estimate is based on sum of last observed sizes of serialized objects. "
            f"{failed}", ("group", "resource"),
        )  # fmt: skip
        self._objects_by_name = gauge(
            "apiserver_storage_objects",
            "(Deprecated since 1.34.0) [DEPRECATED, consider using apiserver_resource_objects instead] Number of stored objects at the "
            f"time of last check split by kind. {failed}", ("resource",),
        )  # fmt: skip
        enabled = gauge(
            "kubernetes_feature_enabled", "This metric records the data about the stage and enablement of a k8s feature.",
            ("name", "stage"), same=True,
        )  # fmt: skip
        on = features.DEFAULT.on
        for name, gate in features.known().items():
            enabled.set((name, "" if gate.stage == "GA" else gate.stage.upper()), float(name in on))
        info = version_info()
        build = gauge(
            "kubernetes_build_info",
            "A metric with a constant '1' value labeled by major, minor, git version, git commit, git tree state, build date, Go version, "
            "and compiler from which Kubernetes was built, and platform on which it is running.", tuple(BUILD_LABELS), same=True,
        )  # fmt: skip
        build.set(tuple(info[name] for name in BUILD_LABELS.values()), 1.0)
        versions = gauge(
            "version_info",
            "Provides the compatibility version info of the component. The component label is the name of the component, usually kube, but "
            "is relevant for aggregated-apiservers.", ("binary", "component", "emulation", "min_compat"), same=True,
        )  # fmt: skip
        emulated, oldest = (f"{info[f'{name}Major']}.{info[f'{name}Minor']}" for name in ("emulation", "minCompatibility"))
        versions.set((info["gitVersion"].removeprefix("v"), "kube", emulated, oldest), 1.0)
        self._disabled = metrics.add(Counter("disabled_metrics_total", "The count of disabled metrics.", shared=False))
        self._hidden = metrics.add(Counter("hidden_metrics_total", "The count of hidden metrics.", shared=False))
        metrics.add(Counter(UNEXPECTED_TOTAL, "The count of unexpected categorizations during cardinality enforcement.", shared=False))
        self._registered = metrics.add(Counter(
            "registered_metrics_total", "The count of registered metrics broken by stability level and deprecation version.",
            ("stability_level", "deprecated_version"), shared=False,
        ))  # fmt: skip
        self._events = metrics.counter(
            "apiserver_storage_events_received_total", "Number of etcd events received split by kind.", ("group", "resource")
        )
        leases = [part for part in registries.store.parts() if isinstance(part, Leasing)]
        if leases:
            of_leases = metrics.histogram("etcd_lease_object_counts", "Number of objects attached to a single etcd lease.", (), OF_LEASES)
            for part in leases:
                part.lease_used_up = partial(of_leases.observe, ())
        counted.register(metrics)
        gauge("kas_cache_bytes", "Bytes that a cache of this name holds at most, in all workers.", ("name",))
        gauge("kas_cache_budget_bytes", "Bytes that a cache of this name may hold, in all workers.", ("name",))

    def collect(self) -> Iterator[None]:
        """Set the gauges of long-running requests and caches and, in the first worker, of the store's size and the objects by resource."""
        value = self._metrics.gauge_value
        self._count_long_running()
        self._disabled.values[()] = len(self._metrics.shown.disabled & self._metrics.metrics.keys())
        self._hidden.values[()] = 0 if self._metrics.shown.hidden else len(HIDDEN)
        if self._registered_count != len(self._metrics.metrics):  # metrics are only ever added
            self._registered_count = len(self._metrics.metrics)
            self._registered.values = dict(Tally((level, deprecated_since(m.help)) for m in self._metrics.metrics.values()
                                                   if (level := level_of(m.name))))  # fmt: skip
        for cache in caches.rows():
            value("kas_cache_bytes", (cache.name,), cache.size)
            value("kas_cache_budget_bytes", (cache.name,), cache.budget)
        received = self._received()
        if not self._first:
            return
        self._count_events(received)
        store = self._registries.store
        for i, part in enumerate(store.parts()):
            kind, size = part.size()
            if size >= 0:
                value("apiserver_storage_size_bytes", (f"{kind}-{i}",), size)
        paths = {f"{path}/" for directory in received for path in (directory, directory.rpartition("/")[0])}
        self._written.update(registry.root for _, registry in self._registries.by_resource() if registry.root in paths)
        self._lost |= LOST in received
        if self._count_s > 0 and (now := self._clock()) >= self._due:
            self._due = now + self._count_s - SOONER_S
            yield from self._count_objects()

    def _count_objects(self) -> Iterator[None]:
        store, known, written = self._registries.store, self._counts if not self._lost else {}, self._written
        self._written, self._lost = set(), False
        counts: dict[Of, int] = {}
        try:
            for of, registry in self._registries.by_resource():
                if of in known and registry.root not in written:
                    counts[of] = known[of]
                    continue
                counts[of] = store.count(registry.root)
                self._sizes.set(of, self._size(registry.root, counts[of]))
                yield
        except BaseException:  # the scrape may have been cancelled; the next one counts again
            self._lost, self._due = True, 0.0
            raise
        self._counts = counts
        self._sizes.values = {of: size for of, size in self._sizes.values.items() if of in counts}
        self._objects.values = {(group, resource): n for (group, resource), n in counts.items()}
        self._objects_by_name.values = {(f"{resource}.{group}" if group else resource,): n for (group, resource), n in counts.items()}

    def _size(self, root: str, count: int) -> int:
        """Return the estimated bytes of ``count`` objects, or -1 if the first ones cannot be decrypted."""
        try:
            first = self._registries.store.range(root, limit=SAMPLE, max_bytes=SAMPLE_BYTES).records if count else ()
        except TransformError:
            return -1
        return count * sum(map(len, first)) // len(first) if first else 0

    def _received(self) -> dict[str, int]:
        """Return the number of events from the store since the last call, by the directory of their keys."""
        received: dict[str, int] = {}
        for part in self._registries.store.parts():  # parts have no keys in common
            received |= part.hub.received
            part.hub.received = {}
        return received

    def _count_events(self, received: dict[str, int]) -> None:
        """Count the events. Every worker gets all of them, so only the first one counts."""
        if not received:
            return
        by_root = {registry.root.rstrip("/"): of for of, registry in reversed(self._registries.by_resource())}
        for directory, n in received.items():
            of = by_root.get(directory) or by_root.get(directory.rpartition("/")[0])  # keys of namespaced objects are one level deeper
            if of is not None:
                self._events.inc(of, n)

    def _count_long_running(self) -> None:
        values = self._long.values = dict.fromkeys(self._long.values, 0.0)
        for stream in self._watches.open:
            group, resource, _, _ = stream.place
            labels = ("apiserver", group, resource, stream.scope, "", "WATCH", stream.served.version)
            values[labels] = values.get(labels, 0.0) + 1
        for (group, resource, scope, subresource, version), n in self._others.open.items():
            values["apiserver", group, resource, scope, subresource, "CONNECT", version] = float(n)
