"""The ABAC authorizer: policies a line each, in both of their forms."""

import pytest

from kas.auth.attributes import ALLOW, NO_OPINION, Attributes
from kas.auth.authz.abac import PolicyError, load_policy_file, parse_policies
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
    with pytest.raises(PolicyError, match=r"policy file, line 2: .*: expected a Policy"):
        parse_policies('\n{"apiVersion": "v1", "kind": "Pod"}')
