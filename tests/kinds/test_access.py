"""Roles, bindings, disruption budgets, flow control, API services: the kinds that control the server itself."""

from __future__ import annotations

import pytest

from tests.kinds.written import FORBIDDEN, INVALID, REQUIRED, UNSUPPORTED, Kind, changed

RBAC = "rbac.authorization.k8s.io/v1"
ROLES, CLUSTER_ROLES = Kind(f"{RBAC}/roles"), Kind(f"{RBAC}/clusterroles")
BINDINGS, CLUSTER_BINDINGS = Kind(f"{RBAC}/rolebindings"), Kind(f"{RBAC}/clusterrolebindings")
BUDGETS = Kind("policy/v1/poddisruptionbudgets")
FLOWS = Kind("flowcontrol.apiserver.k8s.io/v1/flowschemas")
LEVELS = Kind("flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations")
SERVICES = Kind("apiregistration.k8s.io/v1/apiservices")


@pytest.mark.parametrize(
    ("rule", "want"),
    [
        ({"apiGroups": [""], "resources": ["pods"]}, ("rules[0].verbs", REQUIRED)),
        ({"verbs": ["get"], "nonResourceURLs": ["/healthz"]}, ("rules[0].nonResourceURLs", INVALID)),
        ({"verbs": ["get"], "resources": ["pods"]}, ("rules[0].apiGroups", REQUIRED)),
        ({"verbs": ["get"], "apiGroups": [""]}, ("rules[0].resources", REQUIRED)),
    ],
)
def test_a_role_rule_is_refused(rule, want):
    assert want in ROLES.refusals({"rules": [rule]})


def test_paths_belong_to_cluster_roles_and_not_with_resources():
    assert CLUSTER_ROLES.create({"rules": [{"verbs": ["get"], "nonResourceURLs": ["/healthz"]}]})
    both = {"verbs": ["get"], "nonResourceURLs": ["/healthz"], "apiGroups": [""], "resources": ["pods"]}
    assert ("rules[0].nonResourceURLs", INVALID) in CLUSTER_ROLES.refusals({"rules": [both]})


def _binding(kind: str = "Role", **subject) -> dict:
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": "r"}
    return {"roleRef": ref, "subjects": [{"kind": "User", "name": "jane"} | subject]}


def test_subjects_get_the_group_of_their_kind():
    assert BINDINGS.create(_binding())["subjects"][0]["apiGroup"] == "rbac.authorization.k8s.io"
    stored = BINDINGS.create(_binding(kind="Role") | {"subjects": [{"kind": "ServiceAccount", "name": "d", "namespace": "n"}]})
    assert "apiGroup" not in stored["subjects"][0]


@pytest.mark.parametrize(
    ("obj", "want"),
    [
        (_binding(kind="ClusterRole") | {"subjects": [{"kind": "Dog", "name": "x"}]}, ("subjects[0].kind", UNSUPPORTED)),
        (_binding(kind="Pod"), ("roleRef.kind", UNSUPPORTED)),
        (_binding() | {"subjects": [{"kind": "User", "name": ""}]}, ("subjects[0].name", REQUIRED)),
        (changed(_binding(), "roleRef.name", ""), ("roleRef.name", REQUIRED)),
    ],
)
def test_a_binding_is_refused(obj, want):
    assert want in BINDINGS.refusals(obj)


def test_a_subject_without_a_name_is_reported_once():
    assert BINDINGS.refusals(_binding(name="")) == [("subjects[0].name", REQUIRED)]


def test_an_unusable_aggregation_selector_is_reported_twice():
    rule = {"clusterRoleSelectors": [{"matchLabels": {"a": "b c"}}]}
    found = CLUSTER_ROLES.messages({"aggregationRule": rule})
    assert [path for path, _ in found] == ["aggregationRule.clusterRoleSelectors[0].matchLabels", "aggregationRule.clusterRoleSelectors[0]"]
    assert found[1][1] == "Invalid value: null: invalid label selector."


def test_a_cluster_binding_names_the_namespace_of_an_account_and_a_cluster_role():
    account = {"subjects": [{"kind": "ServiceAccount", "name": "d"}]}
    assert ("subjects[0].namespace", REQUIRED) in CLUSTER_BINDINGS.refusals(_binding("ClusterRole") | account)
    assert ("roleRef.kind", UNSUPPORTED) in CLUSTER_BINDINGS.refusals(_binding("Role"))


