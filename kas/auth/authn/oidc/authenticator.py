"""The token authenticator of all trusted issuers, which may change while the server runs."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from functools import partial
from time import perf_counter, time

from kas.auth.authn import Authentication, AuthenticationError
from kas.auth.authn.bearer import has_three_parts
from kas.auth.authn.oidc.configuration import Issuer
from kas.auth.authn.oidc.distributed import DistributedClaim
from kas.auth.authn.oidc.mapping import user_of
from kas.auth.authn.oidc.provider import Provider
from kas.auth.authn.oidc.tokens import claimed_issuer
from kas.auth.user import UserInfo
from kas.client.http import DIRECT, Egress
from kas.config import features
from kas.meta.offload import LOOP_BUDGET, POOL, BudgetSpentError
from kas.meta.waiting import awaited, eager
from kas.observe.metrics import Gauge, Registry

log = logging.getLogger("kas.authn")

_BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Metrics:
    """Metrics of all issuers. Labels identify an issuer by a digest of its URL, and this server by a digest of its name, ``identity``.
    Each worker fetches keys itself: reported are the last time any worker did, and every key set a worker has."""

    def __init__(self, registry: Registry, identity: str = "") -> None:
        self._identity = _hash(identity.encode())
        self.durations = registry.histogram(
            "apiserver_authentication_jwt_authenticator_latency_seconds",
            "Latency of jwt authentication operations in seconds. This is the time spent authenticating a token for cache miss only "
            "(i.e. when the token is not found in the cache).",
            ("result", "jwt_issuer_hash"), _BUCKETS,
        )  # fmt: skip
        self._when = registry.gauge(
            "apiserver_authentication_jwt_authenticator_jwks_fetch_last_timestamp_seconds",
            "Timestamp of the last successful or failed JWKS fetch split by result, api server identity and jwt issuer for the JWT "
            "authenticator.", ("result", "jwt_issuer_hash", "apiserver_id_hash"), same=True,
        )  # fmt: skip
        self._what = registry.gauge(
            "apiserver_authentication_jwt_authenticator_jwks_fetch_last_key_set_info",
            "Information about the last JWKS fetched by the JWT authenticator with hash as label, split by api server identity and jwt "
            "issuer.", ("jwt_issuer_hash", "apiserver_id_hash", "hash"), same=True,
        )  # fmt: skip

    def fetched(self, issuer: str, document: bytes | None) -> None:
        """Record a fetch of the keys of the issuer with this digest; ``document`` is None if it failed."""
        if not features.DEFAULT.enabled("StructuredAuthenticationConfigurationJWKSMetrics"):
            return
        self._when.set(("failure" if document is None else "success", issuer, self._identity), time())
        if document is not None:
            self._drop(self._what, 0, issuer)
            self._what.set((issuer, self._identity, _hash(document)), 1)

    def forget(self, issuer: str) -> None:
        """Remove the series of an issuer that is no longer configured."""
        self._drop(self._when, 1, issuer)
        self._drop(self._what, 0, issuer)

    def _drop(self, gauge: Gauge, at: int, issuer: str) -> None:
        for labels in [labels for labels in gauge.values if labels[at] == issuer]:
            del gauge.values[labels]


def _hash(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}" if data else ""


class JWTAuthenticator:
    """Authenticates tokens of one issuer."""

    def __init__(self, issuer: Issuer, metrics: Metrics, egress: Egress = DIRECT) -> None:
        self._metrics, self.label = metrics, _hash(issuer.url.encode())
        self._mapper = issuer.mapper
        self.provider = Provider(issuer, partial(metrics.fetched, self.label), egress=egress)
        groups = issuer.mapper.groups.claim
        self._distributed = DistributedClaim(groups, issuer, self.provider.tls, self.provider.via) if groups else None

    @eager
    async def authenticate_token(self, token: str) -> UserInfo | None:
        """Return the user of a token that claims this issuer. Raises AuthenticationError for an invalid token."""
        began, result = perf_counter(), "failure"
        try:
            user = await self._user(token)
            result = "success"
            return user
        finally:
            self._metrics.durations.observe((result, self.label), perf_counter() - began)

    async def _user(self, token: str) -> UserInfo:
        verifier = self.provider.verifier
        if verifier is None:
            raise AuthenticationError("oidc: authenticator not initialized")
        try:
            claims = await awaited(verifier.claims(token))
        except AuthenticationError as e:
            raise AuthenticationError(f"oidc: verify token: {e}") from None
        if self._distributed is not None:
            claims = await awaited(self._distributed.expand(claims))
        try:
            return LOOP_BUDGET.within(user_of, claims, self._mapper)
        except BudgetSpentError:  # expressions over lists of thousands in a token
            return await awaited(POOL.run(user_of, claims, self._mapper))


class JWTAuthenticators:
    """Passes a token to the authenticator of the issuer it claims. ``use`` sets the authenticators."""

    def __init__(self, registry: Registry, egress: Egress = DIRECT, identity: str = "") -> None:
        self._metrics, self._egress = Metrics(registry, identity), egress
        self._by_issuer: dict[str, JWTAuthenticator] = {}

    def made(self, issuers: Sequence[Issuer]) -> dict[str, JWTAuthenticator]:
        """Create authenticators for these issuers, to be passed to ``use`` once they are started. Loads CAs, so it may run in a
        thread."""
        return {issuer.url: JWTAuthenticator(issuer, self._metrics, self._egress) for issuer in issuers}

    def use(self, authenticators: dict[str, JWTAuthenticator]) -> None:
        """Replace the authenticators."""
        before, self._by_issuer = self._by_issuer, authenticators
        for url, authenticator in before.items():
            authenticator.provider.close()
            if url not in authenticators:
                self._metrics.forget(authenticator.label)

    def authenticate_token(self, token: str) -> Authentication:
        """Return the user; None for a token of none of the issuers."""
        authenticator = self._by_issuer.get(claimed_issuer(token)) if has_three_parts(token) else None
        return None if authenticator is None else authenticator.authenticate_token(token)
