"""Acting as somebody else: the ``Impersonate-*`` headers, each checked against the real user's rights."""

from __future__ import annotations

from kas.auth.impersonation import HEADER_PREFIX, impersonate, wanted_user
from kas.edge.http import Request
from kas.filters.authorization import attributes_of
from kas.filters.chain import Filter

PREFIX = HEADER_PREFIX.encode()


def impersonation(authorizer) -> Filter:
    def before(req: Request) -> None:
        if not req.impersonates:
            return
        wanted = wanted_user((k.decode("latin-1"), v.decode("latin-1")) for k, v in req.headers)
        if wanted is None:
            return
        user, constraint = impersonate(authorizer, attributes_of(req), wanted)
        if constraint:
            req.annotate("authentication.kubernetes.io/impersonation-constraint", constraint)
        req.user = user
        req.headers = [h for h in req.headers if not h[0].startswith(PREFIX)]

    return Filter("impersonation", before)
