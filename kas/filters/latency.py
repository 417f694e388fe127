"""Request counts and durations under upstream's metric names."""

from __future__ import annotations

import operator
from array import array
from collections.abc import Callable, Sequence

from kas._fastpath import Tally
from kas.filters.handler import Filter
from kas.observe.metrics import Histogram, Labels, Registry, row_of
from kas.types.deprecated import REMOVED, WARNINGS
from kas.types.scheme import Resource

BUCKETS = (
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60,
)  # fmt: skip
FINER = 2  # buckets that the time without others' does not have
SIZE_BUCKETS = tuple(1000 * 10**i for i in range(7))


# Answers of who was not let in, or found nothing that could be called.
UNSERVED = frozenset((401, 403, 405, 429, 503))
# Answers of a server that defends itself.
LATE, TOO_MANY = 504, 429
EVICTION = "eviction"  # that a pod may not be evicted now its disruption budget says, with TOO_MANY


# Whether a group, version and resource are deprecated.
Deprecated = Callable[[str, str, str], bool]


def _removed(found: Resource | None) -> str | None:
    """The release without a deprecated API, "" where none is named; None for an API that is not deprecated."""
    if found is None or (found.group, found.version, found.kind) not in WARNINGS:
        return None
    return REMOVED.get((found.group, found.version, found.kind), "")


def _add(histogram: Histogram, labels: Labels, buckets: Sequence[int], total: float) -> None:
    """What a row has observed, if anything, to a child that other rows may have as well."""
    if any(buckets):
        sums = histogram.values.get(labels)
        if sums is None:
            sums = histogram.values[labels] = row_of(len(buckets) - 1)
        sums[:] = array("d", map(operator.add, sums, (*buckets, total)))


def latency(
    registry: Registry, resource_of: Callable[[str, str, str], Resource | None], deprecated_custom: Deprecated = lambda *of: False
) -> Filter:
    """Count requests; observe the duration in seconds, unless long-running, with and without what was others', and the size of a GET's
    answer in bytes. ``resource_of(group, version, resource)`` is the scheme's; ``deprecated_custom`` says so of what a definition
    serves."""
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
    tally = Tally(BUCKETS, SIZE_BUCKETS)

    def collect() -> None:
        for m in (terminations, durations, slis, sizes):  # rows come together that have the status or the dry run apart
            m.values.clear()
        for row in tally.rows():
            status, verb, group, version, resource, subresource, scope, dry = row.labels
            of = group, resource, scope, subresource, verb, version
            component = "" if subresource.startswith("/") else "apiserver"  # upstream names none for the paths of health
            requests.values[(str(status), component, dry, *of)] = row.count
            if status == LATE or (status == TOO_MANY and subresource != EVICTION):
                terminations.inc((str(status), component, *of), row.count)
            if resource and status not in UNSERVED:
                removed = "" if deprecated_custom(group, version, resource) else _removed(resource_of(group, version, resource))
                if removed is not None:
                    deprecated.set((group, removed, resource, subresource, version), 1)
            _add(durations, (component, dry, *of), row.duration_buckets(len(BUCKETS) + 1), row.seconds)
            _add(sizes, (component, *of), row.size_buckets(len(SIZE_BUCKETS) + 1), row.bytes_sent)
            own = row.own_buckets(len(BUCKETS) + 1)
            _add(slis, (component, *of), [sum(own[: FINER + 1]), *own[FINER + 1 :]], row.own_seconds)

    registry.collectors.append(collect)
    registry.droppers.append(tally.forget)

    return Filter("latency", None, tally.add, tally.ended)
