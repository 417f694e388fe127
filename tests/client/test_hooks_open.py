"""Calls to webhooks on a connection that is already open, as nearly all calls are."""

from __future__ import annotations

import asyncio
import sys

import pytest

import kas
from kas.client.hooks import MAX_ANSWER, HookClient, HookError, Shares
from kas.client.kubeconfig import ANONYMOUS, Credentials
from kas.observe import tracing
from tests.client.test_pool import play, until

KAS = kas.__path__[0]  # of the package: the checkout may have the same name
USUAL = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def opened(story, *answers, credentials=ANONYMOUS, room=10):
    """Runs ``story(backend, hook, shares)`` with a hook that has been answered once, USUAL; ``answers`` come after that."""

    async def run(backend, pool, target):
        shares = Shares(room)
        hook = HookClient(target, credentials, shares, "backend", sleep=lambda seconds: asyncio.sleep(0))
        assert await hook.post(b"first", 60.0) == b"ok"
        try:
            return await story(backend, hook, shares)
        finally:
            hook.close()

    return play(run, USUAL, *answers)


def refused(*answers, timeout_s=10.0):
    """Returns the error of a call, how often the backend was connected to after another call was answered, and what is left of the shares.
    """

    async def story(backend, hook, shares):
        with pytest.raises(HookError) as e:
            await hook.post(b"second", timeout_s)
        assert shares.running("backend") == 0
        backend.answers = [USUAL]
        assert await hook.post(b"third", 60.0) == b"ok"
        assert shares.running("backend") == 0
        return str(e.value).partition('": ')[2] or str(e.value), e.value.code, backend.connections

    return opened(story, *answers)


def test_one_connection_serves_successive_calls():
    async def story(backend, hook, shares):
        for n in range(20):
            assert await hook.post(b"x" * n * 10_000, 60.0) == b"ok"
        assert backend.connections == 1 and backend.requests == 21 and shares.running("backend") == 0

    opened(story, USUAL)


def test_a_usual_call_takes_few_functions():
    """Each call of a Python function on the way costs much of the total, when the processor's caches hold other data."""

    async def story(backend, hook, shares):
        await hook.post(b"second", 60.0)
        called = []

        def seen(frame, event, arg):
            if event == "call" and frame.f_code.co_filename.startswith(KAS):
                called.append(frame.f_code.co_qualname)

        sys.setprofile(seen)
        try:
            await hook.post(b"third", 60.0)
        finally:
            sys.setprofile(None)
        assert set(called) == {"HookClient.post"}

    opened(story, USUAL)


def test_a_backend_that_does_not_answer():
    assert refused(b"", timeout_s=0.05) == ("context deadline exceeded", 503, 2)


def test_a_backend_that_never_completes_its_answer():
    assert refused(USUAL[:-1], timeout_s=0.05) == ("context deadline exceeded", 503, 2)


def test_the_earliest_deadline_counts_whatever_the_order():
    async def story(backend, hook, shares):
        late = asyncio.ensure_future(hook.post(b"late", 1000.0))
        await until(lambda: backend.requests == 2)
        with pytest.raises(HookError, match="context deadline exceeded"):
            await hook.post(b"another", 0.05)  # on a connection of its own
        with pytest.raises(HookError, match="context deadline exceeded"):
            await asyncio.gather(hook.post(b"soon", 0.05))
        assert not late.done() and shares.running("backend") == 1
        late.cancel()
        await asyncio.gather(late, return_exceptions=True)
        assert shares.running("backend") == 0 and not hook._pool._idle

    opened(story, b"")


def test_a_waiting_task_continues_in_the_iteration_of_the_answer():
    """Unless another task is running then, which ends its step first."""

    async def story(backend, hook, shares):
        ((_, connection),) = hook._pool._idle
        for at_once in (True, False):
            asked = asyncio.ensure_future(hook.post(b"again", 60.0))
            await until(lambda: asked._fut_waiter is not None)  # noqa: B023
            done = asyncio.get_running_loop().create_future()

            def come():
                connection.data_received(USUAL)
                done.set_result(asked.done())  # noqa: B023

            if at_once:
                asyncio.get_running_loop().call_soon(come)
            else:
                come()
            assert await done == at_once and await asked == b"ok"
            assert shares.running("backend") == 0 and [c for _, c in hook._pool._idle] == [connection]

    opened(story, b"")


