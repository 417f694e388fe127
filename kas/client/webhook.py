"""JSON to a backend and back, with retries: upstream's ``apiserver/pkg/util/webhook`` for the webhooks of a configuration file.

One connection a try, 30 s a try, no redirects. Five tries at most, for connections that were reset, 429, 500, 504 and answers that say
Retry-After; the pause grows by half each time. Client and backend trust each other as far as the kubeconfig says; the answer is bounded.
"""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import orjson

from kas import __version__
from kas.client.http import BackendError, connect
from kas.client.kubeconfig import Backend
from kas.meta.scalars import format_duration

TIMEOUT_S = 30.0
TRIES, FACTOR, JITTER = 5, 1.5, 0.2
MAX_ANSWER = 256 << 10
MAX_QUOTED = 2048  # of an answer in an error
MAX_PAUSE_S = 30.0  # that a backend may ask for

# What client-go says of an answer that brings no Status; None quotes the answer.
_TEXTS = {
    400: "the server rejected our request for an unknown reason", 401: "the server has asked for the client to provide credentials",
    403: None, 404: "the server could not find the requested resource",
    405: "the server does not allow this method on the requested resource",
    406: "the server was unable to respond with a content type that the client supports", 409: "the server reported a conflict",
    415: "the server was unable to process the request with the media type of the request body",
    422: "the server rejected our request due to an error in our request",
    429: "the server has received too many requests and has asked us to try again later",
    503: "the server is currently unable to handle the request",
    504: "the server was unable to return a response in the time allotted, but may still be processing the request",
}  # fmt: skip


class WebhookError(Exception):
    """No answer that could be used. ``retry`` says whether asking again may help, ``pause_s`` how long the backend wants us to wait."""

    def __init__(self, message: str, retry: bool = False, pause_s: float = 0.0) -> None:
        super().__init__(message)
        self.retry, self.pause_s = retry, pause_s


class Webhook:
    """One backend. ``backoff_s`` is the first pause between two tries."""

    def __init__(
        self, backend: Backend, backoff_s: float, timeout_s: float = TIMEOUT_S, sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep
    ) -> None:
        query, timeout = backend.target.query, f"timeout={format_duration(round(timeout_s * 10**9))}"
        self._target = replace(backend.target, query=f"{query}&{timeout}" if query else timeout)
        self._backend, self._backoff_s, self._timeout_s, self._sleep = backend, backoff_s, timeout_s, sleep

    async def post(self, body: dict[str, Any]) -> dict[str, Any]:
        """The answer's JSON object. Raises WebhookError; cancelling it closes the connection."""
        answer = await self.send(orjson.dumps(body))
        try:
            value = orjson.loads(answer)
        except orjson.JSONDecodeError as e:
            raise WebhookError(f"couldn't get version/kind; json parse error: {e}") from None
        if not isinstance(value, dict):
            raise WebhookError("couldn't get version/kind; json parse error: the answer is not an object")
        return value

    async def send(self, data: bytes) -> bytes:
        """The body of the answer to this JSON, whatever it is. Raises WebhookError; cancelling it closes the connection."""
        pause = self._backoff_s
        for left in reversed(range(TRIES)):
            try:
                return await self._once(data)
            except WebhookError as e:
                if not e.retry or not left:
                    raise
                await self._sleep(max(pause * (1 + JITTER * random.random()), min(e.pause_s, MAX_PAUSE_S)))
                pause *= FACTOR
        raise AssertionError("the last try returns or raises")

    async def _once(self, data: bytes) -> bytes:
        target = self._target
        try:
            async with asyncio.timeout(self._timeout_s):
                connection = await connect(target)
                try:
                    headers = [
                        (b"accept", b"application/json, */*"), (b"content-type", b"application/json"), (b"connection", b"close"),
                        (b"user-agent", f"kas/{__version__}".encode()), *self._backend.headers(),
                    ]  # fmt: skip
                    await connection.send("POST", target, headers, data)
                    await connection.head()
                    answer = await connection.read(MAX_ANSWER + 1)
                    status, retry_after = connection.status, connection.header(b"retry-after")
                finally:
                    connection.close()
        except TimeoutError:
            raise WebhookError(f'Post "{target.url}": context deadline exceeded') from None
        except BackendError as e:
            reset = isinstance(e.__cause__, OSError) and e.__cause__.errno == errno.ECONNRESET
            raise WebhookError(f'Post "{target.url}": {e}', retry=reset) from None
        if not 200 <= status < 300:
            pause = float(retry_after) if retry_after.isdigit() and len(retry_after) < 6 else 0.0
            asked = bool(pause) and (status == 429 or status >= 500)
            raise WebhookError(refusal(status, answer), retry=status in (429, 500, 504) or asked, pause_s=pause if asked else 0.0)
        if len(answer) > MAX_ANSWER:
            raise WebhookError(f"the answer of {target.url} is larger than {MAX_ANSWER} bytes")
        return answer


def refusal(status: int, answer: bytes, text: bool = True) -> str:
    """client-go's error for an answer that is none (``errors.NewGenericServerResponse``). Only an answer that is ``text`` is quoted."""
    try:
        value = orjson.loads(answer)
    except orjson.JSONDecodeError:
        value = None
    if isinstance(value, dict) and value.get("kind") == "Status" and isinstance(value.get("message"), str):
        return value["message"]
    said = (" ".join(answer[:MAX_QUOTED].decode("utf-8", "replace").split()) if text else "") or "unknown"
    if status in _TEXTS:
        return _TEXTS[status] or said
    if status >= 500:
        return f'an error on the server ("{said}") has prevented the request from succeeding'
    return f"the server responded with the status code {status} but did not return more information"
