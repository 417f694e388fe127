"""OwnerReferencesPermissionEnforcement: changing owner references requires the permissions to delete and to block deletion, since the
references have these effects.

Upstream: ``plugin/pkg/admission/gc``.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from kas.admission import CREATE, UPDATE, Attributes
from kas.admission.initializer import RESTMapper
from kas.auth.attributes import ALLOW, Authorizer
from kas.auth.attributes import Attributes as Question
from kas.meta.waiting import TimeSlice, awaited, eager

Obj = dict[str, Any]


def _references(obj: Obj | None) -> list[Obj]:
    return ((obj or {}).get("metadata") or {}).get("ownerReferences") or []


class Plugin:
    """Applies to creates and updates except of a pod's status; authorizes changes of owner references."""

    name = "OwnerReferencesPermissionEnforcement"

    def __init__(self, authorizer: Authorizer, mapper: RESTMapper) -> None:
        self._authorizer = authorizer
        self._mapper = mapper

    def handles(self, a: Attributes) -> bool:
        """Handle creates and updates, but not of a pod's status."""
        # Kubelets write whole pods to /status; the server ignores the owner references there.
        return a.operation in (CREATE, UPDATE) and not (a.resource == "pods" and not a.group and a.subresource == "status")

    def validate(self, a: Attributes) -> Awaitable[None] | None:
        """Refuse changes of owner references without the permission to delete, or to block deletion. Returns an awaitable if they
        change."""
        new, old = _references(a.obj), _references(a.old)
        return None if new == old else self._check(a, new, old)

    @eager
    async def _check(self, a: Attributes, new: list[Obj], old: list[Obj]) -> None:
        if a.operation != CREATE:
            q = Question(a.user, "delete", a.namespace, a.group, a.version, a.resource, a.subresource, a.name)
            decision, reason, error = await awaited(self._authorizer.authorize(q))
            if decision != ALLOW:
                raise a.forbid(f"cannot set an ownerRef on a resource you can't delete: {reason}, {error or '<nil>'}")
        before, time_slice = {r.get("uid"): bool(r.get("blockOwnerDeletion")) for r in old}, TimeSlice()
        blocking = [ref for ref in new if ref.get("blockOwnerDeletion") and not before.get(ref.get("uid"))]
        # A user that may set finalizers on everything may block everything, including kinds that are not served.
        if not blocking or await self._finalizes_anything(a):
            return
        for ref in blocking:
            if time_slice.over:  # there may be tens of thousands
                await time_slice.pause()
            await self._check_blocking(a, ref)

    async def _finalizes_anything(self, a: Attributes) -> bool:
        q = Question(a.user, "update", "", "*", "*", "*", "finalizers", "*")
        return (await awaited(self._authorizer.authorize(q)))[0] == ALLOW

    async def _check_blocking(self, a: Attributes, ref: Obj) -> None:
        said, kind = ref.get("apiVersion") or "", ref.get("kind") or ""
        group, _, version = said.rpartition("/")
        found = self._mapper(group, version, kind)
        if not found:
            why = f'no matches for kind "{kind}" in version "{said}"' if said.count("/") < 2 else f"unexpected GroupVersion string: {said}"
            raise a.forbid(
                f"cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion {said} Kind {kind}: {why}"
            )
        for record in found:
            namespace = a.namespace if record.namespaced else ""
            q = Question(a.user, "update", namespace, group, version, record.resource, "finalizers", ref.get("name", ""))
            decision, reason, error = await awaited(self._authorizer.authorize(q))
            if decision != ALLOW:
                raise a.forbid(
                    "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: "
                    f"{reason}, {error or '<nil>'}"
                )
