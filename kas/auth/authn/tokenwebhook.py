"""Token authentication by a webhook (``plugin/pkg/authenticator/token/webhook`` behind ``authentication/token/cache``).

Answers, positive or negative, are cached for a while, keyed by a digest of token and audiences. Failed calls and answers with an error
are not cached. Concurrent requests for the same token share one call. Upstream makes any number of calls at once; here the calls of one
client queue beyond a limit, and the time they may take includes the wait.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Sequence
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any

import orjson

from kas.auth.authn import AuthenticationError
from kas.auth.user import UserInfo
from kas.client.hooks import HookError, Shares, read_review
from kas.client.webhook import Webhook, WebhookError
from kas.config.authentication import WEBHOOK_VERSIONS
from kas.meta.fairqueue import whose
from kas.meta.origin import origin
from kas.meta.waiting import awaited, eager
from kas.observe.caches import Cache
from kas.observe.logs import RateLimitedLog
from kas.types.scheme import builtin_type

log = logging.getLogger("kas.authn")

LOOKUP_S = 30.0  # for all attempts together, and the wait for a slot
MAX_ASKED = 256  # different tokens in flight, shared fairly between clients: any client may make up tokens
MOST_ASKED = 4 * MAX_ASKED  # a client with none in flight may always start one, and there may be any number of clients
MAX_WAITING = 4096  # different tokens, waiting or in flight, shared fairly between clients, too
MOST_WAITING = 2 * MAX_WAITING
MAX_USER = 64 << 10  # characters of a user that is cached
GROUP, KIND = "authentication.k8s.io", "TokenReview"

# The user and which of the wanted audiences the token is valid for, or None; and the webhook's error text.
Verdict = tuple[tuple[UserInfo, list[str]] | None, str]


class _CallSlots:
    """Limits the calls in flight. Each client has its share of the slots; its calls beyond that wait, and clients take turns."""

    def __init__(self) -> None:
        self._shares, self._taken = Shares(MAX_ASKED), 0
        self._waiting: dict[Hashable, deque[asyncio.Future[None]]] = {}  # by client, the next one first

    @asynccontextmanager
    async def slot(self, client: Hashable) -> AsyncIterator[None]:
        """Waits for a slot, and releases it at the end."""
        if client in self._waiting or not self._take(client):
            future = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(client, deque()).append(future)
            try:
                await future
            except asyncio.CancelledError:
                if not future.cancelled():  # the slot was granted while the call was cancelled
                    self._release(client)
                raise
        try:
            yield
        finally:
            self._release(client)

    def _take(self, client: Hashable) -> bool:
        if self._taken >= MOST_ASKED or not self._shares.take(client):
            return False
        self._taken += 1
        return True

    def _release(self, client: Hashable) -> None:
        self._shares.give(client)
        self._taken -= 1
        while self._grant_next():
            pass

    def _grant_next(self) -> bool:
        """Grants a slot to a waiting call; False if none can have one. Clients that are skipped hold slots, so there are few of them."""
        for client, line in self._waiting.items():
            while line and line[0].done():  # timed out
                line.popleft()
            if not line:
                del self._waiting[client]
                return True
            if self._take(client):
                line.popleft().set_result(None)
                del self._waiting[client]
                if line:
                    self._waiting[client] = line  # behind all other clients
                return True
            if self._taken >= MOST_ASKED:
                return False
        return False


class TokenWebhook:
    """Sends TokenReviews of ``version``. ``audiences`` are the API server's own. Answers are cached for ``ttl_s``."""

    def __init__(
        self, webhook: Webhook, version: str, audiences: Sequence[str], ttl_s: float, clock: Callable[[], float] = monotonic
    ) -> None:
        self._webhook, self._api_version, self._audiences = webhook, f"{GROUP}/{version}", tuple(audiences)
        self._ttl, self._clock = ttl_s, clock
        self._type = builtin_type(f"authentication.v1.{KIND}")
        self._kept: Cache[bytes, tuple[Verdict, float]] = Cache("token_reviews", "answers of the webhook about tokens", 16 << 20, MAX_USER)
        self._asked: dict[bytes, asyncio.Task[Verdict]] = {}
        self._failure_log = RateLimitedLog(log, "%d more webhook authenticator requests failed")  # any client may make up tokens
        # By client address, or by the user who created a TokenReview.
        self._waiting, self._slots = Shares(MAX_WAITING), _CallSlots()

    @eager
    async def authenticate_token(self, token: str) -> UserInfo | None:
        """Return the user of a token for this API server, or None. Raises AuthenticationError with the webhook's reason, or if the call
        failed."""
        found = await self._found(token, self._audiences, ("from", origin()))
        return None if found is None else found[0]

    @eager
    async def review(self, token: str, audiences: Sequence[str]) -> tuple[UserInfo, list[str]] | None:
        """Review a token for TokenReview: return the user, and which of ``audiences`` the token is valid for."""
        return await self._found(token, tuple(audiences), ("for", whose()[0]))

    async def _found(self, token: str, audiences: tuple[str, ...], client: Hashable) -> tuple[UserInfo, list[str]] | None:
        key = hashlib.sha256(orjson.dumps([token.encode("utf-8", "surrogateescape").hex(), *audiences])).digest()
        verdict: Verdict
        kept = self._kept.entries.get(key)
        if kept is not None and self._clock() < kept[1]:
            verdict = kept[0]
        else:
            verdict = await awaited(self._ask(key, token, audiences, client))
        user, why = verdict
        if user is None and why:
            raise AuthenticationError(why)
        return user

    def _ask(self, key: bytes, token: str, audiences: tuple[str, ...], client: Hashable) -> Awaitable[Verdict]:
        task = self._asked.get(key)
        if task is None:
            if len(self._asked) >= MOST_WAITING or not self._waiting.take(client):
                raise AuthenticationError("too many tokens are asked about already")
            task = self._asked[key] = asyncio.get_running_loop().create_task(self._answer(key, token, audiences, client))
            task.add_done_callback(lambda _: self._waiting.give(client))
        # Whoever leaves does not take the answer from the others.
        return asyncio.shield(task)

    async def _answer(self, key: bytes, token: str, audiences: tuple[str, ...], client: Hashable) -> Verdict:
        try:
            async with asyncio.timeout(LOOKUP_S), self._slots.slot(client):
                verdict = self._verdict(await self._webhook.send(self._question(token, audiences), bytes), audiences)
        except (WebhookError, HookError, TimeoutError) as e:
            why = str(e) or "context deadline exceeded"
            if self._failure_log.one(self._clock()):
                log.error("Failed to make webhook authenticator request: %s", why)
            return None, why
        else:
            user, error = verdict
            if not error:  # an answer with an error is not cached, as upstream
                self._kept.put(key, (verdict, self._clock() + self._ttl), 0 if user is None else user[0].length)
            return verdict
        finally:
            del self._asked[key]

    def _question(self, token: str, audiences: tuple[str, ...]) -> bytes:
        spec: dict[str, Any] = {"token": token.encode("utf-8", "surrogateescape").decode("utf-8", "replace")}
        if audiences:
            spec["audiences"] = list(audiences)
        return orjson.dumps({"kind": KIND, "apiVersion": self._api_version, "metadata": {}, "spec": spec, "status": {"user": {}}})

    def _verdict(self, body: bytes, wanted: tuple[str, ...]) -> Verdict:
        if not body:
            raise HookError("0-length response")
        known = frozenset((f"{GROUP}/{version}", KIND) for version in WEBHOOK_VERSIONS)
        status = read_review(body, (self._api_version, KIND), known, self._type).get("status") or {}
        given = frozenset(status.get("audiences") or self._audiences)
        good = [a for a in dict.fromkeys(wanted) if a in given]
        if wanted and not good:
            return None, ""
        if not status.get("authenticated"):
            return None, status.get("error") or ""
        return (UserInfo.from_dict(status.get("user") or {}), good), ""
