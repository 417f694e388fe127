"""Acting as somebody else: the ``Impersonate-*`` headers, each checked against the real user's rights."""

from __future__ import annotations

from collections.abc import Awaitable

from kas.auth.attributes import Authorizer, attributes_of
from kas.auth.impersonation import HEADER_PREFIX, LastModes, impersonate, wanted_user
from kas.filters.handler import Filter
from kas.meta.waiting import awaited, eager
from kas.request.http import Request

PREFIX = HEADER_PREFIX.encode()


def impersonation(authorizer: Authorizer) -> Filter:
    """Become the user that the Impersonate headers name, if the real one may; the headers are dropped."""
    last = LastModes()

    def before(req: Request) -> Awaitable[None] | None:
        return become(req) if req.impersonates else None

    @eager
    async def become(req: Request) -> None:
        wanted = wanted_user((k.decode("latin-1"), v.decode("latin-1")) for k, v in req.headers)
        if wanted is None:
            return
        user, constraint = await awaited(impersonate(authorizer, attributes_of(req), wanted, last))
        if constraint:
            req.annotate("authentication.kubernetes.io/impersonation-constraint", constraint)
        req.user = user
        req.headers = [h for h in req.headers if not h[0].startswith(PREFIX)]

    return Filter("impersonation", before)
