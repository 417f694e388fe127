"""May they: the authorizers' decision on the request; no opinion is a refusal."""

from __future__ import annotations

from collections.abc import Awaitable

from kas.auth.attributes import ALLOW, Attributes, Authorizer, Outcome, attributes_of, forbidden
from kas.auth.user import MASTERS
from kas.endpoints.respond import plain_internal_error, status
from kas.filters.handler import Filter
from kas.request.http import Request, Response


def authorization(authorizer: Authorizer) -> Filter:
    """Let pass what the authorizer allows, and system:masters in any case; 403 for the rest, 500 where it could not tell."""

    def before(req: Request) -> Response | Awaitable[Response | None] | None:
        # system:masters may do everything, whatever is configured (kas.auth.authz.modes.Union says the same, with a question).
        if req.read_only_port or MASTERS in req.user.groups:
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
        decision, reason, error = outcome
        if decision == ALLOW:
            if req.audit is not None:
                annotate(req, "allow", reason)
            return None
        if error:
            if req.audit is not None:
                req.annotate("authorization.k8s.io/reason", "internal error")
            return plain_internal_error(req, error)
        if req.audit is not None:
            annotate(req, "forbid", reason)
        # Answered, not raised: a refusal costs no more than what it refuses.
        return status(req, forbidden(a, reason))

    def annotate(req: Request, decision: str, reason: str) -> None:
        req.annotate("authorization.k8s.io/decision", decision)
        req.annotate("authorization.k8s.io/reason", reason)

    return Filter("authorization", before)
