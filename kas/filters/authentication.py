"""Who asks. A failure is 401; after success the credential is removed, so that nothing behind can leak it."""

from __future__ import annotations

import logging

from kas.api.errors import unauthorized
from kas.auth.authn import AuthenticationError
from kas.auth.user import ANONYMOUS_USER, LOOPBACK_USER
from kas.edge.http import Request
from kas.filters.chain import Filter
from kas.observe.metrics import Registry

log = logging.getLogger("kas.authn")


def authentication(authenticators, registry: Registry) -> Filter:
    """``authenticators`` is the union (kas.auth.authn.union.Authenticators)."""
    attempts = registry.counter("authentication_attempts", "Counter of authenticated attempts.", ("result",))
    users = registry.counter("authenticated_user_requests", "Counter of authenticated requests broken out by username.", ("username",))

    def before(req: Request) -> None:
        if req.read_only_port:
            req.user = ANONYMOUS_USER
            return
        try:
            user = authenticators.authenticate(req.get, None, req.path)
        except AuthenticationError as e:
            log.warning('Unable to authenticate the request err="%s"', e)
            attempts.inc(("error",))
            raise _unauthorized() from None
        if user is None:
            attempts.inc(("failure",))
            raise _unauthorized()
        attempts.inc(("success",))
        # Names are the clients' own, so they are counted by class only.
        users.inc(("other" if not user.name.startswith("system:") else user.name.split(":")[1],))
        req.user = user
        if req.has_header(b"authorization"):
            req.drop_header(b"authorization")

    return Filter("authentication", before)


def _unauthorized():
    return unauthorized()


def trusted() -> Filter:
    """For the insecure port: everybody is the server itself (system:masters)."""

    def before(req: Request) -> None:
        req.user = LOOPBACK_USER
        req.drop_header(b"authorization")

    return Filter("authentication", before)
