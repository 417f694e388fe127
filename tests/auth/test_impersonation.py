"""Impersonation: headers, modes, and which users may be impersonated by whom."""

import pytest

from kas.auth.attributes import ALLOW, NO_OPINION, Attributes
from kas.auth.authz.modes import build
from kas.auth.authz.rbac import RbacIndex
from kas.auth.impersonation import ModeCache, impersonate, wanted_user
from kas.auth.user import MASTERS, NODE_NAME, UserInfo
from kas.config import features
from kas.meta.errors import ApiError

ADMIN = UserInfo("admin", (MASTERS, "system:authenticated"))
BOB = UserInfo("bob", ("system:authenticated",))


def rbac(*rules, user="bob"):
    index = RbacIndex()
    index.put("clusterroles", {"metadata": {"name": "r"}, "rules": list(rules)})
    subject = {"kind": "User", "name": user}
    index.put("clusterrolebindings", {"metadata": {"name": "b"}, "roleRef": {"kind": "ClusterRole", "name": "r"}, "subjects": [subject]})
    return build(["RBAC"], rbac=index)


def listing_pods(user):
    return Attributes(user, "list", "ns", "", "v1", "pods")


def rule(verb, group, resource, *names):
    out = {"verbs": [verb], "apiGroups": [group], "resources": [resource]}
    return {**out, "resourceNames": list(names)} if names else out


def test_headers():
    assert wanted_user([("accept", "x")]) is None
    got = wanted_user(
        [("impersonate-user", "jane"), ("impersonate-group", "a"), ("impersonate-group", "b"), ("impersonate-extra-acme.com%2fx", "1")]
    )
    assert got == UserInfo("jane", ("a", "b"), "", {"acme.com/x": ["1"]})
    assert wanted_user([("impersonate-user", "u"), ("impersonate-extra-%zz", "1")]).extra == {"%zz": ["1"]}
    twice = [("impersonate-user", "u"), ("impersonate-user", "v"), ("impersonate-uid", ""), ("impersonate-uid", "7")]
    assert wanted_user(twice) == UserInfo("u")
    assert wanted_user([("impersonate-user", ""), ("impersonate-user", "u")]) is None


@pytest.mark.parametrize(
    "header,text",
    [
        (("impersonate-group", "g"), 'UID:"", Groups:[]string{"g"}, Extra:map[string][]string(nil)}'),
        (("impersonate-extra-x", "g"), 'UID:"", Groups:[]string(nil), Extra:map[string][]string{"x":[]string{"g"}}}'),
        (("impersonate-uid", "7"), 'UID:"7", Groups:[]string(nil), Extra:map[string][]string(nil)}'),
    ],
)
def test_attributes_without_a_name(header, text):
    with pytest.raises(ApiError) as e:
        wanted_user([header])
    assert e.value.code == 400
    assert e.value.message == f'requested &user.DefaultInfo{{Name:"", {text} without impersonating a user name'


def test_masters_may_impersonate_everyone_with_the_old_mode():
    authorizer = rbac()
    user, constraint = impersonate(authorizer, listing_pods(ADMIN), UserInfo("jane", ("dev",)), ModeCache())
    assert (user.groups, constraint) == (("dev", "system:authenticated"), "impersonate:user-info")
    user, constraint = impersonate(authorizer, listing_pods(ADMIN), UserInfo("jane", (MASTERS,)), ModeCache())
    assert (user.groups, constraint) == ((MASTERS, "system:authenticated"), "")
    user, _ = impersonate(authorizer, listing_pods(ADMIN), UserInfo("system:serviceaccount:a:b"), ModeCache())
    assert user.groups == ("system:serviceaccounts", "system:serviceaccounts:a", "system:authenticated")
    user, _ = impersonate(authorizer, listing_pods(ADMIN), UserInfo("system:anonymous"), ModeCache())
    assert user.groups == ("system:unauthenticated",)
    user, _ = impersonate(authorizer, listing_pods(ADMIN), UserInfo("system:node:n1"), ModeCache())
    assert user.groups == ("system:nodes", "system:authenticated")


def test_the_old_verb_still_works_and_is_narrow():
    authorizer = rbac(rule("impersonate", "", "users", "jane"), rule("impersonate", "", "groups", "dev"))
    assert impersonate(authorizer, listing_pods(BOB), UserInfo("jane", ("dev",)), ModeCache())[0].name == "jane"
    for wanted in (UserInfo("joe"), UserInfo("jane", ("ops",)), UserInfo("jane", (MASTERS,)), UserInfo("jane", (), "7")):
        with pytest.raises(ApiError) as e:
            impersonate(authorizer, listing_pods(BOB), wanted, ModeCache())
        assert e.value.code == 403


def test_constrained_mode_needs_both_verbs_and_refuses_masters():
    on, who = rule("impersonate-on:user-info:list", "", "pods"), rule("impersonate:user-info", "authentication.k8s.io", "*")
    assert impersonate(rbac(on, who), listing_pods(BOB), UserInfo("jane", ("dev",)), ModeCache())[1] == "impersonate:user-info"
    for rules in ((on,), (who,)):
        with pytest.raises(ApiError):
            impersonate(rbac(*rules), listing_pods(BOB), UserInfo("jane"), ModeCache())
    with pytest.raises(ApiError, match="impersonating the system:masters group is not allowed"):
        impersonate(rbac(on, who), listing_pods(BOB), UserInfo("jane", (MASTERS,)), ModeCache())
    with pytest.raises(ApiError, match="invalid key in extra"):
        impersonate(rbac(on, who), listing_pods(BOB), UserInfo("jane", extra={"x": ["1"]}), ModeCache())


