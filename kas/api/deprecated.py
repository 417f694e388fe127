"""Kinds whose every use is answered with a warning (the ``APILifecycleDeprecated`` of their types)."""

from __future__ import annotations

WARNINGS: dict[tuple[str, str, str], str] = {
    ("", "v1", "ComponentStatus"): "v1 ComponentStatus is deprecated in v1.19+",
    ("", "v1", "Endpoints"): "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
}