def test_the_role_of_a_binding_is_immutable():
    old = BINDINGS.create(_binding())
    assert ("roleRef", INVALID) in BINDINGS.refusals(changed(old, "roleRef.name", "other"), old)


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"minAvailable": 1, "maxUnavailable": 1}, "spec"),
        ({"minAvailable": -1}, "spec.minAvailable"),
        ({"minAvailable": "101%"}, "spec.minAvailable"),
        ({"maxUnavailable": "many"}, "spec.maxUnavailable"),
        ({"selector": {"matchLabels": {"a b": "c"}}}, "spec.selector.matchLabels"),
        ({"unhealthyPodEvictionPolicy": "Sometimes"}, "spec.unhealthyPodEvictionPolicy"),
    ],
)
def test_a_budget_is_refused(spec, path):
    assert path in {found for found, _ in BUDGETS.refusals({"spec": spec})}


RESERVED = "pdb.kubernetes.io/deprecated-v1beta1-empty-selector-match"
NO_PODS = {"matchExpressions": [{"key": RESERVED, "operator": "Exists"}]}
SOME_PODS = {"key": "x", "operator": "Exists"}


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (NO_PODS, NO_PODS),  # valid in policy/v1beta1, and kept by policy/v1
        ({**NO_PODS, "matchLabels": {}}, NO_PODS),
        ({"matchExpressions": [{"key": RESERVED, "operator": "DoesNotExist"}]}, {}),
        ({**NO_PODS, "matchLabels": {"a": "b"}}, {"matchLabels": {"a": "b"}}),
        ({"matchExpressions": [*NO_PODS["matchExpressions"], SOME_PODS]}, {"matchExpressions": [SOME_PODS]}),
        ({"matchExpressions": [*NO_PODS["matchExpressions"], *NO_PODS["matchExpressions"]]}, {}),
        ({"matchExpressions": [{"key": RESERVED, "operator": "In", "values": ["a"]}]}, {}),
    ],
)
def test_a_budgets_reserved_key_is_never_combined(given, stored):
    """As upstream's pkg/apis/policy/v1/conversion.go."""
    made = BUDGETS.create({"spec": {"minAvailable": 1, "selector": given}})
    assert made["spec"]["selector"] == stored
    plain = BUDGETS.create({"spec": {"minAvailable": 1}})
    assert BUDGETS.update(changed(plain, "spec.selector", given), plain)["spec"]["selector"] == stored


def test_a_budget_keeps_spec_and_status_apart():
    old = BUDGETS.create({"spec": {"minAvailable": 1}})
    counts = {"currentHealthy": 1, "desiredHealthy": 1, "disruptionsAllowed": 0, "expectedPods": 1}
    written = BUDGETS.update(changed(changed(old, "spec.minAvailable", 2), "status", counts), old, "status")
    assert written["spec"]["minAvailable"] == 1
    assert written["status"]["currentHealthy"] == 1
    assert BUDGETS.update(changed(written, "status.currentHealthy", 9), written)["status"]["currentHealthy"] == 1
    assert ("status.expectedPods", INVALID) in BUDGETS.refusals(changed(old, "status", counts | {"expectedPods": -1}), old, "status")


def _flow(**over) -> dict:
    subject = {"kind": "User", "user": {"name": "jane"}}
    path = {"verbs": ["get"], "nonResourceURLs": ["/healthz"]}
    rules = [{"subjects": [subject], "nonResourceRules": [path]}]
    return {"spec": {"priorityLevelConfiguration": {"name": "low"}, "rules": rules} | over}


def test_a_flow_schema_gets_its_precedence():
    assert FLOWS.create(_flow())["spec"]["matchingPrecedence"] == 1000


@pytest.mark.parametrize(
    ("obj", "want"),
    [
        (_flow(matchingPrecedence=10001), ("spec.matchingPrecedence", INVALID)),
        (_flow(matchingPrecedence=1), ("spec.matchingPrecedence", INVALID)),
        (_flow(priorityLevelConfiguration={"name": ""}), ("spec.priorityLevelConfiguration.name", REQUIRED)),
        (_flow(distinguisherMethod={"type": "ByMood"}), ("spec.distinguisherMethod.type", UNSUPPORTED)),
        (changed(_flow(), "spec.rules.0.subjects", []), ("spec.rules[0].subjects", REQUIRED)),
        (changed(_flow(), "spec.rules.0.nonResourceRules", []), ("spec.rules[0]", REQUIRED)),
        (changed(_flow(), "spec.rules.0.subjects.0.kind", "Dog"), ("spec.rules[0].subjects[0].kind", UNSUPPORTED)),
        (changed(_flow(), "spec.rules.0.nonResourceRules.0.verbs", ["eat"]), ("spec.rules[0].nonResourceRules[0].verbs", UNSUPPORTED)),
    ],
)
def test_a_flow_schema_is_refused(obj, want):
    assert want[0] in {path for path, _ in FLOWS.refusals(obj)}


