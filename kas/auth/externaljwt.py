"""Service-account tokens signed by an external service (``--service-account-signing-endpoint``): the ``ExternalJWTSigner`` of
``k8s.io/externaljwt/apis/v1`` over gRPC on a Unix socket (upstream ``pkg/serviceaccount/externaljwt``).

The signer lists its public keys and says when to refresh them; the last list stays valid until the next one arrives. A token with an
unknown key id triggers a refresh at once, at most once a second. Calls block and therefore run in threads.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import Sequence
from time import monotonic, perf_counter, time
from typing import Any

from kas.auth import jws
from kas.auth.authn.jwttokens import JWTTokens
from kas.auth.tokens import LEGACY_ISSUER, Claims, SignerError, Verifier, issuer_of
from kas.auth.user import UserInfo
from kas.meta import protowire
from kas.meta.field import go_quote
from kas.meta.publickeys import public_key_of
from kas.meta.scalars import format_duration
from kas.observe import counted

log = logging.getLogger("kas.authn")

SERVICE = "v1.ExternalJWTSigner"
SYNC_TIMEOUT_S, METADATA_TIMEOUT_S, SIGN_TIMEOUT_S = 60.0, 10.0, 30.0
AGAIN_S, LEAST_PAUSE_S = 10.0, 1.0  # retry after a failure; minimum interval between refreshes for unknown keys
MIN_TOKEN_S = 600
MAX_ANSWER_BYTES, MAX_KEYS, MAX_KEY_ID = 1 << 20, 256, 1024
ALGORITHMS = ("RS256", "ES256", "ES384", "ES512")
_HEADER = ("alg", "kid", "typ")


class ExternalSigner:
    """A client of one signer. ``issuer`` is the issuer of its tokens; ``longest_s`` is their maximum lifetime, known after ``begin``."""

    def __init__(self, socket: str, issuers: Sequence[str]) -> None:
        self._socket, self.issuer = socket, issuers[0]
        self.longest_s = 0
        self.keys: list[jws.Key] = []
        self.hidden: frozenset[str] = frozenset()  # ids of keys excluded from discovery: they verify tokens but sign no new ones
        self.verifier = ExternalVerifier(self, [*issuers, LEGACY_ISSUER])
        self._asking: asyncio.Future[None] | None = None
        self._channel: Any = None
        self._due = self._asked = 0.0

    def begin(self, wanted_s: int = 0) -> None:
        """Fetch the keys and the signer's metadata, and check that it supports tokens of at least ``wanted_s`` seconds.

        Blocks, each call up to its timeout (60 s and 10 s). Raises SignerError.
        """
        try:
            try:
                self._fetch(SYNC_TIMEOUT_S)
            except SignerError as e:
                raise SignerError(f"while initially filling key cache: while performing initial cache fill: {e}") from None
            found = _numbers(self._call("Metadata", b"", METADATA_TIMEOUT_S))
        except SignerError as e:
            raise SignerError(f"while setting up external-jwt-signer: {e}") from None
        self.longest_s = found.get(1, 0)
        if self.longest_s < MIN_TOKEN_S:
            raise SignerError(
                f"max token life supported by external-jwt-signer ({self.longest_s}s) is less than acceptable (min {MIN_TOKEN_S}s)"
            )
        if wanted_s > self.longest_s:
            wanted, can = (format_duration(s * 10**9) for s in (wanted_s, self.longest_s))
            raise SignerError(
                "service-account-max-token-expiration cannot be set longer than the token expiration supported by "
                f"service-account-signing-endpoint: {wanted} > {can}"
            )

    async def sign(self, claims: Claims) -> str:
        """Return the claims as a compact JWS. Raises SignerError."""
        payload = json.dumps(claims, separators=(",", ":"), sort_keys=True).encode()
        encoded = base64.urlsafe_b64encode(payload).rstrip(b"=").decode()
        try:
            answer = await asyncio.to_thread(self._call, "Sign", protowire.put_text(1, encoded), SIGN_TIMEOUT_S)
        except SignerError as e:
            raise SignerError(f"while signing jwt: {e}") from None
        said = {n: protowire.text(v) for n, wire, v in protowire.fields(answer) if wire == protowire.BYTES}
        header, signature = said.get(1, ""), said.get(2, "")
        try:
            self._check_header(header)
        except SignerError as e:
            raise SignerError(f"while validating header: {e}") from None
        if not signature:
            raise SignerError("empty signature returned")
        return f"{header}.{encoded}.{signature}"

    def _check_header(self, text: str) -> None:
        try:
            header = json.loads(jws.b64decoded(text))
        except ValueError as e:
            raise SignerError(f"while unwrapping header: {e}") from None
        if not isinstance(header, dict) or not all(isinstance(header.get(name, ""), str) for name in _HEADER):
            raise SignerError("while parsing header JSON: it is no object of texts")
        unknown = [name for name in header if name not in _HEADER]
        if unknown:
            raise SignerError(f"while parsing header JSON: json: unknown field {go_quote(unknown[0])}")
        if header.get("typ") != "JWT":
            raise SignerError("bad type")
        kid = header.get("kid", "")
        if not kid:
            raise SignerError("key id missing")
        if len(kid) > MAX_KEY_ID:
            raise SignerError("key id longer than 1 kb")
        if header.get("alg") not in ALGORITHMS:
            raise SignerError(f"bad signing algorithm {go_quote(header.get('alg', ''))}")
        if kid in self.hidden:
            raise SignerError(f"key used for signing JWT (kid: {kid}) is excluded from OIDC discovery docs")

    # --- keys

    async def follow(self) -> None:
        """Refresh the keys if they are due. Called every second."""
        if monotonic() >= self._due:
            await self._refreshed()

    async def find(self, kid: str) -> None:
        """Refresh the keys if ``kid`` is unknown. Concurrent callers share one refresh."""
        if not self._knows(kid) and (self._asking is not None or monotonic() >= self._asked + LEAST_PAUSE_S):
            await self._refreshed()

    async def _refreshed(self) -> None:
        if self._asking is None:
            self._asking = asyncio.ensure_future(asyncio.to_thread(self._refresh))
            self._asking.add_done_callback(self._answered)
        await asyncio.shield(self._asking)

    def _answered(self, _: asyncio.Future[None]) -> None:
        self._asking = None

    def _knows(self, kid: str) -> bool:
        return any(key.id == kid for key in self.keys)

    def _refresh(self) -> None:
        try:
            self._fetch(AGAIN_S)
        except SignerError as e:
            self._due = monotonic() + AGAIN_S
            log.error("when syncing supported public keys(Stale set of keys will be supported): %s", e)

    def _fetch(self, timeout_s: float) -> None:
        try:
            self._asked = monotonic()
            answer = self._call("FetchKeys", b"", timeout_s)
            keys, hidden, hint_s = _read_keys(answer)
            data_at = _timestamp(answer)
        except SignerError as e:
            raise SignerError(f"while fetching token verification keys: {e}") from None
        self._asked = monotonic()
        self.keys, self.hidden, self._due = keys, hidden, self._asked + hint_s
        counted.FETCHED_AT.set((), int(time()))
        counted.KEYS_OF.set((), data_at)

    # --- calls

    def _call(self, method: str, request: bytes, timeout_s: float) -> bytes:
        import grpc  # an extra, and large

        if self._channel is None:
            path = self._socket if not self._socket.startswith("//") else f"/{self._socket.lstrip('/')}"  # which gRPC takes for a host
            target = f"unix-abstract:{path[1:]}" if path.startswith("@") else f"unix:{path}"
            self._channel = grpc.insecure_channel(target, options=[
                ("grpc.max_receive_message_length", MAX_ANSWER_BYTES), ("grpc.max_reconnect_backoff_ms", 1000),
                ("grpc.enable_http_proxy", 0), ("grpc.default_authority", "localhost"),
            ])  # fmt: skip
        began = perf_counter()
        try:
            answer: bytes = self._channel.unary_unary(f"/{SERVICE}/{method}")(request, timeout=timeout_s, wait_for_ready=True)
        except grpc.RpcError as e:
            code = e.code().name.title().replace("_", "")
            counted.signer_asked(method, code, began)
            raise SignerError(f"rpc error: code = {code} desc = {e.details()}") from None
        counted.signer_asked(method, "OK", began)
        return answer


class ExternalVerifier(Verifier):
    """Verifies with the signer's public keys."""

    def __init__(self, signer: ExternalSigner, issuers: Sequence[str]) -> None:
        super().__init__([], issuers)
        self._signer = signer

    def _keys(self) -> list[jws.Key]:
        return self._signer.keys

    def jwks(self) -> dict[str, Any]:
        """Return the document at /openid/v1/jwks, without the keys excluded from discovery."""
        return {"keys": [k for k in super().jwks()["keys"] if k["kid"] not in self._signer.hidden]}


