"""Metrics of a configuration file that is read again when it changes: upstream's ``apiserver/pkg/server/options/<what>config/metrics``."""

from __future__ import annotations

import hashlib

from kas.observe.metrics import Registry


class Reloads:
    """``what`` is the first word of upstream's names: authentication, authorization, encryption; ``manifest_admission`` where each
    ``plugin`` of admission has files of its own. One worker of a server counts, and has the server's name as ``identity``; the others
    read the same file and have "": they know the metrics, since any of them may be asked for what all have counted."""

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
        """Count a reload at ``now``, seconds since the epoch."""
        if not self._identity:
            return
        status = "success" if good else "failure"
        self._reloads.inc((self._identity, *self._plugin, status))
        self._last.set((self._identity, *self._plugin, status), now)

    def applied(self, data: bytes) -> None:
        """These are the bytes of the configuration that counts; of a plug-in there may be none."""
        self.in_force("" if self._plugin and not data else _hash(data))

    def in_force(self, digest: str) -> None:
        """The configuration that counts has this digest."""
        if not self._identity:
            return
        for labels in [labels for labels in self._info.values if labels[2:] == self._plugin]:
            del self._info.values[labels]
        self._info.set((self._identity, digest, *self._plugin), 1)


def _hash(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
