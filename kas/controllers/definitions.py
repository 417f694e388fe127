"""Accepts the names of CustomResourceDefinitions and establishes them; from then on they are served.

Upstream: apiextensions-apiserver ``pkg/controller/{status,establish,apiapproval,nonstructuralschema}``, loops that write one after the
other. Here a single write sets all conditions, so that a new resource is served that much earlier.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from kas.apiextensions.definition import NO_CA_BUNDLE, light
from kas.controllers.client import Client, Filling, split_key
from kas.controllers.queue import WorkQueue, follow
from kas.kinds.apiextensions.acceptance import SHAPE, approval_state, ca_bundle_errors, is_protected
from kas.meta.conditions import with_condition
from kas.meta.field import go_quote
from kas.registry.registries import Registries
from kas.store import Event, Record

Obj = dict[str, Any]
GROUP, RESOURCE = "apiextensions.k8s.io", "customresourcedefinitions"
APPROVAL = "KubernetesAPIApprovalPolicyConformant"
_APPROVAL = {
    "invalid": ("False", "InvalidAnnotation"), "missing": ("False", "MissingAnnotation"), "approved": ("True", "ApprovedAnnotation"),
    "bypassed": ("False", "UnapprovedAnnotation"),
}  # fmt: skip


class _Names:
    """The group, requested names and accepted names of one definition."""

    __slots__ = ("accepted", "group", "kinds", "requested", "resources")

    def __init__(self, obj: Obj) -> None:
        self.group: str = obj["spec"]["group"]
        self.requested: Obj = obj["spec"]["names"]
        self.accepted: Obj = (obj.get("status") or {}).get("acceptedNames") or {}
        a = self.accepted
        self.resources = {x for x in (a.get("plural"), a.get("singular"), *(a.get("shortNames") or ())) if x}
        self.kinds = {x for x in (a.get("kind"), a.get("listKind")) if x}


class _Group:
    """The definitions of a group by name, the number of users of each resource and kind name, and the definitions that lack requested
    names."""

    def __init__(self) -> None:
        self.members: dict[str, _Names] = {}
        self.resources: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()
        self.wanting: set[str] = set()

    def put(self, name: str, new: _Names | None) -> bool:
        """Set a definition, None if it was deleted. Return whether a name became free."""
        old = self.members.pop(name, None)
        if old is not None:
            self.resources.subtract(old.resources)
            self.kinds.subtract(old.kinds)
        self.wanting.discard(name)
        if new is not None:
            self.members[name] = new
            self.resources.update(new.resources)
            self.kinds.update(new.kinds)
            if new.requested != new.accepted:
                self.wanting.add(name)
        if old is None:
            return False
        freed = [(self.resources, x) for x in old.resources] + [(self.kinds, x) for x in old.kinds]
        found = False
        for count, x in freed:
            if not count[x]:
                del count[x]
                found = True
        return found

    def used(self) -> tuple[Callable[[str], bool], Callable[[str], bool]]:
        """Return two predicates: whether a resource name, or a kind name, is in use. As upstream, names of the requesting definition
        count, too."""
        return lambda x: self.resources[x] > 0, lambda x: self.kinds[x] > 0


class DefinitionConditions:
    """Maintains the names and conditions in the status of each CustomResourceDefinition."""

    name = "crd-conditions-controller"

    def __init__(self, registries: Registries) -> None:
        self.client = Client(registries, "kube-apiserver", "system:apiserver")
        self.registry = registries.of(GROUP, RESOURCE)
        self.queue = WorkQueue(self._sync, self.name)
        self._groups: dict[str, _Group] = {}
        self._filling = Filling(self.client, self.registry.root, self._groups.clear, self._take)

    async def run(self) -> None:
        """Follow the definitions until cancelled."""
        self._filling.begin()
        listed = self._filling.listed
        await follow(
            self.queue, [self.client.reflector(self.registry.root, self._events, listed, lists=False)], fill=self._filling.fill
        )  # fmt: skip

    def _take(self, rec: Record) -> None:
        self._look(split_key(self.registry, rec.key)[1], light(rec))

    def _events(self, events: Sequence[Event]) -> None:
        for e in events:
            name = split_key(self.registry, e.key)[1]
            if e.record is not None:
                self._look(name, light(e.record))
            elif e.previous is not None:
                group = light(e.previous)["spec"]["group"]
                others = self._groups.get(group)
                if others is None:
                    continue
                if others.put(name, None):
                    self._look_again(others)
                if not others.members:
                    del self._groups[group]

    def _look(self, name: str, obj: Obj) -> None:
        new = _Names(obj)
        others = self._groups.setdefault(new.group, _Group())
        if others.put(name, new):
            self._look_again(others)
        if self._wanted(obj) is not None or self._may_be_shapeless(obj):
            self.queue.add(name)

    def _look_again(self, group: _Group) -> None:
        """Queue the definitions that lack names, since a name has become free."""
        for name in group.wanting:
            self.queue.add(name)

    async def _sync(self, name: str) -> None:
        def change(obj: Obj) -> bool:
            now = self.client.context().now
            status = obj.setdefault("status", {})
            had = found = status.get("conditions") or []
            wanted = self._wanted(obj)
            if wanted is not None:
                status["acceptedNames"], conditions = wanted
                for c in conditions:
                    found = with_condition(found, {**c, "lastTransitionTime": now})
            if self._may_be_shapeless(obj):
                from kas.kinds.apiextensions.shape import shape_condition  # few servers have such a definition

                found = _with_shape(found, shape_condition(obj["spec"]), now)
            status["conditions"] = found
            return wanted is not None or found != had

        await self.client.update(self.registry, "", name, change, "status")

    def _wanted(self, obj: Obj) -> tuple[Obj, list[Obj]] | None:
        """Return the names to accept and the conditions to set; None if the status is complete."""
        status = obj.get("status") or {}
        had = {c.get("type"): c for c in status.get("conditions") or ()}
        accepted = status.get("acceptedNames") or {}
        asked = _Names(obj)
        names, problem = self._accept(asked)
        out: list[Obj] = []
        if problem is None:
            same = asked.requested == asked.accepted  # upstream writes nothing more then, whatever the status contains
            if not same:
                out.append(_condition("NamesAccepted", "True", "NoConflicts", "no conflicts found"))
            if had.get("Established", {}).get("status") == "True" or (same and had.get("NamesAccepted", {}).get("status") != "True"):
                pass
            elif ca_bundle_errors(obj["spec"]):
                out.append(_condition("Established", "False", NO_CA_BUNDLE, "The conversion webhook CABundle is invalid"))
            else:
                out.append(_condition("Established", "True", "InitialNamesAccepted", "the initial names have been accepted"))
        else:
            out.append(_condition("NamesAccepted", "False", *problem))
            if "Established" not in had:
                out.append(_condition("Established", "False", "NotAccepted", "not all names are accepted"))
        if is_protected(obj["spec"]["group"]):
            state, why = approval_state(obj["metadata"].get("annotations"))
            out.append(_condition(APPROVAL, *_APPROVAL[state], why))
        new = [c for c in out if any(had.get(c["type"], {}).get(k) != v for k, v in c.items())]
        return (names, new) if new or names != accepted else None

    @staticmethod
    def _may_be_shapeless(obj: Obj) -> bool:
        """Return whether the NonStructuralSchema condition may apply: only a definition that preserves unknown fields may have such a
        schema."""
        conditions = (obj.get("status") or {}).get("conditions") or ()
        return bool(obj["spec"].get("preserveUnknownFields")) or any(c.get("type") == SHAPE for c in conditions)

    def _accept(self, names: _Names) -> tuple[Obj, tuple[str, str] | None]:
        """Return the accepted names, and (reason, message) if a requested name is taken."""
        if names.requested == names.accepted:
            return names.accepted, None
        resources, kinds = (self._groups.get(names.group) or _Group()).used()
        out: Obj = dict(names.accepted)
        problem: tuple[str, str] | None = None
        for key, used, reason in (
            ("plural", resources, "PluralConflict"), ("singular", resources, "SingularConflict"),
            ("shortNames", resources, "ShortNamesConflict"), ("kind", kinds, "KindConflict"), ("listKind", kinds, "ListKindConflict"),
        ):  # fmt: skip
            wanted, has = names.requested.get(key), names.accepted.get(key)
            if key == "shortNames":
                known = set(has or ())
                asked = [x for x in wanted or () if x not in known]
            else:
                asked = [wanted] if wanted and wanted != has else []
            taken = list(dict.fromkeys(filter(used, asked)))
            if taken:
                texts = [f"{go_quote(x)} is already in use" for x in taken]
                problem = (reason, texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]")
            elif wanted:
                out[key] = wanted
            else:
                out.pop(key, None)
        if names.requested.get("categories"):
            out["categories"] = names.requested["categories"]
        else:
            out.pop("categories", None)
        return out, problem


def _with_shape(conditions: list[Obj], new: Obj | None, now: str) -> list[Obj]:
    if new is None:
        return [c for c in conditions if c.get("type") != SHAPE]
    if any(all(c.get(k) == v for k, v in new.items()) for c in conditions):
        return conditions
    return with_condition(conditions, {**new, "lastTransitionTime": now})


def _condition(kind: str, status: str, reason: str, message: str) -> Obj:
    return {"type": kind, "status": status, "reason": reason, "message": message}
