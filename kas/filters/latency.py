"""Request counts and durations under upstream's metric names."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence, Set

from kas._fastpath import RequestMetrics, RequestMetricsRow
from kas.filters.handler import Filter
from kas.meta.records import NamedTuple
from kas.observe.metrics import Counter, Gauge, Histogram, Labels, Of, Registry, row_of
from kas.observe.nativebuckets import folded
from kas.types.deprecated import REMOVED, WARNINGS
from kas.types.scheme import Resource

BUCKETS = (
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60,
)  # fmt: skip
FINER = 2  # buckets that the SLI histogram does not have
SIZE_BUCKETS = tuple(1000 * 10**i for i in range(7))


# Responses to requests that were refused, or for which there is no handler.
UNSERVED = frozenset((401, 403, 405, 429, 503))
# Responses with which the server defends itself.
LATE, TOO_MANY = 504, 429
EVICTION = "eviction"  # TOO_MANY here comes from a disruption budget


# Whether a group, version and resource are deprecated.
Deprecated = Callable[[str, str, str], bool]


def _removed(found: Resource | None) -> str | None:
    """The release that removes a deprecated API, "" if none is announced; None for an API that is not deprecated."""
    if found is None or (found.group, found.version, found.kind) not in WARNINGS:
        return None
    return REMOVED.get((found.group, found.version, found.kind), "")


def _sum(histogram: Histogram, labels: Labels, observed: Sequence[tuple[Sequence[float], float]]) -> None:
    """Sets a child of the histogram to the sum of what the rows have observed, if anything: buckets, and the sum."""
    together = [*map(sum, zip(*(buckets for buckets, _ in observed), strict=True)), sum(total for _, total in observed)]
    if any(together[:-1]):
        child = histogram.values.get(labels)
        if child is None:
            child = histogram.values[labels] = row_of(len(together) - 2)
        child[:] = array("d", together)


class Counted(NamedTuple):
    """The metric families."""

    requests: Counter
    durations: Histogram
    slis: Histogram
    sizes: Histogram
    deprecated: Gauge
    terminations: Counter


class _Series:
    """Builds upstream's series from the rows of a tally. There may be ten thousand rows, most of which have not
    changed since the last scrape."""

    def __init__(self, tally: RequestMetrics, counted: Counted, removed: Callable[[str, str, str], str | None]) -> None:
        self._tally, self._m, self._removed = tally, counted, removed
        self._groups: dict[Labels, list[RequestMetricsRow]] = {}  # rows that differ only in status or dry run
        self._told: dict[RequestMetricsRow, tuple[int, float, int]] = {}

    def collect(self) -> Iterator[None]:
        """Brings the series up to date, one row per step."""
        for row in self._tally.rows():
            if not row.count or self._told.get(row) == (row.count, row.seconds, row.sized):
                continue  # no request has ended yet, or none since
            of = row.labels[1:-1]
            rows = self._groups.setdefault(of, [])
            if row not in self._told:
                rows.append(row)
            self._tell(of, rows)
            yield

    def forget(self, gone: Set[Of]) -> None:
        """Drops the series of resources that no longer exist."""
        self._tally.forget(gone)
        for labels in [labels for labels in self._groups if (labels[1], labels[3]) in gone]:
            for row in self._groups.pop(labels):
                del self._told[row]

    def _tell(self, labels: Labels, rows: Sequence[RequestMetricsRow]) -> None:
        verb, group, version, resource, subresource, scope = labels
        of = group, resource, scope, subresource, verb, version
        component = "" if subresource.startswith("/") else "apiserver"  # upstream sets none for the health check paths
        m, ended, dry_runs = self._m, dict[int, int](), dict[str, list[RequestMetricsRow]]()
        long = len(m.durations.buckets) + 1
        for row in rows:
            status, dry = row.labels[0], row.labels[-1]
            self._told[row] = row.count, row.seconds, row.sized
            m.requests.values[(str(status), component, dry, *of)] = row.count
            dry_runs.setdefault(dry, []).append(row)
            if status == LATE or (status == TOO_MANY and subresource != EVICTION):
                ended[status] = ended.get(status, 0) + row.count
            if resource and status not in UNSERVED and (removed := self._removed(group, version, resource)) is not None:
                m.deprecated.set((group, removed, resource, subresource, version), 1)
        for status, n in ended.items():
            m.terminations.values[(str(status), component, *of)] = n
        for dry, its in dry_runs.items():
            _sum(m.durations, (component, dry, *of), [(row.duration_buckets(long), row.seconds) for row in its])
        _sum(m.sizes, (component, *of), [(row.size_buckets(len(m.sizes.buckets) + 1), row.bytes_sent) for row in rows])
        own = [(folded(row.own_buckets(long), m.durations.buckets, m.slis.buckets), row.own_seconds) for row in rows]
        _sum(m.slis, (component, *of), own)


def latency(
    registry: Registry, resource_of: Callable[[str, str, str], Resource | None], deprecated_custom: Deprecated = lambda *of: False
) -> Filter:
    """Counts requests when they have ended; observes the duration in seconds, with and without the time spent
    waiting for others (webhooks, queues), and the size of a GET's response in bytes. ``resource_of(group, version,
    resource)`` is the scheme's; ``deprecated_custom`` tells whether a definition deprecates a version."""
    requests = registry.counter(
        "apiserver_request_total",
        "Counter of apiserver requests broken out for each verb, dry run value, group, version, resource, scope, component, and HTTP "
        "response code.",
        ("code", "component", "dry_run", "group", "resource", "scope", "subresource", "verb", "version"),
    )
    durations = registry.histogram(
        "apiserver_request_duration_seconds",
        "Response latency distribution in seconds for each verb, dry run value, group, version, resource, subresource, scope and "
        "component.",
        ("component", "dry_run", "group", "resource", "scope", "subresource", "verb", "version"),
        BUCKETS,
    )
    slis = registry.histogram(
        "apiserver_request_sli_duration_seconds",
        "Response latency distribution (not counting webhook duration and priority & fairness queue wait times) in seconds for each verb, "
        "group, version, resource, subresource, scope and component.",
        ("component", "group", "resource", "scope", "subresource", "verb", "version"),
        BUCKETS[FINER:],
    )
    sizes = registry.histogram(
        "apiserver_response_sizes",
        "Response size distribution in bytes for each group, version, verb, resource, subresource, scope and component.",
        ("component", "group", "resource", "scope", "subresource", "verb", "version"),
        SIZE_BUCKETS,
    )

    deprecated = registry.gauge(
        "apiserver_requested_deprecated_apis",
        "Gauge of deprecated APIs that have been requested, broken out by API group, version, resource, subresource, and removed_release.",
        ("group", "removed_release", "resource", "subresource", "version"), same=True,
    )  # fmt: skip
    terminations = registry.counter(
        "apiserver_request_terminations_total",
        "Number of requests which apiserver terminated in self-defense.",
        ("code", "component", "group", "resource", "scope", "subresource", "verb", "version"),
    )
    tally = RequestMetrics(durations.buckets, sizes.buckets)

    def removed(group: str, version: str, resource: str) -> str | None:
        return "" if deprecated_custom(group, version, resource) else _removed(resource_of(group, version, resource))

    series = _Series(tally, Counted(requests, durations, slis, sizes, deprecated, terminations), removed)
    registry.collectors.append(series.collect)
    registry.droppers.append(series.forget)

    return Filter("latency", None, tally.add, tally.ended)
