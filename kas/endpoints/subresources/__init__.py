"""Which subresources have handlers of their own; everything else is a view of the object (see ``rest.py``)."""

from __future__ import annotations

from typing import Any

from kas.endpoints.scale import Scale

SCALABLE = (("apps", "deployments"), ("apps", "replicasets"), ("apps", "statefulsets"), ("", "replicationcontrollers"))


def install(server: Any) -> None:
    """Registers the handlers with ``server.rest``."""
    rest, writer = server.rest, server.writer
    scale = Scale(writer)
    for group, resource in SCALABLE:
        rest.subresource(group, resource, "scale", get=scale.get, update=scale.update, patch=scale.patch)
