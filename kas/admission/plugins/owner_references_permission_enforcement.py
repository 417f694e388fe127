"""OwnerReferencesPermissionEnforcement: owner references are a way to delete and to block, so they take those permissions.

Uses ``server.authorizer`` and ``server.rest`` (which resource a kind is). Upstream: ``plugin/pkg/admission/gc``.
"""

from __future__ import annotations

from typing import Any

from kas.admission import CREATE, UPDATE, Attributes
from kas.auth.attributes import ALLOW
from kas.auth.attributes import Attributes as Question

Obj = dict[str, Any]


def _references(obj: Obj | None) -> list[Obj]:
    return ((obj or {}).get("metadata") or {}).get("ownerReferences") or []


class Plugin:
    name = "OwnerReferencesPermissionEnforcement"

    def __init__(self, server: Any) -> None:
        self._server = server

    def handles(self, a: Attributes) -> bool:
        # A kubelet writes whole pods to /status, whose owner references the server ignores.
        return a.operation in (CREATE, UPDATE) and not (a.resource == "pods" and not a.group and a.subresource == "status")

    def validate(self, a: Attributes) -> None:
        new, old = _references(a.obj), _references(a.old)
        if new == old:
            return
        if a.operation != CREATE:
            q = Question(a.user, "delete", a.namespace, a.group, a.version, a.resource, a.subresource, a.name)
            decision, reason, error = self._server.authorizer.authorize(q)
            if decision != ALLOW:
                raise a.forbid(f"cannot set an ownerRef on a resource you can't delete: {reason}, {error or '<nil>'}")
        before = {r.get("uid"): r for r in old}
        for ref in new:
            was = before.get(ref.get("uid"))
            if ref.get("blockOwnerDeletion") and not (was is not None and was.get("blockOwnerDeletion")):
                self._check_blocking(a, ref)

    def _check_blocking(self, a: Attributes, ref: Obj) -> None:
        group, _, version = ref.get("apiVersion", "").rpartition("/")
        kind = ref.get("kind", "")
        found = [r.record for r in (self._server.rest.resources.get((group, version)) or {}).values() if r.kind == kind]
        if not found:
            named = f"{kind}.{group}" if group else kind
            raise a.forbid(
                f"cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion {ref.get('apiVersion', '')} "
                f'Kind {kind}: no matches for kind "{kind}" in version "{ref.get("apiVersion", "")}"'
                if version
                else f"cannot set blockOwnerDeletion in this case because cannot find RESTMapping for {named}"
            )
        for record in found:
            namespace = a.namespace if record.namespaced else ""
            q = Question(a.user, "update", namespace, group, version, record.resource, "finalizers", ref.get("name", ""))
            decision, reason, error = self._server.authorizer.authorize(q)
            if decision != ALLOW:
                raise a.forbid(
                    "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: "
                    f"{reason}, {error or '<nil>'}"
                )
