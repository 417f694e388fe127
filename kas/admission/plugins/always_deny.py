"""AlwaysDeny: refuses every write; for tests. Upstream: ``plugin/pkg/admission/deny``."""

from __future__ import annotations

from kas.admission import Attributes


class Plugin:
    """Sees every operation on everything, and lets none pass."""

    name = "AlwaysDeny"

    def handles(self, a: Attributes) -> bool:
        """Every request."""
        return True

    def admit(self, a: Attributes) -> None:
        """Refuse it."""
        raise a.forbid("admission control is denying all modifications")

    def validate(self, a: Attributes) -> None:
        """Refuse it."""
        raise a.forbid("admission control is denying all modifications")
