"""The meaning of an empty selector in versions of disruption budgets (``pkg/apis/policy/v1beta1/conversion.go``, ``v1/conversion.go``).

policy/v1beta1 is no longer served, but may be stored.
"""

from __future__ import annotations

from kas.types.conversion import Obj, converts
from kas.types.defaults import defaults_for

KIND = "PodDisruptionBudget"
# The label key with which either version represents the other's meaning.
EMPTY = "pdb.kubernetes.io/deprecated-v1beta1-empty-selector-match"
ALL, NONE = ({"matchExpressions": [{"key": EMPTY, "operator": operator}]} for operator in ("DoesNotExist", "Exists"))


@converts(("policy", "v1beta1", KIND), ("policy", "v1", KIND))
def budget(obj: Obj) -> Obj:
    """Convert an empty selector, which selected no pods in v1beta1 and selects all in v1."""
    spec = obj.get("spec") or {}
    selector = spec.get("selector")
    if selector is None:
        return obj
    given = {key: value for key, value in selector.items() if value}
    if not given:
        given = NONE
    elif given == ALL:
        given = {}
    else:
        given = _stripped(given)
    return {**obj, "spec": {**spec, "selector": given}}


@defaults_for("policy", "v1", KIND)
def reserved_key(obj: Obj) -> None:
    """Drop the reserved key unless it is alone, in the selector of no pods. Upstream does this while decoding, after the defaults."""
    spec = obj.get("spec") or {}
    expressions = (spec.get("selector") or {}).get("matchExpressions") or ()
    if any(one.get("key") == EMPTY for one in expressions):
        given = {key: value for key, value in spec["selector"].items() if value}
        if {**given, "matchExpressions": [{k: v for k, v in one.items() if v} for one in expressions]} != NONE:
            spec["selector"] = _stripped(given)


def _stripped(selector: Obj) -> Obj:
    kept = [one for one in selector.get("matchExpressions") or () if one.get("key") != EMPTY]
    return {**{key: value for key, value in selector.items() if key != "matchExpressions"}, **({"matchExpressions": kept} if kept else {})}
