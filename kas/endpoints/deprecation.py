"""What clients and the audit log are told of the use of a deprecated version (``metrics.MonitorRequest``, ``WithWarnings``)."""

from __future__ import annotations

from kas.request.http import Request
from kas.types import deprecated

DEPRECATED, REMOVED_RELEASE = "k8s.io/deprecated", "k8s.io/removed-release"


class Deprecation:
    """``warning`` is for the client; ``removed`` names the release without the version, "" where none is known."""

    __slots__ = ("_removed", "warning")

    def __init__(self, warning: str, removed: str = "") -> None:
        self.warning, self._removed = warning, removed

    def tell(self, req: Request) -> None:
        """The client and the audit log."""
        req.warn(self.warning)
        req.annotate(DEPRECATED, "true")
        if self._removed:
            req.annotate(REMOVED_RELEASE, self._removed)


def of_kind(group: str, version: str, kind: str) -> Deprecation | None:
    """Of a built-in kind; None of one that is not deprecated."""
    warning = deprecated.WARNINGS.get(key := (group, version, kind))
    return Deprecation(warning, deprecated.REMOVED.get(key, "")) if warning else None