def test_without_the_gate_only_the_old_verb_counts():
    constrained = rbac(rule("impersonate-on:user-info:list", "", "pods"), rule("impersonate:user-info", "authentication.k8s.io", "users"))
    wanted = UserInfo("jane")
    assert impersonate(constrained, listing_pods(BOB), wanted, ModeCache())[1] == "impersonate:user-info"
    with features.DEFAULT.overridden(ConstrainedImpersonation=False):
        with pytest.raises(ApiError) as e:
            impersonate(constrained, listing_pods(BOB), wanted, ModeCache())
        assert e.value.message.startswith('users "jane" is forbidden: User "bob" cannot impersonate resource "users" in API group ""')
        assert impersonate(rbac(rule("impersonate", "", "users")), listing_pods(BOB), wanted, ModeCache())[1] == ""


def test_the_refusal_is_that_of_the_first_mode():
    with pytest.raises(ApiError) as e:
        impersonate(rbac(), listing_pods(BOB), UserInfo("jane"), ModeCache())
    assert e.value.message == (
        'pods is forbidden: User "bob" cannot impersonate-on:user-info:list resource "pods" in API group "" in the namespace "ns"'
    )
    with pytest.raises(ApiError) as e:
        impersonate(rbac(), listing_pods(BOB), UserInfo("system:serviceaccount:a:b", ("g",)), ModeCache())
    assert e.value.message == (
        'serviceaccounts "b" is forbidden: User "bob" cannot impersonate resource "serviceaccounts" in API group "" in the namespace "a"'
    )


def test_a_node_agent_may_impersonate_only_its_own_node():
    agent = UserInfo("system:serviceaccount:kube-system:agent", ("system:authenticated",), extra={NODE_NAME: ["n1"]})
    rules = (
        rule("impersonate-on:associated-node:list", "", "pods"),
        rule("impersonate:associated-node", "authentication.k8s.io", "nodes"),
    )
    authorizer = rbac(*rules, user=agent.name)
    assert impersonate(authorizer, listing_pods(agent), UserInfo("system:node:n1"), ModeCache())[1] == "impersonate:associated-node"
    with pytest.raises(ApiError):
        impersonate(authorizer, listing_pods(agent), UserInfo("system:node:n2"), ModeCache())


def test_a_revoked_right_ends_with_the_next_request():
    """Upstream caches for ten seconds that a constrained mode was allowed; here the current rights count."""
    allowed, asked, last = [True], [], ModeCache()

    class Fickle:
        def authorize(self, a):
            asked.append(a.verb)
            return (ALLOW if allowed[0] else NO_OPINION, "", "")

    authorizer = Fickle()
    assert impersonate(authorizer, listing_pods(BOB), UserInfo("jane"), last)[1] == "impersonate:user-info"
    allowed[0] = False
    with pytest.raises(ApiError) as e:
        impersonate(authorizer, listing_pods(BOB), UserInfo("jane"), last)
    assert e.value.code == 403 and asked == ["impersonate-on:user-info:list", "impersonate:user-info", "impersonate-on:user-info:list",
                                             "impersonate"]  # fmt: skip


class Asked:
    """An authorizer that allows what is not in ``but``, and records its checks."""

    def __init__(self, *but):
        self.but, self.questions = but, []

    def authorize(self, a):
        self.questions.append((a.namespace, a.api_group, a.api_version, a.resource, a.subresource, a.name))
        return (NO_OPINION, "told", "kept back") if a.name in self.but else (ALLOW, "", None)


def test_without_modes_checks_have_the_order_of_the_old_filter():
    wanted = UserInfo("tester", ("system:authenticated", "g"), "some-uid", {"scopes": ["scope-a", "scope-b"]})
    named = "authentication.k8s.io"
    with features.DEFAULT.overridden(ConstrainedImpersonation=False):
        asked = Asked()
        user, constraint = impersonate(asked, listing_pods(BOB), wanted, ModeCache())
        assert (user, constraint) == (wanted, "")
        assert asked.questions == [
            ("", "", "", "users", "", "tester"), ("", "", "", "groups", "", "system:authenticated"), ("", "", "", "groups", "", "g"),
            ("", named, "v1", "userextras", "scopes", "scope-a"), ("", named, "v1", "userextras", "scopes", "scope-b"),
            ("", named, "v1", "uids", "", "some-uid"),
        ]  # fmt: skip
        asked = Asked("scope-b", "some-uid")
        with pytest.raises(ApiError) as e:
            impersonate(asked, listing_pods(BOB), wanted, ModeCache())
        assert asked.questions[-1][-1] == "scope-b"
        assert e.value.message == (
            'userextras.authentication.k8s.io "scope-b" is forbidden: User "bob" cannot impersonate resource '
            '"userextras/scopes" in API group "authentication.k8s.io" at the cluster scope: told'
        )
        asked = Asked()
        user, _ = impersonate(asked, listing_pods(BOB), UserInfo("system:serviceaccount:foo:default"), ModeCache())
        assert user.groups == ("system:serviceaccounts", "system:serviceaccounts:foo", "system:authenticated")
        assert asked.questions == [("foo", "", "", "serviceaccounts", "", "default")]


def test_without_modes_attributes_without_a_name():
    headers = [("impersonate-uid", "some-uid"), ("impersonate-extra-scopes", "scope-a"), ("impersonate-group", "some-group")]
    with features.DEFAULT.overridden(ConstrainedImpersonation=False), pytest.raises(ApiError) as e:
        wanted_user(headers)
    assert (e.value.code, e.value.message) == (
        400,
        "requested [{Group  some-group    } {UserExtra  scope-a  authentication.k8s.io/v1  scopes} "
        "{UID  some-uid  authentication.k8s.io/v1  }] without impersonating a user",
    )
