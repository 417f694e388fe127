"""RBACEscalation: a user may only grant permissions it holds.

Upstream this is part of the RBAC storage (``pkg/registry/rbac/*/policybased``), so it cannot be disabled. It runs before the kinds' own
validation, so the object may be anything that decodes.
"""

from __future__ import annotations

from collections.abc import Awaitable

from kas.admission import CREATE, UPDATE, Attributes
from kas.auth.attributes import Authorizer
from kas.auth.authz import escalation
from kas.auth.authz.rbac import GROUP, RbacIndex

RESOURCES = frozenset(("roles", "clusterroles", "rolebindings", "clusterrolebindings"))


class Plugin:
    """Applies to new and updated roles and bindings."""

    name = "RBACEscalation"

    def __init__(self, rules: RbacIndex, authorizer: Authorizer) -> None:
        self._rules = rules
        self._authorizer = authorizer

    def handles(self, a: Attributes) -> bool:
        """Handle creates and updates of roles and bindings."""
        return a.group == GROUP and a.resource in RESOURCES and not a.subresource and a.operation in (CREATE, UPDATE)

    def guard(self, a: Attributes) -> Awaitable[None] | None:
        """Refuse a user that would grant more than it holds; returns an awaitable if the check must wait."""
        # The "escalate" check uses the name in the request: empty for a create by POST, but not by PUT or PATCH.
        name = a.name if a.operation == UPDATE or a.verb in ("update", "patch") else ""
        return escalation.check_write(self._rules, self._authorizer, a.user, a.resource, a.namespace, name, a.obj, a.old)
