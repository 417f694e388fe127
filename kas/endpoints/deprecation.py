"""Warnings and audit annotations for the use of a deprecated API version (``metrics.MonitorRequest``, ``WithWarnings``)."""

from __future__ import annotations

from kas.request.http import Request
from kas.types import deprecated

DEPRECATED, REMOVED_RELEASE = "k8s.io/deprecated", "k8s.io/removed-release"


class Deprecation:
    """A deprecated version. ``warning`` is for the client; ``removed`` is the release that removes it, or "" if unknown."""

    __slots__ = ("_removed", "warning")

    def __init__(self, warning: str, removed: str = "") -> None:
        self.warning, self._removed = warning, removed

    def tell(self, req: Request) -> None:
        """Warn the client and annotate the audit event."""
        req.warn(self.warning)
        req.annotate(DEPRECATED, "true")
        if self._removed:
            req.annotate(REMOVED_RELEASE, self._removed)


def of_kind(group: str, version: str, kind: str) -> Deprecation | None:
    """Return the deprecation of a built-in kind, or None if it is not deprecated."""
    warning = deprecated.WARNINGS.get(key := (group, version, kind))
    return Deprecation(warning, deprecated.REMOVED.get(key, "")) if warning else None
