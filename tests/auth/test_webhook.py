"""The webhook authorizer: its requests, how it reads responses, and its cache."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest

from kas.auth.attributes import ALLOW, DENY, NO_OPINION, Attributes, attributes_of
from kas.auth.authz import webhook as module
from kas.auth.authz.matchconditions import compiled
from kas.auth.authz.webhook import BOTH, MAX_REMEMBERED, Metrics, WebhookAuthorizer
from kas.auth.user import UserInfo
from kas.client.kubeconfig import load
from kas.client.webhook import Webhook
from kas.observe.logs import MOST
from kas.observe.metrics import Registry
from tests.admission.policy_backend import Answer, PolicyBackend, kubeconfig
from tests.filters.requests import request

JANE = UserInfo("jane", ("dev", "system:authenticated"), "u-1", {"scope/b": ["2"], "a": ["1", "x"]})


def question(**more: Any) -> Attributes:
    return Attributes(**{"user": JANE, "verb": "get", "namespace": "n", "api_version": "v1", "resource": "pods", "name": "p", **more})


def answer(api_version: str = "authorization.k8s.io/v1", **status: Any) -> Answer:
    return 200, {}, json.dumps({"apiVersion": api_version, "kind": "SubjectAccessReview", "status": status}).encode()


class Asking:
    """Returns an authorizer of the webhook at ``backend``; ``more`` are further arguments of the constructor."""

    def __init__(self, tmp_path, backend: PolicyBackend, timeout_s: float = 60.0, **more: Any) -> None:
        async def no_pause(seconds: float) -> None:
            pass

        self.backend, self.now, self.registry = backend, 0.0, Registry()
        webhook = Webhook(load(kubeconfig(tmp_path / "hook", backend.url)), 0.01, timeout_s, no_pause)
        settings = {"name": "hook", "version": "v1", "ttls": (300.0, 30.0), "on_error": NO_OPINION, **more}
        self.authorizer = WebhookAuthorizer(webhook=webhook, metrics=Metrics(self.registry), clock=lambda: self.now, **settings)

    def __call__(self, *questions: Attributes) -> list[tuple[int, str, str]]:
        async def run() -> list[tuple[int, str, str]]:
            out = []
            for a in questions:
                outcome = self.authorizer.authorize(a)
                out.append(outcome if isinstance(outcome, tuple) else await outcome)
            self.authorizer.close()
            return out

        return asyncio.run(run())

    def asked(self) -> list[dict]:
        return [seen["body"] for seen in self.backend.seen]

    def counted(self, name: str) -> dict:
        return self.registry.metrics[f"apiserver_authorization_{name}"].values


@pytest.fixture
def backend():
    with PolicyBackend() as running:
        running.answers = lambda asked: answer(allowed=True, reason="yes")
        yield running


def test_the_review_that_is_sent(tmp_path, backend):
    ask = Asking(tmp_path, backend, timeout_s=60)
    assert ask(question(api_group="apps", subresource="scale"), question(resource_request=False, path="/x", user=UserInfo("bob")))
    assert [seen["path"] for seen in backend.seen] == ["/?timeout=1m0s"] * 2
    first, second = ask.asked()
    assert first == {
        "kind": "SubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "metadata": {}, "status": {"allowed": False},
        "spec": {
            "resourceAttributes": {
                "namespace": "n", "verb": "get", "group": "apps", "version": "v1", "resource": "pods", "subresource": "scale", "name": "p",
            },
            "user": "jane", "groups": ["dev", "system:authenticated"], "extra": {"a": ["1", "x"], "scope/b": ["2"]}, "uid": "u-1",
        },
    }  # fmt: skip
    assert second["spec"] == {"nonResourceAttributes": {"path": "/x", "verb": "get"}, "user": "bob"}


def test_selectors_of_lists(tmp_path, backend):
    query = "labelSelector=a%3Db,c%20in%20(d,e),f!%3Dg,!h,i,j%3E3&fieldSelector=spec.nodeName%3Dn1,metadata.name!%3Dx"
    req = request("GET", "/api/v1/namespaces/n/pods", query)
    ask = Asking(tmp_path, backend)
    ask(attributes_of(req), attributes_of(request("GET", "/api/v1/namespaces/n/pods", "labelSelector=%2Fbad%3D")))
    first, second = (review["spec"]["resourceAttributes"] for review in ask.asked())
    assert first["fieldSelector"] == {"requirements": [
        {"key": "metadata.name", "operator": "NotIn", "values": ["x"]},
        {"key": "spec.nodeName", "operator": "In", "values": ["n1"]},
    ]}  # fmt: skip
    labels = {r["key"]: (r["operator"], r.get("values")) for r in first["labelSelector"]["requirements"]}
    assert labels == {
        "a": ("In", ["b"]), "c": ("In", ["d", "e"]), "f": ("NotIn", ["g"]), "h": ("DoesNotExist", None), "i": ("Exists", None),
    }  # fmt: skip
    assert "labelSelector" not in second


def test_version_v1beta1_calls_groups_group(tmp_path, backend):
    backend.answers = lambda asked: answer("authorization.k8s.io/v1beta1", allowed=True)
    ask = Asking(tmp_path, backend, version="v1beta1")
    assert ask(question()) == [(ALLOW, "", "")]
    (review,) = ask.asked()
    assert review["apiVersion"] == "authorization.k8s.io/v1beta1"
    assert review["spec"]["group"] == ["dev", "system:authenticated"] and "groups" not in review["spec"]


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        ({"allowed": True, "reason": "r"}, (ALLOW, "r", "")),
        ({"allowed": False, "denied": True, "reason": "r"}, (DENY, "r", "")),
        ({"allowed": False, "reason": "r"}, (NO_OPINION, "r", "")),
        ({"allowed": False, "evaluationError": "bad things"}, (NO_OPINION, "", "")),
        ({"allowed": True, "denied": True}, (DENY, "", BOTH)),
        ({}, (NO_OPINION, "", "")),
    ],
)
def test_decisions_by_response(tmp_path, backend, status, outcome):
    backend.answers = lambda asked: answer(**status)
    assert Asking(tmp_path, backend)(question()) == [outcome]


REDIRECT = (307, {"Location": "https://127.0.0.1:1/"}, b"")


@pytest.mark.parametrize("on_error", [DENY, NO_OPINION])
@pytest.mark.parametrize(
    ("said", "why", "tries"),
    [
        ((500, {}, b"boom"), 'an error on the server ("boom") has prevented the request from succeeding', 5),
        ((403, {}, b"no"), "no", 1),
        (REDIRECT, "the server responded with the status code 307 but did not return more information", 1),
        ((200, {}, b"<html>"), "couldn't get version/kind; json parse error: json: cannot unmarshal string into Go value", 1),
        ((200, {}, b""), "0-length response with status code: 200", 1),
        ((200, {}, b"[]"), "couldn't get version/kind; json parse error: json: cannot unmarshal array", 1),
        ((200, {}, b'{"status":{"allowed":"true"}}'), "json: cannot unmarshal string into Go", 1),
        ((200, {}, b'{"apiVersion":"v1","kind":"Pod"}'), 'no kind "Pod" is registered for version "v1"', 1),
        ((200, {}, b'{"status":{"allowed":true}}' + b" " * (10 << 20)), "larger than 262144 bytes", 1),
    ],
)
def test_invalid_responses_follow_the_failure_policy(tmp_path, backend, said, why, tries, on_error):
    backend.answers = lambda asked: said
    ask = Asking(tmp_path, backend, on_error=on_error)
    ((decision, reason, error),) = ask(question())
    assert (decision, reason) == (on_error, "") and why in error and len(backend.seen) == tries
    assert ask.counted("webhook_evaluations_total") == {("hook", "error"): tries}
    assert ask.counted("webhook_evaluations_fail_open_total") == ({("hook", "error"): 1} if on_error == NO_OPINION else {})
    # An invalid response is not cached.
    backend.answers = lambda asked: answer(allowed=True)
    assert ask(question())[0][0] == ALLOW


def test_slow_match_conditions_are_evaluated_off_the_loop(tmp_path, backend):
    """The client chooses the length of the lists that an operator's expressions walk."""
    heavy, where = compiled(["request.groups.all(x, request.groups.all(y, x + y != 'zz'))"], "")[0], []

    class Watched:
        def match(self, spec):
            verdict = heavy.match(spec)
            where.append(threading.current_thread())
            return verdict

    ask = Asking(tmp_path, backend, conditions=Watched())
    here = threading.current_thread()
    assert ask(question())[0][0] == ALLOW and where == [here]
    assert ask(question(user=UserInfo("bob", tuple(f"g{i}" for i in range(150)))))[0][0] == ALLOW
    assert len(where) == 2 and where[1] is not here
    durations = ask.registry.metrics["apiserver_authorization_match_condition_evaluation_seconds"]
    assert sum(durations.values[("Webhook", "hook")][:-1]) == 2


