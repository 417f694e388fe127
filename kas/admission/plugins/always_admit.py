"""AlwaysAdmit: says yes to everything. Kept so that old command lines work. Upstream: ``plugin/pkg/admission/admit``."""

from __future__ import annotations

from typing import Any

from kas.admission import Attributes


class Plugin:
    name = "AlwaysAdmit"

    def __init__(self, server: Any) -> None:
        pass

    def handles(self, a: Attributes) -> bool:
        return False
