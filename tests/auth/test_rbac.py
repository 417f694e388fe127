"""The RBAC authorizer beyond the vectors: changes are seen at once, memory is bounded."""

import pytest

from kas.auth.attributes import ALLOW, NO_OPINION, Attributes
from kas.auth.authz.rbac import COMPILED_BYTES, RbacIndex
from kas.auth.user import MASTERS, UserInfo

BOB = UserInfo("bob", ("system:authenticated",))
READ = [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]
ROOT = UserInfo("root", (MASTERS,))


def role(name, rules, namespace="", **more):
    return {"metadata": {"name": name, **({"namespace": namespace} if namespace else {})}, "rules": rules, **more}


def binding(name, kind, ref, *users, namespace=""):
    meta = {"name": name, **({"namespace": namespace} if namespace else {})}
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": ref}
    return {"metadata": meta, "roleRef": ref, "subjects": [{"kind": "User", "name": u} for u in users]}


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


def test_names_narrow_a_rule():
    index = RbacIndex()
    rules = [{**READ[0], "resourceNames": ["a", "b"]}]
    index.put("clusterroles", role("r", rules))
    index.put("clusterrolebindings", binding("b", "ClusterRole", "r", "bob"))
    assert [index.authorize(get(BOB, n))[0] for n in ("a", "b", "c", "")] == [ALLOW, ALLOW, NO_OPINION, NO_OPINION]
