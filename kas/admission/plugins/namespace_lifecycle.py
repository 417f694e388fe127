"""NamespaceLifecycle: nothing is written in a namespace that is missing, or created in one that is going away; three namespaces stay.

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
    """Sees what is created or updated in a namespace, and deletes of namespaces."""

    name = "NamespaceLifecycle"

    def __init__(self, objects: Objects, informers: Informers) -> None:
        self._objects = objects
        self._phases = informers.lister("", "namespaces", _phase)

    def handles(self, a: Attributes) -> bool:
        """Creates and updates within namespaces, reviews excepted, and deletes of namespaces."""
        if a.operation == DELETE:
            return a.resource == "namespaces" and not a.group
        return a.operation in (CREATE, UPDATE) and (a.group, a.resource) not in UNCHECKED

    def admit(self, a: Attributes) -> None:
        """404 in a namespace that does not exist, 403 for what is new in one that is going; a few namespaces are never deleted."""
        if a.operation == DELETE:
            if a.name in IMMORTAL:
                raise a.forbid("this namespace may not be deleted")
            return
        if not a.namespace:
            return
        if self._phases.all().get(a.namespace, TERMINATING) != TERMINATING:
            return
        # Going away, or made by a plug-in before this one in the same request.
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
