"""Metrics of encryption, under upstream's names; nothing is counted before ``attach``."""

from __future__ import annotations

import functools
import hashlib
import threading
import time

from kas.observe.metrics import Gauge, Labels, Registry
from kas.observe.reloads import Reloads

FROM, TO = "from_storage", "to_storage"
MAX_KEYS = 10  # maximum of keys in metrics: those used last
_ENVELOPE = "apiserver_envelope_encryption"


class Observed:
    """Counts values, versions of the configuration file, and calls of plug-ins."""

    def __init__(self) -> None:
        self._metrics: Registry | None = None
        self._digest = ""
        self._lock = threading.Lock()  # guards the metrics of keys: many threads seal and open values
        self._identity = ""  # of the server, as shown in metrics
        self._reloads: Reloads | None = None

    def attach(self, metrics: Registry, server: str, follows: bool = False, counts: bool = True) -> None:
        """Starts counting, for the server of this name, which ``follows`` the file; the worker that ``counts`` also counts
        reloads."""
        self._identity = "sha256:" + hashlib.sha256(server.encode()).hexdigest()
        self._operations = metrics.counter(
            "apiserver_storage_transformation_operations_total",
            "Total number of transformations. Successful transformation will have a status 'OK' and a varied status string when the "
            "transformation fails. The status, resource, and transformation_type fields can be used for alerting purposes. For example, "
            "you can monitor for encryption/decryption failures using the transformation_type (e.g., from_storage for decryption and "
            "to_storage for encryption). Additionally, these fields can be used to ensure that the correct transformers are applied to "
            "each resource.",
            ("resource", "transformation_type", "transformer_prefix", "status"),
        )
        self._durations = metrics.histogram(
            "apiserver_storage_transformation_duration_seconds", "Latencies in seconds of value transformation operations.",
            ("transformation_type", "transformer_prefix"), [5e-6 * 2**i for i in range(25)],
        )  # fmt: skip
        self._calls = metrics.histogram(
            f"{_ENVELOPE}_kms_operations_latency_seconds", "KMS operation duration with gRPC error code status total.",
            ("provider_name", "method_name", "grpc_status_code"), [0.0001 * 2**i for i in range(20)],
        )  # fmt: skip
        of_key = ("provider_name", "key_id_hash", "apiserver_id_hash")
        self._key_uses = metrics.counter(
            f"{_ENVELOPE}_key_id_hash_total",
            "Number of times a keyID is used split by transformation type, provider, and apiserver identity.",
            ("transformation_type", *of_key),
        )  # fmt: skip
        self._key_used = metrics.gauge(
            f"{_ENVELOPE}_key_id_hash_last_timestamp_seconds", "The last time in seconds when a keyID was used.",
            ("transformation_type", *of_key), same=True,
        )  # fmt: skip
        self._key_said = metrics.gauge(
            f"{_ENVELOPE}_key_id_hash_status_last_timestamp_seconds",
            "The last time in seconds when a keyID was returned by the Status RPC call.", of_key, same=True,
        )  # fmt: skip
        self._key_refused = metrics.counter(
            f"{_ENVELOPE}_invalid_key_id_from_status_total",
            "Number of times an invalid keyID is returned by the Status RPC call split by error.", ("provider_name", "error"),
        )  # fmt: skip
        self._sources = metrics.gauge(
            f"{_ENVELOPE}_dek_source_cache_size",
            "Number of records in data encryption key (DEK) source cache. On a restart, this value is an approximation of the number of "
            "decrypt RPC calls the server will make to the KMS plugin.", ("provider_name",), same=True,
        )  # fmt: skip
        self._metrics = metrics
        if follows:
            self._reloads = Reloads(metrics, "encryption", server if counts else "")
        self.in_force(self._digest)

    def value(self, resource: str, kind: str, prefix: str, began: float, ok: bool) -> None:
        """Counts a sealed or opened value; ``began`` is of ``time.perf_counter``."""
        if self._metrics is not None:
            self._operations.inc((resource, kind, prefix, "OK" if ok else "unknown-non-grpc"))
            if ok:
                self._durations.observe((kind, prefix), time.perf_counter() - began)

    def call(self, provider: str, method: str, code: str, seconds: float) -> None:
        """Counts a call of a plug-in."""
        if self._metrics is not None:
            self._calls.observe((provider, method, code), seconds)

    def key_used(self, provider: str, kind: str, key_id: str) -> None:
        """Records the use of a plug-in's key for a value."""
        if self._metrics is not None:
            labels = kind, provider, key_id_hash(key_id), self._identity
            with self._lock:
                self._key_uses.inc(labels)
                if (gone := _now(self._key_used, labels)) is not None:
                    self._key_uses.values.pop(gone, None)

    def key_said(self, provider: str, key_id: str) -> None:
        """Records the key that a plug-in reports as current."""
        if self._metrics is not None:
            with self._lock:
                _now(self._key_said, (provider, key_id_hash(key_id), self._identity))

    def sources_kept(self, provider: str, count: int) -> None:
        """Sets the number of cached data keys of a plug-in."""
        if self._metrics is not None:
            self._sources.set((provider,), count)

    def key_refused(self, provider: str, error: str) -> None:
        """Counts an invalid key id reported by a plug-in."""
        if self._metrics is not None:
            self._key_refused.inc((provider, error))

    def in_force(self, digest: str) -> None:
        """Records the configuration in use from now on."""
        self._digest = digest
        if self._reloads is not None:
            self._reloads.in_force(digest)

    def reloaded(self, good: bool) -> None:
        """Counts a changed file that was taken over, or refused."""
        if self._reloads is not None:
            self._reloads.done(good, time.time())


@functools.lru_cache(maxsize=64)
def key_id_hash(key_id: str) -> str:
    """Returns a key's id as logs and metrics show it."""
    return "sha256:" + hashlib.sha256(key_id.encode()).hexdigest() if key_id else ""


def _now(gauge: Gauge, labels: Labels) -> Labels | None:
    """Sets the time; returns the labels of the oldest entry, which is removed if there are too many."""
    values = gauge.values
    values.pop(labels, None)
    values[labels] = time.time()
    if len(values) <= MAX_KEYS:
        return None
    oldest = next(iter(values))
    del values[oldest]
    return oldest
