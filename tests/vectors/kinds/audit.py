"""Audit policies: what is wrong with them, and what they decide."""

from kas.auth.attributes import Attributes
from kas.auth.user import UserInfo
from kas.observe.audit_policy import AuditPolicy, validate


def check(vector: dict, group: list[dict]) -> None:
    policy, want = vector["in"]["policy"], vector["out"]
    errors = [{"type": e.type, "field": e.field, "detail": e.detail, "message": str(e)} for e in validate(policy)]
    assert errors == (want.get("validationErrors") or [])
    if errors:
        return
    compiled = AuditPolicy(policy)
    for c in want["checks"]:
        a = c["attributes"]
        user = UserInfo(c["user"]["name"], c["user"].get("groups") or ())
        question = Attributes(
            user,
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
        v = compiled.verdict(question)
        wanted = (c["level"], sorted(c["omitStages"] or []), c["omitManagedFields"])
        assert (v.level, sorted(v.omit_stages), v.omit_managed_fields) == wanted, c
