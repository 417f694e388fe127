"""RBAC rules, decisions, rule reviews and escalation texts."""

from kas.auth.attributes import Attributes
from kas.auth.authz.escalation import missing_permissions
from kas.auth.authz.rbac import RbacIndex
from kas.auth.authz.rules import rules_allow
from kas.auth.user import UserInfo

DECISIONS = ("Deny", "Allow", "NoOpinion")
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


def check(vector: dict, group: list[dict]) -> None:
    given, want = vector["in"], vector["out"]
    if "rules" in given:
        assert rules_allow(attributes(given["attributes"]), given["rules"]) == want["allow"]
        return
    # The recorded authorizer had its roles in a fixed list, whose "not found" names no object.
    index = RbacIndex(missing=lambda kind, name: f"{kind.lower()} not found")
    for field in KINDS:
        for obj in given[field]:
            index.put(field.lower(), obj)
    for c in want["checks"]:
        decision, reason, error = index.authorize(attributes(c["attributes"], who(c["user"])))
        assert (DECISIONS[decision], reason, error or None) == (c["decision"], c["reason"], c["error"]), c
    for r in want["rulesFor"]:
        resource, other, incomplete, error = index.rules_for(who(r["user"]), r["namespace"])
        fields = ("verbs", "apiGroups", "resources", "resourceNames")
        assert [{f: x.get(f) for f in fields} for x in resource] == r["resourceRules"], r
        assert (other, incomplete, error or None) == (r["nonResourceRules"], r["incomplete"], r["error"]), r
    for e in want["escalation"]:
        assert (missing_permissions(index, who(e["user"]), e["namespace"], e["rules"]) or None) == e["error"], e


def who(u: dict) -> UserInfo:
    return UserInfo(u["name"], u.get("groups") or ())
