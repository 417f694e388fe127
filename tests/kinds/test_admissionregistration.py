"""Webhook configurations, admission policies and their bindings."""

from __future__ import annotations

import pytest

from kas.config import features
from tests.kinds.written import DUPLICATE, FORBIDDEN, INVALID, REQUIRED, UNSUPPORTED, Kind, changed, without

GROUP = "admissionregistration.k8s.io"
HOOKS = Kind(f"{GROUP}/v1/validatingwebhookconfigurations")
MUTATING_HOOKS = Kind(f"{GROUP}/v1/mutatingwebhookconfigurations")
POLICIES = Kind(f"{GROUP}/v1/validatingadmissionpolicies")
MUTATING = Kind(f"{GROUP}/v1/mutatingadmissionpolicies")
BINDINGS = Kind(f"{GROUP}/v1/validatingadmissionpolicybindings")
MUTATING_BINDINGS = Kind(f"{GROUP}/v1/mutatingadmissionpolicybindings")
RULE = {"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["deployments"]}


def _hook(**over) -> dict:
    hook = {"name": "a.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"]}
    return hook | {"clientConfig": {"url": "https://example.com/x"}, "rules": [RULE]} | over


def _hooks(**over) -> dict:
    return {"webhooks": [_hook(**over)]}


def test_webhook_defaults():
    hook = MUTATING_HOOKS.create(_hooks())["webhooks"][0]
    assert (hook["failurePolicy"], hook["matchPolicy"], hook["timeoutSeconds"]) == ("Fail", "Equivalent", 10)
    assert hook["reinvocationPolicy"] == "Never"
    assert hook["namespaceSelector"] == hook["objectSelector"] == {}
    assert hook["rules"][0]["scope"] == "*"


@pytest.mark.parametrize(
    ("over", "path", "reason"),
    [
        ({"name": "short"}, "name", INVALID),
        ({"sideEffects": None}, "sideEffects", REQUIRED),
        ({"sideEffects": "Some"}, "sideEffects", UNSUPPORTED),
        ({"timeoutSeconds": 31}, "timeoutSeconds", INVALID),
        ({"admissionReviewVersions": []}, "admissionReviewVersions", REQUIRED),
        ({"admissionReviewVersions": ["v9"]}, "admissionReviewVersions", INVALID),
        ({"admissionReviewVersions": ["v1", "v1"]}, "admissionReviewVersions[1]", INVALID),
        ({"clientConfig": {}}, "clientConfig", REQUIRED),
        ({"clientConfig": {"url": "http://example.com"}}, "clientConfig.url", INVALID),
        ({"clientConfig": {"url": "https://example.com:80:80/"}}, "clientConfig.url", REQUIRED),
        ({"clientConfig": {"url": "https://[1.2.3.4]/"}}, "clientConfig.url", REQUIRED),
        ({"clientConfig": {"url": "https://@example.com/"}}, "clientConfig.url", INVALID),
        ({"clientConfig": {"url": "https://example.com/#%zz"}}, "clientConfig.url", REQUIRED),
        ({"rules": [RULE | {"operations": ["*", "CREATE"]}]}, "rules[0].operations", INVALID),
        ({"rules": [RULE | {"resources": ["*/*", "pods"]}]}, "rules[0].resources", INVALID),
        ({"rules": [RULE | {"resources": ["pods/*", "pods/status"]}]}, "rules[0].resources[1]", INVALID),
        ({"rules": [RULE | {"scope": "Galaxy"}]}, "rules[0].scope", UNSUPPORTED),
        ({"matchConditions": [{"name": "a", "expression": " "}]}, "matchConditions[0].expression", REQUIRED),
    ],
)
def test_a_webhook_is_refused(over, path, reason):
    assert (f"webhooks[0].{path}", reason) in HOOKS.refusals(_hooks(**over))


def test_an_empty_service_path_is_unset():
    config = {"service": {"name": "s", "namespace": "n", "path": ""}}
    assert HOOKS.create(_hooks(clientConfig=config))["webhooks"][0]["clientConfig"]["service"]["path"] == ""


def test_webhook_names_are_unique():
    assert ("webhooks[1].name", DUPLICATE) in HOOKS.refusals({"webhooks": [_hook(), _hook()]})


def _policy(**over) -> dict:
    return {"spec": {"matchConstraints": {"resourceRules": [RULE]}, "validations": [{"expression": "true"}]} | over}


def test_a_policy_gets_defaults_and_generations():
    stored = POLICIES.create(_policy())
    assert stored["spec"]["failurePolicy"] == "Fail"
    assert stored["spec"]["matchConstraints"]["matchPolicy"] == "Equivalent"
    assert stored["metadata"]["generation"] == 1
    changed_once = POLICIES.update(changed(stored, "spec.failurePolicy", "Ignore"), stored)
    assert changed_once["metadata"]["generation"] == 2


