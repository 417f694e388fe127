"""NamespaceLifecycle: nothing is created in a namespace that is missing or going away; three namespaces stay.

Uses ``server.store`` (Namespaces, followed). Upstream: ``plugin/pkg/admission/namespace/lifecycle``.
"""

from __future__ import annotations

from typing import Any

from kas.admission import CREATE, DELETE, Attributes
from kas.admission.plugins._derived import Followed
from kas.api import errors

TERMINATING = "Terminating"
IMMORTAL = frozenset(("default", "kube-system", "kube-public"))
# Reviews are answered, not stored, so they need no namespace.
REVIEWS = frozenset(("localsubjectaccessreviews",))


class Plugin:
    name = "NamespaceLifecycle"

    def __init__(self, server: Any) -> None:
        self._server = server
        self._phases = Followed(server, "", "namespaces", lambda obj: (obj.get("status") or {}).get("phase") or "")

    def handles(self, a: Attributes) -> bool:
        if a.operation == DELETE:
            return a.resource == "namespaces" and not a.group
        return a.operation == CREATE and a.resource not in REVIEWS and a.resource != "namespaces"

    def mutate(self, a: Attributes) -> None:
        if a.operation == DELETE:
            if a.name in IMMORTAL:
                raise a.forbid("this namespace may not be deleted")
            return
        if not a.namespace:
            return
        if self._phases.all().get(a.namespace, TERMINATING) != TERMINATING:
            return
        # Going away, or made by a plug-in before this one in the same request.
        rec = self._server.store.get(f"/registry/namespaces/{a.namespace}")
        if rec is None:
            raise errors.not_found("", "namespaces", a.namespace)
        if rec.fields.get("status.phase") == TERMINATING:
            e = a.forbid(f"unable to create new content in namespace {a.namespace} because it is being terminated")
            e.details = dict(e.details or {})
            e.details["causes"] = [
                {"reason": "NamespaceTerminating", "message": f"namespace {a.namespace} is being terminated", "field": "metadata.namespace"}
            ]
            raise e
