"""Metrics of configuration files that are reloaded when they change: upstream's ``apiserver/pkg/server/options/<what>config/metrics``."""

from __future__ import annotations

import hashlib

from kas.observe.metrics import Registry


class Reloads:
    """``what`` is the prefix of upstream's metric names: authentication, authorization, encryption; or ``manifest_admission``, where each
    admission ``plugin`` has files of its own.

    One worker of a server counts; its ``identity`` is the server's name. The others read the same file and have the identity "". They
    register the metrics all the same, since any worker may have to expose what all have counted.
    """

    def __init__(self, metrics: Registry, what: str, identity: str, plugin: str = "") -> None:
        name, more = f"apiserver_{what}_config_controller_", ("plugin",) if plugin else ()
        by, apart, together = ("apiserver_id_hash", *more, "status"), "status and", ""
        if plugin:
            what, apart, together = "admission manifest", "status, plugin, and", "plugin and "
        counted = f"automatic reloads of {what} configuration split by {apart}"
        last = f"last automatic reload of {what} configuration split by {apart}"
        if what == "encryption":
            counted = "reload successes and failures of encryption configuration split by"
            last = "last successful or failed automatic reload of encryption configuration split by"
        self._plugin = (plugin,) if plugin else ()
        self._identity = _hash(identity.encode()) if identity else ""
        self._reloads = metrics.counter(f"{name}automatic_reloads_total", f"Total number of {counted} apiserver identity.", by)
        self._last = metrics.gauge(
            f"{name}automatic_reload_last_timestamp_seconds", f"Timestamp of the {last} apiserver identity.", by
        )
        self._info = metrics.gauge(
            f"{name}last_config_info",
            f"Information about the last applied {what} configuration with hash as label, split by {together}apiserver identity.",
            ("apiserver_id_hash", "hash", *more),
        )

    def done(self, good: bool, now: float) -> None:
        """Counts a reload at ``now``, in seconds since the epoch."""
        if not self._identity:
            return
        status = "success" if good else "failure"
        self._reloads.inc((self._identity, *self._plugin, status))
        self._last.set((self._identity, *self._plugin, status), now)

    def applied(self, data: bytes) -> None:
        """Records the bytes of the configuration in effect; those of a plug-in may be empty."""
        self.in_force("" if self._plugin and not data else _hash(data))

    def in_force(self, digest: str) -> None:
        """Records the digest of the configuration in effect."""
        if not self._identity:
            return
        for labels in [labels for labels in self._info.values if labels[2:] == self._plugin]:
            del self._info.values[labels]
        self._info.set((self._identity, digest, *self._plugin), 1)


def _hash(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