def test_a_webhook_that_is_down_or_slow(tmp_path, backend):
    ask, over = Asking(tmp_path, backend, timeout_s=0.2), threading.Event()
    backend.answers = lambda asked: over.wait(60) and answer(allowed=True)
    ((decision, _, error),) = ask(question())
    over.set()
    assert decision == NO_OPINION and error.endswith("context deadline exceeded")
    assert ask.counted("webhook_evaluations_total") == {("hook", "timeout"): 1}
    assert ask.counted("webhook_evaluations_fail_open_total") == {("hook", "timeout"): 1}
    (took,) = ask.counted("webhook_duration_seconds").items()
    assert took[0] == ("hook", "timeout") and sum(took[1][:-1]) == 1 and took[1][-1] >= 0.2  # the last is their sum
    with PolicyBackend() as gone:
        pass
    ((decision, _, error),) = Asking(tmp_path, gone)(question())
    assert decision == NO_OPINION and "connection refused" in error


def test_a_webhook_that_is_down_does_not_fill_the_log(tmp_path, caplog):
    """Each request caused a line of its own: as many as clients sent."""
    with PolicyBackend() as gone:
        pass
    ask = Asking(tmp_path, gone)
    ask(*(question(name=f"p{i}") for i in range(MOST + 20)))
    assert len(caplog.messages) == MOST and "connection refused" in caplog.messages[0]
    ask.now += 1
    ask(question(name="later"))
    assert caplog.messages[MOST:] == ["20 more webhook authorizer requests failed", caplog.messages[0]]