class FreshKeys:
    """Wraps ``tokens``: refreshes the signer's keys before it verifies a token of our issuer with an unknown key id."""

    def __init__(self, tokens: JWTTokens, signer: ExternalSigner) -> None:
        self._tokens, self._signer = tokens, signer

    async def authenticate_token(self, token: str) -> UserInfo | None:
        """Authenticate as ``JWTTokens.authenticate_token`` does, with fresh keys."""
        await self._look(token)
        return self._tokens.authenticate_token(token)

    async def review(self, token: str, audiences: Sequence[str]) -> tuple[UserInfo, list[str]] | None:
        """Review a token for TokenReview, with fresh keys."""
        await self._look(token)
        return self._tokens.review(token, audiences)

    async def _look(self, token: str) -> None:
        if issuer_of(token) not in self._signer.verifier.issuers:
            return
        try:
            header = json.loads(jws.b64decoded(token.partition(".")[0]))
        except (ValueError, RecursionError):
            return  # the verifier reports it
        kid = header.get("kid") if isinstance(header, dict) else None
        if isinstance(kid, str) and kid:
            await self._signer.find(kid)


def _numbers(message: bytes) -> dict[int, int]:
    try:
        return {n: v for n, wire, v in protowire.fields(message) if wire == protowire.VARINT and isinstance(v, int)}
    except ValueError as e:
        raise SignerError(str(e)) from None


