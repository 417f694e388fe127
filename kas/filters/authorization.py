"""Authorization: the authorizers' decision on the request; no opinion is a refusal."""

from __future__ import annotations

from collections.abc import Awaitable
from time import monotonic

from kas.auth.attributes import ALLOW, DENY, Attributes, Authorizer, Outcome, attributes_of, forbidden
from kas.auth.user import MASTERS
from kas.endpoints.respond import plain_internal_error, status
from kas.filters.handler import Filter
from kas.meta.errors import NOSNIFF
from kas.observe.latencies import AUTHORIZATION
from kas.observe.metrics import ATTEMPT_SECONDS, Registry, Timer
from kas.request.http import Request, Response


def authorization(authorizer: Authorizer, registry: Registry) -> Filter:
    """Lets pass what the authorizer allows, and system:masters in any case; 403 for the rest, 500 if the authorizer failed."""
    seconds = registry.histogram("authorization_duration_seconds", "Authorization duration in seconds broken out by result.",
                                 ("result",), ATTEMPT_SECONDS)  # fmt: skip
    said = "Counter of authorization attempts broken down by result. It can be either 'allowed', 'denied', 'no-opinion' or 'error'."
    registry.observations("authorization_attempts_total", said, seconds)
    timers = {kind: Timer(seconds, (kind,)).add for kind in ("allowed", "denied", "no-opinion", "error")}
    allowed = timers["allowed"]

    def before(req: Request) -> Response | Awaitable[Response | None] | None:
        # system:masters may do everything, whatever is configured (kas.auth.authz.modes.Union has the same rule; this
        # saves the call).
        began = monotonic()
        if req.read_only_port or MASTERS in req.user.groups:
            took = monotonic() - began
            if req.audit is not None:
                req.audit.authorized("allow", "", took)
            allowed(took)
            return None
        a = attributes_of(req)
        outcome = authorizer.authorize(a)
        if not isinstance(outcome, tuple):
            return wait(req, a, outcome, began)
        return decided(req, a, outcome, began)

    async def wait(req: Request, a: Attributes, pending: Awaitable[Outcome], began: float) -> Response | None:
        return decided(req, a, await pending, began)

    def decided(req: Request, a: Attributes, outcome: Outcome, began: float) -> Response | None:
        decision, reason, error = outcome
        kind = "error" if error else "allowed" if decision == ALLOW else "denied" if decision == DENY else "no-opinion"
        timers[kind](took := monotonic() - began)
        if decision == ALLOW:
            if req.audit is not None:
                req.audit.authorized("allow", reason, took)
            return None
        if error:
            if req.audit is not None:
                req.annotate("authorization.k8s.io/reason", "internal error")
                req.audit.took[AUTHORIZATION] = took
            return plain_internal_error(req, error)
        if req.audit is not None:
            req.audit.authorized("forbid", reason, took)
        # Returned, not raised: a refusal must not cost more than what it refuses.
        e = forbidden(a, reason)
        e.headers = NOSNIFF
        return status(req, e)

    return Filter("authorization", before)
