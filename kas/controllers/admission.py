"""What admission is told of deletes by controllers.

Upstream they are requests of kube-controller-manager: webhooks and policies see them, and may refuse them, so that what they protect is
not lost with its namespace or its owner.
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
    """The admission of one delete (``kas.registry.admission``): by ``user``, of an object in the storage version. ``name`` is "" where it
    is one of a collection, as in requests. Nobody hears warnings, and there is no audit event to annotate."""

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
        """Whether other servers are asked about such a delete."""
        return self._chain.asks_webhooks(self)

    def admit(self, operation: str, obj: Obj | None, old: Obj | None) -> Awaitable[None] | None:
        """Runs the mutating plug-ins in order; what is left of it as an awaitable when one waits."""
        self.old = old
        return self._chain.start_mutate(self)

    def reinvoke(self) -> bool:
        """There is no object that a plug-in could have changed."""
        return False

    def validate(
        self, operation: str, obj: Obj | None, old: Obj | None, forms: Forms | None = None, replaced: Stored | None = None
    ) -> Awaitable[None] | None:
        """Runs the validating plug-ins in order; what is left of it as an awaitable when one waits."""
        self.old = old
        return self._chain.start_validate(self)

    async def found_by_storage(self, operation: str, obj: Obj, old: Obj | None) -> list[FieldError]:
        """A delete has no object whose fields could be wrong."""
        return []

    async def authorize_create(self, name: str) -> None:
        """A delete creates nothing."""


def _unheard(text: str) -> None:
    """A warning: there is no client."""


def _unrecorded(key: str, value: str) -> bool:
    """An annotation: there is no event that says anything else."""
    return True
