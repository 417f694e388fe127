"""An issuer's discovery document, requested until the issuer answers (go-oidc's ``NewProvider``)."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import Awaitable, Callable
from functools import partial

from kas import __version__
from kas.auth.authn.oidc.configuration import Issuer
from kas.auth.authn.oidc.keys import MAX_DOCUMENT, Get, Note, RemoteKeys
from kas.auth.authn.oidc.tokens import Verifier
from kas.client import fetch
from kas.client.http import DIRECT, BackendError, Egress, Via
from kas.client.kubeconfig import client_tls
from kas.meta.field import go_quote

log = logging.getLogger("kas.authn")

TIMEOUT_S = 30.0
AGAIN_S = 10.0  # after a failure
WELL_KNOWN = "/.well-known/openid-configuration"
MAX_QUOTED = 200  # characters of a response in errors
HEADERS = [(b"accept", b"application/json, */*"), (b"user-agent", f"kas/{__version__}".encode())]


def trusting(ca: str) -> ssl.SSLContext:
    """Return a context that trusts the CAs in ``ca`` (PEM; the system's if empty). Loads them, which takes a while."""
    return client_tls(ca.encode())


def getter(tls: ssl.SSLContext, via: Via | None) -> Get:
    """Return a function that gets an issuer's documents by this route."""
    return partial(fetch.get, tls=tls, headers=HEADERS, limit=MAX_DOCUMENT, timeout_s=TIMEOUT_S, via=via)


async def discovered(get: Get, issuer: str, url: str = "") -> str:
    """Return the URL of the keys of ``issuer``; ``url`` is its discovery document, "" for the well-known location. Raises BackendError
    and ValueError."""
    said = await get(url or issuer.removesuffix("/") + WELL_KNOWN)
    if said.status != 200:
        raise ValueError(f"{said.status} {said.reason}: {said.body[:MAX_QUOTED].decode('utf-8', 'replace')!r}")
    try:
        document = json.loads(said.body)
    except (ValueError, RecursionError) as e:
        raise ValueError(f"oidc: failed to decode provider discovery object: {e}") from None
    given, keys = (document.get("issuer"), document.get("jwks_uri")) if isinstance(document, dict) else ("", "")
    if given != issuer:
        said_to_be = go_quote(str(given or "")[:MAX_QUOTED])
        raise ValueError(f"oidc: issuer did not match the issuer returned by provider, expected {go_quote(issuer)} got {said_to_be}")
    if not isinstance(keys, str) or not keys:
        raise ValueError("oidc: the provider says no jwks_uri")
    return keys


class Provider:
    """One issuer, queried every ten seconds until it answers; ``verifier`` is set from then on. ``error`` says why it is not set yet."""

    def __init__(
        self, issuer: Issuer, note: Note = lambda document: None, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        egress: Egress = DIRECT,
    ) -> None:  # fmt: skip
        self._issuer, self._note, self._sleep = issuer, note, sleep
        self.tls = trusting(issuer.ca)
        self.via: Via | None = getattr(egress, issuer.egress) if issuer.egress else None
        self.get = getter(self.tls, self.via)
        self.verifier: Verifier | None = None
        self.error = "oidc: authenticator not initialized"
        self._keys: RemoteKeys | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to query the issuer; requires a running event loop."""
        self._task = asyncio.get_running_loop().create_task(self._ask())

    async def _ask(self) -> None:
        issuer = self._issuer
        while True:
            try:
                uri = await discovered(self.get, issuer.url, issuer.discovery_url)
            except (BackendError, ValueError) as e:
                self.error = f"oidc: authenticator for issuer {go_quote(issuer.url)} is not initialized: {e}"
                log.error("oidc authenticator: initializing plugin: %s", e)
                await self._sleep(AGAIN_S)
                continue
            self._keys = RemoteKeys(uri, self.get, self._note)
            self.verifier = Verifier(issuer.url, issuer.audiences, issuer.algorithms, self._keys)
            return

    def close(self) -> None:
        """Stop querying the issuer and reporting fetches; requests in progress are still served."""
        if self._task is not None:
            self._task.cancel()
        if self._keys is not None:
            self._keys.close()
