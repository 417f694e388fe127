"""May they: the authorizers' decision on the request; no opinion is a refusal."""

from __future__ import annotations

from collections.abc import Awaitable

from kas.auth.attributes import ALLOW, Attributes, Authorizer, Outcome, attributes_of, forbidden
from kas.auth.user import MASTERS
from kas.endpoints.respond import status
from kas.filters.handler import Filter
from kas.observe.metrics import Registry
from kas.request.http import Request, Response


def authorization(authorizer: Authorizer, registry: Registry) -> Filter:
    """Let pass what the authorizer allows, and system:masters in any case; 403 for the rest. Decisions are counted."""
    decisions = registry.counter(
        "apiserver_authorization_decisions_total", "Total number of terminal decisions made by an authorizer.", ("decision",)
    )
    allowed, denied = ("allowed",), ("denied",)

    def before(req: Request) -> Response | Awaitable[Response | None] | None:
        # system:masters may do everything, whatever is configured (kas.auth.authz.modes.Union says the same, with a question).
        if req.read_only_port or MASTERS in req.user.groups:
            decisions.inc(allowed)
            if req.audit is not None:
                annotate(req, "allow", "")
            return None
        a = attributes_of(req)
        outcome = authorizer.authorize(a)
        if not isinstance(outcome, tuple):
            return wait(req, a, outcome)
        return decided(req, a, outcome)

    async def wait(req: Request, a: Attributes, pending: Awaitable[Outcome]) -> Response | None:
        return decided(req, a, await pending)

    def decided(req: Request, a: Attributes, outcome: Outcome) -> Response | None:
        if req.audit is not None:
            annotate(req, "allow" if outcome[0] == ALLOW else "forbid", outcome[1])
        if outcome[0] == ALLOW:
            decisions.inc(allowed)
            return None
        decisions.inc(denied)
        # Answered, not raised: a refusal costs no more than what it refuses.
        return status(req, forbidden(a, outcome[1]))

    def annotate(req: Request, decision: str, reason: str) -> None:
        req.annotate("authorization.k8s.io/decision", decision)
        req.annotate("authorization.k8s.io/reason", reason)

    return Filter("authorization", before)
