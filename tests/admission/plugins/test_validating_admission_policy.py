"""Validations, what they see, and the effect of errors."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from types import SimpleNamespace

import pytest

from kas.admission import expressions, matching
from kas.admission.plugins import validating_admission_policy as module
from kas.admission.policy import compiled, params, policies
from kas.auth.attributes import ALLOW
from kas.auth.user import UserInfo
from kas.meta import waiting
from kas.meta.offload import POOL
from kas.meta.selectors import from_label_selector
from kas.registry.versions import Family
from kas.types.scheme import BUILTIN
from tests.admission.admission_fakes import refused, turns_beside
from tests.admission.policy_objects import Governed
from tests.admission.webhook.hook_server import rule
from tests.linecount import executed_lines


@pytest.fixture
def governed(server):
    for kind, resource in (("ConfigMap", "configmaps"), ("Namespace", "namespaces")):
        server.kinds["", "v1", kind] = [BUILTIN.resource("", "v1", resource)]
    return Governed(server, module, "validating")


def failing(**more):
    return [{"expression": "false", "message": "never", **more}]


def test_nothing_is_evaluated_without_a_policy_and_a_binding(governed):
    request = governed.request()

    def asked() -> list[int]:
        """Returns how many plug-ins would mutate, and validate."""
        return [len(steps) for steps, _ in request.chain._plan(request.attributes)]

    assert asked() == [0, 0]
    governed.policy(validations=failing())
    assert asked() == [0, 0]
    governed.bind(matchResources={"resourceRules": [rule("pods")]})
    assert asked() == [0, 0]
    governed.bind()
    assert asked() == [0, 1]
    governed.drop("admissionpolicies", "p")
    assert asked() == [0, 0]


@pytest.mark.parametrize(("reason", "code", "shown"), [
    (None, 422, "Invalid"), ("Forbidden", 403, "Forbidden"), ("RequestEntityTooLarge", 413, "RequestEntityTooLarge"),
    ("Unauthorized", 401, "Unauthorized"),
])  # fmt: skip
def test_a_refusal(governed, reason, code, shown):
    governed.policy(validations=failing(**({"reason": reason} if reason else {})))
    governed.bind()
    e = refused(governed.request())
    text = "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: never"
    assert (e.code, e.reason, e.message) == (code, shown, f'configmaps "a" is forbidden: {text}')
    assert e.details == {"name": "a", "kind": "configmaps", "causes": [{"message": text}]}


def test_messages(governed):
    for more, text in (
        ({"message": " m "}, "m"), ({"message": ""}, "failed expression: false"),
        ({"messageExpression": "'k is ' + object.data.k"}, "k is v"), ({"messageExpression": "'  '"}, "never"),
        ({"messageExpression": "'a\\nb'"}, "never"), ({"messageExpression": "object.nope"}, "never"),
        ({"messageExpression": "'" + "x" * 6000 + "'"}, "never"),
    ):  # fmt: skip
        governed.policy(validations=failing(**more))
        governed.bind()
        assert refused(governed.request()).message.endswith(f"denied request: {text}"), more


def test_actions(governed):
    governed.policy(validations=[*failing(), {"expression": "object.data.k == 'x'"}])
    governed.bind(validationActions=["Warn", "Audit"])
    request = governed.request()
    request.run()
    start = "Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': "
    assert request.warnings == [start + "never", start + "failed expression: object.data.k == 'x'"]
    noted = json.loads(request.annotations["validation.policy.admission.k8s.io/validation_failure"])
    assert [(n["message"], n["expressionIndex"]) for n in noted] == [("never", 0)]  # the first one
    assert noted[0]["validationActions"] == ["Warn", "Audit"] and (noted[0]["policy"], noted[0]["binding"]) == ("p", "b")


def test_a_policys_name_cannot_forge_the_servers_audit_annotation(governed):
    """A policy's name may begin with the server's own key."""
    name, key = "validation.policy.admission.k8s.io", "validation_failure"
    governed.policy(name, auditAnnotations=[{"key": key, "valueExpression": "'nothing'"}])
    governed.bind("a", name)
    governed.policy(validations=failing())
    governed.bind(validationActions=["Audit"])
    request = governed.request()
    request.run()
    assert json.loads(request.annotations[f"{name}/{key}"])[0]["policy"] == "p"


def test_an_annotation_error_is_a_refusal_with_any_action(governed):
    governed.policy(auditAnnotations=[{"key": "k", "valueExpression": "string(object.nope)"}])
    governed.bind(validationActions=["Audit"])
    text = "expression 'string(object.nope)' resulted in error: no such key: nope"
    assert refused(governed.request()).message.endswith(f"with binding 'b' denied request: {text}")
    governed.policy(auditAnnotations=[{"key": "k", "valueExpression": "string(object.nope)"}], failurePolicy="Ignore")
    governed.request().run()


def test_conditions_do_not_see_the_namespace(governed):
    """Validations do."""
    governed.policy(validations=[{"expression": "namespaceObject.metadata.name != 'ns1'", "message": "seen"}])
    governed.bind()
    assert refused(governed.request()).message.endswith("seen")
    governed.policy(validations=failing(), matchConditions=[{"name": "c", "expression": "namespaceObject != null"}])
    governed.request().run()


def test_errors_and_the_failure_policy(governed):
    governed.policy(validations=[{"expression": "object.nope == 1", "message": "m"}, {"expression": "true"}])
    governed.bind()
    text = "expression 'object.nope == 1' resulted in error: no such key: nope"
    assert refused(governed.request()).message.endswith(f"denied request: {text}")
    governed.policy(validations=[{"expression": "object.nope == 1"}], failurePolicy="Ignore")
    governed.request().run()
    governed.policy(validations=[{"expression": "object.nope == 1"}, *failing()], failurePolicy="Ignore")
    assert refused(governed.request()).message.endswith("denied request: never")


def test_variables_are_lazy_and_evaluated_once(governed):
    variables = [
        {"name": "keys", "expression": "object.data.map(k, k)"}, {"name": "n", "expression": "size(variables.keys)"},
        {"name": "bad", "expression": "object.nope"},
    ]  # fmt: skip
    governed.policy(variables=variables, validations=[{"expression": "variables.n == 1 && variables.n < 2"}])
    governed.bind()
    governed.request().run()
    governed.policy(variables=variables, validations=[{"expression": "variables.bad == 1"}])
    assert refused(governed.request()).message.endswith('composited variable "bad" fails to evaluate: no such key: nope')
    governed.policy(variables=variables, validations=[{"expression": "has(variables.n) && variables.keys == ['k']"}])
    governed.request().run()


@pytest.mark.parametrize(("length", "allowed"), [(400, True), (3000, False)])
def test_a_long_chain_of_variables_does_not_crash(governed, length, allowed):
    """The stack is extended once, and not for each variable, which would double the work for each."""
    chain = [{"name": "v0", "expression": "1"}, *({"name": f"v{i}", "expression": f"variables.v{i - 1} + 1"} for i in range(1, length))]
    governed.policy(variables=chain, validations=[{"expression": f"variables.v{length - 1} == {length}"}])
    governed.bind()
    if allowed:
        governed.request().run()
    else:
        e = refused(governed.request())
        assert e.code == 422 and "recursion" in e.message


def test_the_cost_budget(governed):
    """All expressions share a budget; exceeding it is a failure."""
    # Looking for 1,000 letters in 20,000 costs 200,000 of 10 million, and takes hardly any time.
    data = {"in": "a" * 20_000, "of": "b" * 1000}
    obj = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a", "namespace": "ns1"}, "data": data}
    heavy = [{"expression": "!object.data['in'].contains(object.data.of)"}]
    governed.policy(validations=heavy * 40)
    governed.bind()
    governed.request(obj=obj).run()
    governed.policy(validations=heavy * 60)
    assert "running out of cost budget" in refused(governed.request(obj=obj)).message
    governed.policy(validations=heavy * 60, failurePolicy="Ignore")
    governed.request(obj=obj).run()


def test_conditions(governed):
    def when(*texts):
        return [{"name": f"c{i}", "expression": text} for i, text in enumerate(texts)]

    for conditions, policy, asked in (
        (when("object.data.k == 'v'"), "Fail", True), (when("object.data.k == 'w'"), "Fail", False),
        (when("object.nope == 1", "false"), "Fail", False), (when("object.nope == 1"), "Ignore", False),
    ):  # fmt: skip
        governed.policy(validations=failing(), matchConditions=conditions, failurePolicy=policy)
        governed.bind()
        if asked:
            assert refused(governed.request()).message.endswith("never")
        else:
            governed.request().run()
    governed.policy(validations=failing(), matchConditions=when("object.nope == 1"))
    assert refused(governed.request()).message.endswith("expression 'object.nope == 1' resulted in error: no such key: nope")


def test_variables_of_expressions(governed, server):
    holds = [
        "object.metadata.name == 'a' && oldObject == null", "request.operation == 'CREATE' && request.name == 'a'",
        "request.kind.kind == 'ConfigMap' && request.kind.group == ''", "request.resource.resource == 'configmaps'",
        "!has(request.subResource) && request.dryRun == false", "request.userInfo.username == 'jane' && 'g' in request.userInfo.groups",
        "namespaceObject.metadata.labels.team == 'a' && namespaceObject.status.phase == 'Active'",
        "authorizer.group('').resource('pods').namespace('ns1').name('x').check('get').allowed()",
        "!authorizer.group('apps').resource('pods').subresource('status').check('get').allowed()",
        "authorizer.requestResource.check('create').reason() == ''", "!authorizer.path('/healthz').check('get').errored()",
        "!authorizer.serviceAccount('ns1', 'sa').group('').resource('pods').name('x').check('get').allowed()",
    ]  # fmt: skip
    server.grants.add(("jane", "get", "pods", "x"))
    governed.policy(validations=[{"expression": text} for text in holds])
    governed.bind()
    governed.request(user=UserInfo("jane", ["g"])).run()


def test_an_authorizer_that_waits(governed, server):
    asked = []

    class Slow:
        async def answer(self, q):
            await asyncio.sleep(0)
            return ALLOW, "", ""

        def authorize(self, q):
            asked.append(q.verb)
            return self.answer(q)

    governed.plugin._authorizer = Slow()
    text = "['get', 'list'].all(v, authorizer.group('').resource('pods').check(v).allowed())"
    governed.policy(validations=[{"expression": text}, {"expression": text}])
    governed.bind()
    governed.request().run()
    assert asked == ["get", "list"]  # each check once, however often the expression was restarted


def test_long_expressions_with_authorizer_calls_run_off_the_loop(governed):
    """Up to each call, which is made on the loop."""
    where = []

    class Watched:
        def authorize(self, q):
            where.append((q.verb, threading.current_thread() is threading.main_thread()))
            return ALLOW, "", ""

    governed.plugin._authorizer = Watched()
    heavy = "lists.range(60).all(x, lists.range(60).all(y, x + y >= 0))"
    asks = "authorizer.group('').resource('pods').check('{}').allowed()"
    first, then = asks.format("get"), asks.format("list")
    governed.policy(variables=[{"name": "v", "expression": f"{heavy} && {first}"}], validations=[
        {"expression": f"{heavy} && {first} && {then}"}, {"expression": f"variables.v && {then}"},
    ])  # fmt: skip
    governed.bind()
    before = POOL.done
    governed.request().run()
    assert where == [("get", True), ("list", True)] and POOL.done - before >= 3


def test_messages_and_annotations_have_no_authorizer(governed):
    """Nor do variables that they use, which are evaluated again for them."""
    asks = "authorizer.group('').resource('pods').check('get').allowed() ? 'yes' : 'no'"
    governed.policy(variables=[{"name": "v", "expression": asks}], validations=[
        {"expression": "variables.v == 'maybe'", "messageExpression": "variables.v", "message": "never"},
    ])  # fmt: skip
    governed.bind()
    assert refused(governed.request()).message.endswith("denied request: never")
    why = "no such attribute(s): authorizer"
    for text, said in ((asks, why), ("variables.v", f'composited variable "v" fails to evaluate: {why}')):
        declared = [{"name": "v", "expression": asks}]
        governed.policy(variables=declared, auditAnnotations=[{"key": "k", "valueExpression": text}])
        assert refused(governed.request()).message.endswith(f"expression '{text}' resulted in error: {said}")


def test_messages_get_the_rest_of_the_budget_of_validations(governed):
    """All validations come first; a message for which too little is left turns each of them into an error."""
    data = {"in": "a" * 20_000, "of": "b" * 1000}
    obj = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a", "namespace": "ns1"}, "data": data}
    heavy = "object.data['in'].contains(object.data.of)"
    told = {"expression": "false", "messageExpression": f"{heavy} ? 'x' : 'told'"}
    governed.policy(validations=[told, *[{"expression": f"!{heavy}"}] * 49])
    governed.bind()
    why = "validation failed due to running out of cost budget, no further validation rules will be run"
    assert refused(governed.request(obj=obj)).message.endswith(f"failed messageExpression: {why}")
    governed.policy(validations=[told, *[{"expression": f"!{heavy}"}] * 48])
    assert refused(governed.request(obj=obj)).message.endswith("denied request: told")


def test_errors_show_expressions_as_written(governed):
    governed.policy(validations=[{"expression": " object.nope == 1\n"}])
    governed.bind()
    assert refused(governed.request()).message.endswith("expression ' object.nope == 1\n' resulted in error: no such key: nope")


# --- parameters

PARAM_KIND = {"apiVersion": "v1", "kind": "ConfigMap"}


def limit(server, name="limit", namespace="ns1", labels=None, **data):
    server.add("", "configmaps", {
        "kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name, "namespace": namespace, "labels": labels or {}}, "data": data,
    })  # fmt: skip


def test_parameters_by_name(governed, server):
    governed.policy(paramKind=PARAM_KIND, validations=[{"expression": "params.data.k == object.data.k", "message": "differs"}])
    governed.bind(paramRef={"name": "limit", "parameterNotFoundAction": "Deny"})
    start = "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: "
    why = "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction"
    assert refused(governed.request()).message.endswith(start + why)
    limit(server, k="w")
    assert refused(governed.request()).message.endswith(start + "differs")
    limit(server, k="v")
    governed.request().run()
    governed.bind(paramRef={"name": "limit", "namespace": "elsewhere", "parameterNotFoundAction": "Allow"})
    governed.request().run()
    limit(server, namespace="elsewhere", k="x")
    assert refused(governed.request()).message.endswith(start + "differs")


def test_params_in_a_namespace(governed, server):
    """A Namespace counts as in itself for params, and as in none where expressions see the request's namespace."""
    holds = [{"expression": "params.data.k == 'v' && namespaceObject == null"}]
    governed.policy(paramKind=PARAM_KIND, rules=[rule("namespaces")], validations=holds)
    governed.bind(paramRef={"name": "limit", "parameterNotFoundAction": "Deny"})
    request = governed.request(obj={"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "ns1"}}, namespace="")
    request.attributes.resource, request.attributes.kind, request.attributes.name = "namespaces", "Namespace", "ns1"
    assert "no params found" in refused(request).message
    limit(server, k="w")
    assert "failed expression" in refused(request).message
    limit(server, k="v")
    request.run()


def test_parameters_by_selector(governed, server):
    same = {"expression": "params.data.k == object.data.k", "messageExpression": "string(params.data.k)"}
    governed.policy(paramKind=PARAM_KIND, validations=[same])
    governed.bind(paramRef={"selector": {"matchLabels": {"x": "y"}}, "parameterNotFoundAction": "Deny"})
    assert "no params found" in refused(governed.request()).message
    limit(server, "one", labels={"x": "y"}, k="v")
    limit(server, "other", k="w")
    governed.request().run()
    limit(server, "two", labels={"x": "y"}, k="z")
    assert refused(governed.request()).message.endswith("denied request: z")


def test_params_that_cannot_be_read(governed):
    governed.policy(paramKind={"apiVersion": "nope.example.com/v1", "kind": "Nope"}, validations=failing())
    governed.bind(paramRef={"name": "x"})
    why = "failed to find resource referenced by paramKind: 'nope.example.com/v1, Kind=Nope'"
    assert refused(governed.request()).message.endswith(f"ValidatingAdmissionPolicy 'p' denied request: failed to configure policy: {why}")
    governed.policy(paramKind={"apiVersion": "v1", "kind": "Namespace"}, validations=failing())
    governed.bind(paramRef={"name": "x", "namespace": "ns1"})
    assert "must not be provided for a cluster-scoped `paramKind`" in refused(governed.request()).message
    governed.policy(paramKind=PARAM_KIND, rules=[rule("nodes")], validations=failing())
    governed.bind(paramRef={"name": "x"})
    obj = {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n"}}
    request = governed.request(obj=obj, namespace="")
    request.attributes.resource = "nodes"
    assert "cannot use namespaced paramRef" in refused(request).message
    # A binding without a reference has none.
    governed.policy(paramKind=PARAM_KIND, validations=[{"expression": "params == null"}])
    governed.bind()
    governed.request().run()


def test_annotations(governed):
    annotations = [
        {"key": "k", "valueExpression": "' data: ' + object.data.k"}, {"key": "none", "valueExpression": "null"},
        {"key": "empty", "valueExpression": "''"}, {"key": "long", "valueExpression": "'" + "x" * 4000 + "' + '" + "y" * 9000 + "'"},
    ]  # fmt: skip
    governed.policy(auditAnnotations=annotations)
    governed.bind()
    governed.bind("b2")
    request = governed.request()
    request.run()
    assert request.annotations.pop("p/long") == "x" * 4000 + "y" * 6240
    assert request.annotations == {"p/k": "data: v"}
    governed.policy(auditAnnotations=[{"key": "bad", "valueExpression": "string(object.nope)"}])
    assert refused(governed.request()).message.endswith("resulted in error: no such key: nope")


@pytest.mark.parametrize(("spec", "why"), [
    ({"validations": [{"expression": "1"}]}, "must evaluate to bool but got int"),
    ({"validations": [{"expression": "object.data.k"}]}, "must evaluate to bool but got dyn"),
    ({"auditAnnotations": [{"key": "k", "valueExpression": "true"}]}, "must evaluate to one of [string null_type] but got bool"),
    ({"validations": [{"expression": "true"}], "matchConditions": [{"name": "c", "expression": "'x'"}]},
     "must evaluate to bool but got string"),
])  # fmt: skip
def test_policies_accepted_by_an_older_version_fail_on_type_errors(governed, spec, why):
    governed.policy(**spec)
    governed.bind()
    assert refused(governed.request()).message.endswith(f"compilation error: {why}")
    governed.policy(**spec, failurePolicy="Ignore")
    governed.request().run()


def test_the_first_of_several_refusals_counts(governed):
    for name in ("z", "a"):
        governed.policy(name, validations=failing(message=name))
        governed.bind(f"b-{name}", name)
    assert refused(governed.request()).message.endswith("ValidatingAdmissionPolicy 'a' with binding 'b-a' denied request: a")


def test_long_expressions_are_compiled_off_the_loop_and_variables_once(governed, monkeypatch):
    where: dict[str, list[bool]] = {}
    compile_ = expressions.cel.compile

    def noted(text, env):
        where.setdefault(text, []).append(threading.current_thread() is threading.main_thread())
        return compile_(text, env)

    types: list[object] = []
    monkeypatch.setattr(expressions.cel, "compile", noted)
    monkeypatch.setattr(compiled, "seen", lambda t: types.append(t) or t)
    variables = [{"name": f"v{i}", "expression": f"variables.v{i - 1} + {i}" if i else "0"} for i in range(200)]
    governed.policy(variables=variables, validations=[{"expression": f"variables.v{i} >= 0"} for i in range(5)])
    governed.policy("small", validations=[{"expression": "object.data.k == 'v'"}])
    governed.bind()
    governed.bind("b-small", "small")
    governed.request().run()
    assert where.pop("object.data.k == 'v'") == [True]
    assert where.pop("variables.v4 >= 0") == [True]  # by then all of them are compiled
    assert len(where) == 204 and sum(on == [False] for on in where.values()) == 201
    assert len(types) == 200  # and not once for each expression that may use them


def test_policies_yield_the_loop(governed, monkeypatch):
    monkeypatch.setattr(waiting, "TIME_SLICE_S", 0.0)
    for i in range(5):
        governed.policy(f"p{i}", validations=[{"expression": "true"}])
        governed.bind(f"b{i}", f"p{i}")
    turns = turns_beside(governed.request())
    assert turns >= 5


def test_params_yield_the_loop_and_a_selector_is_parsed_once(governed, server, monkeypatch):
    monkeypatch.setattr(waiting, "TIME_SLICE_S", 0.0)
    read = []

    def counted(selector):
        read.append(selector)
        return from_label_selector(selector)

    monkeypatch.setattr(params, "from_label_selector", counted)
    governed.policy(paramKind=PARAM_KIND, validations=[{"expression": "params.data.k == object.data.k"}])
    governed.bind(paramRef={"selector": {"matchLabels": {"x": "y"}}, "parameterNotFoundAction": "Allow"})
    for i in range(20):
        limit(server, f"other{i}", k="w")
    turns = turns_beside(governed.request())
    governed.request().run()
    assert turns >= 20 and len(read) == 1


def test_a_param_kind_that_is_deleted_meanwhile(server):
    """Its definition may be deleted while other tasks run: that was a panic."""
    found = params.Params(server.registries, server.registries, lambda *kind: [], lambda group, resource: Family())
    record = SimpleNamespace(api_version="x.io/v1", group="x.io", version="v1", resource="limits")
    with pytest.raises(params.UnknownParamKindError, match="failed to find resource referenced by paramKind"):
        asyncio.run(found._in_version({"apiVersion": "x.io/v2"}, ("x.io", "v1", "Limit"), record))


def test_variables_are_built_once_for_all_policies(governed, monkeypatch):
    made = []
    fields = expressions.request_fields
    monkeypatch.setattr(expressions, "request_fields", lambda *args: made.append(1) or fields(*args))
    for i in range(5):
        governed.policy(f"p{i}", validations=[{"expression": "request.name == 'a' && object.metadata.name == 'a'"}])
        governed.bind(f"b{i}", f"p{i}")
    governed.request().run()
    assert len(made) == 1


@pytest.mark.parametrize("of", ["policy", "binding"])
def test_a_long_selector_is_compiled_off_the_loop_by_the_first_request(governed, monkeypatch, of):
    """40,000 terms held it for 200 to 300 ms when they were written."""
    threads: list[bool] = []

    class Noted(compiled.Matcher):
        __slots__ = ()

        def __init__(self, spec, *given, **more):
            if len(str(spec)) > 64 << 10:
                threads.append(threading.current_thread() is threading.main_thread())
            super().__init__(spec, *given, **more)

    monkeypatch.setattr(compiled, "Matcher", Noted)
    long = {"objectSelector": {"matchExpressions": [{"key": f"k{i}.example.com", "operator": "DoesNotExist"} for i in range(2000)]}}
    governed.policy(validations=failing(), constraints=long if of == "policy" else None)
    governed.bind(**({"matchResources": long} if of == "binding" else {}))
    assert not threads
    for _ in range(2):
        assert "never" in refused(governed.request()).message
    assert threads == [False]
    governed.drop("admissionpolicies", "p")
    governed.request().run()


@pytest.mark.parametrize("of", ["policy", "binding"])
def test_replacing_a_policy_leaves_no_gap(governed, monkeypatch, of):
    """If the new policy was large, neither was evaluated for a request in progress; it was compiled at the next request."""
    monkeypatch.setattr(waiting, "TIME_SLICE_S", 0.0)
    long = {"objectSelector": {"matchExpressions": [{"key": f"k{i}.example.com", "operator": "DoesNotExist"} for i in range(2000)]}}
    governed.policy("a", validations=[{"expression": "true"}])
    governed.bind("a", policy="a")
    governed.policy("b", validations=failing())
    governed.bind("b", policy="b")
    real, changed = waiting.TimeSlice.pause, list[str]()

    async def pause(self):
        if sys._getframe(1).f_code.co_name == "about" and not changed:
            changed.append(of)
            if of == "policy":
                governed.policy("b", validations=failing(), constraints=long)
            else:
                governed.bind("b", policy="b", matchResources=long)
        await real(self)

    monkeypatch.setattr(waiting.TimeSlice, "pause", pause)
    assert "never" in refused(governed.request()).message and changed


def test_bindings_yield_the_loop(governed, server, monkeypatch):
    """One policy may have thousands of bindings, each of which selects from all params: short for each, seconds for all."""
    monkeypatch.setattr(waiting, "TIME_SLICE_S", 0.0)
    governed.policy(paramKind=PARAM_KIND, validations=[{"expression": "true"}])
    for i in range(5):
        governed.bind(f"b{i}", paramRef={"selector": {"matchLabels": {"a": "b"}}, "parameterNotFoundAction": "Allow"})
    request, pauses = governed.request(), list[int]()
    real = waiting.TimeSlice.pause

    async def pause(self):
        if sys._getframe(1).f_code.co_name == "about":
            pauses.append(1)
        await real(self)

    monkeypatch.setattr(waiting.TimeSlice, "pause", pause)
    request.run()
    assert len(pauses) == 1 + 5


def many(governed, count, resource, **more):
    """Returns bound policies, all alike."""
    for i in range(count):
        governed.policy(f"p{i}", rules=[rule(resource, **more)], validations=failing())
        governed.bind(f"b{i}", f"p{i}")


def test_policies_for_other_resources_cost_nothing(governed):
    """30,000 held the loop for 70 ms at each change of one, and again at the next write of each resource."""

    def costs():
        change = executed_lines(lambda: governed.bind("b3", "p3", matchResources={}), "/kas/admission/")
        return change, executed_lines(governed.request().run, "/kas/admission/")

    assert governed.request().run()
    many(governed, 10, "secrets")
    few = costs()
    many(governed, 100, "secrets")
    assert costs() == few


def test_matching_policies_are_found_by_an_index(governed, monkeypatch):
    monkeypatch.setattr(policies, "MOST_STEPS", 20, raising=False)
    many(governed, 30, "configmaps", operations=["DELETE"])
    seen = []
    may_match = matching.Matcher.may_match
    monkeypatch.setattr(matching.Matcher, "may_match", lambda self, *args: seen.append(self) or may_match(self, *args))
    request = governed.request()
    assert request.chain._plan(request.attributes) and len(seen) <= 12
    assert request.run()


def test_a_policy_with_changed_rules_is_found(governed):
    many(governed, 2, "secrets")
    assert governed.request().run()
    governed.policy("p1", rules=[rule("*")], validations=failing())
    assert "policy 'p1'" in refused(governed.request()).message.replace("Policy", "policy")
    governed.policy("p0", rules=[rule("*"), rule("configmaps")], validations=failing())
    assert "'p0' with binding 'b0'" in refused(governed.request()).message  # by their names
    governed.bind("b0", "p1")
    governed.drop("admissionpolicybindings", "b1")
    assert "'p1' with binding 'b0'" in refused(governed.request()).message
    governed.drop("admissionpolicybindings", "b0")
    assert governed.request().run()
