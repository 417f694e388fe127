"""Admission of deletes by controllers.

Upstream these are requests of kube-controller-manager: webhooks and policies see them and may refuse them, so that what they protect is
not deleted with its namespace or owner.
"""

from __future__ import annotations

from collections.abc import Awaitable

from kas.admission import DELETE, Attributes, Chain
from kas.auth.user import UserInfo
from kas.meta.field import FieldError
from kas.meta.stored import Stored
from kas.registry.admission import Forms
from kas.registry.strategy import Context, Obj
from kas.types.scheme import Resource


class DeleteAdmission(Attributes):
    """The admission of one delete (``kas.registry.admission``) by ``user``, with objects in the storage version. As in requests, ``name``
    is "" for an object deleted as part of a collection. Warnings are dropped, and there is no audit event to annotate."""

    def __init__(self, chain: Chain, user: UserInfo, resource: Resource, ctx: Context, name: str, options: Obj) -> None:
        r = resource
        super().__init__(
            DELETE, r.group, r.version, r.resource, "", r.kind, ctx.namespace, name, None, None, user, options, False, ctx.now,
            _unheard, _unrecorded,
        )  # fmt: skip
        self.verb = "delete"
        self._chain = chain

    @property
    def asks_webhooks(self) -> bool:
        """Whether admission of this delete may call webhooks."""
        return self._chain.asks_webhooks(self)

    def admit(self, operation: str, obj: Obj | None, old: Obj | None) -> Awaitable[None] | None:
        """Run the mutating plug-ins; return an awaitable of the rest if one must wait."""
        self.old = old
        return self._chain.start_mutate(self)

    def reinvoke(self) -> bool:
        """Return False: there is no object that a plug-in could have changed."""
        return False

    def validate(
        self, operation: str, obj: Obj | None, old: Obj | None, forms: Forms | None = None, replaced: Stored | None = None
    ) -> Awaitable[None] | None:
        """Run the validating plug-ins; return an awaitable of the rest if one must wait."""
        self.old = old
        return self._chain.start_validate(self)

    async def found_by_storage(self, operation: str, obj: Obj, old: Obj | None) -> list[FieldError]:
        """Return no errors: a delete has no object with fields."""
        return []

    async def authorize_create(self, name: str) -> None:
        """Do nothing: a delete creates nothing."""


def _unheard(text: str) -> None:
    """Drop a warning: there is no client."""


def _unrecorded(key: str, value: str) -> bool:
    """Accept an annotation: there is no audit event it could conflict with."""
    return True
