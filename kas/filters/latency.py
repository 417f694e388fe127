"""Request counts and durations under upstream's metric names."""

from __future__ import annotations

from time import monotonic

from kas.edge.http import Request, Response
from kas.filters.chain import Filter
from kas.observe.metrics import Registry

BUCKETS = (
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60,
)  # fmt: skip
SIZE_BUCKETS = tuple(1000 * 10**i for i in range(7))
VERBS = {"get": "GET", "list": "LIST", "watch": "WATCH", "create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE",
         "deletecollection": "DELETECOLLECTION", "proxy": "CONNECT"}  # fmt: skip
# Clients choose the method; anything else must not grow the label set.
METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))


def latency(registry: Registry) -> Filter:
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

    def after(req: Request, resp: Response) -> None:
        info = req.info
        # Only paths that exist become labels: a client must not be able to make series.
        if info is None or (info.is_resource_request and resp.status in (401, 403, 404, 405) and not req.known):
            verb = req.method if req.method in METHODS else "other"
            key: tuple[str, ...] = ("", "", "", "", verb, "")
        elif info.is_resource_request:
            scope = "resource" if info.name else "namespace" if info.namespace else "cluster"
            key = (info.api_group, info.resource, scope, info.subresource, VERBS.get(info.verb, info.verb.upper()), info.api_version)
        else:
            verb = req.method if req.method in METHODS else "other"
            key = ("", "", "", "", verb, "")
        dry = "All" if req.query and "dryRun=" in req.query else ""
        requests.inc((str(resp.status), "apiserver", dry, *key))
        if req.long_running:
            return
        durations.observe(("apiserver", dry, *key), monotonic() - req.started)
        if resp.body and req.method == "GET":
            sizes.observe(("apiserver", *key), len(resp.body))

    return Filter("latency", None, after)
