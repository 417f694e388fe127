"""How many seats a request takes (apiserver's ``util/flowcontrol/request``)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping

from kas.flowcontrol._engine import Flow
from kas.meta.records import NamedTuple
from kas.observe.caches import Cache
from kas.request.http import Request
from kas.request.requestinfo import RequestInfo

MOST_OF_A_WRITE, MOST_OF_A_LIST, MOST_BY_SIZE = 10, 10, 100
OBJECTS_PER_SEAT, BYTES_PER_SEAT, WATCHERS_PER_SEAT = 100, 100_000, 10
EVENT_S = 0.005  # for sending an event to so many watchers
STREAMED_BYTES = 1_000_000  # the most of a list that is not read from storage
COUNTED_FOR_S = 10.0
RESOURCE_BYTES = 512

Estimate = tuple[int, int, float]  # initial seats, final seats, and for how many seconds the latter are held
ONE: Estimate = (1, 0, 0.0)


class Stored(NamedTuple):
    """What is stored of a resource."""

    objects: int
    bytes_each: int


class Work:
    """Estimates the work of requests.

    ``stored(group, resource)`` counts objects; None for a resource that is not stored here. ``watched`` counts the
    watches of this worker by (group, resource, namespace, name), with "" for any. Their number is multiplied by
    ``workers``, since clients are spread over the workers.
    """

    def __init__(
        self, stored: Callable[[str, str], Stored | None], watched: Mapping[tuple[str, str, str, str], int], workers: int, by_size: bool
    ) -> None:
        self._stored, self._watched, self._workers, self._by_size = stored, watched, workers, by_size
        self._counts: Cache[tuple[str, str], tuple[float, Stored | None]] = Cache(
            "flow_control_counts", "how many objects of a resource lists have to read", 1 << 20, RESOURCE_BYTES
        )

    def forget(self, group: str, resource: str) -> None:
        """Drops what is known of a resource that is no longer served."""
        self._counts.drop((group, resource), len(group) + len(resource))

    def estimate(self, req: Request, flow: Flow) -> Estimate:
        """The estimate for a list, a watch or a write."""
        verb = req.info.verb
        if verb in ("list", "watch"):
            return (self._listing(req, flow.level.max_seats), 0, 0.0)
        return self._writing(req.info, flow.level.max_seats)

    def _listing(self, req: Request, most_of_level: int) -> int:
        info, params = req.info, req.params
        most = MOST_BY_SIZE if self._by_size else MOST_OF_A_LIST
        if 0 < most_of_level < most:
            most = most_of_level
        if most == 1:
            return 1
        limit, from_storage = 0, False
        if params.raw:  # most lists have no parameters
            try:
                limit = int(params.get("limit") or 0)
            except ValueError:
                return most  # it will be refused; as in upstream
            if info.verb == "list":
                from_storage = _reads_storage(req, limit)
            elif not _sends_current(req):
                return 1
        stored = self._count(info.api_group, info.resource)
        if stored is None:
            return 1
        limited = min(limit, stored.objects) if limit > 0 else stored.objects
        if self._by_size:
            objects = limited
            if info.name:
                objects = 1
            elif from_storage and (info.field_selector or info.label_selector):
                objects = max(limited, stored.objects // 2)
            size = objects * stored.bytes_each
            if size > STREAMED_BYTES and not from_storage:
                size = STREAMED_BYTES
            seats = -(-size // BYTES_PER_SEAT)
        else:
            objects = 2 * limited
            if info.name:
                objects = 1
            elif not from_storage:
                objects = stored.objects
            elif info.field_selector or info.label_selector:
                objects = stored.objects + limited
            seats = -(-objects // OBJECTS_PER_SEAT)
        return 1 if seats < 1 else seats if seats < most else most

    def _count(self, group: str, resource: str) -> Stored | None:
        now = time.monotonic()
        found = self._counts.entries.get((group, resource))
        if found is None or now - found[0] > COUNTED_FOR_S:
            found = (now, self._stored(group, resource))
            self._counts.put((group, resource), found, len(group) + len(resource))
        return found[1]

    def _writing(self, info: RequestInfo, most_of_level: int) -> Estimate:
        if info.resource == "serviceaccounts" and info.subresource == "token":
            return ONE  # nothing is stored, no watcher is notified
        watchers = self._interested(info) * self._workers
        if watchers < WATCHERS_PER_SEAT:
            return ONE
        seats = math.ceil(watchers / WATCHERS_PER_SEAT)
        final = min(seats, MOST_OF_A_WRITE, most_of_level or MOST_OF_A_WRITE)
        return (1, final, seats * EVENT_S / final)

    def _interested(self, info: RequestInfo) -> int:
        """The number of watches that will see the write, if no selector excludes it."""
        group, resource, namespace, name = info.api_group, info.resource, info.namespace, info.name
        get = self._watched.get  # written out, because every write calls this
        found = get((group, resource, "", ""), 0)
        if namespace:
            found += get((group, resource, namespace, ""), 0)
        if name:
            found += get((group, resource, "", name), 0)
            if namespace:
                found += get((group, resource, namespace, name), 0)
        return found


def _sends_current(req: Request) -> bool:
    """Whether a watch begins with the current state."""
    return req.params.flag("sendInitialEvents") or req.params.get("resourceVersion") in ("", "0")


def _reads_storage(req: Request, limit: int) -> bool:
    """Whether upstream would answer a list from etcd and not from its cache (``ShouldDelegateListMeta``)."""
    params, pairs = req.params, req.params.pairs
    match = params.get("resourceVersionMatch") if "resourceVersionMatch" in pairs else ""
    if match:
        return match == "Exact"
    if "continue" in pairs and params.get("continue"):
        return True
    return limit > 0 and "resourceVersion" in pairs and params.get("resourceVersion") not in ("", "0")
