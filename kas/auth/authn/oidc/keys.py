"""The keys of an issuer: a JSON Web Key Set (RFC 7517), fetched when a token arrives that none of the known keys signed (go-oidc's
``RemoteKeySet``).

Fetches are bounded: one at a time, shared by all waiting requests, at most one a second, with limits on waiting requests, bytes and keys.
A key is only used with algorithms for its type, whatever the token's header says.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any

from kas.auth import jws
from kas.auth.authn import AuthenticationError
from kas.auth.authz.rules import go_list
from kas.auth.jws import Key
from kas.client.fetch import Fetched
from kas.client.http import BackendError
from kas.meta.field import go_quote
from kas.meta.waiting import awaited, eager

log = logging.getLogger("kas.authn")

MAX_DOCUMENT = 1 << 20
MAX_KEYS = 256
MAX_WAITING = 256
EVERY_S = 1.0  # between the starts of two fetches
# Gets the document at a URL. Raises BackendError.
Get = Callable[[str], Awaitable[Fetched]]
# Called after each fetch with the document, or None if it gave no keys.
Note = Callable[[bytes | None], None]


def parse(document: bytes) -> list[Key]:
    """Return the keys of a set that can verify tokens; others are skipped. Raises ValueError for an invalid set."""
    try:
        value = json.loads(document)
    except RecursionError:
        raise ValueError("nested too deep") from None
    found = value.get("keys") if isinstance(value, dict) else None
    if not isinstance(found, list):
        raise ValueError("the document has no list of keys")
    if len(found) > MAX_KEYS:
        raise ValueError(f"the document has more than {MAX_KEYS} keys")
    return [key for key in map(_key, found) if key is not None]


def _key(jwk: Any) -> Key | None:
    from jwt.algorithms import ECAlgorithm, RSAAlgorithm
    from jwt.exceptions import InvalidKeyError

    if not isinstance(jwk, dict):
        return None
    # Of a private key, which does not belong here, the public half is used.
    public = {name: jwk[name] for name in ("kty", "n", "e", "crv", "x", "y") if isinstance(jwk.get(name), str)}
    readers: dict[str, Callable[[Any], Any]] = {"RSA": RSAAlgorithm.from_jwk, "EC": ECAlgorithm.from_jwk}
    read, kid = readers.get(public.get("kty", "")), jwk.get("kid")
    if read is None:
        return None
    try:
        return jws.key(read(public), kid if isinstance(kid, str) else "")
    except (InvalidKeyError, ValueError, KeyError) as e:
        log.warning("oidc authenticator: a key of the set cannot be used: %s", e)
        return None


class RemoteKeys:
    """The key set at ``url``."""

    def __init__(self, url: str, get: Get, note: Note = lambda document: None, clock: Callable[[], float] = monotonic) -> None:
        self._url, self._get, self._note, self._clock = url, get, note, clock
        self._keys: list[Key] = []
        self._running: asyncio.Task[str] | None = None
        self._began = float("-inf")
        self._waiting = 0

    @eager
    async def payload(self, token: str, allowed: tuple[str, ...]) -> bytes:
        """Return the payload of a token signed with one of the keys. Raises AuthenticationError."""
        found = self._verified(token, allowed)
        if found is None:
            why = await awaited(self._refresh())
            if why:
                raise AuthenticationError(f"failed to verify signature: fetching keys {why}")
            found = self._verified(token, allowed)
        if found is None:
            raise AuthenticationError("failed to verify signature: failed to verify id token signature")
        return found

    def _verified(self, token: str, allowed: tuple[str, ...]) -> bytes | None:
        try:
            return jws.verified(token, self._keys, allowed)
        except jws.AlgorithmError as e:
            why = f"expected {go_list(allowed)} got {go_quote(e.given)}"
            raise AuthenticationError(f"oidc: id token signed with unsupported algorithm, {why}") from None
        except jws.JWSError as e:
            raise AuthenticationError(f"oidc: malformed jwt: {e}") from None

    def _refresh(self) -> str | Awaitable[str]:
        """Fetch the keys unless that was done just now. Return an error text, "" if there may be newer keys."""
        if self._running is None:
            if self._clock() - self._began < EVERY_S:
                return ""
            self._began = self._clock()
            self._running = asyncio.get_running_loop().create_task(self._fetch())
        if self._waiting >= MAX_WAITING:
            return "too many requests wait for them already"
        return self._wait(self._running)

    async def _wait(self, running: asyncio.Task[str]) -> str:
        self._waiting += 1
        try:
            return await asyncio.shield(running)
        finally:
            self._waiting -= 1

    async def _fetch(self) -> str:
        try:
            said = await self._get(self._url)
            if said.status != 200:
                raise ValueError(f"oidc: get keys failed: {said.status} {said.reason}")
            self._keys = await asyncio.to_thread(parse, said.body)
        except (BackendError, ValueError) as e:
            log.warning("oidc authenticator: keys of %s: %s", self._url, e)
            self._note(None)
            return f"oidc: {e}"
        else:
            self._note(said.body)
            return ""
        finally:
            self._running = None

    def close(self) -> None:
        """Stop reporting fetches. Waiting requests still get the keys, which takes no longer than ``Get``."""
        self._note = lambda document: None
