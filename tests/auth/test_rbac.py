"""The RBAC authorizer beyond the vectors: changes are seen at once, memory is bounded."""

import pytest

from kas.auth.attributes import ALLOW, NO_OPINION, Attributes
from kas.auth.authz.rbac import COMPILED_BYTES, MANY_GROUPS, MOST_RULES, LargeBinding, RbacIndex
from kas.auth.authz.roles import Role
from kas.auth.user import UserInfo
from tests.auth.rbacobjects import BOB, READ, binding, role


def get(user, name="p", ns="ns", resource="pods", verb="get"):
    return Attributes(user, verb, ns, "", "v1", resource, "", name)


def test_every_change_counts_at_once():
    index = RbacIndex()
    assert index.authorize(get(BOB))[0] == NO_OPINION
    index.put("rolebindings", binding("b", "Role", "r", "bob", namespace="ns"))
    text = 'RBAC: role.rbac.authorization.k8s.io "r" not found'
    assert index.authorize(get(BOB)) == (NO_OPINION, text, "")
    index.put("roles", role("r", READ, "ns"))
    assert index.authorize(get(BOB))[0] == ALLOW
    index.put("rolebindings", binding("b", "Role", "r", "jane", namespace="ns"))
    assert index.authorize(get(BOB)) == (NO_OPINION, "", "")
    index.put("rolebindings", binding("b", "Role", "r", "bob", "jane", namespace="ns"))
    assert index.authorize(get(BOB))[0] == ALLOW
    index.delete("rolebindings", "ns", "b")
    assert index.authorize(get(BOB))[0] == NO_OPINION
    index.delete("roles", "ns", "r")
    with pytest.raises(ValueError):
        index.put("pods", role("r", READ))


def test_memory_is_bounded_against_made_up_names():
    index = RbacIndex()
    index.put("clusterroles", role("r", READ))
    index.put("clusterrolebindings", binding("b", "ClusterRole", "r", "bob"))
    for i in range(5000):
        index.authorize(get(BOB, ns=f"n{i}"))
        index.authorize(Attributes(BOB, "get", resource_request=False, path=f"/x{i}"))
    for i in range(30_000):
        index.authorize(get(UserInfo(f"u{i}")))
        assert index._room.size <= COMPILED_BYTES
    assert len(index._matchers) < 30_000
    assert index.authorize(get(BOB))[0] == ALLOW


def test_somebody_of_more_groups_than_are_bound():
    """Is found by those that are bound, and remembered nowhere but with the identity: a review may ask about 100,000 groups."""
    index = RbacIndex()
    index.put("clusterroles", role("r", READ))
    of_group = {**binding("b", "ClusterRole", "r"), "subjects": [{"kind": "Group", "name": n} for n in ("g5", "other")]}
    index.put("clusterrolebindings", of_group)
    index.put_large_binding("ns", "l", LargeBinding("ns", lambda: {**of_group, "metadata": {"name": "l", "namespace": "ns"}}))
    many = UserInfo("x", (f"g{i}" for i in range(MANY_GROUPS + 1)))
    walked = index._scopes[""].by_subject = Walked(index._scopes[""].by_subject)
    text = 'RBAC: allowed by ClusterRoleBinding "b" of ClusterRole "r" to Group "g5"'
    assert index.authorize(get(many))[:2] == (ALLOW, text)
    assert walked.asked <= 4 and not index._matchers
    compiled = many.compiled
    assert index.authorize(get(many))[0] == ALLOW and many.compiled is compiled
    index.delete("clusterrolebindings", "", "b")
    assert index.authorize(get(many))[:2] == (ALLOW, 'RBAC: allowed by RoleBinding "l/ns" of ClusterRole "r" to Group "g5"')
    assert index.authorize(get(UserInfo("x", many.groups[6:])))[0] == NO_OPINION


class Walked(dict):
    """Counts the keys that were looked up."""

    asked = 0

    def get(self, key, default=None):
        self.asked += 1
        return super().get(key, default)

    def __getitem__(self, key):
        self.asked += 1
        return super().__getitem__(key)


def test_names_narrow_a_rule():
    index = RbacIndex()
    rules = [{**READ[0], "resourceNames": ["a", "b"]}]
    index.put("clusterroles", role("r", rules))
    index.put("clusterrolebindings", binding("b", "ClusterRole", "r", "bob"))
    assert [index.authorize(get(BOB, n))[0] for n in ("a", "b", "c", "")] == [ALLOW, ALLOW, NO_OPINION, NO_OPINION]


def test_a_role_counts_once_however_often_it_is_bound():
    """And decisions hold its names, not its rules: 1,000 bindings of 40,000 rules were 40 million entries for each kind of request."""
    index = RbacIndex()
    rules = [{**READ[0], "resourceNames": [f"p{i}"]} for i in range(2000)]
    index.put("roles", role("r", rules, "ns"))
    for i in range(300):
        index.put("rolebindings", binding(f"b{i}", "Role", "r", "bob", namespace="ns"))
    row = index.compile_shape(index.matcher(BOB), Attributes(BOB, "get", "ns", "", "v1", "pods", "", ""))
    assert [len(names) if names else 0 for names, _ in row] == [2000, 0]
    assert "RoleBinding \"b0/ns\"" in row[0][1][1]
    resource, other, incomplete, error = index.rules_for(BOB, "ns")
    assert (len(resource), other, incomplete) == (MOST_RULES, [], True) and error == f"there are more than {MOST_RULES} rules"


def test_a_role_is_read_when_it_is_asked_for():
    index, asked = RbacIndex(), []
    index.put_role("ns", "r", Role(lambda: asked.append(1) or READ))
    index.put("rolebindings", binding("b", "Role", "r", "bob", namespace="ns"))
    assert not asked
    assert [index.authorize(get(BOB))[0], index.authorize(get(BOB, verb="put"))[0], asked] == [ALLOW, NO_OPINION, [1]]


def test_a_large_binding_is_read_when_somebody_asks_and_grants_what_others_do():
    index, read = RbacIndex(), []
    index.put("roles", {"metadata": {"name": "r", "namespace": "ns"}, "rules": READ})
    index.put("rolebindings", binding("z", "Role", "r", "ann", namespace="ns"))

    def load():
        read.append(1)
        return binding("b", "Role", "r", "eve", "bob", namespace="ns")

    index.put_large_binding("ns", "b", LargeBinding("ns", load))
    assert not read
    assert index.authorize(get(BOB))[:2] == (ALLOW, 'RBAC: allowed by RoleBinding "b/ns" of Role "r" to User "bob"')
    assert index.authorize(get(UserInfo("ann")))[0] == ALLOW and index.authorize(get(UserInfo("mallory")))[0] == NO_OPINION
    assert read == [1]
    index.put("rolebindings", binding("b", "Role", "r", "ann", namespace="ns"))
    assert index.authorize(get(BOB))[0] == NO_OPINION
    index.put_large_binding("ns", "b", LargeBinding("ns", load))
    assert index.authorize(get(BOB))[0] == ALLOW
    index.keep_only("rolebindings", {("ns", "z")})
    assert index.authorize(get(BOB))[0] == NO_OPINION
