"""PodPreset: pods get what presets of settings.k8s.io/v1alpha1 add to them.

The group was removed upstream (1.20) and is not served, so there are no presets and every pod passes as it is, which is what the last
version of the plug-in did then. Kept so that old command lines work.
"""

from __future__ import annotations

from typing import Any

from kas.admission import Attributes


class Plugin:
    name = "PodPreset"

    def __init__(self, server: Any) -> None:
        pass

    def handles(self, a: Attributes) -> bool:
        return False