def _level(**limited) -> dict:
    queuing = {"queues": 64, "handSize": 6, "queueLengthLimit": 50}
    return {"spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Queue", "queuing": queuing}} | limited}}


def test_a_level_gets_shares_and_queues():
    bare = {"limitResponse": {"type": "Queue", "queuing": {}}}
    limited = LEVELS.create({"spec": {"type": "Limited", "limited": bare}})["spec"]["limited"]
    assert (limited["nominalConcurrencyShares"], limited["lendablePercent"]) == (30, 0)
    assert limited["limitResponse"]["queuing"] == {"queues": 64, "handSize": 8, "queueLengthLimit": 50}


@pytest.mark.parametrize(
    ("obj", "want"),
    [
        ({"spec": {"type": "Limited"}}, ("spec.limited", REQUIRED)),
        ({"spec": {"type": "Exempt"}}, ("spec.type", INVALID)),
        (_level(lendablePercent=101), ("spec.limited.lendablePercent", INVALID)),
        (_level(nominalConcurrencyShares=-1), ("spec.limited.nominalConcurrencyShares", INVALID)),
        (_level(limitResponse={"type": "Reject", "queuing": {"queues": 1}}), ("spec.limited.limitResponse.queuing", FORBIDDEN)),
        (changed(_level(), "spec.limited.limitResponse.queuing.handSize", 65), ("spec.limited.limitResponse.queuing.handSize", INVALID)),
        (changed(_level(), "spec.limited.limitResponse.queuing.handSize", 60), ("spec.limited.limitResponse.queuing.handSize", INVALID)),
    ],
)
def test_a_level_is_refused(obj, want):
    assert want in LEVELS.refusals(obj)


def test_the_annotation_for_zero_shares_is_refused():
    key = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares"
    level = _level() | {"metadata": {"name": "a", "annotations": {key: ""}}}
    assert LEVELS.messages(level) == [("metadata.annotations", f"Forbidden: annotation '{key}' is forbidden")]


def test_the_catch_all_level_has_a_fixed_spec():
    assert ("spec", INVALID) in LEVELS.refusals(_level() | {"metadata": {"name": "catch-all"}})


def _service(**spec) -> dict:
    spec = {"group": "a.example.com", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 100} | spec
    return {"metadata": {"name": "v1.a.example.com"}, "spec": spec}


def test_an_api_without_a_service_is_available():
    condition = SERVICES.create(_service())["status"]["conditions"][0]
    assert (condition["type"], condition["status"], condition["reason"]) == ("Available", "True", "Local")
    assert SERVICES.create(_service(service={"name": "s", "namespace": "n"}))["spec"]["service"]["port"] == 443


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"versionPriority": 0}, "spec.versionPriority"),
        ({"groupPriorityMinimum": 20001}, "spec.groupPriorityMinimum"),
        ({"version": "1v"}, "spec.version"),
        ({"insecureSkipTLSVerify": True}, "spec.insecureSkipTLSVerify"),
        ({"service": {"name": "s"}}, "spec.service.namespace"),
        ({"group": "b.example.com"}, "metadata.name"),
    ],
)
def test_an_api_service_is_refused(spec, path):
    assert path in {found for found, _ in SERVICES.refusals(_service(**spec))}


@pytest.mark.parametrize(("kind", "obj"), [(FLOWS, _flow()), (LEVELS, _level())], ids=["flow", "level"])
def test_a_status_of_flow_control_comes_without_metadata(kind, obj):
    old = kind.create(obj)
    kept = {**old["metadata"], "resourceVersion": "1"}
    new = old | {"metadata": kept | {"labels": {"a": "b"}, "generateName": "a-"}, "status": {"conditions": [{"type": "Dangling"}]}}
    got = kind.update(new, old, "status")
    assert got["metadata"] == kept and [one["type"] for one in got["status"]["conditions"]] == ["Dangling"]
