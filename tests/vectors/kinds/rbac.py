"""RBAC rules, decisions, rule reviews and escalation texts."""

import asyncio

from kas.auth.attributes import ALLOW, Attributes, Authorizer
from kas.auth.authz import modes
from kas.auth.authz.escalation import missing_permissions
from kas.auth.authz.rbac import RbacIndex
from kas.auth.user import UserInfo
from kas.meta.waiting import awaited

DECISIONS = ("Deny", "Allow", "NoOpinion")
BOB = UserInfo("bob")
KINDS = ("clusterRoles", "roles", "clusterRoleBindings", "roleBindings")


def attributes(a: dict, user: UserInfo | None = None) -> Attributes:
    return Attributes(
        user or UserInfo(""),
        a["verb"],
        a.get("namespace", ""),
        a.get("apiGroup", ""),
        a.get("apiVersion", ""),
        a.get("resource", ""),
        a.get("subresource", ""),
        a.get("name", ""),
        a["resourceRequest"],
        a.get("path", ""),
    )


def bound(rules: list[dict]) -> Authorizer:
    """The authorizer of a server where bob holds these rules everywhere."""
    index = RbacIndex()
    index.put("clusterroles", {"metadata": {"name": "r"}, "rules": rules})
    ref, subjects = {"kind": "ClusterRole", "name": "r"}, [{"kind": "User", "name": "bob"}]
    index.put("clusterrolebindings", {"metadata": {"name": "b"}, "roleRef": ref, "subjects": subjects})
    return modes.build(["RBAC"], rbac=index)


def check(vector: dict, group: list[dict]) -> None:
    given, want = vector["in"], vector["out"]
    if "rules" in given:
        assert (bound(given["rules"]).authorize(attributes(given["attributes"], BOB))[0] == ALLOW) == want["allow"]
        return
    # The recorded authorizer had its roles in a fixed list, whose "not found" names no object.
    index = RbacIndex(missing=lambda kind, name: f"{kind.lower()} not found")
    for field in KINDS:
        for obj in given[field]:
            index.put(field.lower(), obj)
    authorizer = modes.build(["RBAC"], rbac=index)
    for c in want["checks"]:
        decision, reason, error = authorizer.authorize(attributes(c["attributes"], who(c["user"])))
        assert (DECISIONS[decision], reason, error or None) == (c["decision"], c["reason"], c["error"]), c
    for r in want["rulesFor"]:
        resource, other, incomplete, error = asyncio.run(awaited(index.rules_for(who(r["user"]), r["namespace"])))
        fields = ("verbs", "apiGroups", "resources", "resourceNames")
        assert [{f: x.get(f) for f in fields} for x in resource] == r["resourceRules"], r
        assert (other, incomplete, error or None) == (r["nonResourceRules"], r["incomplete"], r["error"]), r
    for e in want["escalation"]:
        assert (missing_permissions(index, who(e["user"]), e["namespace"], e["rules"]) or None) == e["error"], e


def who(u: dict) -> UserInfo:
    return UserInfo(u["name"], u.get("groups") or ())
