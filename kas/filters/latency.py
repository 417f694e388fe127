"""Request counts and durations under upstream's metric names."""

from __future__ import annotations

from kas._fastpath import Tally
from kas.filters.handler import Filter
from kas.observe.metrics import Registry

BUCKETS = (
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60,
)  # fmt: skip
SIZE_BUCKETS = tuple(1000 * 10**i for i in range(7))


def latency(registry: Registry) -> Filter:
    """Count requests; observe the duration in seconds, unless long-running, and the size of a GET's answer in bytes."""
    requests = registry.counter(
        "apiserver_request_total",
        "Counter of apiserver requests broken out for each verb, dry run value, group, version, resource, scope, component, and code.",
        ("code", "component", "dry_run", "group", "resource", "scope", "subresource", "verb", "version"),
    )
    durations = registry.histogram(
        "apiserver_request_duration_seconds",
        "Response latency distribution in seconds for each verb, dry run value, group, version, resource and subresource.",
        ("component", "dry_run", "group", "resource", "scope", "subresource", "verb", "version"),
        BUCKETS,
    )
    sizes = registry.histogram(
        "apiserver_response_sizes",
        "Response size distribution in bytes for each group, version, verb, resource, subresource, scope and component.",
        ("component", "group", "resource", "scope", "subresource", "verb", "version"),
        SIZE_BUCKETS,
    )

    tally = Tally(BUCKETS, SIZE_BUCKETS)

    def collect() -> None:
        for row in tally.rows():
            status, verb, group, version, resource, subresource, scope, dry = row.labels
            labels = ("apiserver", "All" if dry else "", group, resource, scope, subresource, verb, version)
            requests.values[(str(status), *labels)] = row.count
            sums = durations.values.setdefault(labels, [0.0] * (len(BUCKETS) + 2))
            sums[:] = [0.0] * len(sums)
            if row.sized:
                sizes.values[("apiserver", group, resource, scope, subresource, verb, version)] = [
                    *map(float, row.size_buckets(len(SIZE_BUCKETS) + 1)), row.bytes_sent,
                ]  # fmt: skip
        for row in tally.rows():  # durations are not told apart by status
            _, verb, group, version, resource, subresource, scope, dry = row.labels
            sums = durations.values["apiserver", "All" if dry else "", group, resource, scope, subresource, verb, version]
            for i, n in enumerate(row.duration_buckets(len(BUCKETS) + 1)):
                sums[i] += n
            sums[-1] += row.seconds

    registry.collectors.append(collect)

    return Filter("latency", None, tally.add)
