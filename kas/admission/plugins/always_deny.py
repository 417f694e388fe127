"""AlwaysDeny: refuses every write; for tests. Upstream: ``plugin/pkg/admission/deny``."""

from __future__ import annotations

from kas.admission import Attributes


class Plugin:
    """Refuses every operation on every resource."""

    name = "AlwaysDeny"

    def handles(self, a: Attributes) -> bool:
        """Handle every request."""
        return True

    def admit(self, a: Attributes) -> None:
        """Refuse the request."""
        raise a.forbid("admission control is denying all modifications")

    def validate(self, a: Attributes) -> None:
        """Refuse the request."""
        raise a.forbid("admission control is denying all modifications")