def _timestamp(answer: bytes) -> int:
    """Return the whole seconds of the ``data_timestamp`` of a ``FetchKeysResponse``, or 0 without one."""
    timestamps = [v for n, _, v in protowire.fields(answer) if n == 2 and isinstance(v, bytes)]
    seconds = _numbers(timestamps[-1]).get(1, 0) if timestamps else 0
    return seconds if seconds < 1 << 63 else seconds - (1 << 64)


def _read_keys(answer: bytes) -> tuple[list[jws.Key], frozenset[str], int]:
    """Return (keys, ids excluded from discovery, refresh interval in seconds) of a ``FetchKeysResponse``."""
    hint_s = _numbers(answer).get(3, 0)
    if not 0 < hint_s < 1 << 63:
        raise SignerError(f"found invalid refresh hint ({hint_s if hint_s < 1 << 63 else hint_s - (1 << 64)}s)")
    messages = [v for n, wire, v in protowire.fields(answer) if n == 1 and isinstance(v, bytes)]
    if not messages:
        raise SignerError("found no keys")
    if len(messages) > MAX_KEYS:
        raise SignerError(f"found more than {MAX_KEYS} keys")
    keys, hidden = [], set()
    for message in messages:
        try:
            found = {n: v for n, _, v in protowire.fields(message)}
        except ValueError as e:
            raise SignerError(str(e)) from None
        kid, der = protowire.text(found.get(1, b"")), found.get(2, b"")
        if not 0 < len(kid) <= MAX_KEY_ID:
            raise SignerError(f"found invalid public key id {go_quote(kid)}")
        if not isinstance(der, bytes) or not der:
            raise SignerError("found empty public key")
        keys.append(_key(der, kid))
        if found.get(3):
            hidden.add(kid)
    return keys, frozenset(hidden), hint_s


def _key(der: bytes, kid: str) -> jws.Key:
    from cryptography.exceptions import UnsupportedAlgorithm

    try:
        return jws.key(public_key_of(der), kid)
    except (ValueError, UnsupportedAlgorithm) as e:
        raise SignerError(f"while parsing external public keys: {e}") from None
