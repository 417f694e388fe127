"""Metrics of a configuration file that is read again when it changes: upstream's ``apiserver/pkg/server/options/<what>config/metrics``."""

from __future__ import annotations

import hashlib

from kas.observe.metrics import Registry


class Reloads:
    """``what`` is the first word of upstream's names: authentication, authorization, encryption. One worker of a server counts, the others
    read the same file. ``identity`` is the server's name."""

    def __init__(self, metrics: Registry, what: str, identity: str) -> None:
        name, by = f"apiserver_{what}_config_controller_", ("apiserver_id_hash", "status")
        self._identity = _hash(identity.encode())
        self._reloads = metrics.counter(
            f"{name}automatic_reloads_total",
            f"Total number of automatic reloads of {what} configuration split by status and apiserver identity.", by,
        )  # fmt: skip
        self._last = metrics.gauge(
            f"{name}automatic_reload_last_timestamp_seconds",
            f"Timestamp of the last automatic reload of {what} configuration split by status and apiserver identity.", by,
        )  # fmt: skip
        self._info = metrics.gauge(
            f"{name}last_config_info",
            f"Information about the last applied {what} configuration with hash as label, split by apiserver identity.",
            ("apiserver_id_hash", "hash"),
        )

    def done(self, good: bool, now: float) -> None:
        """Count a reload at ``now``, seconds since the epoch."""
        status = "success" if good else "failure"
        self._reloads.inc((self._identity, status))
        self._last.set((self._identity, status), now)

    def applied(self, data: bytes) -> None:
        """These are the bytes of the configuration that counts."""
        self._info.values.clear()
        self._info.set((self._identity, _hash(data)), 1)


def _hash(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
