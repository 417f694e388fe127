"""Disruption budgets as policy/v1beta1 stored them, which is not served any more (``pkg/apis/policy/v1beta1/conversion.go``)."""

from __future__ import annotations

from kas.types.conversion import Obj, converts

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
    elif kept := [one for one in given.get("matchExpressions") or () if one.get("key") != EMPTY]:
        given = {**given, "matchExpressions": kept}
    else:
        given = {key: value for key, value in given.items() if key != "matchExpressions"}
    return {**obj, "spec": {**spec, "selector": given}}
