"""Asks a webhook whose a token is (``plugin/pkg/authenticator/token/webhook`` behind ``authentication/token/cache``).

Answers, good or bad, are kept for a while by the digest of token and audiences; failures to get one are not, nor are those with an error.
Those who ask for the same token at once wait for one question. Upstream asks any number of questions at once; here those of a client wait
for one another from some number on, and their time counts from when they came.
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
from kas.observe.logs import Sparing
from kas.types.scheme import builtin_type

log = logging.getLogger("kas.authn")

LOOKUP_S = 30.0  # all tries together, and the wait for a place
MAX_ASKED = 256  # different tokens at once, of which nobody has all: anybody may make them up
MOST_ASKED = 4 * MAX_ASKED  # who has asked about none may ask about one, and there may be any number of them
MAX_WAITING = 4096  # different tokens, with those that are asked about, of which nobody has all either
MOST_WAITING = 2 * MAX_WAITING
MAX_USER = 64 << 10  # characters of a user that is kept
GROUP, KIND = "authentication.k8s.io", "TokenReview"

# The user and which of the wanted audiences the token is good for; None for nobody. The text is why the webhook says so.
Verdict = tuple[tuple[UserInfo, list[str]] | None, str]


class _Places:
    """Where questions may be under way: each client has its share of them, and what it asks beyond that waits. Clients take turns."""

    def __init__(self) -> None:
        self._shares, self._taken = Shares(MAX_ASKED), 0
        self._waiting: dict[Hashable, deque[asyncio.Future[None]]] = {}  # by client, whose turn is next first

    @asynccontextmanager
    async def place(self, client: Hashable) -> AsyncIterator[None]:
        """Waits for a place, and gives it back at the end."""
        if client in self._waiting or not self._take(client):
            mine = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(client, deque()).append(mine)
            try:
                await mine
            except asyncio.CancelledError:
                if not mine.cancelled():  # the place came with the cancellation
                    self._give(client)
                raise
        try:
            yield
        finally:
            self._give(client)

    def _take(self, client: Hashable) -> bool:
        if self._taken >= MOST_ASKED or not self._shares.take(client):
            return False
        self._taken += 1
        return True

    def _give(self, client: Hashable) -> None:
        self._shares.give(client)
        self._taken -= 1
        while self._next():
            pass

    def _next(self) -> bool:
        """Whether somebody who waited has a place now. Who is passed over holds places, of which there are only so many."""
        for client, line in self._waiting.items():
            while line and line[0].done():  # whose time was up
                line.popleft()
            if not line:
                del self._waiting[client]
                return True
            if self._take(client):
                line.popleft().set_result(None)
                del self._waiting[client]
                if line:
                    self._waiting[client] = line  # after all others
                return True
            if self._taken >= MOST_ASKED:
                return False
        return False


class TokenWebhook:
    """``version`` of TokenReview is sent; ``audiences`` are the API server's own. Answers are kept for ``ttl_s``."""

    def __init__(
        self, webhook: Webhook, version: str, audiences: Sequence[str], ttl_s: float, clock: Callable[[], float] = monotonic
    ) -> None:
        self._webhook, self._api_version, self._audiences = webhook, f"{GROUP}/{version}", tuple(audiences)
        self._ttl, self._clock = ttl_s, clock
        self._type = builtin_type(f"authentication.v1.{KIND}")
        self._kept: Cache[bytes, tuple[Verdict, float]] = Cache("token_reviews", "answers of the webhook about tokens", 16 << 20, MAX_USER)
        self._asked: dict[bytes, asyncio.Task[Verdict]] = {}
        self._told = Sparing(log, "%d more webhook authenticator requests failed")  # anybody may make up tokens
        # By who is at an address, or the user of a TokenReview.
        self._waiting, self._places = Shares(MAX_WAITING), _Places()

    @eager
    async def authenticate_token(self, token: str) -> UserInfo | None:
        """The user of a token for this API server, None for nobody's. Raises AuthenticationError with the webhook's reason, or when there
        is no answer."""
        found = await self._found(token, self._audiences, ("from", origin()))
        return None if found is None else found[0]

    @eager
    async def review(self, token: str, audiences: Sequence[str]) -> tuple[UserInfo, list[str]] | None:
        """For TokenReview: the user, and which of ``audiences`` the token is good for."""
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
            async with asyncio.timeout(LOOKUP_S), self._places.place(client):
                verdict = self._verdict(await self._webhook.send(self._question(token, audiences), bytes), audiences)
        except (WebhookError, HookError, TimeoutError) as e:
            why = str(e) or "context deadline exceeded"
            if self._told.one(self._clock()):
                log.error("Failed to make webhook authenticator request: %s", why)
            return None, why
        else:
            user, error = verdict
            if not error:  # what a webhook calls an error is no answer to keep, upstream too
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
