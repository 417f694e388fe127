"""``Authorization: Bearer``, with a memory of recent successes (apiserver's ``authentication/request/bearertoken`` and ``token/cache``)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any

from kas._fastpath import keyed_digest
from kas.auth.authn import Authentication, AuthenticationError, HeaderGet, TokenAuthenticator
from kas.auth.user import UserInfo, with_authenticated
from kas.observe.caches import Expiring
from kas.observe.metrics import Registry, Timer

# Upstream's TokenSuccessCacheTTL. A revoked token may work that long, unless the revocation calls invalidate().
SUCCESS_TTL_S = 10.0
MAX_HEADER = 16 << 10
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class CacheCounts:
    """Upstream's families about its memory of tokens (``token/cache/stats.go``). ``hit`` is told how long a token took that was
    remembered (``hits`` is what it is told of), ``miss`` of one that was not."""

    def __init__(self, metrics: Registry) -> None:
        name, label = "authentication_token_cache_", ("status",)
        seconds = metrics.histogram(f"{name}request_duration_seconds", "How long requests of the token cache took.", label, _BUCKETS)
        metrics.observations(f"{name}request_total", "Requests of the token cache: hit or miss.", seconds)
        self.fetched = metrics.counter(f"{name}fetch_total", "Tokens that were looked up because they were not in the cache.", label)
        self._active = metrics.gauge(f"{name}active_fetch_count", "Tokens that are being looked up.", label)
        self.hits = Timer(seconds, ("hit",))
        self.hit, self.miss = self.hits.add, Timer(seconds, ("miss",)).add

    def fetching(self, by: int) -> None:
        """A lookup waits (1) or waits no more (-1)."""
        self._active.inc(("in_flight",), by)


class BearerToken:
    """Asks ``tokens`` for the request's bearer token. Only successes are remembered, by a digest of the header, bounded in number and
    time (``clock``)."""

    by_header = True

    def __init__(
        self, tokens: TokenAuthenticator, ttl_s: float = SUCCESS_TTL_S, clock: Callable[[], float] = monotonic,
        counts: CacheCounts | None = None,
    ) -> None:  # fmt: skip
        self._tokens = tokens
        self._counts = CacheCounts(Registry()) if counts is None else counts
        self._ttl = ttl_s
        self.clock = clock
        self._cache: Expiring[bytes] = Expiring("bearer_tokens", "digests of tokens that were good, for 10 s", 16 << 20, 4 << 10)
        self._longest = 0  # of those headers: what is longer was not good, and working out its digest is most of what refusing it costs
        self._invalidated = 0  # how often; what was asked before is not remembered after

    def invalidate(self) -> None:
        """Forgets every success: called when service accounts, or what tokens are bound to, go away."""
        self._cache.clear()
        self._invalidated += 1

    def remembered(self, header: str) -> UserInfo | None:
        """The user of an Authorization header that was good a moment ago."""
        if not self._cache.entries or not header or len(header) > self._longest:
            return None
        known = self._cache.entries.get(_digest(header))
        return known[0] if known is not None and self.clock() < known[1] else None

    def authenticate(self, get: HeaderGet, peer: Any = None) -> Authentication:
        """The user of the token in the Authorization header; None without one. Answers are remembered."""
        header = get("authorization")
        if header is None:
            return None
        began = self.clock()
        known = self.remembered(header)
        if known is not None:
            self._counts.hit(self.clock() - began)
            return known
        token = bearer_token(header)
        return self.check(header, token) if token else None

    def check(self, header: str, token: str) -> UserInfo | Awaitable[UserInfo]:
        """The user of ``token``, remembered by ``header``, in which it stands. Raises AuthenticationError."""
        if len(header) > MAX_HEADER:
            raise AuthenticationError("bearer token is too long")
        began = self.clock()
        try:
            found = self._tokens.authenticate_token(token)
        except AuthenticationError:
            self._fetched(began, False)
            raise
        if found is None or isinstance(found, UserInfo):
            return self._found(header, found, self._invalidated, began)
        return self._wait(header, found, began)

    async def _wait(self, header: str, waiting: Awaitable[UserInfo | None], began: float) -> UserInfo:
        invalidated = self._invalidated
        self._counts.fetching(1)
        try:
            found = await waiting
        except AuthenticationError:
            self._fetched(began, False)
            raise
        finally:
            self._counts.fetching(-1)
        return self._found(header, found, invalidated, began)

    def _fetched(self, began: float, good: bool) -> None:
        self._counts.fetched.inc(("ok",) if good else ("error",))
        self._counts.miss(self.clock() - began)

    def _found(self, header: str, user: UserInfo | None, invalidated: int, began: float) -> UserInfo:
        self._fetched(began, user is not None)
        if user is None:
            raise AuthenticationError("invalid bearer token")
        user = with_authenticated(user)
        if self._ttl > 0 and invalidated == self._invalidated:
            self._longest = max(self._longest, len(header))
            self._cache.put(_digest(header), (user, self.clock() + self._ttl), user.length)
        return user


def _digest(header: str) -> bytes:
    return keyed_digest(header.encode("utf-8", "surrogateescape"))


def bearer_token(header: str) -> str:
    """The token of an Authorization header; "" when it is none of the bearer scheme. Its bytes are those of UTF-8, as in files and in
    what webhooks are told; others are surrogates."""
    if not header.isascii():  # a byte a character
        header = header.encode("latin-1").decode("utf-8", "surrogateescape")
    # What is looked for by one character is found by ``memchr``, what is split by it is not: of 12 kB 6 µs, of a request that is refused.
    scheme, _, rest = header.strip().partition(" ")
    return rest.partition(" ")[0] if scheme.lower() == "bearer" else ""


def has_three_parts(token: str) -> bool:
    """Whether it may be a JWT."""
    first = token.find(".")
    second = token.find(".", first + 1) if first >= 0 else -1
    return second >= 0 and token.find(".", second + 1) < 0
