"""``Authorization: Bearer``, with a cache of recent successes (apiserver's ``authentication/request/bearertoken`` and
``token/cache``)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any

from kas._fastpath import keyed_digest
from kas.auth.authn import Authentication, AuthenticationError, HeaderGet, TokenAuthenticator
from kas.auth.user import UserInfo, with_authenticated
from kas.observe.caches import Expiring
from kas.observe.metrics import Registry, Timer

# Upstream's TokenSuccessCacheTTL. A revoked token stays valid this long, unless the revocation calls invalidate().
SUCCESS_TTL_S = 10.0
MAX_HEADER = 16 << 10
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class CacheCounts:
    """Upstream's metric families about the token cache (``token/cache/stats.go``).

    ``hit`` records the duration of a request with a cached token (``hits`` is its timer), ``miss`` that of one without.
    """

    def __init__(self, metrics: Registry) -> None:
        name, label = "authentication_token_cache_", ("status",)
        seconds = metrics.histogram(f"{name}request_duration_seconds", "How long requests of the token cache took.", label, _BUCKETS)
        metrics.observations(f"{name}request_total", "Requests of the token cache: hit or miss.", seconds)
        self.fetched = metrics.counter(f"{name}fetch_total", "Tokens that were looked up because they were not in the cache.", label)
        self._active = metrics.gauge(f"{name}active_fetch_count", "Tokens that are being looked up.", label)
        self.hits = Timer(seconds, ("hit",))
        self.hit, self.miss = self.hits.add, Timer(seconds, ("miss",)).add

    def fetching(self, by: int) -> None:
        """Count a pending lookup: 1 when it begins, -1 when it ends."""
        self._active.inc(("in_flight",), by)


class BearerToken:
    """Authenticates the bearer token of a request with ``tokens``.

    Caches only successes, keyed by a digest of the header, bounded in memory and time (measured by ``clock``).
    """

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
        self._longest = 0  # longest cached header; a longer one is not cached, and its digest would be most of the cost of refusing it
        self._invalidated = 0  # number of invalidations; a lookup that began before one is not cached after it

    def invalidate(self) -> None:
        """Drop all cached successes. Called when service accounts, or objects that tokens are bound to, are deleted."""
        self._cache.clear()
        self._invalidated += 1

    def remembered(self, header: str) -> UserInfo | None:
        """Return the user of an Authorization header that is in the cache, else None."""
        if not self._cache.entries or not header or len(header) > self._longest:
            return None
        known = self._cache.entries.get(_digest(header))
        return known[0] if known is not None and self.clock() < known[1] else None

    def authenticate(self, get: HeaderGet, peer: Any = None) -> Authentication:
        """Return the user of the token in the Authorization header; None without a token. Successes are cached."""
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
        """Return the user of ``token``, cached under ``header``, which contains it. Raises AuthenticationError."""
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
    """Return the token of an Authorization header; "" if its scheme is not Bearer.

    The token is decoded as UTF-8, as in token files and webhook requests; invalid bytes become surrogates.
    """
    if not header.isascii():  # one character per byte
        header = header.encode("latin-1").decode("utf-8", "surrogateescape")
    # Searching for one character uses ``memchr``; splitting does not. On a refused request with 12 kB that saves 6 µs.
    scheme, _, rest = header.strip().partition(" ")
    return rest.partition(" ")[0] if scheme.lower() == "bearer" else ""


def has_three_parts(token: str) -> bool:
    """Return whether the token may be a JWT."""
    first = token.find(".")
    second = token.find(".", first + 1) if first >= 0 else -1
    return second >= 0 and token.find(".", second + 1) < 0
