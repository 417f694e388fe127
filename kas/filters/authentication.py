"""Authentication. A failure is answered 401; after success the credential is removed from the request, so that
nothing behind can leak it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from time import monotonic
from typing import Protocol

from kas._fastpath import CredentialLookup, keyed_digest
from kas.auth.authn import Authentication, AuthenticationError, Found, HeaderGet
from kas.auth.authn.bearer import CacheCounts
from kas.auth.authn.x509 import Peer
from kas.auth.user import ANONYMOUS, ANONYMOUS_USER, UNAUTHENTICATED, Notes, UserInfo
from kas.config import features
from kas.filters.handler import Filter
from kas.meta.errors import unauthorized
from kas.meta.origin import comes_from
from kas.observe.caches import Expiring
from kas.observe.logs import RateLimitedLog
from kas.observe.metrics import ATTEMPT_SECONDS, Histogram, Registry, Timer
from kas.request.http import Request

log = logging.getLogger("kas.authn")

_EXTRA_SPACE = "the provided Authorization header contains extra space before the bearer token, and is ignored"
# The lifetime in upstream's cache of successes; a revocation that is noticed empties it at once. It counts from when
# the user was found; the authenticator's own cache counts from the same time, so the credential is checked again when
# this is over.
REMEMBERED_S = 10.0
LATELY_S = 1.0
PROMPT_S = 1.0  # An older request may have been sent before a GOAWAY that its client has to obey.
_COUNTED = frozenset(("admin", "client", "kube_proxy", "kubelet", "system:serviceaccount:kube-system:default"))


class Authenticator(Protocol):
    """The union of all authenticators (kas.auth.authn.union.Authenticators)."""

    def authenticate(self, get: HeaderGet, peer: object = None, path: str = "", found: Found | None = None) -> Authentication:
        """Returns the user, or an awaitable of it, and fills in ``found`` with how it was found. Raises
        AuthenticationError for an invalid credential."""


class Remembered:
    """Remembers credentials that were valid a moment ago.

    Authorization headers are kept by a digest: (user, expiry, the name they are counted under, whether it is a
    bearer token). None of them is longer than ``longest``. Client certificates are kept as well, but are still
    verified with each request.
    """

    __slots__ = ("_shown", "cache", "entries", "forgotten", "longest", "refused", "unauthenticated")

    def __init__(self) -> None:
        # Digests, so that no credential stays in memory.
        self.cache: Expiring[bytes] = Expiring(
            "authorization_headers", "digests of headers of requests that were let in, for 10 s", 16 << 20, 20 << 10
        )
        self.entries = self.cache.entries
        self._shown: Expiring[tuple[bytes, str]] = Expiring(
            "shown_certificates", "who was let in with certificates, for 10 s", 4 << 20, 1 << 10
        )
        self.refused = -LATELY_S  # when a request was last refused without a valid credential
        self.unauthenticated = 0  # the number of unauthenticated requests
        self.forgotten = 0  # how often everything was forgotten; a credential that was checked before must not be remembered after
        self.longest = 0

    def has(self, credential: bytes) -> bool:
        """Whether this Authorization header is remembered."""
        if len(credential) > self.longest:
            return False
        kept = self.entries.get(keyed_digest(credential))
        return kept is not None and monotonic() < kept[1]

    def whose(self, credential: bytes) -> UserInfo | None:
        """The user of this Authorization header, if it is remembered."""
        return self.entries[keyed_digest(credential)][0] if self.has(credential) else None

    def shown(self, certificates: bytes, named: str) -> str | None:
        """The name of the user who was authenticated with these certificates (by their key); ``named`` is the user
        that a proxy named, "" if the certificates are the user's own."""
        kept = self._shown.entries.get((certificates, named))
        return kept[0] if kept is not None and monotonic() < kept[1] else None

    def show(self, req: Request, user: UserInfo, found: Found | None) -> bool:
        """Whether the request came with certificates. If the user was found by them, that is remembered."""
        certificates = None if req.peer is None else req.peer.certificates
        if certificates is None:
            return False
        if found is not None and (found.by_certificate or found.by_proxy):
            name = user.name
            key = certificates.key, name if found.by_proxy else ""
            if self.shown(*key) != name:
                self._shown.put(key, (name, monotonic() + REMEMBERED_S), 2 * len(name))
        return True

    def all_known(self) -> bool:
        """Whether no request was refused lately."""
        return monotonic() - self.refused > LATELY_S

    def keep(self, credential: bytes, user: UserInfo, name: tuple[str], bearer: bool, forgotten: int) -> None:
        """Remembers a credential. ``forgotten`` is the value of that attribute when the credential was sent to its check."""
        if forgotten == self.forgotten:
            self.longest = max(self.longest, len(credential))
            self.cache.put(keyed_digest(credential), (user, monotonic() + REMEMBERED_S, name, bearer), user.length)

    def forget(self) -> None:
        """Forgets everything, because a credential may have been revoked."""
        self.cache.clear()
        self._shown.clear()
        self.forgotten += 1


class _ProxyHeaders:
    """The headers of authenticating proxies. ``unusual``: there are other than the standard names, which must be
    looked for in every request."""

    __slots__ = ("_names", "_prefixes", "unusual")

    def __init__(self, names: Sequence[bytes], prefixes: Sequence[bytes]) -> None:
        self._names, self._prefixes = names, prefixes
        self.unusual = any(not name.startswith(b"x-remote-") for name in (*names, *prefixes))

    def strip(self, req: Request) -> None:
        for name in self._names:
            req.drop_header(name)
        for prefix in self._prefixes:
            req.drop_prefix(prefix)


