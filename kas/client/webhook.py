"""POSTs JSON to a backend, with retries: upstream's ``apiserver/pkg/util/webhook`` for the webhooks of a configuration file.

Connections stay open between calls; each try has 30 s; redirects are not followed. There are at most five tries: for
connections that were reset, 429, 500, 504 and responses with Retry-After, or after any failure (``persistent``). The
pause grows by half each time. Client and backend authenticate each other as the kubeconfig says. The response is
bounded.
"""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Any, TypeVar

import orjson

from kas import __version__
from kas.client.http import BackendError, Target, Via, request_error, request_head, retry_after_s
from kas.client.kubeconfig import Backend
from kas.client.pool import Pool
from kas.meta.responses import generic_server_response
from kas.meta.scalars import format_duration
from kas.observe import tracing

T = TypeVar("T")
TIMEOUT_S = 30.0
TRIES, FACTOR, JITTER = 5, 1.5, 0.2
MAX_ANSWER = 256 << 10
MAX_QUOTED = 2048  # of a response in an error
MAX_PAUSE_S = 30.0  # that a backend may ask for


class WebhookError(Exception):
    """There is no usable response. ``retry``: another try may help; ``pause_s``: how long the backend wants us to
    wait; ``timed_out``: there was no response in time."""

    def __init__(self, message: str, retry: bool = False, pause_s: float = 0.0, timed_out: bool = False) -> None:
        super().__init__(message)
        self.retry, self.pause_s, self.timed_out = retry, pause_s, timed_out


class Webhook:
    """One backend. ``backoff_s`` is the first pause between two tries. ``tried`` is called after each try with its
    result (success, error, timeout or canceled) and its duration in seconds. ``via`` is how to reach the backend if
    the kubeconfig names no proxy. ``persistent``: any failure is worth another try."""

    def __init__(
        self, backend: Backend, backoff_s: float, timeout_s: float = TIMEOUT_S, sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
        via: Via | None = None, persistent: bool = False,
    ) -> None:  # fmt: skip
        self._pool, self._persistent = Pool(), persistent
        self.tried: Callable[[str, float], None] = lambda result, seconds: None
        query, timeout = backend.target.query, f"timeout={format_duration(round(timeout_s * 10**9))}"
        self._target = backend.target._replace(query=f"{query}&{timeout}" if query else timeout, via=backend.target.via or via)
        self._backend, self._backoff_s, self._timeout_s, self._sleep = backend, backoff_s, timeout_s, sleep

    async def post(self, body: dict[str, Any]) -> dict[str, Any]:
        """Returns the response's JSON object. Raises WebhookError; cancelling it closes the connection."""
        return await self.send(orjson.dumps(body), _object)

    async def send(self, data: bytes, read: Callable[[bytes], T]) -> T:
        """POSTs JSON and returns ``read(body)`` of the response. Raises WebhookError, as ``read`` may; cancelling it
        closes the connection."""
        pause = self._backoff_s
        for left in reversed(range(TRIES)):
            began, result = perf_counter(), "canceled"
            try:
                answer = read(await self._once(data))
                result = "success"
                return answer
            except WebhookError as e:
                result = "timeout" if e.timed_out else "error"
                if not (e.retry or self._persistent) or not left:
                    raise
                wait = max(pause * (1 + JITTER * random.random()), min(e.pause_s, MAX_PAUSE_S))
            finally:
                self.tried(result, perf_counter() - began)
            await self._sleep(wait)
            pause *= FACTOR
        raise AssertionError("the last try returns or raises")

    def close(self) -> None:
        """Closes the idle connections; those in use close when they are done."""
        self._pool.close()

    def _secured(self) -> Target:
        """The target, with TLS according to the current content of the kubeconfig's files."""
        if self._backend.tls is not None and (tls := self._backend.tls.context()) is not self._target.tls:
            self._target = self._target._replace(tls=tls)
            self._pool.renew()
        return self._target

    async def _once(self, data: bytes) -> bytes:
        target = self._secured()
        try:
            async with asyncio.timeout(self._timeout_s):
                headers = [
                    (b"accept", b"application/json, */*"), (b"content-type", b"application/json"),
                    (b"user-agent", f"kas/{__version__}".encode()), *self._backend.headers(),
                ]  # fmt: skip
                trace = tracing.outgoing()
                if trace:
                    headers.append((b"traceparent", trace.encode()))
                found = await self._pool.post(target, request_head("POST", target, headers), data, MAX_ANSWER)
                status, retry_after, answer = found.status, found.retry_after, found.body
        except TimeoutError:
            raise WebhookError(f'Post "{target.url}": context deadline exceeded', timed_out=True) from None
        except BackendError as e:
            reset = isinstance(e.__cause__, OSError) and e.__cause__.errno == errno.ECONNRESET
            raise WebhookError(request_error("Post", target.url, e), retry=reset) from None
        if not 200 <= status < 300:
            if status == 401:
                self._backend.credentials.refused()
            pause = retry_after_s(retry_after) or 0
            asked = bool(pause) and (status == 429 or status >= 500)
            raise WebhookError(refusal(status, answer), status in (429, 500, 504) or asked, pause if asked else 0, status == 504)
        if len(answer) > MAX_ANSWER:
            raise WebhookError(f"the answer of {target.url} is larger than {MAX_ANSWER} bytes")
        return answer


def _object(answer: bytes) -> dict[str, Any]:
    try:
        value = orjson.loads(answer)
    except orjson.JSONDecodeError as e:
        raise WebhookError(f"couldn't get version/kind; json parse error: {e}") from None
    if not isinstance(value, dict):
        raise WebhookError("couldn't get version/kind; json parse error: the answer is not an object")
    return value


def refusal(status: int, answer: bytes, text: bool = True) -> str:
    """client-go's error for an unsuccessful response (``errors.NewGenericServerResponse``). It is only quoted if it is ``text``."""
    try:
        value = orjson.loads(answer)
    except orjson.JSONDecodeError:
        value = None
    if isinstance(value, dict) and (value.get("kind"), value.get("status")) == ("Status", "Failure"):
        message = value.get("message") or ""
        if isinstance(message, str):
            return message
    said = answer[:MAX_QUOTED].decode("utf-8", "replace").strip() if text else "unknown"
    return generic_server_response(status, said)[1]
