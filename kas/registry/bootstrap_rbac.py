"""Bringing RBAC up to date: bootstrap roles after an upgrade, aggregated roles after any change.

``component-helpers``' ``auth/rbac/reconciliation`` and the controller ``clusterroleaggregation``.
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


def reconcile(resource: str, wanted: Obj, old: Obj) -> tuple[str, Obj]:
    """("", old) when nothing is to do, else ("update" or "recreate", the object to write).

    What is missing is added, what somebody added is kept; an object annotated autoupdate=false is left alone. A binding to another role
    is made anew, and a role that should not be aggregated no longer is.
    """
    if (old["metadata"].get("annotations") or {}).get(AUTOUPDATE) == "false":
        return "", old
    if resource in ("clusterrolebindings", "rolebindings"):
        if wanted["roleRef"] != old["roleRef"]:
            # A roleRef is immutable. Whom somebody bound to another role is not bound to this one.
            return "recreate", wanted
        out = _merge_meta(wanted, old)
        missing = [s for s in wanted.get("subjects") or () if s not in (old.get("subjects") or ())]
        if missing:
            out = {**out, "subjects": [*(old.get("subjects") or ()), *missing]}
        return ("update", out) if out is not old else ("", old)
    out = _merge_meta(wanted, old)
    # A start finds nearly all roles as it left them, and looking for what covers what costs more than the rest of it.
    as_wanted = old.get("rules") == wanted.get("rules")
    if not (as_wanted or (wanted.get("aggregationRule") and old.get("aggregationRule"))):
        if missing_rules := _missing(old.get("rules") or [], wanted.get("rules") or []):
            out = {**out, "rules": [*(old.get("rules") or ()), *missing_rules]}
    if old.get("aggregationRule") is not None and wanted.get("aggregationRule") is None:
        # What its rules are is not for other roles to say.
        return "update", {key: value for key, value in out.items() if key != "aggregationRule"}
    have = (old.get("aggregationRule") or {}).get("clusterRoleSelectors") or []
    lacking = [s for s in (wanted.get("aggregationRule") or {}).get("clusterRoleSelectors") or () if s not in have]
    if lacking:
        out = {**out, "aggregationRule": {"clusterRoleSelectors": [*have, *lacking]}}
    return ("update", out) if out is not old else ("", old)


def _missing(held: list[Obj], wanted: list[Obj]) -> list[Obj]:
    try:
        return covers(held, wanted)
    except TooManyError:  # somebody made it that large: a rule too many does no harm
        return [rule for rule in wanted if rule not in held]


def _merge_meta(wanted: Obj, old: Obj) -> Obj:
    """Labels and annotations that are missing are added, existing values win; the same object when none is."""
    meta = old["metadata"]
    for key in ("labels", "annotations"):
        merged = {**(wanted["metadata"].get(key) or {}), **(meta.get(key) or {})}
        if merged != (meta.get(key) or {}):
            meta = {**meta, key: merged}
    return old if meta is old["metadata"] else {**old, "metadata": meta}


def aggregate(cluster_roles: Sequence[Obj]) -> list[tuple[str, list[Obj]]]:
    """(name, rules it should have) for every aggregated ClusterRole whose rules are not what its selectors gather. Beside the loop it gives
    way: selectors and roles may be tens of thousands."""
    named = (role for role in cluster_roles if role["metadata"].get("name"))  # others are no roles: another client of etcd's
    by_name = sorted(named, key=lambda r: r["metadata"]["name"])
    labelled = _Labelled(by_name)
    said: dict[int, list[bytes]] = {}  # what the rules of a role say, by its place
    out = []
    for place, role in enumerate(by_name):
        if not (chosen := selectors(role)):
            continue
        gathered: dict[bytes, Obj] = {}  # each once, by what it says
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
    """What a ClusterRole gathers, None for one that is not aggregated. One with a selector that means nothing is none: it gathers nothing,
    and nothing is taken away from it."""
    aggregation = role.get("aggregationRule")
    if not aggregation:
        return None
    found = [converted(selector) for selector in aggregation.get("clusterRoleSelectors") or ()]
    return None if None in found else [selector for selector in found if selector is not None]


class _Labelled:
    """Places of roles by the labels they have, so that a selector is compared with those that may fit it only."""

    def __init__(self, roles: Sequence[Obj]) -> None:
        self._labels = [role["metadata"].get("labels") or {} for role in roles]
        self._places: dict[tuple[str, str], list[int]] = {}
        self._having: dict[str, list[int]] = {}
        for place, labels in enumerate(self._labels):
            for key, value in labels.items():
                self._places.setdefault((key, value), []).append(place)
                self._having.setdefault(key, []).append(place)

    def selected(self, selector: LabelSelector, but: Container[int]) -> list[int]:
        """The places of those that the selector matches ``but`` for some, in order."""
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
