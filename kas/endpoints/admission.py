"""Admission of a request's write: the chain of plug-ins, and the attributes that they see."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from kas.admission import CREATE, Attributes, Chain
from kas.auth import attributes as authz
from kas.meta import errors
from kas.meta.field import FieldError
from kas.meta.stored import Stored
from kas.meta.waiting import awaited
from kas.observe.latencies import VALIDATING_WEBHOOK
from kas.registry.admission import Forms
from kas.registry.strategy import Context, Obj
from kas.request.http import Request


class RequestAdmission(Attributes):
    """The admission of one request and the attributes that plug-ins see; see ``kas.registry.admission``.

    ``kind`` is the kind that plug-ins see: that of a view (Scale), not that of its parent.
    """

    def __init__(
        self, chain: Chain, authorizer: authz.Authorizer, req: Request, served: Any, operation: str, ctx: Context, name: str, options: Obj,
        kind: str = "",
    ) -> None:  # fmt: skip
        # Sets the fields of Attributes without calling its constructor, because every write creates one of these.
        self.operation, self.group, self.version, self.resource = operation, served.group, served.version, served.resource
        self.subresource, self.kind, self.namespace, self.name = ctx.subresource, kind or served.kind, ctx.namespace, name
        self.obj = self.old = None
        self.user, self.options, self.dry_run, self.now = req.user, options, ctx.dry_run, ctx.now
        self._chain, self._authorizer, self._req = chain, authorizer, req
        self.deadline, self.verb = req.deadline, req.info.verb
        if req.audit is not None:
            self.bodies_recorded = req.audit.level != "Metadata"

    def warn(self, text: str) -> None:
        """Add a warning to the response."""
        self._req.warn(text)

    def annotate(self, key: str, value: str) -> bool:
        """Add an annotation to the audit event. Returns whether the event now has this value."""
        return self._req.annotate(key, value)

    def waited(self, who: str, seconds: float) -> None:
        """Account for time that the request spent waiting for another server."""
        req = self._req
        req.waited_s += seconds
        if req.audit is not None:
            took = req.audit.took
            before = took.get(who, 0.0)
            took[who] = max(before, seconds) if who == VALIDATING_WEBHOOK else before + seconds

    def admit(self, operation: str, obj: Obj | None, old: Obj | None) -> Awaitable[None] | None:
        """Run the mutating plug-ins in order. Returns an awaitable for the rest if one of them waits."""
        self._about(operation, obj, old)
        if self.forms is not None:  # left from the previous attempt
            self.forms = self.replaced = self.made = None
        return self._chain.start_mutate(self)

    def reinvoke(self) -> bool:
        """Return whether a plug-in has to be reinvoked. If not, the mutating step of the next attempt starts anew."""
        if self.reinvocation is None:
            return False
        due = self.reinvocation.due()
        if not due:
            self.reinvocation = None
        return due

    def validate(
        self, operation: str, obj: Obj | None, old: Obj | None, forms: Forms | None = None, replaced: Stored | None = None
    ) -> Awaitable[None] | None:
        """Run the validating plug-ins in order. Returns an awaitable for the rest if one of them waits."""
        self._about(operation, obj, old)
        if forms is not None or self.forms is not None:
            self.forms, self.replaced, self.made = forms, replaced, None
        return self._chain.start_validate(self)

    async def found_by_storage(self, operation: str, obj: Obj, old: Obj | None) -> list[FieldError]:
        """Return the errors, for an object that the kind's validation rejects, of plug-ins that are part of upstream's storage."""
        self._about(operation, obj, old)
        return await self._chain.found_by_storage(self)

    def _about(self, operation: str, obj: Obj | None, old: Obj | None) -> None:
        self.obj, self.old = obj, old
        if operation == CREATE and obj is not None and not self.subresource:
            self.name = obj["metadata"].get("name", "")  # the name may have been generated since
            if self.operation != CREATE and self.options.get("kind") == "UpdateOptions":  # an update or patch that creates the object
                self.options = {**self.options, "kind": "CreateOptions"}
        self.operation = operation

    async def authorize_create(self, name: str) -> None:
        """Raise 403 if the user may not create an object of this name, and 500 if that cannot be decided."""
        req = self._req
        question = authz.Attributes(
            req.user, "create", self.namespace, self.group, self.version, self.resource, self.subresource, name, True, req.info.path
        )
        decision, reason, error = await awaited(self._authorizer.authorize(question))
        if decision == authz.ALLOW:
            return
        if error:
            raise errors.internal(error)
        raise authz.forbidden(question, reason)
