"""Distributed claims (OpenID Connect Core 5.6.2): the groups of a token may be in another token, fetched from an endpoint that the first
one names."""

from __future__ import annotations

import asyncio
import ssl
from collections import OrderedDict
from collections.abc import Awaitable
from typing import Any

from kas.auth.authn import AuthenticationError
from kas.auth.authn.oidc.configuration import Issuer
from kas.auth.authn.oidc.keys import MAX_DOCUMENT, RemoteKeys
from kas.auth.authn.oidc.provider import HEADERS, TIMEOUT_S, discovered, getter
from kas.auth.authn.oidc.tokens import Claims, Verifier, claimed_issuer
from kas.client import fetch
from kas.client.http import BackendError, Via
from kas.meta.field import go_quote
from kas.meta.waiting import awaited

MAX_ISSUERS = 16
MAX_WAITING = 64


class DistributedClaim:
    """Resolves the claim ``name`` of tokens of ``issuer``. The fetched token must be signed by the issuer it claims, for the same
    audiences. At most ``MAX_WAITING`` lookups run at once."""

    def __init__(self, name: str, issuer: Issuer, tls: ssl.SSLContext, via: Via | None = None) -> None:
        self._name, self._issuer, self._tls, self._via, self._get = name, issuer, tls, via, getter(tls, via)
        self._verifiers: OrderedDict[str, Verifier] = OrderedDict()
        self._running = 0

    def expand(self, claims: Claims) -> Awaitable[Claims] | Claims:
        """Return the claims with the distributed claim added, if there is one. Raises AuthenticationError."""
        if self._name in claims or "_claim_names" not in claims:
            return claims
        names, sources = claims["_claim_names"], claims.get("_claim_sources")
        if not isinstance(names, dict) or not all(isinstance(v, str) for v in names.values()):
            raise _failed("oidc: error parsing distributed claim names")
        if "_claim_sources" not in claims:
            raise _failed("oidc: no claim sources")
        if not isinstance(sources, dict) or not all(isinstance(v, dict) for v in sources.values()):
            raise _failed("oidc: could not parse claim sources")
        if self._name not in names:
            return claims
        source = sources.get(names[self._name])
        if source is None:
            raise _failed(f"id token _claim_names contained a source {names[self._name][:200]} missing in _claims_sources")
        url, token = source.get("endpoint") or "", source.get("access_token") or ""
        if not isinstance(url, str) or not isinstance(token, str):
            raise _failed("oidc: could not parse claim sources")
        return self._resolved(claims, url, token) if url else claims

    async def _resolved(self, claims: Claims, url: str, token: str) -> Claims:
        if self._running >= MAX_WAITING:
            raise _failed("too many requests wait for distributed claims already")
        self._running += 1
        try:
            async with asyncio.timeout(TIMEOUT_S):
                found = await self._claims_of(await self._token(url, token), url)
        except TimeoutError:
            raise _failed(f"while getting distributed claim {go_quote(self._name)}: context deadline exceeded") from None
        finally:
            self._running -= 1
        if self._name not in found:
            raise _failed(f"jwt returned by distributed claim endpoint {go_quote(url)} did not contain claim: {self._name}")
        return {**claims, self._name: found[self._name]}

    async def _token(self, url: str, token: str) -> str:
        headers = [*HEADERS, *([(b"authorization", f"Bearer {token}".encode())] if token else ())]
        try:
            said = await fetch.get(url, self._tls, headers, MAX_DOCUMENT, TIMEOUT_S, self._via)
            if not 200 <= said.status <= 226:
                raise ValueError(f"error while getting distributed claim JWT: {said.status} {said.reason}")
        except (BackendError, ValueError) as e:
            raise _failed(f"while getting distributed claim {go_quote(self._name)}: {e}") from None
        return said.body.decode("latin-1")

    async def _claims_of(self, token: str, url: str) -> dict[str, Any]:
        issuer = claimed_issuer(token)
        if not issuer:
            raise _failed(f"getting untrusted issuer from endpoint {url} failed for claim {go_quote(self._name)}: malformed token")
        verifier = self._verifiers.get(issuer)
        if verifier is None:
            try:
                keys = RemoteKeys(await discovered(self._get, issuer), self._get)
            except (BackendError, ValueError) as e:
                raise _failed(f"verifying untrusted issuer {issuer[:200]} failed: {e}") from None
            verifier = self._verifiers[issuer] = Verifier(issuer, self._issuer.audiences, self._issuer.algorithms, keys)
            if len(self._verifiers) > MAX_ISSUERS:
                self._verifiers.popitem(last=False)
        try:
            return await awaited(verifier.claims(token))
        except AuthenticationError as e:
            raise _failed(f"verify distributed claim token: {e}") from None


def _failed(why: str) -> AuthenticationError:
    return AuthenticationError(f"oidc: could not expand distributed claims: {why}")
