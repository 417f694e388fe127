"""RBACEscalation: nobody grants what they do not hold.

Upstream this is part of the RBAC storage (``pkg/registry/rbac/*/policybased``), so it cannot be switched off; it comes before the kinds'
own rules, so that an object may be anything that decodes.
"""

from __future__ import annotations

from collections.abc import Awaitable

from kas.admission import CREATE, UPDATE, Attributes
from kas.auth.attributes import Authorizer
from kas.auth.authz import escalation
from kas.auth.authz.rbac import GROUP, RbacIndex

RESOURCES = frozenset(("roles", "clusterroles", "rolebindings", "clusterrolebindings"))


class Plugin:
    """Sees roles and bindings that are created or updated."""

    name = "RBACEscalation"

    def __init__(self, rules: RbacIndex, authorizer: Authorizer) -> None:
        self._rules = rules
        self._authorizer = authorizer

    def handles(self, a: Attributes) -> bool:
        """Creates and updates of roles and bindings."""
        return a.group == GROUP and a.resource in RESOURCES and not a.subresource and a.operation in (CREATE, UPDATE)

    def guard(self, a: Attributes) -> Awaitable[None] | None:
        """Refuse who would grant more than he has; an awaitable where one has to ask."""
        # The question about "escalate" names what the request named: nothing when something is created by POST, but by PUT or PATCH.
        name = a.name if a.operation == UPDATE or a.verb in ("update", "patch") else ""
        return escalation.check_write(self._rules, self._authorizer, a.user, a.resource, a.namespace, name, a.obj, a.old)