def test_decisions_are_cached_for_their_time(tmp_path, backend):
    ask = Asking(tmp_path, backend)
    assert ask(question(), question(), question(name="q"))[1] == (ALLOW, "yes", "")
    assert len(backend.seen) == 2
    ask.now = 299.0
    ask(question())
    assert len(backend.seen) == 2
    ask.now = 301.0
    backend.answers = lambda asked: answer(allowed=False)
    assert ask(question(), question()) == [(NO_OPINION, "", "")] * 2
    assert len(backend.seen) == 3
    ask.now = 332.0
    ask(question())
    assert len(backend.seen) == 4


@pytest.mark.parametrize("a", [question(user=UserInfo("jane")), question(user=UserInfo("jane", ("dev",), "u-2")), question(verb="list")])
def test_another_request_is_not_answered_from_the_cache(tmp_path, backend, a):
    ask = Asking(tmp_path, backend)
    ask(question(), a)
    assert len(backend.seen) == 2


def test_responses_that_are_not_cached(tmp_path, backend):
    long = question(name="x" * MAX_REMEMBERED)
    ask = Asking(tmp_path, backend)
    ask(long, long)
    assert len(backend.seen) == 2
    none = Asking(tmp_path, backend, ttls=(0.0, 0.0))
    none(question(), question())
    assert len(backend.seen) == 4
    backend.answers = lambda asked: answer(allowed=True, reason="r" * 5000)
    wordy = Asking(tmp_path, backend)
    wordy(question(), question())
    assert len(backend.seen) == 6


def test_match_conditions_decide_without_a_request(tmp_path, backend):
    texts = ["has(request.resourceAttributes)", "request.resourceAttributes.namespace != 'kube-system'"]
    ask = Asking(tmp_path, backend, conditions=compiled(texts, "")[0])
    assert ask(question(namespace="kube-system"), question(resource_request=False, path="/x")) == [(NO_OPINION, "", "")] * 2
    assert backend.seen == [] and ask.counted("match_condition_exclusions_total") == {("Webhook", "hook"): 2}
    assert ask(question())[0][0] == ALLOW


@pytest.mark.parametrize("on_error", [DENY, NO_OPINION])
def test_a_failing_match_condition_is_treated_as_a_failing_webhook(tmp_path, backend, on_error):
    ask = Asking(tmp_path, backend, on_error=on_error, conditions=compiled(["request.resourceAttributes.namespace == 'n'"], "")[0])
    ((decision, _, error),) = ask(question(resource_request=False, path="/x"))
    assert decision == on_error and error.startswith("cel evaluation error: expression 'request.resourceAttributes.namespace == 'n''")
    assert backend.seen == [] and ask.counted("match_condition_evaluation_errors_total") == {("Webhook", "hook"): 1}


def test_rules_cannot_be_listed(tmp_path, backend):
    assert Asking(tmp_path, backend).authorizer.rules_for(JANE, "n") == (
        [], [], True, "webhook authorizer does not support user rule resolution"
    )  # fmt: skip


@pytest.mark.parametrize("terms", [3, 3000])
def test_long_selectors_are_parsed_off_the_loop(tmp_path, backend, monkeypatch, terms):
    """Any client may send 240 kB of them, with or without a credential."""
    threads, spec_of = [], module.spec_of
    monkeypatch.setattr(module, "spec_of", lambda a: threads.append(threading.get_ident()) or spec_of(a))
    ask = Asking(tmp_path, backend)
    query = "labelSelector=" + ",".join(f"k{i}" for i in range(terms))
    assert ask(attributes_of(request("GET", "/api/v1/namespaces/n/pods", query))) == [(ALLOW, "yes", "")]
    (asked,) = ask.asked()
    assert len(asked["spec"]["resourceAttributes"]["labelSelector"]["requirements"]) == terms
    assert (threads == [threading.get_ident()]) == (terms == 3) and len(threads) == 1
