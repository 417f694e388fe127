"""Reading the file of --audit-policy-file; the meaning of its rules is tested with vectors."""

from __future__ import annotations

import random

import pytest

from kas.audit import policy
from kas.audit.policy import AuditPolicy, PolicyError, load_file
from kas.auth.user import UserInfo
from tests.vectors.kinds.rbac import attributes

HEAD = "apiVersion: audit.k8s.io/v1\nkind: Policy\n"


@pytest.fixture
def write(tmp_path):
    def write(text: str) -> str:
        path = tmp_path / "p.yaml"
        path.write_text(text)
        return str(path)

    return write


def test_a_policy_is_read_and_unknown_fields_ignored(write):
    assert load_file(write(HEAD + "rules: [{level: None, user: [a]}]\n"))


CONDITIONS = ["users: [a]", "userGroups: [a]", "verbs: [get]", "namespaces: [a]", "resources: [{}]", "nonResourceURLs: [/a]"]


@pytest.mark.parametrize("rule", CONDITIONS)
def test_only_a_first_rule_without_conditions_applies_to_every_request(write, rule):
    always = load_file(write(HEAD + f"rules: [{{level: Metadata}}, {{level: None, {rule}}}]\n")).always
    assert always is not None and always.level == "Metadata"
    assert load_file(write(HEAD + f"rules: [{{level: None, {rule}}}, {{level: Metadata}}]\n")).always is None


def test_the_kind_of_a_policy_is_optional(write):
    assert load_file(write("apiVersion: audit.k8s.io/v1\nrules: [{level: None}]\n"))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "unknown group version field audit.k8s.io/__internal, Kind=Policy in policy"),
        (HEAD + "rules: []\n", "loaded illegal policy with 0 rules"),
        (HEAD + "rules: [{users: [a]}]\n", "rules[0].level: Required value"),
        (HEAD + "rules: [{level: None}]\nomitStages: [Now]\n", 'omitStages[0]: Invalid value: "Now": allowed stages are '),
        ("apiVersion: v1\nkind: ConfigMap\n", 'failed decoding: no kind "ConfigMap" is registered for version "v1" in scheme '),
        ("- a\n", "failed decoding: "),
        (HEAD + "rules: {}\n", "failed decoding: json: cannot unmarshal object into Go struct field Policy.rules of type []v1.PolicyRule"),
        (HEAD + "rules: [{level: 1}]\n",
         "failed decoding: json: cannot unmarshal number into Go struct field PolicyRule.rules.level of type v1.Level"),
        (HEAD + "rules: [{level: None, resources: [{group: []}]}]\n",
         "failed decoding: json: cannot unmarshal array into Go struct field GroupResources.rules.resources.group of type string"),
        (HEAD + "rules: [{level: None, users: a}]\n",
         "failed decoding: json: cannot unmarshal string into Go struct field PolicyRule.rules.users of type []string"),
        (HEAD + "omitStages: [Now]\nrules: []\n", 'omitStages[0]: Invalid value: "Now": '),
        ("rules: [{level: None}]\n", "unknown group version field audit.k8s.io/__internal, Kind=Policy in policy"),
        ("kind: Policy\nrules: [{level: None}]\n", "unknown group version field audit.k8s.io/__internal, Kind=Policy in policy"),
        ("apiVersion: audit.k8s.io/v1\nkind: Event\n", "failed decoding: converting (v1.Event) to (audit.Policy): unknown conversion"),
        ("hello\n", "failed decoding: couldn't get version/kind; json parse error: json: cannot unmarshal string into Go value of type "),
        ("{", "failed decoding: "),
    ],
)
def test_errors_name_the_file(write, text, why):
    path = write(text)
    with pytest.raises(PolicyError) as e:
        load_file(path)
    assert str(e.value).startswith(why) and str(e.value).endswith(f": from file {path}")


def test_a_missing_file(tmp_path):
    with pytest.raises(PolicyError, match="no such file or directory"):
        load_file(str(tmp_path / "none"))


