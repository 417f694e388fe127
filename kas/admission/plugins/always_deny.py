"""AlwaysDeny: refuses every write; for tests. Upstream: ``plugin/pkg/admission/deny``."""

from __future__ import annotations

from typing import Any

from kas.admission import Attributes


class Plugin:
    name = "AlwaysDeny"

    def __init__(self, server: Any) -> None:
        pass

    def handles(self, a: Attributes) -> bool:
        return True

    def mutate(self, a: Attributes) -> None:
        raise a.forbid("admission control is denying all modifications")

    def validate(self, a: Attributes) -> None:
        raise a.forbid("admission control is denying all modifications")
