"""TokenReview and SelfSubjectReview, which are answered and never stored (``pkg/registry/authentication``).

Each function takes the decoded object and returns the response object; errors are raised as ``ApiError``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from kas.auth.authn import AuthenticationError
from kas.auth.user import UserInfo
from kas.meta import errors
from kas.meta.waiting import awaited, eager
from kas.registry.strategy import Context, Obj

# (token, audiences) -> (user, valid audiences) or None; raises AuthenticationError with the reason.
Found = tuple[UserInfo, list[str]] | None
INVALID = "invalid bearer token"
Review = Callable[[str, Sequence[str]], Found | Awaitable[Found]]


@eager
async def token_review(ctx: Context, obj: Obj, review: Review, api_audiences: Sequence[str]) -> Obj:
    """Answer a TokenReview. Without audiences it is for those of the API server. What the answer does not set stays as posted."""
    if ctx.namespace:
        raise errors.bad_request(f"namespace is not allowed on this type: {ctx.namespace}")
    spec = obj.get("spec") or {}
    token = spec.get("token") or ""
    if not token:
        raise errors.bad_request("token is required for TokenReview in authentication")
    audiences = spec.get("audiences") or list(api_audiences)
    status: dict[str, Any] = {"user": {}, **(obj.get("status") or {})}
    status.pop("authenticated", None)
    try:
        found = await awaited(review(token, audiences))
        if found is None:
            raise AuthenticationError(INVALID)
    except AuthenticationError as e:
        # The server's own token is checked first, and its error is reported, too.
        status["error"] = str(AuthenticationError(INVALID, *e.why))
        ctx.annotations = e.annotations
    else:
        user, good = found
        if user.notes is not None:
            ctx.annotations, ctx.warnings = user.notes.annotations, [*ctx.warnings, *user.notes.warnings]
        if audiences and not good:
            raise errors.internal("error validating audiences")
        status.pop("audiences", None)
        status.update(authenticated=True, user=user.to_dict())
        if good:
            status["audiences"] = good
    return {**obj, "status": status}


def self_subject_review(ctx: Context, obj: Obj) -> Obj:
    """Answer a SelfSubjectReview: the user of the request."""
    if not ctx.user:
        raise errors.bad_request("no user present on request")
    return {
        "kind": obj.get("kind", "SelfSubjectReview"),
        "apiVersion": obj.get("apiVersion", "authentication.k8s.io/v1"),
        "metadata": {"creationTimestamp": ctx.now},
        "status": {"userInfo": ctx.user},
    }
