"""The chain itself: order, refusals, and what is released when a client disconnects."""

from __future__ import annotations

import asyncio
import threading

import pytest

from kas.filters.handler import Chain, Filter
from kas.meta.deadlines import Deadlines
from kas.meta.errors import ApiError, bad_request
from kas.meta.offload import LARGE
from kas.request.http import Request, Response


def make(filters, endpoint, timeout_s: float = 5.0) -> Chain:
    def deadline(req):
        req.deadline = req.started + timeout_s

    return Chain(
        [Filter("recovery", recover=lambda req, e: Response(500, [], type(e).__name__.encode())), Filter("deadline", deadline), *filters],
        endpoint,
        lambda req, e: Response(e.code, [], e.message.encode()),
        lambda e: ApiError(507, "Full", "full") if isinstance(e, OSError) else None,
        Deadlines(),
        lambda req: Response(504, [], b"late"),
    )


def tracing(log: list[str], *names: str) -> list[Filter]:
    def one(name: str) -> Filter:
        return Filter(name, lambda req: log.append(f"+{name}"), lambda req, resp: log.append(f"-{name}"))

    return [one(n) for n in names]


def get(path: str = "/") -> Request:
    return Request("GET", path, "", [])


def test_before_runs_outermost_first_and_after_innermost_first():
    log: list[str] = []
    chain = make(tracing(log, "a", "b"), lambda req: Response(200, []))
    assert chain(get()).status == 200
    assert log == ["+a", "+b", "-b", "-a"]


def test_a_refusal_ends_the_way_in_and_passes_every_after():
    log: list[str] = []

    def refuse(req):
        raise bad_request("no")

    chain = make([*tracing(log, "a"), Filter("no", refuse), *tracing(log, "b")], lambda req: Response(200, []))
    resp = chain(get())
    assert (resp.status, resp.body) == (400, b"no")
    assert log == ["+a", "-b", "-a"]


def test_a_panic_is_answered_500_and_a_store_error_is_translated():
    def bug(req):
        raise KeyError("x")

    def full(req):
        raise OSError("disk")

    assert make([], bug)(get()).status == 500
    assert make([], full)(get()).status == 507


def test_an_endpoint_may_answer_later():
    log: list[str] = []

    async def later(req):
        await asyncio.sleep(0)
        return Response(201, [])

    chain = make(tracing(log, "a"), later)
    assert asyncio.run(_await(chain, get())).status == 201
    assert log == ["+a", "-a"]


async def _await(chain, req):
    return await chain(req)


@pytest.mark.parametrize("where", ["filter", "endpoint"])
def test_a_long_refusal_is_encoded_off_the_loop(where):
    """An invalid kind of 2.9 MB is quoted twice: 5.8 MB of JSON, 12 to 25 ms of the loop."""

    async def refuse(req):
        await asyncio.sleep(0)
        raise bad_request("k" * LARGE if req.path == "/long" else "k")

    log: list[str] = []
    filters = [*tracing(log, "a"), *([Filter("no", refuse)] if where == "filter" else [])]  # type: ignore[list-item]
    chain = make(filters, refuse)
    written, refused = list[int](), chain._refuse

    def refusing(req: Request, e: ApiError) -> Response:
        written.append(threading.get_ident())
        return refused(req, e)

    chain._refuse = refusing
    assert asyncio.run(_await(chain, get())).status == 400
    assert asyncio.run(_await(chain, get("/long"))).body == b"k" * LARGE
    assert written[0] == threading.get_ident() != written[1]
    assert log == ["+a", "-a"] * 2


def test_the_deadline_answers_504_but_not_for_long_running_requests():
    async def slow(req):
        await asyncio.sleep(0.05 if req.long_running else 60)
        return Response(200, [])

    chain = make([], slow, timeout_s=0.001)
    assert asyncio.run(_await(chain, get())).status == 504
    req = get()
    req.long_running = True
    assert asyncio.run(_await(chain, req)).status == 200


def test_a_streams_resources_are_released_at_its_end():
    log: list[str] = []

    async def stream(write):
        await write(b"x")

    held = Filter("a", lambda req: log.append("+a"), lambda req, resp: log.append("-a"), lambda req: log.append("released"))
    chain = make([held], lambda req: Response(200, [], stream=stream))
    resp = chain(get())
    assert log == ["+a", "-a"]
    resp.finish()
    assert log == ["+a", "-a", "released"]

    whole = make([held], lambda req: Response(200, []))(get())
    assert whole.finish is None and log[3:] == ["+a", "-a", "released"]


def test_resources_are_released_when_the_client_disconnects():
    log: list[str] = []

    async def never(req):
        await asyncio.Event().wait()

    async def run():
        task = asyncio.ensure_future(make(tracing(log, "a"), never)(get()))
        await asyncio.sleep(0)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            return True
        return False

    assert asyncio.run(run())
    assert log == ["+a", "-a"]
