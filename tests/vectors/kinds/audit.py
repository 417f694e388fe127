"""Audit policies: their errors, and their decisions."""

from kas.audit.policy import AuditPolicy, validate
from kas.auth.user import UserInfo
from tests.vectors.kinds.rbac import attributes


def check(vector: dict, group: list[dict]) -> None:
    policy, want = vector["in"]["policy"], vector["out"]
    errors = [{"type": e.type, "field": e.field, "detail": e.detail, "message": str(e)} for e in validate(policy)]
    assert errors == (want.get("validationErrors") or [])
    if errors:
        return
    compiled, looked_up = AuditPolicy(policy), AuditPolicy(policy, many=1)
    for c in want["checks"]:
        a = c["attributes"]
        user = UserInfo(c["user"]["name"], c["user"].get("groups") or ())
        v = compiled.verdict(attributes(a, user))
        assert looked_up.verdict(attributes(a, user)) == v, c
        wanted = (c["level"], sorted(c["omitStages"] or []), c["omitManagedFields"])
        assert (v.level, sorted(v.omit_stages), v.omit_managed_fields) == wanted, c
        assert compiled.always in (None, v)
