"""Type-checks the expressions of ValidatingAdmissionPolicies and writes the warnings to their status
(``pkg/controller/validatingadmissionpolicystatus``)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kas.admission.matching import GROUP, GVK
from kas.apiextensions import definition as definitions
from kas.controllers.client import Client, split_key
from kas.controllers.queue import WorkQueue, follow
from kas.meta.offload import LARGE, step
from kas.meta.stored import Stored, object_of
from kas.registry.registries import Registries
from kas.registry.strategy import Obj
from kas.store import Record
from kas.types.scheme import BUILTIN, find_builtin_kind

if TYPE_CHECKING:
    from kas.admission.policy.typechecking import Shape

DEFINITIONS = "apiextensions.k8s.io", "customresourcedefinitions"


class PolicyStatus:
    """Checks a policy once per generation, as upstream: a definition created later changes nothing."""

    name = "validatingadmissionpolicy-status-controller"
    manager = "validatingadmissionpolicy-status"

    def __init__(self, registries: Registries) -> None:
        self.client = Client(registries, self.manager, "system:serviceaccount:kube-system:validatingadmissionpolicy-status-controller")
        self.registry = registries.of(GROUP, "validatingadmissionpolicies")
        self._definitions = registries.of(*DEFINITIONS)
        self.queue = WorkQueue(self._sync, self.name)

    async def run(self) -> None:
        """Follow the policies until cancelled."""
        await follow(self.queue, [self.client.each(self.registry.root, self._look)])

    def _look(self, rec: Record) -> None:
        if len(rec.json) >= LARGE or _due(object_of(rec)):  # a large one is decoded when its turn comes
            self.queue.add(split_key(self.registry, rec.key)[1])

    async def _sync(self, name: str) -> None:
        rec = self.registry.find("", name)
        if rec is None:
            return
        policy = await step(len(rec.json) >= LARGE, object_of, rec)
        if not _due(policy):
            return
        from kas.admission.policy.typechecking import warnings  # CEL is large, and most servers never have a policy

        found = await asyncio.to_thread(warnings, policy, self._kind_of, self._shape_of)
        status: Obj = {"observedGeneration": policy["metadata"].get("generation") or 0, "typeChecking": {}}
        if found:
            status["typeChecking"]["expressionWarnings"] = found
        await self.client.apply(self.registry, "", name, {"status": status}, "status")

    # --- lookups of kinds: they run in a thread, so they use the built-in table and the stored definitions, not the scheme

    def _kind_of(self, group: str, version: str, resource: str) -> GVK | None:
        found = BUILTIN.resource(group, version, resource)
        if found is not None:
            return group, version, found.kind
        record = self._definition(f"{resource}.{group}")
        if record is None:
            return None
        d = definitions.read(record, 0, 0)
        served = d.served and any(v.name == version and v.served for v in d.versions)
        return (group, version, d.names["kind"]) if served else None

    def _shape_of(self, kind: GVK) -> Shape | None:
        from kas.admission.policy.typechecking import builtin_shape, custom_shape

        builtin = find_builtin_kind(*kind)
        if builtin is not None:
            return builtin_shape(builtin.type)
        group, version, name = kind
        registry = self.client.registries.of_kind(f"{group}/{version}", name)
        record = self._definition(f"{registry.resource.resource}.{group}") if registry is not None else None
        return custom_shape(definitions.schema(record, version), f"{group}.{version}.{name}") if record is not None else None

    def _definition(self, name: str) -> Stored | None:
        return self.client.store.get(self._definitions.root + name)


def _due(policy: Obj) -> bool:
    return (policy["metadata"].get("generation") or 0) > ((policy.get("status") or {}).get("observedGeneration") or 0)

