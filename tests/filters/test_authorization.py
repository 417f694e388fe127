"""The authorization filter: which requests pass, and the text of refusals."""

from __future__ import annotations

import asyncio
import json

import pytest

from kas.auth.attributes import ALLOW, DENY, NO_OPINION
from kas.auth.user import UserInfo
from kas.filters.authorization import authorization
from kas.observe.metrics import Registry
from tests.filters.requests import request


class Says:
    """An authorizer with one answer, given later with ``later``; ``asked`` has the attributes."""

    def __init__(self, decision: int, reason: str = "", later: bool = False, error: str = "") -> None:
        self.outcome, self.later, self.asked = (decision, reason, error), later, []

    def authorize(self, a):
        self.asked.append(a)
        return self.wait() if self.later else self.outcome

    async def wait(self):
        await asyncio.sleep(0)
        return self.outcome


def run(says: Says, req):
    """Returns the filter's answer."""
    answer = authorization(says, Registry()).before(req)
    assert says.later is (answer is not None and asyncio.iscoroutine(answer))
    if says.later:
        answer = asyncio.run(_of(answer))
    return answer


async def _of(waiting):
    return await waiting


@pytest.mark.parametrize("later", [False, True])
def test_allowed_requests_pass(later):
    says = Says(ALLOW, later=later)
    assert run(says, request("DELETE", "/api/v1/namespaces/a/pods/b")) is None
    (a,) = says.asked
    assert (a.user.name, a.verb, a.namespace, a.resource, a.name) == ("jane", "delete", "a", "pods", "b")


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("decision", [NO_OPINION, DENY])
def test_other_requests_are_403_with_the_reason(decision, later):
    answer = run(Says(decision, "because", later), request("GET", "/api/v1/namespaces/a/pods/b"))
    body = json.loads(answer.body)
    assert (answer.status, body["reason"], body["details"]) == (403, "Forbidden", {"name": "b", "kind": "pods"})
    assert (b"x-content-type-options", b"nosniff") in answer.headers
    assert body["message"] == (
        'pods "b" is forbidden: User "jane" cannot get resource "pods" in API group "" in the namespace "a": because'
    )


def test_non_resource_paths_are_authorized_too():
    answer = run(Says(NO_OPINION), request("GET", "/metrics"))
    assert answer.status == 403 and json.loads(answer.body)["message"] == 'forbidden: User "jane" cannot get path "/metrics"'


def test_masters_and_the_read_only_port_are_not_authorized():
    says = Says(DENY)
    req = request()
    req.user = UserInfo("admin", ("system:masters",))
    assert run(says, req) is None
    req = request()
    req.read_only_port = True
    assert run(says, req) is None
    assert says.asked == []


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("decision", [NO_OPINION, DENY])
def test_an_authorizer_error_is_a_500(decision, later):
    answer = run(Says(decision, "because", later, "no <answer>"), request("GET", "/api/v1/namespaces/a/pods/b"))
    assert (answer.status, dict(answer.headers)[b"content-type"]) == (500, b"text/plain; charset=utf-8")
    assert answer.body == b'Internal Server Error: "/api/v1/namespaces/a/pods/b": no &lt;answer&gt;\n'


def test_an_error_beside_a_permission_is_ignored():
    assert run(Says(ALLOW, error="one of them failed"), request()) is None
