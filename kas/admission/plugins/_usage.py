"""What an object counts against quotas (``pkg/quota/v1/evaluator/core`` and ``apiserver/pkg/quota/v1/generic``).

An evaluator says which operations it counts, which of a quota's resources it knows, what an object uses, and whether a
quota's scopes are about the object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kas.admission import CREATE, UPDATE, Attributes
from kas.admission.plugins import _pods
from kas.admission.plugins._pods import Amounts
from kas.api.quantity import Quantity
from kas.api.selectors import Requirement
from kas.api.validation.resources import is_extended
from kas.registry.core.pod import quality_of_service

Obj = dict[str, Any]
ONE = Quantity(1)
# Kinds that were counted by their bare name before there was count/<resource>.
COUNTED_BY_NAME = frozenset(("replicationcontrollers", "resourcequotas", "secrets", "configmaps"))
COMPUTE = ("cpu", "memory", "ephemeral-storage")
POD_RESOURCES = frozenset((
    "count/pods", "pods", *COMPUTE, *(f"requests.{r}" for r in COMPUTE), *(f"limits.{r}" for r in COMPUTE),
))  # fmt: skip
# A quota on one of these makes every container say how much it needs.
MUST_BE_SAID = frozenset(("cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"))
CLASS_SUFFIX = ".storageclass.storage.k8s.io/"
DEVICE_SUFFIX = ".deviceclass.resource.k8s.io/devices"
MAX_DEVICES = 32  # a request for all devices may get as many


class Evaluator:
    """Counts objects, nothing else; for every resource without rules of its own. ``counted`` are the names it counts under."""

    operations: tuple[str, ...] = (CREATE,)

    def __init__(self, group: str, resource: str) -> None:
        self.counted = [f"count/{resource}.{group}" if group else f"count/{resource}"]
        if not group and resource in COUNTED_BY_NAME:
            self.counted.append(resource)

    def handles(self, a: Attributes) -> bool:
        return a.operation in self.operations

    def matching(self, hard: Iterable[str]) -> list[str]:
        """Those of a quota's resources that this kind uses."""
        return [name for name in hard if name in self.counted]

    def usage(self, obj: Obj) -> Amounts:
        return dict.fromkeys(self.counted, ONE)

    def constraints(self, required: list[str], obj: Obj) -> str:
        """What the object has to say and does not; "" when all is there."""
        return ""

    def in_scope(self, scope: Obj, obj: Obj) -> bool:
        return False


class Services(Evaluator):
    operations = (CREATE, UPDATE)

    def __init__(self) -> None:
        self.counted = ["count/services", "services", "services.nodeports", "services.loadbalancers"]

    def usage(self, obj: Obj) -> Amounts:
        spec = obj.get("spec") or {}
        ports, balanced = spec.get("ports") or [], spec.get("type") == "LoadBalancer"
        on_nodes = 0
        if spec.get("type") == "NodePort" or (balanced and spec.get("allocateLoadBalancerNodePorts") is not False):
            on_nodes = len(ports)
        elif balanced:
            on_nodes = sum(1 for p in ports if p.get("nodePort"))
        extra = {"services.nodeports": Quantity(on_nodes), "services.loadbalancers": Quantity(int(balanced))}
        return {"count/services": ONE, "services": ONE, **extra}


class Claims(Evaluator):
    operations = (CREATE, UPDATE)

    def __init__(self) -> None:
        self.counted = ["count/persistentvolumeclaims", "persistentvolumeclaims", "requests.storage"]

    def matching(self, hard: Iterable[str]) -> list[str]:
        suffixes = (CLASS_SUFFIX + "persistentvolumeclaims", CLASS_SUFFIX + "requests.storage")
        return [name for name in hard if name in self.counted or name.endswith(suffixes)]

    def usage(self, obj: Obj) -> Amounts:
        spec, status = obj.get("spec") or {}, obj.get("status") or {}
        out = {"count/persistentvolumeclaims": ONE, "persistentvolumeclaims": ONE}
        annotations = obj["metadata"].get("annotations") or {}
        storage_class = annotations.get("volume.beta.kubernetes.io/storage-class") or spec.get("storageClassName") or ""
        if storage_class:
            out[storage_class + CLASS_SUFFIX + "persistentvolumeclaims"] = ONE
        wanted = _pods.amounts((spec.get("resources") or {}).get("requests")).get("storage")
        if wanted is not None:
            # An expansion that was taken back still holds what was allocated.
            held = _pods.amounts(status.get("allocatedResources")).get("storage")
            need = (held if held is not None and held > wanted else wanted).round_up(0)[0]
            out["requests.storage"] = need
            if storage_class:
                out[storage_class + CLASS_SUFFIX + "requests.storage"] = need
        return out

    def in_scope(self, scope: Obj, obj: Obj) -> bool:
        if scope.get("scopeName") != "VolumeAttributesClass":
            return False
        spec, status = obj.get("spec") or {}, obj.get("status") or {}
        names = {
            spec.get("volumeAttributesClassName") or "",
            status.get("currentVolumeAttributesClassName") or "",
            (status.get("modifyVolumeStatus") or {}).get("targetVolumeAttributesClassName") or "",
        }
        return any(_selects(scope, name) for name in (names - {""} or {""}))


