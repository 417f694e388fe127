"""RBAC beyond the vectors: changes are seen at once, escalation is refused."""

import pytest

from kas.api.errors import ApiError
from kas.auth.attributes import ALLOW, NO_OPINION, Attributes, forbidden
from kas.auth.authz.escalation import check_binding, check_role
from kas.auth.authz.modes import AlwaysAllowPaths, AlwaysDeny, Union, build
from kas.auth.authz.rbac import MAX_SHAPES, MAX_USERS, RbacIndex
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
    for i in range(MAX_SHAPES + 10):
        index.authorize(get(BOB, ns=f"n{i}"))
        index.authorize(Attributes(BOB, "get", resource_request=False, path=f"/x{i}"))
    for i in range(MAX_USERS + 10):
        index.authorize(get(UserInfo(f"u{i}")))
    assert len(index._matchers) <= MAX_USERS
    assert all(len(m.shapes) <= MAX_SHAPES and len(m.paths) <= MAX_SHAPES for m in index._matchers.values())
    assert index.authorize(get(BOB))[0] == ALLOW


def test_names_narrow_a_rule():
    index = RbacIndex()
    rules = [{**READ[0], "resourceNames": ["a", "b"]}]
    index.put("clusterroles", role("r", rules))
    index.put("clusterrolebindings", binding("b", "ClusterRole", "r", "bob"))
    assert [index.authorize(get(BOB, n))[0] for n in ("a", "b", "c", "")] == [ALLOW, ALLOW, NO_OPINION, NO_OPINION]


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


def test_roles_grant_no_more_than_their_author_holds(index):
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


def test_bindings_need_the_rights_or_bind(index):
    check_binding(index, index, BOB, "rolebindings", "ns", binding("n", "ClusterRole", "reader", "x", namespace="ns"))
    e = refused(check_binding, index, index, BOB, "rolebindings", "ns", binding("n", "ClusterRole", "root", "x", namespace="ns"))
    assert e.code == 403
    e = refused(check_binding, index, index, BOB, "rolebindings", "ns", binding("n", "Role", "none", "x", namespace="ns"))
    assert (e.code, e.message) == (404, 'role.rbac.authorization.k8s.io "none" not found')
    bind = {"verbs": ["bind"], "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "resourceNames": ["root"]}
    index.put("clusterroles", role("reader", [*READ, bind]))
    check_binding(index, index, BOB, "rolebindings", "ns", binding("n", "ClusterRole", "root", "x", namespace="ns"))


def test_modes():
    index = RbacIndex()
    assert build(["RBAC"], rbac=index).authorize(get(ROOT))[0] == ALLOW
    assert build(["AlwaysDeny"]).authorize(get(BOB)) == (NO_OPINION, "Everything is forbidden.", "")
    for modes in ([], ["Nope"], ["RBAC", "RBAC"], ["ABAC"]):
        with pytest.raises(ValueError):
            build(modes, rbac=index)
    paths = AlwaysAllowPaths(["/healthz", "/x/*"])
    for path, allowed in {"/healthz": True, "/healthz/x": False, "/x/y": True, "/x": False}.items():
        assert (paths.authorize(Attributes(BOB, "get", resource_request=False, path=path))[0] == ALLOW) == allowed
    assert paths.authorize(get(BOB))[0] == NO_OPINION
    with pytest.raises(ValueError):
        AlwaysAllowPaths(["/a*b"])
    assert Union([AlwaysDeny(), AlwaysDeny()]).authorize(get(BOB))[1] == "Everything is forbidden.\nEverything is forbidden."


def test_refusal_is_harmless_for_browsers():
    e = forbidden(Attributes(UserInfo("<b>"), "get", resource_request=False, path="/a&b"), "why")
    assert e.message == 'forbidden: User "&lt;b&gt;" cannot get path "/a&amp;b": why'
    assert e.details == {}
