"""Privilege escalation through roles and bindings is refused."""

import pytest

from kas.auth.authz.escalation import check_binding, check_role
from kas.auth.authz.rbac import RbacIndex
from kas.meta.errors import ApiError
from tests.auth.rbacobjects import BOB, READ, ROOT, binding, role


def refused(call, *args, **kwargs):
    with pytest.raises(ApiError) as e:
        call(*args, **kwargs)
    return e.value


@pytest.fixture
def index():
    index = RbacIndex()
    index.put("clusterroles", role("reader", READ))
    index.put("clusterroles", role("root", [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]))
    index.put("clusterrolebindings", binding("b", "ClusterRole", "reader", "bob"))
    return index


def test_roles_grant_no_more_than_their_author_has(index):
    check_role(index, index, BOB, "clusterroles", "", "", role("new", READ))
    wide = role("new", [{"verbs": ["get", "delete"], "apiGroups": [""], "resources": ["pods"]}])
    e = refused(check_role, index, index, BOB, "clusterroles", "", "", wide)
    assert e.code == 403 and e.message == (
        'clusterroles.rbac.authorization.k8s.io "new" is forbidden: user "bob" (groups=["system:authenticated"]) is attempting to grant '
        'RBAC permissions not currently held:\n{APIGroups:[""], Resources:["pods"], Verbs:["delete"]}'
    )
    check_role(index, index, ROOT, "clusterroles", "", "", wide)
    # The garbage collector's own writes change no rule.
    check_role(index, index, BOB, "clusterroles", "", "new", {**wide, "metadata": {"name": "new", "finalizers": []}}, wide)
    gathering = role("new", READ, aggregationRule={"clusterRoleSelectors": [{}]})
    e = refused(check_role, index, index, BOB, "clusterroles", "", "", gathering)
    assert e.message.endswith("must have cluster-admin privileges to use the aggregationRule")
    escalate = {"verbs": ["escalate"], "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"]}
    index.put("clusterroles", role("reader", [*READ, escalate]))
    check_role(index, index, BOB, "clusterroles", "", "", wide)


def test_bindings_need_the_rights_or_the_verb_bind(index):
    check_binding(index, index, BOB, "rolebindings", "ns", binding("n", "ClusterRole", "reader", "x", namespace="ns"))
    e = refused(check_binding, index, index, BOB, "rolebindings", "ns", binding("n", "ClusterRole", "root", "x", namespace="ns"))
    assert e.code == 403
    e = refused(check_binding, index, index, BOB, "rolebindings", "ns", binding("n", "Role", "none", "x", namespace="ns"))
    assert (e.code, e.message) == (404, 'role.rbac.authorization.k8s.io "none" not found')
    bind = {"verbs": ["bind"], "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "resourceNames": ["root"]}
    index.put("clusterroles", role("reader", [*READ, bind]))
    check_binding(index, index, BOB, "rolebindings", "ns", binding("n", "ClusterRole", "root", "x", namespace="ns"))


def test_the_length_of_a_refusal_is_bounded(index):
    long = "x" * 100_000
    wide = {"verbs": ["get"], "apiGroups": [long], "resources": [f"r{i}" for i in range(400)]}
    e = refused(check_role, index, index, BOB, "clusterroles", "", "", role("new", [wide]))
    assert e.message.endswith("\nand more") and 1_000_000 < len(e.message) < 1_300_000