class ResourceClaims(Evaluator):
    def __init__(self) -> None:
        self.counted = ["count/resourceclaims.resource.k8s.io"]

    def matching(self, hard: Iterable[str]) -> list[str]:
        return [name for name in hard if name in self.counted or name.endswith(DEVICE_SUFFIX)]

    def usage(self, obj: Obj) -> Amounts:
        out = super().usage(obj)
        for request in ((obj.get("spec") or {}).get("devices") or {}).get("requests") or ():
            choices = [request.get("exactly") or request] if not request.get("firstAvailable") else request["firstAvailable"]
            most: dict[str, int] = {}
            for choice in choices:
                name = choice.get("deviceClassName") or ""
                count = MAX_DEVICES if choice.get("allocationMode") == "All" else choice.get("count") or 0
                most[name] = max(most.get(name, 0), count)
            _pods.add(out, {name + DEVICE_SUFFIX: Quantity(count) for name, count in most.items()})
        return out


class Pods(Evaluator):
    def __init__(self) -> None:
        self.counted = sorted(POD_RESOURCES)

    def handles(self, a: Attributes) -> bool:
        return (a.operation == CREATE and not a.subresource) or (a.operation == UPDATE and a.subresource == "resize")

    def matching(self, hard: Iterable[str]) -> list[str]:
        return [
            name
            for name in hard
            if name in POD_RESOURCES
            or name.startswith(("hugepages-", "requests.hugepages-"))
            or (name.startswith("requests.") and is_extended(name.removeprefix("requests.")))
        ]

    def usage(self, obj: Obj) -> Amounts:
        out = {"count/pods": ONE}
        # A pod that has ended, or should have, is stored but needs nothing.
        if (obj.get("status") or {}).get("phase") not in ("Failed", "Succeeded"):
            spec = obj.get("spec") or {}
            out |= compute(_pods.effective(spec, "requests", overhead=True), _pods.effective(spec, "limits", overhead=True))
        return out

    def constraints(self, required: list[str], obj: Obj) -> str:
        needed = MUST_BE_SAID.intersection(required)
        spec = obj.get("spec") or {}
        whole = spec.get("resources")
        if whole:
            needed -= compute(_pods.amounts(whole.get("requests")), _pods.amounts(whole.get("limits"))).keys()
        if not needed:
            return ""
        missing: dict[str, set[str]] = {}
        for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
            own = container.get("resources") or {}
            for name in needed - compute(_pods.amounts(own.get("requests")), _pods.amounts(own.get("limits"))).keys():
                missing.setdefault(name, set()).add(container.get("name") or "")
        texts = [f"{name} for: {','.join(sorted(missing[name]))}" for name in sorted(missing)]
        return f"must specify {'; '.join(texts)}" if texts else ""

    def in_scope(self, scope: Obj, obj: Obj) -> bool:
        spec, name = obj.get("spec") or {}, scope.get("scopeName")
        if name in ("Terminating", "NotTerminating"):
            return (spec.get("activeDeadlineSeconds") is not None) == (name == "Terminating")
        if name in ("BestEffort", "NotBestEffort"):
            return (quality_of_service(obj) == "BestEffort") == (name == "BestEffort")
        if name == "PriorityClass":
            return _selects(scope, spec.get("priorityClassName") or "")
        return name == "CrossNamespacePodAffinity" and _crosses_namespaces(spec)


def compute(requests: Amounts, limits: Amounts) -> Amounts:
    """The names under which quotas know a pod's or container's needs."""
    out = {"pods": ONE}
    for name in COMPUTE:
        if name in requests:
            out[name] = out[f"requests.{name}"] = requests[name]
        if name in limits:
            out[f"limits.{name}"] = limits[name]
    for name, need in requests.items():
        if name.startswith("hugepages-"):
            out[name] = out[f"requests.{name}"] = need
        elif is_extended(name):
            out[f"requests.{name}"] = need
    return out


OPERATORS = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!"}


def _selects(scope: Obj, value: str) -> bool:
    requirement = Requirement("name", OPERATORS[scope.get("operator") or "Exists"], tuple(scope.get("values") or ()))
    return requirement.matches({"name": value} if value else {})


def _crosses_namespaces(spec: Obj) -> bool:
    affinity = spec.get("affinity") or {}
    for kind in ("podAffinity", "podAntiAffinity"):
        rules = affinity.get(kind) or {}
        terms = list(rules.get("requiredDuringSchedulingIgnoredDuringExecution") or ())
        terms += [t.get("podAffinityTerm") or {} for t in rules.get("preferredDuringSchedulingIgnoredDuringExecution") or ()]
        if any(t.get("namespaces") or t.get("namespaceSelector") is not None for t in terms):
            return True
    return False


_SPECIAL: dict[tuple[str, str], Callable[[], Evaluator]] = {
    ("", "pods"): Pods,
    ("", "services"): Services,
    ("", "persistentvolumeclaims"): Claims,
    ("resource.k8s.io", "resourceclaims"): ResourceClaims,
}


def evaluator_of(group: str, resource: str) -> Evaluator:
    make = _SPECIAL.get((group, resource))
    return make() if make is not None else Evaluator(group, resource)


def matches(quota: Obj, evaluator: Evaluator, obj: Obj) -> bool:
    """Whether a quota is about this object at all (``generic.Matches``)."""
    if not evaluator.matching((quota.get("status") or {}).get("hard") or {}):
        return False
    return all(evaluator.in_scope(scope, obj) for scope in scopes_of(quota))


def scopes_of(quota: Obj) -> list[Obj]:
    """The quota's scopes in the longer of their two forms."""
    spec = quota.get("spec") or {}
    scopes = [{"scopeName": name, "operator": "Exists"} for name in spec.get("scopes") or ()]
    return scopes + ((spec.get("scopeSelector") or {}).get("matchExpressions") or [])
