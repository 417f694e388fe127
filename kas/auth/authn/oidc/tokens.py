"""Verification of the standard claims of ID tokens: issuer, audience and validity period (go-oidc's ``IDTokenVerifier``)."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Sequence
from time import gmtime, strftime, time
from typing import Any, Protocol

from kas.auth.authn import AuthenticationError
from kas.auth.authz.rules import go_list
from kas.auth.jws import b64decoded
from kas.auth.tokens import MAX_NUMBER, MAX_TOKEN, issuer_of
from kas.meta import gojson
from kas.meta.field import go_quote
from kas.meta.waiting import awaited, eager

Claims = dict[str, Any]
NOT_BEFORE_LEEWAY_S = 60
_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})?\Z")


class KeySet(Protocol):
    """The keys whose signatures are accepted."""

    def payload(self, token: str, allowed: tuple[str, ...]) -> bytes | Awaitable[bytes]:
        """Return the payload of a signed token. Raises AuthenticationError."""


class Verifier:
    """Verifies tokens of one issuer for any of ``audiences``, signed with one of ``algorithms``."""

    def __init__(
        self, issuer: str, audiences: Sequence[str], algorithms: tuple[str, ...], keys: KeySet, clock: Callable[[], float] = time
    ) -> None:
        self._issuer, self._audiences, self._algorithms, self._keys, self._clock = issuer, tuple(audiences), algorithms, keys, clock

    @eager
    async def claims(self, token: str) -> Claims:
        """Return the claims of a valid token. Checks that need no key come first. Raises AuthenticationError."""
        payload = _payload(token)
        self._check(_claims(payload))
        signed = await awaited(self._keys.payload(token, self._algorithms))
        if signed != payload:
            raise AuthenticationError("oidc: internal error, payload parsed did not match previous payload")
        return _claims(signed)

    def _check(self, claims: Claims) -> None:
        issuer, audiences = _text(claims, "iss"), _audiences(claims.get("aud"))
        for name in ("sub", "nonce", "at_hash"):
            _text(claims, name)
        expiry, not_before = _moment(claims, "exp"), _moment(claims, "nbf")
        _sources(claims)
        if "iat" in claims and _moment(claims, "iat") is None:
            raise AuthenticationError("oidc: failed to unmarshal claims: iat is no number")
        if _proper(issuer) != self._issuer:
            why = f"expected {go_quote(self._issuer)} got {go_quote(issuer[:200])}"
            raise AuthenticationError(f"oidc: id token issued by a different provider, {why}")
        if not any(a in audiences for a in self._audiences):
            several = len(set(self._audiences)) > 1
            wanted = f"in {go_list(sorted(set(self._audiences)))}" if several else go_quote(self._audiences[0])
            raise AuthenticationError(f"oidc: expected audience {wanted} got {go_list(audiences[:8])}")
        now = self._clock()
        if expiry is None or expiry < now:
            raise AuthenticationError(f"oidc: token is expired (Token Expiry: {_shown(expiry or 0.0)})")
        if not_before is not None and now + NOT_BEFORE_LEEWAY_S < not_before:
            raise AuthenticationError(f"oidc: current time {_shown(now)} before the nbf (not before) time: {_shown(not_before)}")


def claimed_issuer(token: str) -> str:
    """Return the issuer that a token claims, unverified; "" if there is none."""
    return _proper(issuer_of(token) or "")


def _proper(issuer: str) -> str:
    # Google's tokens may omit the scheme (OpenID Connect Core, 15.6.2).
    return f"https://{issuer}" if issuer == "accounts.google.com" else issuer


def _payload(token: str) -> bytes:
    parts = token.split(".") if len(token) <= MAX_TOKEN else []
    if len(parts) != 3:
        raise AuthenticationError("oidc: malformed jwt, expected 3 parts")
    try:
        return b64decoded(parts[1])
    except ValueError:
        raise AuthenticationError("oidc: malformed jwt payload: illegal base64 data") from None


def _claims(payload: bytes) -> Claims:
    try:
        claims = gojson.loads(payload)
    except (gojson.JSONError, RecursionError) as e:
        raise AuthenticationError(f"oidc: failed to unmarshal claims: {e}") from None
    if not isinstance(claims, dict):
        raise AuthenticationError("oidc: failed to unmarshal claims: no object")
    return claims


def _text(claims: Claims, name: str) -> str:
    value = claims.get(name)
    if value is not None and not isinstance(value, str):
        raise AuthenticationError(f"oidc: failed to unmarshal claims: {name} is no string")
    return value or ""


def _sources(claims: Claims) -> None:
    """Check that each distributed claim names its source, whether the claim is used or not. Raises AuthenticationError."""
    names, sources = claims.get("_claim_names"), claims.get("_claim_sources")
    if names is not None and (not isinstance(names, dict) or not all(v is None or isinstance(v, str) for v in names.values())):
        raise AuthenticationError("oidc: failed to unmarshal claims: _claim_names is no map of strings")
    if sources is not None and (not isinstance(sources, dict) or not all(map(_is_source, sources.values()))):
        raise AuthenticationError("oidc: failed to unmarshal claims: _claim_sources is no map of sources")
    for source in (names or {}).values():
        if not source:
            raise AuthenticationError("oidc: failed to obtain source from claim name")
        if source not in (sources or {}):
            raise AuthenticationError("oidc: source does not exist")


def _is_source(value: Any) -> bool:
    texts = () if not isinstance(value, dict) else (value.get("endpoint"), value.get("access_token"))
    return (value is None or isinstance(value, dict)) and all(v is None or isinstance(v, str) for v in texts)


def _audiences(value: Any) -> list[str]:
    if isinstance(value, list) and all(a is None or isinstance(a, str) for a in value):
        return [a or "" for a in value]
    if value is None or isinstance(value, str):
        return [value] if value else []
    raise AuthenticationError("oidc: failed to unmarshal claims: aud is neither a string nor a list of strings")


def _moment(claims: Claims, name: str) -> float | None:
    """Return a time in seconds since the epoch, truncated as in Go; None if it is missing. Numbers may be strings. Raises
    AuthenticationError."""
    value = claims.get(name)
    if isinstance(value, str) and _NUMBER.match(value):
        value = json.loads(value)
    if value is None and (name not in claims or name == "nbf"):
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not -MAX_NUMBER < value < MAX_NUMBER:
        raise AuthenticationError(f"oidc: failed to unmarshal claims: {name} is no number")
    return float(int(value))


def _shown(moment: float) -> str:
    try:
        return strftime("%Y-%m-%d %H:%M:%S +0000 UTC", gmtime(moment))
    except (OverflowError, ValueError, OSError):
        return str(moment)
