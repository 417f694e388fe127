"""Definitions get their names accepted, and are established: what they define is served from then on.

Upstream: apiextensions-apiserver ``pkg/controller/{status,establish,apiapproval}``, three loops that write one after the other. Here one
write says all three, so that a new resource is served that much earlier.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kas.apiextensions.definition import NO_CA_BUNDLE, light
from kas.controllers.client import Client, split_key
from kas.controllers.queue import WorkQueue, follow
from kas.kinds.apiextensions.acceptance import approval_state, ca_bundle_errors, is_protected
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
    """Of one definition: the group, what it asks for and what it has."""

    __slots__ = ("accepted", "group", "requested")

    def __init__(self, obj: Obj) -> None:
        self.group: str = obj["spec"]["group"]
        self.requested: Obj = obj["spec"]["names"]
        self.accepted: Obj = (obj.get("status") or {}).get("acceptedNames") or {}


class DefinitionConditions:
    """Writes the names and conditions of each CustomResourceDefinition's status."""

    name = "crd-conditions-controller"

    def __init__(self, registries: Registries) -> None:
        self.client = Client(registries, "kube-apiserver", "system:apiserver")
        self.registry = registries.of(GROUP, RESOURCE)
        self.queue = WorkQueue(self._sync, self.name)
        self._groups: dict[str, dict[str, _Names]] = {}

    async def run(self) -> None:
        """Follow the definitions until cancelled."""
        await follow(self.queue, [self.client.reflector(self.registry.root, self._events, self._listed, lists=False)])

    def _listed(self, records: Sequence[Record]) -> None:
        self._groups.clear()
        for rec in self.client.pages(self.registry.root):
            self._look(split_key(self.registry, rec.key)[1], light(rec))

    def _events(self, events: Sequence[Event]) -> None:
        for e in events:
            name = split_key(self.registry, e.key)[1]
            if e.record is not None:
                self._look(name, light(e.record))
            elif e.previous is not None:
                group = light(e.previous)["spec"]["group"]
                others = self._groups.get(group, {})
                others.pop(name, None)
                if not others:
                    self._groups.pop(group, None)
                self._look_again(others)

    def _look(self, name: str, obj: Obj) -> None:
        new = _Names(obj)
        others = self._groups.setdefault(new.group, {})
        had = others.get(name)
        others[name] = new
        if had is not None and had.accepted != new.accepted:
            self._look_again(others)
        if self._wanted(obj) is not None:
            self.queue.add(name)

    def _look_again(self, group: dict[str, _Names]) -> None:
        """A name has become free, which those who do not have all of theirs may want."""
        for name, names in group.items():
            if names.requested != names.accepted:
                self.queue.add(name)

    async def _sync(self, name: str) -> None:
        def change(obj: Obj) -> bool:
            wanted = self._wanted(obj)
            if wanted is None:
                return False
            accepted, conditions = wanted
            now = self.client.context().now
            status = obj.setdefault("status", {})
            status["acceptedNames"] = accepted
            found = status.get("conditions") or []
            for c in conditions:
                found = with_condition(found, {**c, "lastTransitionTime": now})
            status["conditions"] = found
            return True

        await self.client.update(self.registry, "", name, change, "status")

    def _wanted(self, obj: Obj) -> tuple[Obj, list[Obj]] | None:
        """The names to accept and the conditions to set; None when all is said."""
        status = obj.get("status") or {}
        had = {c.get("type"): c for c in status.get("conditions") or ()}
        accepted = status.get("acceptedNames") or {}
        names, problem = self._accept(obj["metadata"]["name"], _Names(obj))
        if problem is None:
            out = [_condition("NamesAccepted", "True", "NoConflicts", "no conflicts found")]
            if had.get("Established", {}).get("status") == "True":
                pass
            elif ca_bundle_errors(obj["spec"]):
                out.append(_condition("Established", "False", NO_CA_BUNDLE, "The conversion webhook CABundle is invalid"))
            else:
                out.append(_condition("Established", "True", "InitialNamesAccepted", "the initial names have been accepted"))
        else:
            out = [_condition("NamesAccepted", "False", *problem)]
            if "Established" not in had:
                out.append(_condition("Established", "False", "NotAccepted", "not all names are accepted"))
        if is_protected(obj["spec"]["group"]):
            state, why = approval_state(obj["metadata"].get("annotations"))
            out.append(_condition(APPROVAL, *_APPROVAL[state], why))
        new = [c for c in out if any(had.get(c["type"], {}).get(k) != v for k, v in c.items())]
        return (names, new) if new or names != accepted else None

    def _accept(self, own: str, names: _Names) -> tuple[Obj, tuple[str, str] | None]:
        """What of the requested names may be had, and (reason, message) where something may not."""
        if names.requested == names.accepted:
            return names.accepted, None
        resources: set[str] = set()
        kinds: set[str] = set()
        for name, other in self._groups.get(names.group, {}).items():
            if name != own:
                a = other.accepted
                resources.update(x for x in (a.get("plural"), a.get("singular"), *(a.get("shortNames") or ())) if x)
                kinds.update(x for x in (a.get("kind"), a.get("listKind")) if x)
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
            taken = list(dict.fromkeys(x for x in asked if x in used))
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


def _condition(kind: str, status: str, reason: str, message: str) -> Obj:
    return {"type": kind, "status": status, "reason": reason, "message": message}
