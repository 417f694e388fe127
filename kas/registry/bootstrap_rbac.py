"""Bringing RBAC up to date: bootstrap roles after an upgrade, aggregated roles after any change.

``component-helpers``' ``auth/rbac/reconciliation`` and the controller ``clusterroleaggregation``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from kas.auth.authz.rules import covers
from kas.meta.labelselectors import converted

Obj = dict[str, Any]

AUTOUPDATE = "rbac.authorization.kubernetes.io/autoupdate"


def reconcile(resource: str, wanted: Obj, old: Obj) -> tuple[str, Obj]:
    """("", old) when nothing is to do, else ("update" or "recreate", the object to write).

    What is missing is added, what somebody added is kept; an object annotated autoupdate=false is left alone.
    """
    if (old["metadata"].get("annotations") or {}).get(AUTOUPDATE) == "false":
        return "", old
    if resource in ("clusterrolebindings", "rolebindings"):
        if wanted["roleRef"] != old["roleRef"]:
            # A roleRef is immutable; the subjects people have added move to the new object.
            extra = [s for s in old.get("subjects") or () if s not in (wanted.get("subjects") or ())]
            subjects = [*(wanted.get("subjects") or ()), *extra]
            return "recreate", {**wanted, "subjects": subjects} if subjects else wanted
        out = _merge_meta(wanted, old)
        missing = [s for s in wanted.get("subjects") or () if s not in (old.get("subjects") or ())]
        if missing:
            out = {**out, "subjects": [*(old.get("subjects") or ()), *missing]}
        return ("update", out) if out is not old else ("", old)
    out = _merge_meta(wanted, old)
    # A start finds nearly all roles as it left them, and looking for what covers what costs more than the rest of it.
    as_wanted = old.get("rules") == wanted.get("rules")
    if not (as_wanted or (wanted.get("aggregationRule") and old.get("aggregationRule"))):
        missing_rules = covers(old.get("rules") or [], wanted.get("rules") or [])
        if missing_rules:
            out = {**out, "rules": [*(old.get("rules") or ()), *missing_rules]}
    have = (old.get("aggregationRule") or {}).get("clusterRoleSelectors") or []
    lacking = [s for s in (wanted.get("aggregationRule") or {}).get("clusterRoleSelectors") or () if s not in have]
    if lacking:
        out = {**out, "aggregationRule": {"clusterRoleSelectors": [*have, *lacking]}}
    return ("update", out) if out is not old else ("", old)


def _merge_meta(wanted: Obj, old: Obj) -> Obj:
    """Labels and annotations that are missing are added, existing values win; the same object when none is."""
    meta = old["metadata"]
    for key in ("labels", "annotations"):
        merged = {**(wanted["metadata"].get(key) or {}), **(meta.get(key) or {})}
        if merged != (meta.get(key) or {}):
            meta = {**meta, key: merged}
    return old if meta is old["metadata"] else {**old, "metadata": meta}


def aggregate(cluster_roles: Sequence[Obj]) -> list[tuple[str, list[Obj]]]:
    """(name, rules it should have) for every aggregated ClusterRole whose rules are not what its selectors gather."""
    by_name = sorted(cluster_roles, key=lambda r: r["metadata"]["name"])
    out = []
    for role in by_name:
        aggregation = role.get("aggregationRule")
        if not aggregation:
            continue
        selectors = [converted(selector) for selector in aggregation.get("clusterRoleSelectors") or ()]
        if None in selectors:
            # A selector that means nothing gathers nothing, and takes nothing away.
            continue
        name = role["metadata"]["name"]
        gathered: dict[bytes, Obj] = {}  # each once, by what it says
        for selector in filter(None, selectors):
            for other in by_name:
                if other["metadata"]["name"] == name or not selector.matches(other["metadata"].get("labels")):
                    continue
                for rule in other.get("rules") or ():
                    gathered.setdefault(orjson.dumps(rule, option=orjson.OPT_SORT_KEYS), rule)
        if (found := list(gathered.values())) != (role.get("rules") or []):
            out.append((name, found))
    return out
