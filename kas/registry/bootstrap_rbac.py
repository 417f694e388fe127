"""Keeps RBAC up to date: bootstrap roles after an upgrade, aggregated roles after any change.

Upstream: ``component-helpers``' ``auth/rbac/reconciliation``, and the controller ``clusterroleaggregation``.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

import orjson

from kas.auth.authz.rules import TooManyError, covers
from kas.meta.labelselectors import converted
from kas.meta.offload import abandoned
from kas.meta.selectors import LabelSelector

Obj = dict[str, Any]

AUTOUPDATE = "rbac.authorization.kubernetes.io/autoupdate"
# Objects that upstream split off from others: each starts as a copy of the other, so that what an administrator changed there
# keeps its effect.
SPLIT_OFF = {("clusterrolebindings", "system:public-info-viewer"): "system:discovery"} | {
    ("clusterroles", f"system:aggregate-to-{name}"): name for name in ("admin", "edit", "view")
}


def split_off(resource: str, wanted: Obj, source: Obj) -> Obj:
    """Returns what to create for an object of ``SPLIT_OFF`` if its source is in the store.

    Upstream: ``primeAggregatedClusterRoles`` and ``primeSplitClusterRoleBindings`` (``pkg/registry/rbac/rest``), whose results
    are then reconciled like any other object.
    """
    if source.get("aggregationRule") is not None:
        return wanted  # its own rules have moved already
    part = "rules" if resource == "clusterroles" else "subjects"
    copied = {key: source["metadata"].get(key) for key in ("labels", "annotations")}
    made = {**wanted, "metadata": {**wanted["metadata"], **copied}, part: source.get(part)}
    made["metadata"] = {key: value for key, value in made["metadata"].items() if value is not None}
    return reconcile(resource, wanted, {key: value for key, value in made.items() if value is not None})[1]


def reconcile(resource: str, wanted: Obj, old: Obj) -> tuple[str, Obj]:
    """Returns ("", old) if nothing is to be done, otherwise ("update" or "recreate", the object to write).

    Missing entries are added, additional ones are kept; an object annotated autoupdate=false is left alone. A binding to
    another role is recreated, and a role that should not be aggregated no longer is.
    """
    if (old["metadata"].get("annotations") or {}).get(AUTOUPDATE) == "false":
        return "", old
    if resource in ("clusterrolebindings", "rolebindings"):
        if wanted["roleRef"] != old["roleRef"]:
            # A roleRef is immutable. The subjects bound to another role must not be bound to this one.
            return "recreate", wanted
        out = _merge_meta(wanted, old)
        missing = [s for s in wanted.get("subjects") or () if s not in (old.get("subjects") or ())]
        if missing:
            out = {**out, "subjects": [*(old.get("subjects") or ()), *missing]}
        return ("update", out) if out is not old else ("", old)
    out = _merge_meta(wanted, old)
    # At a start nearly all roles are unchanged, and computing which rules cover which costs more than the rest of the start.
    as_wanted = old.get("rules") == wanted.get("rules")
    if not (as_wanted or (wanted.get("aggregationRule") and old.get("aggregationRule"))):
        if missing_rules := _missing(old.get("rules") or [], wanted.get("rules") or []):
            out = {**out, "rules": [*(old.get("rules") or ()), *missing_rules]}
    if old.get("aggregationRule") is not None and wanted.get("aggregationRule") is None:
        # The role's rules must no longer come from other roles.
        return "update", {key: value for key, value in out.items() if key != "aggregationRule"}
    have = (old.get("aggregationRule") or {}).get("clusterRoleSelectors") or []
    lacking = [s for s in (wanted.get("aggregationRule") or {}).get("clusterRoleSelectors") or () if s not in have]
    if lacking:
        out = {**out, "aggregationRule": {"clusterRoleSelectors": [*have, *lacking]}}
    return ("update", out) if out is not old else ("", old)


def _missing(held: list[Obj], wanted: list[Obj]) -> list[Obj]:
    try:
        return covers(held, wanted)
    except TooManyError:  # an administrator made it that large: a superfluous rule does no harm
        return [rule for rule in wanted if rule not in held]


def _merge_meta(wanted: Obj, old: Obj) -> Obj:
    """Adds missing labels and annotations; existing values win. Returns the same object if none is missing."""
    meta = old["metadata"]
    for key in ("labels", "annotations"):
        merged = {**(wanted["metadata"].get(key) or {}), **(meta.get(key) or {})}
        if merged != (meta.get(key) or {}):
            meta = {**meta, key: merged}
    return old if meta is old["metadata"] else {**old, "metadata": meta}


def aggregate(cluster_roles: Sequence[Obj]) -> list[tuple[str, list[Obj]]]:
    """Returns (name, wanted rules) for every aggregated ClusterRole whose rules differ from those its selectors match. In a
    thread it can be abandoned: there may be tens of thousands of selectors and roles."""
    named = (role for role in cluster_roles if role["metadata"].get("name"))  # others are invalid, written to etcd directly
    by_name = sorted(named, key=lambda r: r["metadata"]["name"])
    labelled = _Labelled(by_name)
    said: dict[int, list[bytes]] = {}  # the encoded rules of a role, by its position
    out = []
    for place, role in enumerate(by_name):
        if not (chosen := selectors(role)):
            continue
        gathered: dict[bytes, Obj] = {}  # each rule once, by its encoding
        taken = {place}
        for selector in chosen:
            if abandoned():
                return []
            for other in labelled.selected(selector, taken):
                taken.add(other)
                rules = by_name[other].get("rules") or ()
                if other not in said:
                    said[other] = [orjson.dumps(rule, option=orjson.OPT_SORT_KEYS) for rule in rules]
                for text, rule in zip(said[other], rules, strict=True):
                    gathered.setdefault(text, rule)
        if (found := list(gathered.values())) != (role.get("rules") or []):
            out.append((role["metadata"]["name"], found))
    return out


def selectors(role: Obj) -> list[LabelSelector] | None:
    """Returns the selectors of an aggregated ClusterRole, None for other roles. A role with an invalid selector counts as not
    aggregated: it gets no rules, and keeps those it has."""
    aggregation = role.get("aggregationRule")
    if not aggregation:
        return None
    found = [converted(selector) for selector in aggregation.get("clusterRoleSelectors") or ()]
    return None if None in found else [selector for selector in found if selector is not None]


class _Labelled:
    """Indexes positions of roles by labels, so that a selector is matched only against candidates."""

    def __init__(self, roles: Sequence[Obj]) -> None:
        self._labels = [role["metadata"].get("labels") or {} for role in roles]
        self._places: dict[tuple[str, str], list[int]] = {}
        self._having: dict[str, list[int]] = {}
        for place, labels in enumerate(self._labels):
            for key, value in labels.items():
                self._places.setdefault((key, value), []).append(place)
                self._having.setdefault(key, []).append(place)

    def selected(self, selector: LabelSelector, but: Container[int]) -> list[int]:
        """Returns the positions of the roles that the selector matches, in order, except those in ``but``."""
        few: Sequence[int] = range(len(self._labels))
        for r in selector.requirements:
            if r.op in ("=", "==", "in") and len(r.values) == 1:
                some: Sequence[int] = self._places.get((r.key, r.values[0]), [])
            elif r.op in ("=", "==", "in", "exists", "gt", "lt"):
                some = self._having.get(r.key, [])
            else:
                continue
            few = min(few, some, key=len)
        return [place for place in few if place not in but and selector.matches(self._labels[place])]
