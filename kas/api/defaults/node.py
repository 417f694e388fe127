"""Computed defaults of node.k8s.io (upstream ``pkg/apis/node/v1``)."""

from __future__ import annotations

from typing import Any

from kas.api.defaults import defaults_for
from kas.api.defaults.podspec import round_up


@defaults_for("node.k8s.io", "v1", "RuntimeClass")
def default_runtime_class(obj: dict[str, Any]) -> None:
    round_up((obj.get("overhead") or {}).get("podFixed"))