@pytest.mark.parametrize(
    ("over", "want"),
    [
        ({"validations": []}, ("spec.validations", REQUIRED)),
        ({"validations": [{"expression": ""}]}, ("spec.validations[0].expression", REQUIRED)),
        ({"validations": [{"expression": "true", "message": "a\nb"}]}, ("spec.validations[0].message", INVALID)),
        ({"validations": [{"expression": "true", "reason": "Mood"}]}, ("spec.validations[0].reason", UNSUPPORTED)),
        ({"variables": [{"name": "while", "expression": "1"}]}, ("spec.variables[0].name", INVALID)),
        ({"paramKind": {"apiVersion": "a/b/c", "kind": "K"}}, ("spec.paramKind.apiVersion", INVALID)),
        ({"paramKind": {"apiVersion": "v1", "kind": ""}}, ("spec.paramKind.kind", REQUIRED)),
        ({"auditAnnotations": [{"key": "no spaces", "valueExpression": "''"}]}, ("spec.auditAnnotations[0].key", INVALID)),
        ({"matchConstraints": {"resourceRules": []}}, ("spec.matchConstraints.resourceRules", REQUIRED)),
        ({"matchConstraints": None}, ("spec.matchConstraints", REQUIRED)),
    ],
)
def test_a_policy_is_refused(over, want):
    assert want in POLICIES.refusals(_policy(**over))


@pytest.mark.parametrize(
    ("over", "want"),
    [
        ({"message": "a\nb"}, ("message", 'Invalid value: "a\\nb": must not contain line breaks')),
        ({"message": " "}, ("message", 'Invalid value: " ": must be non-empty if specified')),
        ({"messageExpression": " "}, ("messageExpression", 'Invalid value: " ": must be non-empty if specified')),
    ],
)
def test_invalid_messages(over, want):
    path, text = want
    assert POLICIES.messages(_policy(validations=[{"expression": "true"} | over])) == [(f"spec.validations[0].{path}", text)]


def test_control_characters_are_not_blank():
    """An expression of control characters alone is present, and does not compile; such a message is a message."""
    assert POLICIES.refusals(_policy(validations=[{"expression": "\x1f"}])) == [("spec.validations[0].expression", INVALID)]
    assert POLICIES.create(_policy(validations=[{"expression": "true", "message": "\x1f"}]))


def test_invalid_variables():
    found = POLICIES.messages(_policy(variables=[{"name": "while", "expression": "1"}]))
    assert found == [("spec.variables[0].name", 'Invalid value: "while": must be a valid CEL identifier')]


@pytest.mark.parametrize(
    ("ref", "reason"),
    [("spec.validations[0].expression", ""), (" ", REQUIRED), ("spec.validations[", INVALID), ("spec.a]", INVALID), ("spec.a'", "")],
)
def test_a_type_checking_warning_refers_to_a_field(ref, reason):
    old = POLICIES.create(_policy())
    new = old | {"status": {"typeChecking": {"expressionWarnings": [{"fieldRef": ref, "warning": "w"}]}}}
    if reason:
        assert POLICIES.refusals(new, old, "status") == [("status.typeChecking.expressionWarnings[0].fieldRef", reason)]
    else:
        assert POLICIES.update(new, old, "status")["status"] == new["status"]


def _mutation(**over) -> dict:
    mutation = {"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{op: 'remove', path: '/spec/x'}]"}}
    return {"spec": {"matchConstraints": {"resourceRules": [RULE]}, "mutations": [mutation | over], "reinvocationPolicy": "Never"}}


AT = "spec.mutations[0]"


@pytest.mark.parametrize(
    ("obj", "want"),
    [
        (_mutation(patchType="Swap"), (f"{AT}.patchType", UNSUPPORTED)),
        (_mutation(jsonPatch=None), (f"{AT}.jsonPatch", REQUIRED)),
        (_mutation(jsonPatch={"expression": ""}), (f"{AT}.jsonPatch.expression", REQUIRED)),
        (_mutation(applyConfiguration={"expression": "Object{}"}), (f"{AT}.applyConfiguration", INVALID)),
        (without(_mutation(), "spec.reinvocationPolicy"), ("spec.reinvocationPolicy", REQUIRED)),
        (changed(_mutation(), "spec.mutations", []), ("spec.mutations", REQUIRED)),
        (
            changed(_mutation(), "spec.matchConstraints.resourceRules.0.operations", ["CREATE", "DELETE"]),
            ("spec.matchConstraints.resourceRules.operations", UNSUPPORTED),
        ),
    ],
)
def test_a_mutating_policy_is_refused(obj, want):
    assert want in MUTATING.refusals(obj)


def test_a_mutating_policy_is_stored():
    assert MUTATING.create(_mutation())["spec"]["failurePolicy"] == "Fail"


