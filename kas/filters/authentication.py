"""Who asks. A failure is 401; after success the credential is removed, so that nothing behind can leak it."""

from __future__ import annotations

import logging
from collections.abc import Callable

from kas.api.errors import unauthorized
from kas.auth.authn import AuthenticationError
from kas.auth.user import ANONYMOUS_USER, LOOPBACK_USER, UserInfo
from kas.edge.http import Request
from kas.filters.chain import Filter
from kas.observe.metrics import Registry

log = logging.getLogger("kas.authn")


REMEMBERED = 4096
REMEMBERED_S = 10.0  # upstream's cache of successes; a revocation that is seen empties it at once


def authentication(authenticators, registry: Registry, revoked: Callable[[Callable[[], None]], None]) -> Filter:
    """``authenticators`` is the union (kas.auth.authn.union.Authenticators); ``revoked(forget)`` registers what to call when a
    credential may have lost its meaning."""
    attempts = registry.counter("authentication_attempts", "Counter of authenticated attempts.", ("result",))
    users = registry.counter("authenticated_user_requests", "Counter of authenticated requests broken out by username.", ("username",))
    known: dict[bytes, tuple[UserInfo, float, tuple[str]]] = {}
    revoked(known.clear)
    success = ("success",)

    def before(req: Request) -> None:
        if req.read_only_port:
            req.user = ANONYMOUS_USER
            return
        credential = req.raw_header(b"authorization")
        if credential:
            found = known.get(credential)
            if found is not None and req.started < found[1]:
                req.user = found[0]
                attempts.inc(success)
                users.inc(found[2])
                req.drop_header(b"authorization")
                return
        try:
            user = authenticators.authenticate(req.get, None, req.path)
        except AuthenticationError as e:
            log.warning('Unable to authenticate the request err="%s"', e)
            attempts.inc(("error",))
            raise unauthorized() from None
        if user is None:
            attempts.inc(("failure",))
            raise unauthorized()
        attempts.inc(success)
        # Names are the clients' own, so they are counted by class only.
        name = (user.name.split(":")[1] if user.name.startswith("system:") else "other",)
        users.inc(name)
        req.user = user
        if credential:
            if len(known) >= REMEMBERED:
                known.clear()
            known[credential] = (user, req.started + REMEMBERED_S, name)
            req.drop_header(b"authorization")

    return Filter("authentication", before)


def trusted() -> Filter:
    """For the insecure port: everybody is the server itself (system:masters)."""

    def before(req: Request) -> None:
        req.user = LOOPBACK_USER
        req.drop_header(b"authorization")

    return Filter("authentication", before)
