"""Who asks. A failure is 401; after success the credential is removed, so that nothing behind can leak it."""

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
from kas.observe.logs import Sparing
from kas.observe.metrics import ATTEMPT_SECONDS, Histogram, Registry, Timer
from kas.request.http import Request

log = logging.getLogger("kas.authn")

_EXTRA_SPACE = "the provided Authorization header contains extra space before the bearer token, and is ignored"
# Upstream's cache of successes; a revocation that is seen empties it at once. It counts from when the user was found, as that of who found
# it does, who is to be asked anew when this is over.
REMEMBERED_S = 10.0
LATELY_S = 1.0
PROMPT_S = 1.0  # a request that came longer ago may have come before a GOAWAY after which its client has to be gone
_COUNTED = frozenset(("admin", "client", "kube_proxy", "kubelet", "system:serviceaccount:kube-system:default"))


class Authenticator(Protocol):
    """The union of all authenticators (kas.auth.authn.union.Authenticators)."""

    def authenticate(self, get: HeaderGet, peer: object = None, path: str = "", found: Found | None = None) -> Authentication:
        """The user; AuthenticationError when there is nobody to serve. Awaitable where one has to wait. ``found`` is told how."""


class Remembered:
    """Authorization headers that were good a moment ago, by a digest: (user, until when, the name they are counted
    under, whether it is a bearer token). No one of them is longer than ``longest``. And certificates that were, which are asked about with
    each request all the same."""

    __slots__ = ("_shown", "cache", "entries", "forgotten", "longest", "refused", "strangers")

    def __init__(self) -> None:
        # So that no credential lies about in memory.
        self.cache: Expiring[bytes] = Expiring(
            "authorization_headers", "digests of headers of requests that were let in, for 10 s", 16 << 20, 20 << 10
        )
        self.entries = self.cache.entries
        self._shown: Expiring[tuple[bytes, str]] = Expiring(
            "shown_certificates", "who was let in with certificates, for 10 s", 4 << 20, 1 << 10
        )
        self.refused = -LATELY_S  # when somebody was, for want of a good credential
        self.strangers = 0  # how many requests were nobody's
        self.forgotten = 0  # how often; what was asked before may not be remembered after
        self.longest = 0

    def has(self, credential: bytes) -> bool:
        """Whether this one was."""
        if len(credential) > self.longest:
            return False
        kept = self.entries.get(keyed_digest(credential))
        return kept is not None and monotonic() < kept[1]

    def whose(self, credential: bytes) -> UserInfo | None:
        """The user of this one, if it was."""
        return self.entries[keyed_digest(credential)][0] if self.has(credential) else None

    def shown(self, certificates: bytes, named: str) -> str | None:
        """The name of who was let in with these (their key), ``named`` by a proxy or, with "", by themselves."""
        kept = self._shown.entries.get((certificates, named))
        return kept[0] if kept is not None and monotonic() < kept[1] else None

    def show(self, req: Request, user: UserInfo, found: Found | None) -> bool:
        """Whether the request came with certificates; if these were what its user was found by, that is known from now on."""
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
        """Whether nobody was refused lately."""
        return monotonic() - self.refused > LATELY_S

    def keep(self, credential: bytes, user: UserInfo, name: tuple[str], bearer: bool, forgotten: int) -> None:
        """``forgotten`` is how often when somebody was asked about the credential."""
        if forgotten == self.forgotten:
            self.longest = max(self.longest, len(credential))
            self.cache.put(keyed_digest(credential), (user, monotonic() + REMEMBERED_S, name, bearer), user.length)

    def forget(self) -> None:
        """A credential may have lost its meaning."""
        self.cache.clear()
        self._shown.clear()
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


def _alone(req: Request) -> None:
    """What nobody known asks over HTTP/2 is the last of its connection: streams are cheap to make and dear to serve (CVE-2023-44487)."""
    if req.peer is not None and not req.http_version.startswith("1") and features.DEFAULT.enabled("UnauthenticatedHTTP2DOSMitigation"):
        # Who was asked about for long may have been sent before its client was told; its answer is not cut off.
        req.peer.leave(must=monotonic() - req.started < PROMPT_S)


def _tell(req: Request, notes: Notes | None) -> None:
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


def _tell_of_space(req: Request, credential: bytes) -> None:
    """Who wrote two blanks is told, also when the answer is a refusal: the token did not count."""
    bearer, token = _bearer(credential)
    if bearer and token[:1] == b" ":
        req.warn(_EXTRA_SPACE)


def _refuse(req: Request, credential: bytes, known: Remembered) -> None:
    known.refused = monotonic()
    known.strangers += 1
    _alone(req)
    _tell_of_space(req, credential)


def _counted(name: str) -> str:
    """Names are the clients' own, and whoever gives them may make as many as there is room for: they are counted by a few classes
    (``compressUsername``)."""
    return name if name in _COUNTED else "email_id" if "@" in name else "other"


def _durations(registry: Registry) -> Histogram:
    """How long authentication took; the attempts are its observations."""
    said = "Authentication duration in seconds broken out by result."
    seconds = registry.histogram("authentication_duration_seconds", said, ("result",), ATTEMPT_SECONDS)
    registry.observations("authentication_attempts", "Counter of authenticated attempts.", seconds)
    return seconds


def authentication(
    authenticator: Callable[[], Authenticator], registry: Registry, revoked: Callable[[Callable[[], None]], None],
    vouching: tuple[Sequence[bytes], Sequence[bytes]] = ((), ()), remembered: Remembered | None = None,
) -> Filter:  # fmt: skip
    """``authenticator`` gives the one to ask; it is called for every request that is not remembered, because credentials are loaded after
    the chain is built. ``revoked(forget)`` registers what to call when a credential may have lost its meaning. ``vouching`` are the names
    and the prefixes of the headers of authenticating proxies: whatever they said, nothing behind this filter sees them.
    """
    succeeded = (timer := Timer(seconds := _durations(registry), ("success",))).add
    users = registry.counter("authenticated_user_requests", "Counter of authenticated requests broken out by username.", ("username",))
    revoked((known := remembered or Remembered()).forget)
    recall = CredentialLookup(known.entries, users.values, timer, CacheCounts(registry).hits)
    recalled, told = recall.known, Sparing(log, "%d more requests could not be authenticated")
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
                _tell(req, req.user.notes)
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
            known.strangers += 1
            _alone(req)
        if unusual or req.vouches:
            strip(req)
        _tell(req, user.notes)
        shown = known.show(req, user, found)
        if credential:
            if found is not None and found.by_header and not shown:
                known.keep(credential, user, name, _bearer(credential)[0], forgotten)
                recall.longest = known.longest
            req.drop_header(b"authorization")
            _tell_of_space(req, credential)

    return Filter("authentication", before)
