"""NamespaceLifecycle: refuses writes to missing namespaces, creates in terminating ones, and the deletion of three namespaces.

Upstream: ``plugin/pkg/admission/namespace/lifecycle``.
"""

from __future__ import annotations

from typing import Any

from kas.admission import CREATE, DELETE, UPDATE, Attributes
from kas.informers import Informers, Objects
from kas.meta import errors

TERMINATING = "Terminating"
IMMORTAL = frozenset(("default", "kube-system", "kube-public"))
# Reviews are answered, not stored, so they need no namespace.
UNCHECKED = frozenset((("authorization.k8s.io", "localsubjectaccessreviews"), ("", "namespaces")))


def _phase(namespace: dict[str, Any]) -> str:
    return (namespace.get("status") or {}).get("phase") or ""


class Plugin:
    """Applies to creates and updates in namespaces, and to deletes of namespaces."""

    name = "NamespaceLifecycle"

    def __init__(self, objects: Objects, informers: Informers) -> None:
        self._objects = objects
        self._phases = informers.lister("", "namespaces", _phase)

    def handles(self, a: Attributes) -> bool:
        """Handle creates and updates within namespaces, reviews excepted, and deletes of namespaces."""
        if a.operation == DELETE:
            return a.resource == "namespaces" and not a.group
        return a.operation in (CREATE, UPDATE) and (a.group, a.resource) not in UNCHECKED

    def admit(self, a: Attributes) -> None:
        """Raise 404 if the namespace does not exist, 403 for a create in a terminating one and for the deletion of a protected one."""
        if a.operation == DELETE:
            if a.name in IMMORTAL:
                raise a.forbid("this namespace may not be deleted")
            return
        if not a.namespace:
            return
        if self._phases.all().get(a.namespace, TERMINATING) != TERMINATING:
            return
        # Terminating, or created by an earlier plug-in in the same request.
        namespace = self._objects.get("", "namespaces", "", a.namespace)
        if namespace is None:
            raise errors.not_found("", "namespaces", a.namespace)
        if a.operation == CREATE and _phase(namespace) == TERMINATING:
            e = a.forbid(f"unable to create new content in namespace {a.namespace} because it is being terminated")
            e.details = dict(e.details or {})
            e.details["causes"] = [
                {"reason": "NamespaceTerminating", "message": f"namespace {a.namespace} is being terminated", "field": "metadata.namespace"}
            ]
            raise e