def test_of_thousands_of_rules_only_relevant_ones_are_evaluated(monkeypatch):
    others = [
        {"users": ["nobody"]}, {"userGroups": ["none"]}, {"resources": [{"group": "", "resources": ["secrets", "nodes/status"]}]},
        {"namespaces": ["there"]}, {"verbs": ["patch"]}, {"nonResourceURLs": ["/healthz"]},
    ]  # fmt: skip
    mine = {"level": "Request", "resources": [{"group": "", "resources": ["pods"]}]}
    made = AuditPolicy({"rules": [*({"level": "None", **rule} for _ in range(1000) for rule in others), mine, {"level": "Metadata"}]})
    asked = []
    real = policy._Rule.matches
    monkeypatch.setattr(policy._Rule, "matches", lambda self, a: asked.append(self) or real(self, a))
    about = {"verb": "get", "namespace": "here", "resource": "pods", "name": "p", "resourceRequest": True}
    assert made.verdict(attributes(about, UserInfo("u", ("g",)))).level == "Request" and len(asked) == 1
    assert made.verdict(attributes({**about, "resource": "services"}, UserInfo("u", ("g",)))).level == "Metadata" and len(asked) == 2


def about(rng: random.Random) -> dict:
    texts = {
        "verb": ["get", "create"], "namespace": ["", "a", "b"], "apiGroup": ["", "apps"], "resource": ["pods", "jobs"],
        "subresource": ["", "status"], "name": ["", "x", "y"], "path": ["/a", "/b"],
    }  # fmt: skip
    return {key: rng.choice(values) for key, values in texts.items()} | {"resourceRequest": rng.random() < 0.8}


CONDITIONAL = [
    {"users": ["u"]}, {"userGroups": ["g"]}, {"verbs": ["get"]}, {"namespaces": ["a", ""]}, {"nonResourceURLs": ["/a"]},
    {"resources": [{"group": "apps"}]}, {"resources": [{"group": "", "resources": ["pods/status", "jobs"], "resourceNames": ["x"]}]},
    {"resources": [{"group": "*", "resources": ["jobs"]}]},
]  # fmt: skip


@pytest.mark.parametrize("many", [1, 64])
def test_a_group_may_be_any(write, many):
    assert load_file(write(HEAD + "rules: [{level: None, resources: [{group: '*'}]}]\n"))
    rules = [{"level": "None", "resources": [{"group": "*", "resources": ["*/status", "jobs"]}]}, {"level": "Metadata"}]
    made = AuditPolicy({"rules": rules}, many)
    said = {
        (group, resource, subresource): made.verdict(attributes(
            {"verb": "get", "apiGroup": group, "resource": resource, "subresource": subresource, "resourceRequest": True}, UserInfo("u")
        )).level
        for group in ("", "apps") for resource in ("pods", "jobs") for subresource in ("", "status", "log")
    }  # fmt: skip
    assert {key for key, level in said.items() if level == "None"} == {
        (group, resource, sub) for group, resource, sub in said if sub == "status" or (resource, sub) == ("jobs", "")
    }
    assert made.verdict(attributes({"verb": "get", "path": "/a", "resourceRequest": False}, UserInfo("u"))).level == "Metadata"


@pytest.mark.parametrize("seed", range(20))
def test_cached_verdicts_equal_evaluated_ones(seed):
    """Whichever attributes the rules look at."""
    rng = random.Random(seed)
    rules = [{"level": rng.choice(policy.LEVELS), **rule} for rule in rng.sample(CONDITIONAL, rng.randint(1, 4))]
    made = AuditPolicy({"rules": rules})
    users = [UserInfo(name, groups) for name in ("u", "v") for groups in ((), ("g",), ("h", "g"))]
    for _ in range(500):
        a = attributes(about(rng), rng.choice(users))
        assert made.verdict(a) is made._decide(a)


def test_the_verdict_on_a_resource_is_cached_for_a_while(monkeypatch):
    made, decided = AuditPolicy({"rules": [{"level": "Metadata", "users": ["u"], "namespaces": ["n"]}]}), []
    real = AuditPolicy._decide
    monkeypatch.setattr(AuditPolicy, "_decide", lambda self, a: decided.append(a) or real(self, a))
    ask = {"verb": "get", "namespace": "n", "resource": "pods", "name": "x", "resourceRequest": True}
    for name in ("x", "y"):  # no rule looks at names
        made.verdict(attributes({**ask, "name": name}, UserInfo("u")))
    assert len(decided) == 1
    made.verdict(attributes(ask, UserInfo("v")))
    made.verdict(attributes({**ask, "namespace": "m"}, UserInfo("u")))
    assert len(decided) == 3
    for _ in range(2):  # one that is too long to be cached
        made.verdict(attributes({**ask, "namespace": "m" * 5000}, UserInfo("u")))
    for i in range(30_000):
        made.verdict(attributes({**ask, "namespace": f"n{i}"}, UserInfo("u")))
        assert made._remembered.size <= made._remembered.budget
    assert len(decided) == 30_005 and len(made._remembered.entries) < 20_000
