"""Process-wide capabilities of this server: what pods may request (upstream ``pkg/capabilities``), garbage collection, and compatibility
with older releases. Set once, before anything is served.
"""

from __future__ import annotations

from typing import Protocol

from kas import KUBERNETES_VERSION


class Settings(Protocol):
    """The flags that determine the capabilities."""

    allow_privileged: bool
    enable_garbage_collector: bool
    min_compatibility_version: list[str]
    version: str


class Capabilities:
    """``allow_privileged``: ``--allow-privileged``. ``enable_garbage_collector``: ``--enable-garbage-collector``. ``compatible``: (major,
    minor) of ``--min-compatibility-version``, None if not given. ``git_version``: the release that ``/version`` reports.
    """

    allow_privileged = True
    enable_garbage_collector = True
    compatible: tuple[int, int] | None = None
    git_version = f"v{KUBERNETES_VERSION}"

    def set(self, o: Settings) -> None:
        """Set the capabilities from the flags."""
        self.allow_privileged, self.enable_garbage_collector = o.allow_privileged, o.enable_garbage_collector
        self.git_version = o.version if o.version.startswith("v") else f"v{KUBERNETES_VERSION}"
        self.compatible = None
        if o.min_compatibility_version:
            from kas.config.validation import version_map  # rarely needed after the start

            self.compatible = next(iter(version_map(o.min_compatibility_version).values()))


CURRENT = Capabilities()
