"""RBACEscalation: nobody grants what they do not hold.

Upstream this is part of the RBAC storage (``pkg/registry/rbac/*/policybased``), so it cannot be switched off.
Uses ``server.rbac`` and ``server.authorizer``.
"""

from __future__ import annotations

from typing import Any

from kas.admission import CREATE, UPDATE, Attributes
from kas.auth.authz import escalation
from kas.auth.authz.rbac import GROUP

RESOURCES = frozenset(("roles", "clusterroles", "rolebindings", "clusterrolebindings"))


class Plugin:
    name = "RBACEscalation"

    def __init__(self, server: Any) -> None:
        self._server = server

    def handles(self, a: Attributes) -> bool:
        return a.group == GROUP and a.resource in RESOURCES and not a.subresource and a.operation in (CREATE, UPDATE)

    def validate(self, a: Attributes) -> None:
        s = self._server
        # The question about "escalate" names what the request named: nothing when something is created by POST.
        name = a.name if a.operation == UPDATE else ""
        escalation.check_write(s.rbac, s.authorizer, a.user, a.resource, a.namespace, name, a.obj, a.old)
