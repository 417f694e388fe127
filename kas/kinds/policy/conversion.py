"""What the versions of disruption budgets mean by an empty selector (``pkg/apis/policy/v1beta1/conversion.go``, ``v1/conversion.go``).

policy/v1beta1 is not served any more, but may be stored.
"""

from __future__ import annotations

from kas.types.conversion import Obj, converts
from kas.types.defaults import defaults_for

KIND = "PodDisruptionBudget"
# By which the two versions say in one another what they mean.
EMPTY = "pdb.kubernetes.io/deprecated-v1beta1-empty-selector-match"
ALL, NONE = ({"matchExpressions": [{"key": EMPTY, "operator": operator}]} for operator in ("DoesNotExist", "Exists"))


@converts(("policy", "v1beta1", KIND), ("policy", "v1", KIND))
def budget(obj: Obj) -> Obj:
    """An empty selector selected no pod, where in v1 it selects all."""
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
    """The key stands alone, in a selector of no pod, or not at all. Upstream takes it out after the defaults, as it decodes."""
    spec = obj.get("spec") or {}
    expressions = (spec.get("selector") or {}).get("matchExpressions") or ()
    if any(one.get("key") == EMPTY for one in expressions):
        given = {key: value for key, value in spec["selector"].items() if value}
        if {**given, "matchExpressions": [{k: v for k, v in one.items() if v} for one in expressions]} != NONE:
            spec["selector"] = _stripped(given)


def _stripped(selector: Obj) -> Obj:
    kept = [one for one in selector.get("matchExpressions") or () if one.get("key") != EMPTY]
    return {**{key: value for key, value in selector.items() if key != "matchExpressions"}, **({"matchExpressions": kept} if kept else {})}
