"""The ABAC authorizer: one policy in each line, in both formats."""

import pytest

from kas.auth.attributes import ALLOW, NO_OPINION, Attributes
from kas.auth.authz.abac import Abac, PolicyError, load_policy_file, parse_policies
from kas.auth.authz.modes import build
from kas.auth.user import UserInfo


def test_abac(tmp_path):
    lines = [
        "# comment",
        '{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":'
        '{"user":"bob","namespace":"ns","resource":"pods","apiGroup":"*","readonly":true}}',
        '{"user":"alice","resource":"services"}',
        '{"group":"ops"}',
    ]
    path = tmp_path / "policy"
    path.write_text("\n".join(lines))
    abac = build(["ABAC"], abac=load_policy_file(str(path)))

    def may(name, verb, resource, ns="ns", groups=()):
        return abac.authorize(Attributes(UserInfo(name, groups), verb, ns, "", "v1", resource))[0] == ALLOW

    assert may("bob", "get", "pods") and not may("bob", "delete", "pods") and not may("bob", "get", "pods", "other")
    assert may("alice", "delete", "services") and not may("alice", "get", "pods")
    assert may("x", "delete", "anything", groups=("ops",)) and not may("x", "get", "pods")
    assert abac.authorize(Attributes(UserInfo("x"), "get", "ns", "", "v1", "pods")) == (NO_OPINION, "No policy matched.", "")
    with pytest.raises(PolicyError, match=r"policy file, line 2: .*: no kind \"Pod\" is registered for version \"v1\" in scheme"):
        parse_policies('\n{"apiVersion": "v1", "kind": "Pod"}')


def test_many_policies_and_a_user_of_many_groups():
    """A review may ask about 100,000 groups: no policy iterates over them."""
    compared = []

    class Group(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other):
            compared.append(other)
            return str.__eq__(self, other)

    abac = build(["ABAC"], abac=Abac(parse_policies("\n".join(f'{{"group":"g{i}"}}' for i in range(100)))))
    a = Attributes(UserInfo("x", map(Group, (*map(str, range(100)), "g99"))), "get", "ns", "", "v1", "pods")
    assert abac.authorize(a)[0] == ALLOW and len(compared) < 200


def test_policies_of_other_users_are_not_examined():
    looked = []

    class Policy(dict):
        def get(self, key, default=None):
            looked.append(self["user"])
            return dict.get(self, key, default)

    policies = [Policy(user=f"u{i}", namespace="ns", resource="pods", apiGroup="*") for i in range(1000)]
    abac = Abac(policies)
    looked.clear()
    for name, decision in (("u999", ALLOW), ("nobody", NO_OPINION)):
        a = Attributes(UserInfo(name, ("system:authenticated",)), "get", "ns", "", "v1", "pods")
        assert abac.authorize(a)[0] == decision
    assert set(looked) == {"u999"}


def test_a_policy_with_user_and_group_needs_both():
    abac = Abac(parse_policies('{"user":"bob","group":"ops"}\n{"group":"dev","resource":"pods"}'))

    def may(name, *groups):
        return abac.authorize(Attributes(UserInfo(name, groups), "get", "ns", "", "v1", "pods"))[0] == ALLOW

    assert may("bob", "ops") and may("bob", "a", "b", "dev") and may("x", "dev")
    assert not may("bob") and not may("x", "ops") and not may("ops", "bob")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('{"user":', "couldn't get version/kind; json parse error: unexpected end of JSON input"),
        ('{"user": "a"]', "couldn't get version/kind; json parse error: invalid character ']' after object key:value pair"),
        ("[]", "couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value of type struct {"),
        ('{"kind": 5}',
         "couldn't get version/kind; json parse error: json: cannot unmarshal number into Go struct field .kind of type string"),
        ('{"user": 5}', "json: cannot unmarshal number into Go struct field Policy.user of type string"),
        ('{"readonly": "yes"}', "json: cannot unmarshal string into Go struct field Policy.readonly of type bool"),
        ('{"kind": "Pod"}', 'no kind "Pod" is registered for version "abac.authorization.kubernetes.io/v0" in scheme "pkg/apis/abac/'),
        ('{"apiVersion": "v1"}', 'no kind "Policy" is registered for version "v1" in scheme "pkg/apis/abac/register.go:33"'),
        ('{"apiVersion":"abac.authorization.kubernetes.io/v1beta1"}', "converting (v1beta1.Policy) to (v0.Policy): unknown conversion"),
        ('{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"group":[]}}',
         "json: cannot unmarshal array into Go struct field PolicySpec.spec.group of type string"),
    ],
)  # fmt: skip
def test_an_invalid_line_is_refused(line, why):
    with pytest.raises(PolicyError) as e:
        parse_policies(f"# comment\n {line}\n", "p")
    assert str(e.value).startswith(f"error reading policy file p, line 2:  {line}: {why}")


def test_lines_may_be_yaml():
    assert parse_policies("user: alice")[0] == {"user": "alice", "apiGroup": "*", "namespace": "*", "resource": "*", "nonResourcePath": "*"}
    assert parse_policies('{"kind": "Policy", "user": "alice"}') == parse_policies('{"user": "alice"}')
    (nobody,) = parse_policies('{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy"}')
    assert nobody == {}
