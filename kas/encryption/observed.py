"""Metrics of encryption, under upstream's names; nothing is counted before ``attach``."""

from __future__ import annotations

import functools
import hashlib
import socket
import threading
import time

from kas.observe.metrics import Gauge, Labels, Registry

SUCCESS, FAILURE = "success", "failure"
FROM, TO = "from_storage", "to_storage"
MAX_KEYS = 10  # that are told: those used last
_ENVELOPE = "apiserver_envelope_encryption"
_RELOAD = "apiserver_encryption_config_controller_automatic_reload"


class Observed:
    """What happened to values, to the configuration's file and between here and plug-ins."""

    def __init__(self) -> None:
        self._metrics: Registry | None = None
        self._digest = ""
        self._lock = threading.Lock()  # of what is told of keys: values pass in many threads
        # As upstream hides its identity: the Lease's holder would do, too.
        self._identity = "sha256:" + hashlib.sha256(socket.gethostname().lower().encode()).hexdigest()

    def attach(self, metrics: Registry, reload: bool) -> None:
        """Counts from here on; ``reload``: the file is followed."""
        self._operations = metrics.counter(
            "apiserver_storage_transformation_operations_total",
            "Total number of transformations. Successful transformation will have a status 'OK' and a varied status string when the "
            "transformation fails. The status, resource, and transformation_type fields can be used for alerting purposes.",
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
        if reload:
            self._reloads = metrics.counter(
                _RELOAD + "s_total",
                "Total number of reload successes and failures of encryption configuration split by apiserver identity.",
                ("status", "apiserver_id_hash"),
            )  # fmt: skip
            self._reloaded = metrics.gauge(
                _RELOAD + "_last_timestamp_seconds",
                "Timestamp of the last successful or failed automatic reload of encryption configuration split by apiserver identity.",
                ("status", "apiserver_id_hash"), shared=False,
            )  # fmt: skip
            self._info = metrics.gauge(
                "apiserver_encryption_config_controller_last_config_info",
                "Information about the last applied encryption configuration with hash as label, split by apiserver identity.",
                ("apiserver_id_hash", "hash"), shared=False,
            )  # fmt: skip
            self._show()

    def value(self, resource: str, kind: str, prefix: str, began: float, ok: bool) -> None:
        """A value passed; ``began`` is of ``time.perf_counter``."""
        if self._metrics is not None:
            self._operations.inc((resource, kind, prefix, "OK" if ok else "unknown-non-grpc"))
            if ok:
                self._durations.observe((kind, prefix), time.perf_counter() - began)

    def call(self, provider: str, method: str, code: str, seconds: float) -> None:
        """A plug-in was asked."""
        if self._metrics is not None:
            self._calls.observe((provider, method, code), seconds)

    def key_used(self, provider: str, kind: str, key_id: str) -> None:
        """A value passed that is sealed with this key of a plug-in."""
        if self._metrics is not None:
            labels = kind, provider, key_id_hash(key_id), self._identity
            with self._lock:
                self._key_uses.inc(labels)
                if (gone := _now(self._key_used, labels)) is not None:
                    self._key_uses.values.pop(gone, None)

    def key_said(self, provider: str, key_id: str) -> None:
        """A plug-in says that it uses this key."""
        if self._metrics is not None:
            with self._lock:
                _now(self._key_said, (provider, key_id_hash(key_id), self._identity))

    def sources_kept(self, provider: str, count: int) -> None:
        """So many data keys of a plug-in are remembered."""
        if self._metrics is not None:
            self._sources.set((provider,), count)

    def key_refused(self, provider: str, error: str) -> None:
        """A plug-in says that it uses a key whose id none can be."""
        if self._metrics is not None:
            self._key_refused.inc((provider, error))

    def in_force(self, digest: str) -> None:
        """The configuration that is used from here on."""
        self._digest = digest
        if self._metrics is not None:
            self._show()

    def reloaded(self, status: str) -> None:
        """The changed file was taken, or not."""
        if self._metrics is not None:
            self._reloads.inc((status, self._identity))
            self._reloaded.set((status, self._identity), time.time())

    def _show(self) -> None:
        self._info.values.clear()
        self._info.set((self._identity, self._digest), 1)


@functools.lru_cache(maxsize=64)
def key_id_hash(key_id: str) -> str:
    """A key's id as logs and metrics show it."""
    return "sha256:" + hashlib.sha256(key_id.encode()).hexdigest() if key_id else ""


def _now(gauge: Gauge, labels: Labels) -> Labels | None:
    """Sets the time; who has been there the longest goes when there are too many, and is returned."""
    values = gauge.values
    values.pop(labels, None)
    values[labels] = time.time()
    if len(values) <= MAX_KEYS:
        return None
    oldest = next(iter(values))
    del values[oldest]
    return oldest
