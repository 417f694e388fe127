"""PersistentVolumeLabel: a cloud's volumes get the labels of their zone.

Upstream asked the cloud providers built into the API server, and the plug-in went when they did (1.31); without one it let everything
pass, as here. Kept so that old command lines work.
"""

from __future__ import annotations

from typing import Any

from kas.admission import Attributes


class Plugin:
    name = "PersistentVolumeLabel"

    def __init__(self, server: Any) -> None:
        pass

    def handles(self, a: Attributes) -> bool:
        return False
