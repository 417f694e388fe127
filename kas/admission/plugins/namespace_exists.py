"""NamespaceExists: refuses writes to a namespace that does not exist. Upstream: ``plugin/pkg/admission/namespace/exists``."""

from __future__ import annotations

from kas.admission import CREATE, DELETE, UPDATE, Attributes
from kas.informers import Objects
from kas.meta import errors


class Plugin:
    """Applies to every write in a namespace; reads the namespace."""

    name = "NamespaceExists"

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def handles(self, a: Attributes) -> bool:
        """Handle creates, updates and deletes of everything but namespaces."""
        return a.operation in (CREATE, UPDATE, DELETE) and (a.group, a.resource) != ("", "namespaces")

    def validate(self, a: Attributes) -> None:
        """Raise 404 if the namespace does not exist."""
        if a.namespace and self._objects.get("", "namespaces", "", a.namespace) is None:
            raise errors.not_found("", "namespaces", a.namespace)
