"""Warnings about expressions that do not fit the types of their kinds."""

from __future__ import annotations

import pytest

from kas.admission.policy import typechecking
from kas.admission.policy.typechecking import builtin_shape, custom_shape, warnings
from kas.cel.types import DYN
from kas.types.scheme import BUILTIN

WIDGET = ("example.com", "v1", "Widget")
SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {"type": "object", "properties": {"size": {"type": "integer"}, "names": {"type": "array", "items": {"type": "string"}}}},
    },
}  # fmt: skip
DEPLOYMENTS = {"apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"]}
WIDGETS = {"apiGroups": ["example.com"], "apiVersions": ["v1"], "resources": ["widgets"]}
REPLICAS = """apps/v1, Kind=Deployment: ERROR: <input>:1:7: undefined field 'replicas'
 | object.replicas > 1
 | ......^
"""


def kind_of(group, version, resource):
    if resource == "widgets":
        return WIDGET
    found = BUILTIN.resource(group, version, resource)
    return (group, version, found.kind) if found is not None else None


def shape_of(kind):
    if kind == WIDGET:
        return custom_shape(SCHEMA, "example.com.v1.Widget")
    found = BUILTIN.kind(*kind)
    return builtin_shape(found.type) if found is not None else None


def check(*expressions, rules=(DEPLOYMENTS,), **spec):
    validations = [{"expression": text} for text in expressions]
    policy = {"spec": {"matchConstraints": {"resourceRules": list(rules)}, "validations": validations, **spec}}
    return warnings(policy, kind_of, shape_of)


def test_expressions_that_fit_have_no_warnings():
    assert check(
        "object.spec.replicas <= 5 && oldObject.metadata.labels['a'] == 'b'",
        "object.spec.template.spec.containers.all(c, c.image.startsWith('registry/'))",
        "object.spec.strategy.rollingUpdate.maxSurge == '50%' || object.spec.strategy.rollingUpdate.maxSurge == 1",
        "object.metadata.creationTimestamp > timestamp('2024-01-02T03:04:05Z')",
        "request.userInfo.username != namespaceObject.metadata.name",
        "authorizer.group('').resource('pods').check('get').allowed()",
    ) == []


def test_quantities_have_no_type():
    """OpenAPI has no type for them, and upstream's checker has no value of it."""
    (found,) = check("object.spec.template.spec.containers.all(c, 'cpu' in c.resources.limits)")
    assert "undefined field 'limits'" in found["warning"]


def test_the_text_is_upstreams():
    assert check("object.replicas > 1") == [{"fieldRef": "spec.validations[0].expression", "warning": REPLICAS}]


def test_each_kind_gets_its_own_warning():
    both = [{**DEPLOYMENTS, "resources": ["statefulsets", "deployments", "deployments/status", "*"]}]
    (found,) = check("object.replicas > 1", rules=both)
    assert found["warning"] == REPLICAS + "\n" + REPLICAS.replace("Deployment", "StatefulSet")


def test_message_expressions_and_variables():
    validation = {"expression": "variables.n > 1 && variables.bad", "messageExpression": "'x' + variables.n"}
    variables = [{"name": "n", "expression": "object.spec.replicas"}, {"name": "bad", "expression": "object.nope"}]
    (found,) = check(validations=[validation], variables=variables)
    assert found["fieldRef"] == "spec.validations[0].messageExpression" and "applied to '(string, int)'" in found["warning"]


@pytest.mark.parametrize(("kind", "says"), [
    ({"apiVersion": "v1", "kind": "ConfigMap"}, "undefined field 'spec'"),
    (None, "undeclared reference to 'params'"),
])  # fmt: skip
def test_params(kind, says):
    (found,) = check("params.spec.x == 'y'", **({"paramKind": kind} if kind else {}))
    assert says in found["warning"]
    assert kind is None or check("has(params.data)", paramKind={"apiVersion": "v1", "kind": "ConfigMap"}) == []
    assert check("params.spec.x == 'y'", paramKind={"apiVersion": "x.io/v1", "kind": "Odd"}) == []


def test_a_schema_without_a_type_allows_any_object():
    """There are no warnings and no errors (kubernetes#136621)."""
    assert custom_shape({"x-kubernetes-preserve-unknown-fields": True}, "a.b.C").type is DYN
    policy = {"spec": {"matchConstraints": {"resourceRules": [WIDGETS]}, "validations": [{"expression": "object.spec.any == 1"}]}}
    assert warnings(policy, kind_of, lambda kind: custom_shape({}, "a.b.C")) == []


def test_equal_parts_of_a_schema_have_types_of_their_own():
    """A schema in memory has one object for all equal parts."""
    alike = {"type": "object", "properties": {"x": {"type": "string"}}}
    schema = {"type": "object", "properties": {"one": alike, "two": alike}}
    policy = {"spec": {"matchConstraints": {"resourceRules": [WIDGETS]}, "validations": [{"expression": "object.one == object.two"}]}}
    (found,) = warnings(policy, kind_of, lambda kind: custom_shape(schema, "example.com.v1.Widget"))
    assert "found no matching overload for '_==_'" in found["warning"]


def test_custom_resources():
    assert check("object.spec.size > 1 && object.spec.names.exists(n, n == object.metadata.labels['x'])", rules=[WIDGETS]) == []
    (found,) = check("object.spec.weight > 1", rules=[WIDGETS])
    assert found["warning"].startswith("example.com/v1, Kind=Widget: ERROR: <input>:1:12: undefined field 'weight'")


@pytest.mark.parametrize("rule", [
    {**DEPLOYMENTS, "apiGroups": ["*"]}, {**DEPLOYMENTS, "apiVersions": ["*"]}, {**DEPLOYMENTS, "resources": ["*", "deployments/scale"]},
    {**DEPLOYMENTS, "resources": ["nobodys"]},
])  # fmt: skip
def test_kinds_that_are_not_named_are_not_checked(rule):
    assert check("object.nope", rules=[rule]) == []


def test_the_number_of_resolved_names_is_limited(monkeypatch):
    monkeypatch.setattr(typechecking, "MAX_LOOKED_UP", 100)
    asked = []
    many = {"apiGroups": [f"g{i}" for i in range(50)], "apiVersions": [f"v{i}" for i in range(50)], "resources": ["a", "b"]}
    policy = {"spec": {"matchConstraints": {"resourceRules": [many, DEPLOYMENTS]}, "validations": [{"expression": "object.nope"}]}}
    assert warnings(policy, lambda *name: asked.append(name), shape_of) == [] and len(asked) == 100
    policy["spec"]["matchConstraints"]["resourceRules"].reverse()
    (found,) = warnings(policy, kind_of, shape_of)
    assert "undefined field 'nope'" in found["warning"]


def test_the_number_of_checked_expressions_is_limited(monkeypatch):
    monkeypatch.setattr(typechecking, "MAX_CHECKED", 10)
    assert len(check(*["object.nope"] * 20)) == 10
    assert len(check(*["object.nope"] * 20, rules=[DEPLOYMENTS, {**DEPLOYMENTS, "resources": ["daemonsets"]}])) == 5