def _end_connection(req: Request) -> None:
    """Makes an unauthenticated HTTP/2 request the last of its connection: streams are cheap to open and costly to
    serve (CVE-2023-44487)."""
    if req.peer is not None and not req.http_version.startswith("1") and features.DEFAULT.enabled("UnauthenticatedHTTP2DOSMitigation"):
        # A request that took long may have been sent before its client was told to leave; its response must not be cut
        # off.
        req.peer.leave(must=monotonic() - req.started < PROMPT_S)


def _apply_notes(req: Request, notes: Notes | None) -> None:
    if notes is None:
        return
    for key, value in notes.annotations.items():
        req.annotate(key, value)
    for text in notes.warnings:
        req.warn(text)


def _bearer(credential: bytes) -> tuple[bool, bytes]:
    """Whether the scheme is Bearer, and what follows it."""
    kind, _, token = credential.strip().partition(b" ")
    return kind.lower() == b"bearer", token


def _warn_of_space(req: Request, credential: bytes) -> None:
    """Warns a client that sent two spaces, also with a refusal: its token was ignored."""
    bearer, token = _bearer(credential)
    if bearer and token[:1] == b" ":
        req.warn(_EXTRA_SPACE)


def _refuse(req: Request, credential: bytes, known: Remembered) -> None:
    known.refused = monotonic()
    known.unauthenticated += 1
    _end_connection(req)
    _warn_of_space(req, credential)


def _counted(name: str) -> str:
    """The label that a user name is counted under. Clients choose names and could make any number of them, so they
    are counted by a few classes (``compressUsername``)."""
    return name if name in _COUNTED else "email_id" if "@" in name else "other"


def _durations(registry: Registry) -> Histogram:
    """The histogram of durations; the number of attempts is that of its observations."""
    said = "Authentication duration in seconds broken out by result."
    seconds = registry.histogram("authentication_duration_seconds", said, ("result",), ATTEMPT_SECONDS)
    registry.observations("authentication_attempts", "Counter of authenticated attempts.", seconds)
    return seconds


def authentication(
    authenticator: Callable[[], Authenticator], registry: Registry, revoked: Callable[[Callable[[], None]], None],
    vouching: tuple[Sequence[bytes], Sequence[bytes]] = ((), ()), remembered: Remembered | None = None,
) -> Filter:  # fmt: skip
    """Sets the user of a request, or refuses it with 401. ``authenticator()`` is called for each request that is not remembered,
    because credentials are loaded after the chain is built. ``revoked(forget)`` registers what to call when a credential may have been
    revoked. ``vouching`` are the names and prefixes of the headers of authenticating proxies, which nothing behind this filter sees."""
    succeeded = (timer := Timer(seconds := _durations(registry), ("success",))).add
    users = registry.counter("authenticated_user_requests", "Counter of authenticated requests broken out by username.", ("username",))
    revoked((known := remembered or Remembered()).forget)
    recall = CredentialLookup(known.entries, users.values, timer, CacheCounts(registry).hits)
    recalled, told = recall.known, RateLimitedLog(log, "%d more requests could not be authenticated")
    unusual, strip = (proxies := _ProxyHeaders(*vouching)).unusual, proxies.strip

    def before(req: Request) -> Awaitable[None] | None:
        if req.read_only_port:
            req.user = ANONYMOUS_USER
            return None
        shown = None if req.peer is None else req.peer.certificates
        if shown is None and recalled(req):
            if unusual or req.vouches:
                strip(req)
            if req.user.notes is not None:
                _apply_notes(req, req.user.notes)
            return None
        began, credential = monotonic(), req.raw_header(b"authorization")
        found = Found() if credential or shown is not None else None
        try:
            comes_from(req.client)
            peer = None if shown is None else Peer(shown, partial(getattr, req, "headers"))
            user = authenticator().authenticate(req.get, peer, req.path, found)
        except AuthenticationError as e:
            raise refused(req, e, credential, began) from None
        if user is None or isinstance(user, UserInfo):
            accept(req, user, credential, found, known.forgotten, began)
            return None
        return wait(req, user, credential, found, began)

    async def wait(req: Request, pending: Awaitable[UserInfo | None], credential: bytes, found: Found | None, began: float) -> None:
        forgotten = known.forgotten
        try:
            user = await pending
        except AuthenticationError as e:
            raise refused(req, e, credential, began) from None
        accept(req, user, credential, found, forgotten, began)

    def refused(req: Request, e: AuthenticationError, credential: bytes, began: float) -> Exception:
        _refuse(req, credential, known)
        for key, value in e.annotations.items():
            req.annotate(key, value)
        if told.one(now := monotonic()):
            log.warning('Unable to authenticate the request err="%s"', e)
        seconds.observe(("error",), now - began)
        return unauthorized()

    def accept(req: Request, user: UserInfo | None, credential: bytes, found: Found | None, forgotten: int, began: float) -> None:
        if user is None:
            _refuse(req, credential, known)
            seconds.observe(("failure",), monotonic() - began)
            raise unauthorized()
        succeeded(took := monotonic() - began)
        req.authenticating = took
        users.inc(name := (_counted(user.name),))
        req.user = user
        if user.name == ANONYMOUS or UNAUTHENTICATED in user.groups:
            known.unauthenticated += 1
            _end_connection(req)
        if unusual or req.vouches:
            strip(req)
        _apply_notes(req, user.notes)
        shown = known.show(req, user, found)
        if credential:
            if found is not None and found.by_header and not shown:
                known.keep(credential, user, name, _bearer(credential)[0], forgotten)
                recall.longest = known.longest
            req.drop_header(b"authorization")
            _warn_of_space(req, credential)

    return Filter("authentication", before)
