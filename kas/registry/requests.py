"""Storage metrics: upstream's ``etcd_request_duration_seconds`` and its counters, whatever the store is; and the objects
visited by lists.

A read takes a microsecond or two, so its timer is looked up once per resource, and adds to two numbers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from kas.observe.metrics import Registry as Metrics
from kas.observe.metrics import Timer

if TYPE_CHECKING:
    from kas.store import Store

BUCKETS = (
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60,
)  # fmt: skip
LABELS = ("operation", "group", "resource")
OPERATIONS = ("get", "list", "create", "update", "delete")


class Requests:
    """The metrics of one resource: a timer for each operation. ``failed(operation)`` counts an operation that failed in the
    store, ``listed(looked, returned)`` the objects that a list read and returned."""

    __slots__ = ("create", "delete", "failed", "get", "list", "listed", "update")

    def __init__(self, timer: Callable[[str], Timer], failed: Callable[[str], None], listed: Callable[[int, int], None]) -> None:
        self.get, self.list, self.create, self.update, self.delete = map(timer, OPERATIONS)
        self.failed, self.listed = failed, listed


class StorageMetrics:
    """The metric families of one server."""

    def __init__(self, metrics: Metrics) -> None:
        what = "Etcd request latency in seconds for each operation and object type."
        self._seconds = metrics.histogram("etcd_request_duration_seconds", what, LABELS, BUCKETS)
        self._count = metrics.counter("etcd_requests_total", "Etcd request counts for each operation and object type.", LABELS)
        what = "Etcd failed request counts for each operation and object type."
        self._failed = metrics.counter("etcd_request_errors_total", what, LABELS)
        name, course = "apiserver_storage_list_{}_objects_total", "in the course of serving a LIST request"
        of = ("group", "resource")
        self._looked = metrics.counter(name.format("fetched"), f"Number of objects read from storage {course}", of)
        self._tested = metrics.counter(name.format("evaluated"), f"Number of objects tested {course} from storage", of)
        self._returned = metrics.counter(name.format("returned"), "Number of objects returned for a LIST request from storage", of)
        self._lock = threading.Lock()  # guards the list counters: pages are read in threads, too
        metrics.collectors.append(self._collect)

    def _collect(self) -> Iterator[None]:
        for labels, row in list(self._seconds.values.items()):
            self._count.values[labels] = sum(row[:-1])
            yield
        self._tested.values = dict(self._looked.values)  # every object read is tested

    def _listed(self, of: tuple[str, str], looked: int, returned: int) -> None:
        with self._lock:
            self._looked.inc(of, looked)
            self._returned.inc(of, returned)

    def of(self, group: str, resource: str) -> Requests:
        """Returns the metrics of a resource."""
        return Requests(
            lambda operation: Timer(self._seconds, (operation, group, resource)),
            lambda operation: self._failed.inc((operation, group, resource)),
            partial(self._listed, (group, resource)),
        )  # fmt: skip


UNCOUNTED = StorageMetrics(Metrics()).of("", "")


class Pages:
    """The store's range reads for lists, with each page counted."""

    __slots__ = ("_listed", "_store", "_timer")

    def __init__(self, store: Store, requests: Requests) -> None:
        self._store, self._timer, self._listed = store, requests.list, requests.listed

    @property
    def revision(self) -> int:
        """The store's revision."""
        return self._store.revision

    def range(self, *args: Any, **more: Any) -> Any:
        """The store's ``range``."""
        began = monotonic()
        found = self._store.range(*args, **more)
        self._timer.add(monotonic() - began)
        self._listed(found.looked, found.count)
        return found

    def range_to_filter(self, *args: Any, **more: Any) -> Any:
        """The store's ``range``, for a caller that selects some of the records and reports their number with ``count_selected``."""
        began = monotonic()
        found = self._store.range(*args, **more)
        self._timer.add(monotonic() - began)
        self._listed(found.looked, 0)
        return found

    def count_selected(self, selected: int) -> None:
        """Counts ``selected`` records as selected."""
        self._listed(0, selected)

    def range_json(self, *args: Any, **more: Any) -> Any:
        """The store's ``range_json``. A scan without a body is not counted: it only computes sizes, or has to be repeated."""
        began = monotonic()
        found = self._store.range_json(*args, **more)
        self._timer.add(monotonic() - began)
        if found.body is not None:
            self._listed(found.looked, found.count)
        return found

    def range_protobuf(self, *args: Any, **more: Any) -> Any:
        """The store's ``range_protobuf``, counted as in ``range_json``."""
        began = monotonic()
        found = self._store.range_protobuf(*args, **more)
        self._timer.add(monotonic() - began)
        if found.body is not None:
            self._listed(found.looked, found.count)
        return found
