"""The filter of API Priority and Fairness; its queues are tested in tests/flowcontrol."""

from __future__ import annotations

import asyncio

import pytest

from kas.filters.priority_and_fairness import priority_and_fairness
from kas.request.http import Response
from tests.filters.requests import header, request
from tests.filters.test_handler import make


class Gate:
    """Admits (None), answers itself, or makes the request wait; ``seats`` are those in use."""

    def __init__(self, answer: Response | None = None, later: bool = False) -> None:
        self.answer, self.later, self.seats = answer, later, 0

    def begin(self, req):
        if self.later:
            return self.wait()
        self.seats += self.answer is None
        return self.answer

    async def wait(self):
        await asyncio.sleep(0)
        self.seats += self.answer is None
        return self.answer

    def after(self, req, resp):
        resp.headers.append((b"x-kubernetes-pf-flowschema-uid", b"f"))

    def release(self, req):
        self.seats = 0


def run(gate: Gate, seen: list[int]) -> Response:
    def endpoint(req):
        seen.append(gate.seats)
        return Response(200, [])

    async def go():
        answer = make([priority_and_fairness(gate)], endpoint)(request())
        return answer if isinstance(answer, Response) else await answer

    return asyncio.run(go())


@pytest.mark.parametrize("later", [False, True])
def test_a_request_has_its_seat_while_it_runs(later):
    gate, seen = Gate(later=later), []
    resp = run(gate, seen)
    assert (resp.status, seen, gate.seats) == (200, [1], 0) and header(resp, b"x-kubernetes-pf-flowschema-uid") == [b"f"]


@pytest.mark.parametrize("later", [False, True])
def test_a_refused_request_does_not_run(later):
    gate, seen = Gate(Response(429, []), later), []
    resp = run(gate, seen)
    assert (resp.status, seen, gate.seats) == (429, [], 0) and header(resp, b"x-kubernetes-pf-flowschema-uid") == [b"f"]
