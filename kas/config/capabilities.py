"""What there is at all on this server, for pods to ask for (upstream ``pkg/capabilities``), of what a delete begins, and of older releases:
one set a process, set once before anything is served."""

from __future__ import annotations

from typing import Protocol

from kas import KUBERNETES_VERSION


class Settings(Protocol):
    """The flags that say so."""

    allow_privileged: bool
    enable_garbage_collector: bool
    min_compatibility_version: list[str]
    version: str


class Capabilities:
    """``allow_privileged``: ``--allow-privileged``; ``enable_garbage_collector``: ``--enable-garbage-collector``; ``compatible``: major and
    minor of ``--min-compatibility-version``, None where nothing is said; ``git_version``: the release as ``/version`` reports it."""

    allow_privileged = True
    enable_garbage_collector = True
    compatible: tuple[int, int] | None = None
    git_version = f"v{KUBERNETES_VERSION}"

    def set(self, o: Settings) -> None:
        """As the flags say."""
        self.allow_privileged, self.enable_garbage_collector = o.allow_privileged, o.enable_garbage_collector
        self.git_version = o.version if o.version.startswith("v") else f"v{KUBERNETES_VERSION}"
        self.compatible = None
        if o.min_compatibility_version:
            from kas.config.validation import version_map  # which few servers need once they run

            self.compatible = next(iter(version_map(o.min_compatibility_version).values()))


CURRENT = Capabilities()
