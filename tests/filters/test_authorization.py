"""The authorization filter: who passes, what the others are told, and what is counted."""

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
    """An authorizer with one answer, which it gives later where ``later``; ``asked`` are the questions."""

    def __init__(self, decision: int, reason: str = "", later: bool = False) -> None:
        self.outcome, self.later, self.asked = (decision, reason, ""), later, []

    def authorize(self, a):
        self.asked.append(a)
        return self.wait() if self.later else self.outcome

    async def wait(self):
        await asyncio.sleep(0)
        return self.outcome


def run(says: Says, req):
    """(the filter's answer, the decisions that were counted)."""
    metrics = Registry()
    answer = authorization(says, metrics).before(req)
    assert says.later is (answer is not None and asyncio.iscoroutine(answer))
    if says.later:
        answer = asyncio.run(_of(answer))
    return answer, metrics.metrics["apiserver_authorization_decisions_total"].values


async def _of(waiting):
    return await waiting


@pytest.mark.parametrize("later", [False, True])
def test_what_is_allowed_passes(later):
    says = Says(ALLOW, later=later)
    assert run(says, request("DELETE", "/api/v1/namespaces/a/pods/b")) == (None, {("allowed",): 1})
    (a,) = says.asked
    assert (a.user.name, a.verb, a.namespace, a.resource, a.name) == ("jane", "delete", "a", "pods", "b")


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("decision", [NO_OPINION, DENY])
def test_anything_else_is_403_with_the_reason(decision, later):
    answer, counted = run(Says(decision, "because", later), request("GET", "/api/v1/namespaces/a/pods/b"))
    body = json.loads(answer.body)
    assert (answer.status, body["reason"], body["details"]) == (403, "Forbidden", {"name": "b", "kind": "pods"})
    assert body["message"] == (
        'pods "b" is forbidden: User "jane" cannot get resource "pods" in API group "" in the namespace "a": because'
    )
    assert counted == {("denied",): 1}


def test_paths_that_are_no_resources_are_asked_about_too():
    answer, _ = run(Says(NO_OPINION), request("GET", "/metrics"))
    assert answer.status == 403 and json.loads(answer.body)["message"] == 'forbidden: User "jane" cannot get path "/metrics"'


def test_masters_and_the_read_only_port_are_not_asked_about():
    says = Says(DENY)
    req = request()
    req.user = UserInfo("admin", ("system:masters",))
    assert run(says, req) == (None, {("allowed",): 1})
    req = request()
    req.read_only_port = True
    assert run(says, req) == (None, {("allowed",): 1})
    assert says.asked == []
