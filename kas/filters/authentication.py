"""Who asks. A failure is 401; after success the credential is removed, so that nothing behind can leak it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from hashlib import sha256
from time import monotonic
from typing import Protocol

from kas.auth.authn import Authentication, AuthenticationError, HeaderGet
from kas.auth.authn.x509 import Peer
from kas.auth.user import ANONYMOUS_USER, Notes, UserInfo
from kas.filters.handler import Filter
from kas.meta.errors import unauthorized
from kas.observe.caches import Expiring
from kas.observe.metrics import Registry
from kas.request.http import Request

log = logging.getLogger("kas.authn")

_EXTRA_SPACE = "the provided Authorization header contains extra space before the bearer token, and is ignored"
# Upstream's cache of successes; a revocation that is seen empties it at once. It counts from when the user was found, as that of who found
# it does, who is to be asked anew when this is over.
REMEMBERED_S = 10.0


class Authenticator(Protocol):
    """The union of all authenticators (kas.auth.authn.union.Authenticators)."""

    def authenticate(self, get: HeaderGet, peer: object = None, path: str = "") -> Authentication:
        """The user; AuthenticationError when there is nobody to serve. Awaitable where one has to wait."""


class _Known:
    """Authorization headers that were good a moment ago, by their SHA-256: (user, until when, the name they are counted under)."""

    __slots__ = ("cache", "entries", "forgotten")

    def __init__(self) -> None:
        # By a digest, so that no credential lies about in memory: of 900 characters it takes 0.7 µs.
        self.cache: Expiring[bytes] = Expiring(
            "authorization_headers", "digests of headers of requests that were let in, for 10 s", 16 << 20, 20 << 10
        )
        self.entries = self.cache.entries
        self.forgotten = 0  # how often; what was asked before may not be remembered after

    def forget(self) -> None:
        self.cache.clear()
        self.forgotten += 1


class _ProxyHeaders:
    """What authenticating proxies say. ``unusual``: names other than the standard ones, which are looked for in every request."""

    __slots__ = ("_names", "_prefixes", "unusual")

    def __init__(self, names: Sequence[bytes], prefixes: Sequence[bytes]) -> None:
        self._names, self._prefixes = names, prefixes
        self.unusual = any(not name.startswith(b"x-remote-") for name in (*names, *prefixes))

    def strip(self, req: Request) -> None:
        for name in self._names:
            req.drop_header(name)
        for prefix in self._prefixes:
            req.drop_prefix(prefix)


def _tell(req: Request, notes: Notes) -> None:
    for key, value in notes.annotations.items():
        req.annotate(key, value)
    for text in notes.warnings:
        req.warn(text)


def authentication(
    authenticator: Callable[[], Authenticator], registry: Registry, revoked: Callable[[Callable[[], None]], None],
    vouching: tuple[Sequence[bytes], Sequence[bytes]] = ((), ()),
) -> Filter:  # fmt: skip
    """``authenticator`` gives the one to ask; it is called for every request that is not remembered, because credentials are loaded after
    the chain is built. ``revoked(forget)`` registers what to call when a credential may have lost its meaning. ``vouching`` are the names
    and the prefixes of the headers of authenticating proxies: whatever they said, nothing behind this filter sees them.
    """
    attempts = registry.counter("authentication_attempts", "Counter of authenticated attempts.", ("result",))
    users = registry.counter("authenticated_user_requests", "Counter of authenticated requests broken out by username.", ("username",))
    known = _Known()
    entries = known.entries
    revoked(known.forget)
    success = ("success",)
    proxies = _ProxyHeaders(*vouching)
    unusual, strip = proxies.unusual, proxies.strip

    def before(req: Request) -> Awaitable[None] | None:
        if req.read_only_port:
            req.user = ANONYMOUS_USER
            return None
        credential = req.raw_header(b"authorization")
        shown = None if req.peer is None else req.peer.certificates
        if credential and shown is None:
            found = entries.get(sha256(credential).digest())
            if found is not None and req.started < found[1]:
                req.user = found[0]
                attempts.inc(success)
                users.inc(found[2])
                req.drop_header(b"authorization")
                if unusual or req.vouches:
                    strip(req)
                if found[0].notes is not None:
                    _tell(req, found[0].notes)
                return None
        try:
            peer = None if shown is None else Peer(shown, partial(getattr, req, "headers"))
            user = authenticator().authenticate(req.get, peer, req.path)
        except AuthenticationError as e:
            raise refused(e) from None
        if user is None or isinstance(user, UserInfo):
            accept(req, user, credential, known.forgotten)
            return None
        return wait(req, user, credential)

    async def wait(req: Request, pending: Awaitable[UserInfo | None], credential: bytes) -> None:
        forgotten = known.forgotten
        try:
            user = await pending
        except AuthenticationError as e:
            raise refused(e) from None
        accept(req, user, credential, forgotten)

    def refused(e: AuthenticationError) -> Exception:
        log.warning('Unable to authenticate the request err="%s"', e)
        attempts.inc(("error",))
        return unauthorized()

    def accept(req: Request, user: UserInfo | None, credential: bytes, forgotten: int) -> None:
        if user is None:
            attempts.inc(("failure",))
            raise unauthorized()
        attempts.inc(success)
        # Names are the clients' own, so they are counted by class only.
        name = (user.name.split(":")[1] if user.name.startswith("system:") else "other",)
        users.inc(name)
        req.user = user
        if unusual or req.vouches:
            strip(req)
        if user.notes is not None:
            _tell(req, user.notes)
        if credential:
            if forgotten == known.forgotten and (req.peer is None or req.peer.certificates is None):
                known.cache.put(sha256(credential).digest(), (user, monotonic() + REMEMBERED_S, name), user.length)
            req.drop_header(b"authorization")
            kind, _, token = credential.strip().partition(b" ")
            if token[:1] == b" " and kind.lower() == b"bearer":
                req.warn(_EXTRA_SPACE)

    return Filter("authentication", before)
