"""``authorizer`` in expressions: each call becomes part of the authorization check."""

from __future__ import annotations

import pytest

from kas import cel
from kas.admission.celauthorizer import AuthorizerValue
from kas.auth.attributes import ALLOW, DENY, NO_OPINION
from kas.auth.user import UserInfo
from kas.cel.admission import environment
from tests.admission.admission_fakes import Request


class Asked:
    def __init__(self, outcome=(ALLOW, "because", "")):
        self.outcome, self.questions = outcome, []

    def authorize(self, question):
        self.questions.append(question)
        return self.outcome


def evaluate(text, asked):
    value = AuthorizerValue(asked, UserInfo("jane"))
    return cel.compile(text, environment(False)).run({"authorizer": value})[0]


def test_a_resource():
    asked = Asked()
    resource = "authorizer.group('g').resource('r').subresource('s').namespace('n').name('x')"
    assert evaluate(f"{resource}.fieldSelector('a=b').labelSelector('c').check('get').allowed()", asked) is True
    (q,) = asked.questions
    assert (q.user.name, q.verb, q.api_group, q.api_version, q.resource) == ("jane", "get", "g", "*", "r")
    assert (q.subresource, q.namespace, q.name, q.resource_request) == ("s", "n", "x", True)
    assert len(q.field_requirements) == len(q.label_requirements) == 1


@pytest.mark.parametrize(("resource", "namespace", "asked_in"), [("namespaces", "", "n"), ("nodes", "", ""), ("pods", "a", "a")])
def test_the_requests_resource(resource, namespace, asked_in):
    """A Namespace counts as in itself, as its request is authorized."""
    asked = Asked()
    about = Request(resource=resource, kind="K", namespace=namespace, name="n").attributes
    AuthorizerValue(asked, UserInfo("jane")).request_resource(about).cel_check("update")
    assert (asked.questions[0].namespace, asked.questions[0].name, asked.questions[0].resource) == (asked_in, "n", resource)


@pytest.mark.parametrize("selector", ["fieldSelector", "labelSelector"])
def test_the_cost_of_a_selector(selector):
    """It may have a requirement for every two of its 62 characters: 1 + 1 + 1 for what is before, 10 + 7 + 31 * 50 for it."""
    text = f"authorizer.group('').resource('pods').{selector}('{'a' * 62}')"
    program = cel.compile(text, environment(False))
    assert program.run({"authorizer": AuthorizerValue(Asked(), UserInfo("jane"))})[1] == 1570
    assert program.estimate(lambda path, type: None) == (1570, 1570)


def test_invalid_selectors_are_reported():
    asked = Asked()
    evaluate("authorizer.group('').resource('r').fieldSelector('a').labelSelector('!!').check('list').allowed()", asked)
    assert asked.questions[0].field_error and asked.questions[0].label_error


def test_paths_and_service_accounts():
    asked = Asked()
    assert evaluate("authorizer.serviceAccount('n', 'sa').path('/x').check('get').reason()", asked) == "because"
    (q,) = asked.questions
    assert (q.user.name, q.path, q.verb, q.resource_request) == ("system:serviceaccount:n:sa", "/x", "get", False)
    assert q.user.groups == ("system:serviceaccounts", "system:serviceaccounts:n", "system:authenticated")


@pytest.mark.parametrize(("outcome", "allowed", "errored", "error"), [
    ((ALLOW, "", ""), True, False, ""), ((DENY, "", ""), False, False, ""), ((NO_OPINION, "", "broken"), False, True, "broken"),
])  # fmt: skip
def test_decisions(outcome, allowed, errored, error):
    check = "authorizer.path('/x').check('get')"
    got = [evaluate(f"{check}.{part}()", Asked(outcome)) for part in ("allowed", "errored", "error")]
    assert got == [allowed, errored, error]


@pytest.mark.parametrize(("text", "says"), [
    ("authorizer.path('').check('get')", "path must not be empty"), ("authorizer.group('').resource('').check('get')", "must not be empty"),
    ("authorizer.serviceAccount('N', 'sa').path('/').check('get')", "Invalid service account namespace"),
    ("authorizer.serviceAccount('n', 'S').path('/').check('get')", "Invalid service account name"),
])  # fmt: skip
def test_invalid_checks(text, says):
    asked = Asked()
    found = evaluate(f"{text}.allowed()", asked)
    assert says in str(found) and not asked.questions


def test_a_check_is_made_once():
    asked = Asked()
    check = "authorizer.path('/x').check('get').allowed()"
    assert evaluate(f"{check} && {check}", asked) is True and len(asked.questions) == 1