BOUND = {"policyName": "p", "validationActions": ["Deny"]}


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        ({"validationActions": ["Deny"]}, ("spec.policyName", REQUIRED)),
        ({"policyName": "p"}, ("spec.validationActions", REQUIRED)),
        ({"policyName": "p", "validationActions": ["Deny", "Warn"]}, ("spec.validationActions", INVALID)),
        ({"policyName": "p", "validationActions": ["Shout"]}, ("spec.validationActions[0]", UNSUPPORTED)),
        (BOUND | {"paramRef": {"name": "x"}}, ("spec.paramRef.parameterNotFoundAction", REQUIRED)),
        (BOUND | {"paramRef": {"name": "x", "selector": {}}}, ("spec.paramRef.name", FORBIDDEN)),
        (
            BOUND | {"matchResources": {"resourceRules": [RULE | {"resources": []}]}},
            ("spec.matchResources.resourceRules[0].resources", REQUIRED),
        ),
    ],
)
def test_a_binding_is_refused(spec, want):
    assert want in BINDINGS.refusals({"spec": spec})


def test_a_mutating_binding_cannot_match_deletions():
    rules = [RULE | {"operations": ["DELETE"]}]
    refused = MUTATING_BINDINGS.refusals({"spec": {"policyName": "p", "matchResources": {"resourceRules": rules}}})
    assert ("spec.matchResources.resourceRules.operations", UNSUPPORTED) in refused


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"validations": [{"expression": "object.x +"}]}, "spec.validations[0].expression"),
        ({"validations": [{"expression": "1"}]}, "spec.validations[0].expression"),
        ({"validations": [{"expression": "params.x == 1"}]}, "spec.validations[0].expression"),
        ({"validations": [{"expression": "true", "messageExpression": "params.x"}]}, "spec.validations[0].messageExpression"),
        ({"validations": [{"expression": "variables.x == 1"}]}, "spec.validations[0].expression"),
        ({"validations": [{"expression": "true", "messageExpression": "5"}]}, "spec.validations[0].messageExpression"),
        ({"matchConditions": [{"name": "a", "expression": "request.nope"}]}, "spec.matchConditions[0].expression"),
        ({"variables": [{"name": "v", "expression": "nope"}]}, "spec.variables[0].expression"),
        (
            {"variables": [{"name": "v", "expression": "1"}], "validations": [{"expression": "variables.v == 'a'"}]},
            "spec.validations[0].expression",
        ),
        ({"auditAnnotations": [{"key": "k", "valueExpression": "true"}]}, "spec.auditAnnotations[0].valueExpression"),
    ],
)  # fmt: skip
def test_an_expression_that_does_not_compile_is_refused(spec, path):
    assert (path, INVALID) in POLICIES.refusals(_policy(**spec))


@pytest.mark.parametrize(
    "spec",
    [
        {"variables": [{"name": "v", "expression": "object.spec.replicas"}], "validations": [{"expression": "variables.v > 1"}]},
        # Objects, optional values and results of libraries have no static type any more.
        {"variables": [{"name": "v", "expression": "request"}], "validations": [{"expression": "variables.v.nope == 1"}]},
        {"variables": [{"name": "v", "expression": "[optional.of(1)]"}], "validations": [{"expression": "variables.v[0] + 1 == 2"}]},
        {"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}, "validations": [{"expression": "params.data.x == object.kind"}]},
        {"validations": [{"expression": "authorizer.group('').resource('pods').check('get').allowed()", "messageExpression": "'a' + 'b'"}]},
        {"auditAnnotations": [{"key": "k", "valueExpression": "true ? 'x' : 'y'"}]},
        {"matchConditions": [{"name": "a", "expression": "request.operation == 'CREATE' && !has(namespaceObject.metadata.labels.x)"}]},
    ],
)
def test_an_expression_that_compiles_is_stored(spec):
    assert POLICIES.create(_policy(**spec))["spec"]["validations"]


CONFIGURATIONS = [
    (HOOKS, _hooks()), (MUTATING_HOOKS, _hooks()), (POLICIES, _policy()), (MUTATING, _mutation()),
    (BINDINGS, {"spec": {"policyName": "p", "validationActions": ["Deny"]}}), (MUTATING_BINDINGS, {"spec": {"policyName": "p"}}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "obj"), CONFIGURATIONS, ids=lambda x: x.resource.kind if isinstance(x, Kind) else "")
def test_names_reserved_for_manifest_files(kind, obj):
    reserved = 'names ending with ".static.k8s.io" are reserved for static manifest-based configurations and cannot be managed via the API'
    named = obj | {"metadata": {"name": "a.static.k8s.io"}}
    stored = kind.create(named)
    assert kind.warnings == [f"metadata.name: {reserved}"]
    kind.create(obj)
    assert kind.warnings == []
    with features.DEFAULT.overridden(ManifestBasedAdmissionControlConfig=True):
        assert kind.messages(named) == [("metadata.name", f'Invalid value: "a.static.k8s.io": {reserved}')]
        kind.create(obj | {"metadata": {"name": "a.static.k8s.io.not"}})
        kind.update(changed(stored, "metadata.labels", {"a": "b"}), stored)  # existing objects may keep them
        assert kind.warnings == [f"metadata.name: {reserved}"]


def test_a_mutation_is_compiled_without_the_space_around_it():
    """YAML's block texts end in a line break."""
    said = 'Invalid value: "1": must evaluate to list(JSONPatch) but got int'
    assert MUTATING.messages(_mutation(jsonPatch={"expression": " 1\n"})) == [(f"{AT}.jsonPatch.expression", said)]
