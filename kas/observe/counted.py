"""Metrics of code that has no registry at hand: kinds, controllers and endpoints of which a process has one each. The names are upstream's.

``register`` adds them to a worker's registry; until then they only accumulate.
"""

from __future__ import annotations

import os
import threading
import time

from kas.observe.metrics import Counter, Gauge, Histogram, Registry

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)  # Prometheus' default buckets
STATIC, DYNAMIC = "static", "dynamic"  # scopes: requested by the client, chosen by the allocator

ADDRESSES = Counter("kube_apiserver_clusterip_allocator_allocation_total", "Number of Cluster IPs allocations", ("cidr", "scope"))
ADDRESS_ERRORS = Counter(
    "kube_apiserver_clusterip_allocator_allocation_errors_total", "Number of errors trying to allocate Cluster IPs", ("cidr", "scope")
)
ADDRESS_SECONDS = Histogram(
    "kube_apiserver_clusterip_allocator_allocation_duration_seconds", "Duration in seconds to allocate a Cluster IP by ServiceCIDR",
    ("cidr",), SECONDS,
)  # fmt: skip
PORTS = Counter("kube_apiserver_nodeport_allocator_allocation_total", "Number of NodePort allocations", ("scope",))
PORT_ERRORS = Counter(
    "kube_apiserver_nodeport_allocator_allocation_errors_total", "Number of errors trying to allocate NodePort", ("scope",)
)
REPAIRED_ADDRESSES = Counter(
    "apiserver_clusterip_repair_ip_errors_total",
    "Number of errors detected on clusterips by the repair loop broken down by type of error: leak, repair, full, outOfRange, duplicate, "
    "unknown, invalid", ("type",),
)  # fmt: skip
UNREPAIRED_ADDRESSES = Counter(
    "apiserver_clusterip_repair_reconcile_errors_total", "Number of reconciliation failures on the clusterip repair reconcile loop"
)
REPAIRED_PORTS = Counter(
    "apiserver_nodeport_repair_port_errors_total",
    "Number of errors detected on ports by the repair loop broken down by type of error: leak, repair, full, outOfRange, duplicate, "
    "unknown", ("type",),
)  # fmt: skip
UNREPAIRED_PORTS = Counter(
    "apiserver_nodeport_repair_reconcile_errors_total", "Number of reconciliation failures on the nodeport repair reconcile loop"
)
LISTS = Counter("apiserver_storage_list_total", "Number of LIST requests served from storage", ("group", "resource"))
LOGS = Counter(
    "kube_apiserver_pod_logs_insecure_backend_total",
    "Total number of requests for pods/logs sliced by usage type: enforce_tls, skip_tls_allowed, skip_tls_denied", ("usage",),
)  # fmt: skip
UNVERIFIED_LOGS = Counter(
    "kube_apiserver_pod_logs_backend_tls_failure_total",
    "Total number of requests for pods/logs that failed due to kubelet server TLS verification",
)
AGGREGATIONS = Counter(
    "aggregator_discovery_aggregation_count_total", "Counter of number of times discovery was aggregated"
)
# The external signer of service account tokens.
SIGNED = Counter("apiserver_externaljwt_sign_request_total", "Total attempts at signing JWT", ("code",))
FETCHED = Counter("apiserver_externaljwt_fetch_keys_request_total", "Total attempts at syncing supported JWKs", ("code",))
SIGNER_CALLS = Histogram(
    "apiserver_externaljwt_request_duration_seconds", "Request duration and time for calls to external-jwt-signer", ("code", "method"),
    SECONDS,
)  # fmt: skip
FETCHED_AT = Gauge(
    "apiserver_externaljwt_fetch_keys_success_timestamp", "Unix Timestamp in seconds of the last successful FetchKeys request", same=True
)
KEYS_OF = Gauge(
    "apiserver_externaljwt_fetch_keys_data_timestamp",
    "Unix Timestamp in seconds of the last successful FetchKeys data_timestamp value returned by the external signer", same=True,
)  # fmt: skip
DATA_KEYS = Histogram(
    "apiserver_storage_data_key_generation_duration_seconds", "Latencies in seconds of data encryption key(DEK) generation operations.", (),
    [5e-6 * 2**i for i in range(14)],
)  # fmt: skip
DATA_KEY_FAILURES = Counter(
    "apiserver_storage_data_key_generation_failures_total", "Total number of failed data encryption key(DEK) generation operations."
)
_ALL = (
    ADDRESSES, ADDRESS_ERRORS, ADDRESS_SECONDS, PORTS, PORT_ERRORS, REPAIRED_ADDRESSES, UNREPAIRED_ADDRESSES, REPAIRED_PORTS,
    UNREPAIRED_PORTS, LISTS, LOGS, UNVERIFIED_LOGS, AGGREGATIONS, SIGNED, FETCHED, FETCHED_AT, KEYS_OF, SIGNER_CALLS, DATA_KEYS,
    DATA_KEY_FAILURES,
)  # fmt: skip
_lock = threading.Lock()  # for metrics that several threads update


def failed_handshakes() -> Counter:
    """The TLS front's counter of failed handshakes. Each process that counts or exposes them creates its own."""
    return Counter("apiserver_tls_handshake_errors_total", "Number of requests dropped with 'TLS handshake error from' error")


def register(metrics: Registry) -> None:
    """Adds all metrics of this module to a registry."""
    for metric in _ALL:
        metrics.add(metric)


def signer_asked(method: str, code: str, began: float) -> None:
    """Counts a call of the external signer that ended with this gRPC code; ``began`` is from ``time.perf_counter``."""
    with _lock:
        SIGNER_CALLS.observe((code, method), time.perf_counter() - began)
        if method == "Sign":
            SIGNED.inc((code,))
        elif method == "FetchKeys":
            FETCHED.inc((code,))


def data_key(size: int) -> bytes:
    """A new random data encryption key of ``size`` bytes; measures its generation. Raises OSError."""
    began = time.perf_counter()
    try:
        key = os.urandom(size)
    except OSError:
        DATA_KEY_FAILURES.inc()
        raise
    with _lock:
        DATA_KEYS.observe((), time.perf_counter() - began)
    return key