def test_a_cancelled_call_closes_its_connection():
    async def story(backend, hook, shares):
        asked = asyncio.ensure_future(hook.post(b"second", 60.0))
        await until(lambda: backend.requests == 2)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        assert shares.running("backend") == 0 and not hook._pool._idle
        backend.answers = [USUAL]
        assert await hook.post(b"third", 60.0) == b"ok" and backend.connections == 2

    opened(story, b"")


@pytest.mark.parametrize(
    ("answer", "said", "code", "connections"),
    [
        (b"HTTP/1.1 500 Oh\r\nContent-Length: 2\r\n\r\nno",
         'an error on the server ("no") has prevented the request from succeeding', 500, 1),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
         "0-length response with status code: 200 and content type: application/json", 503, 1),
        (b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (MAX_ANSWER + 1) + b"x" * (MAX_ANSWER + 1),
         f"the answer is larger than {MAX_ANSWER} bytes", 503, 2),
        (b"HTTP/9 200 OK\r\n\r\n", 'net/http: HTTP/1.x transport connection broken: malformed HTTP version "HTTP/9"', 503, 2),
    ],
)  # fmt: skip
def test_an_unusual_answer(answer, said, code, connections):
    assert refused(answer) == (said, code, connections)


def test_a_backend_that_asks_to_retry():
    async def story(backend, hook, shares):
        assert await hook.post(b"second", 60.0) == b"ok"
        assert backend.requests == 3 and backend.connections == 1 and shares.running("backend") == 0

    opened(story, b"HTTP/1.1 429 Later\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n", USUAL)


def test_retry_after_with_a_successful_answer_is_ignored():
    async def story(backend, hook, shares):
        for _ in range(3):
            assert await hook.post(b"again", 60.0) == b"ok"
        assert backend.requests == 4

    opened(story, b"HTTP/1.1 200 OK\r\nRetry-After: 1\r\nContent-Length: 2\r\n\r\nok")


def test_a_call_without_a_slot_leaves_the_connection_open():
    async def story(backend, hook, shares):
        for _ in range(3):
            assert shares.take("backend")
        with pytest.raises(HookError, match="3 requests are waiting for it already"):
            await hook.post(b"second", 60.0)
        assert len(hook._pool._idle) == 1 and backend.requests == 1
        for _ in range(3):
            shares.give("backend")
        assert await hook.post(b"third", 60.0) == b"ok" and backend.connections == 1

    opened(story, USUAL, room=4)


def test_a_connection_with_other_certificates_is_not_kept():
    async def story(backend, hook, shares):
        asked = asyncio.ensure_future(hook.post(b"second", 60.0))
        await until(lambda: backend.requests == 2)
        hook._pool.renew()
        backend.open[0].write(USUAL)
        assert await asked == b"ok" and not hook._pool._idle

    opened(story, b"")


def test_traces_and_timeouts_are_never_those_of_the_call_before():
    heads: list[bytes] = []

    async def story(backend, hook, shares):
        real = hook._pool.post

        async def post(target, head, body, limit):
            heads.append(head)
            return await real(target, head, body, limit)

        hook._pool = Watched(hook._pool, heads)
        tracing.CURRENT.set(tracing.parse("00-" + "a" * 32 + "-" + "b" * 16 + "-01"))
        for left_s in (10.0, 3.2):
            assert await hook.post(b"x", 10.0, left_s) == b"ok"
        tracing.CURRENT.set(None)
        assert await hook.post(b"x", 10.0, 0.1) == b"ok"

    opened(story, USUAL)
    assert [b"traceparent" in head for head in heads] == [True, True, False]
    assert [head.partition(b"timeout=")[2].partition(b"s")[0] for head in heads] == [b"10", b"4", b"1"]


class Watched:
    """A pool that records the heads that are sent."""

    generation = 0

    def __init__(self, pool, heads):
        self._pool, self._heads = pool, heads

    async def post(self, target, head, body, limit):
        self._heads.append(head)
        return await self._pool.post(target, head, body, limit)

    def close(self):
        self._pool.close()


def test_a_token_file_is_read_for_each_call(tmp_path):
    token, now = tmp_path / "token", [0.0]
    token.write_text("one")
    heads: list[bytes] = []

    async def story(backend, hook, shares):
        hook._pool = Watched(hook._pool, heads)
        token.write_text("two")
        now[0] += 1000.0
        assert await hook.post(b"x", 60.0) == b"ok"

    credentials = Credentials(token_file=str(token))
    credentials.clock = lambda: now[0]
    opened(story, USUAL, credentials=credentials)
    assert b"Bearer two" in heads[0]
