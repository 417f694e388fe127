"""Quota evaluators: the usage of objects (``pkg/quota/v1/evaluator/core`` and ``apiserver/pkg/quota/v1/generic``).

An evaluator defines which operations it counts, which of a quota's resources it handles, what an object uses, and whether a quota's
scopes apply to the object.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from kas.admission import CREATE, UPDATE, Attributes
from kas.admission import pods as pod_objects
from kas.admission.pods import Amounts
from kas.config import features
from kas.informers import Informers, Objects
from kas.kinds.core.columns import storage_class
from kas.kinds.core.pod.qos import quality_of_service
from kas.kinds.core.resources import is_extended, is_native
from kas.meta.quantity import Quantity
from kas.meta.records import NamedTuple
from kas.meta.selectors import Requirement

Obj = dict[str, Any]
ONE = Quantity(1)
# Resources that quotas could count by their bare name before count/<resource> existed.
COUNTED_BY_NAME = frozenset(("replicationcontrollers", "resourcequotas", "secrets", "configmaps"))
COMPUTE = ("cpu", "memory", "ephemeral-storage")
POD_RESOURCES = frozenset((
    "count/pods", "pods", *COMPUTE, *(f"requests.{r}" for r in COMPUTE), *(f"limits.{r}" for r in COMPUTE),
))  # fmt: skip
# A quota on one of these requires every container to specify it.
MUST_BE_SAID = frozenset(("cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"))
CLASS_SUFFIX = ".storageclass.storage.k8s.io/"
DEVICE_SUFFIX = ".deviceclass.resource.k8s.io/devices"
# The prefix of a device class's implicit extended resource, and the annotation of the claim the scheduler creates for extended resources.
IMPLICIT = "deviceclass.resource.kubernetes.io/"
EXTENDED_CLAIM = "resource.kubernetes.io/extended-resource-claim"
ZERO = Quantity(0)
MAX_DEVICES = 32  # the maximum that a request for all devices may get


class Evaluator:
    """Counts objects; the evaluator of every resource without rules of its own. ``counted`` are the quota resources it counts."""

    operations: tuple[str, ...] = (CREATE,)
    steady = True  # usage depends only on the object and on time
    rest: Amounts = {}  # usage of an object that is over

    def __init__(self, group: str, resource: str) -> None:
        self.counted = [f"count/{resource}.{group}" if group else f"count/{resource}"]
        if not group and resource in COUNTED_BY_NAME:
            self.counted.append(resource)

    def handles(self, a: Attributes) -> bool:
        """Return whether the request may change usage: by default, a write of the object itself."""
        return a.operation in self.operations and not a.subresource

    def matching(self, hard: Iterable[str]) -> list[str]:
        """Return those of a quota's resources that this evaluator handles."""
        return [name for name in hard if name in self.counted]

    def usage(self, obj: Obj) -> Amounts:
        """Return the usage of the object; by default one object."""
        return dict.fromkeys(self.counted, ONE)

    def over_at(self, obj: Obj) -> float:
        """Return the time from which it uses only ``rest`` without being written; by default never."""
        return math.inf

    def same(self, now: Obj, before: Obj) -> bool:
        """Return True if two states obviously have the same usage. False means unknown."""
        return False

    def constraints(self, required: list[str], obj: Obj) -> str:
        """Return an error if the object omits a value that a quota requires, else ""."""
        return ""

    def in_scope(self, scope: Obj, obj: Obj) -> bool:
        """Return whether the object is in the scope; by default no object is in any."""
        return False


class Services(Evaluator):
    """Usage of a Service: itself, load balancers, node ports."""

    operations = (CREATE, UPDATE)

    def __init__(self) -> None:
        self.counted = ["count/services", "services", "services.nodeports", "services.loadbalancers"]

    def usage(self, obj: Obj) -> Amounts:
        """Return one object, its load balancer, and the node ports it takes."""
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
    """Usage of a PersistentVolumeClaim: itself and its storage, in total and by storage class."""

    operations = (CREATE, UPDATE)

    def __init__(self) -> None:
        self.counted = ["count/persistentvolumeclaims", "persistentvolumeclaims", "requests.storage"]

    def handles(self, a: Attributes) -> bool:
        """Return whether the request writes the claim or its status."""
        # A status update may increase the allocated storage or change the volume attributes class.
        return super().handles(a) or (a.operation == UPDATE and a.subresource == "status")

    def matching(self, hard: Iterable[str]) -> list[str]:
        """Return those of the ``hard`` limits that apply to claims, including those by class."""
        suffixes = (CLASS_SUFFIX + "persistentvolumeclaims", CLASS_SUFFIX + "requests.storage")
        return [name for name in hard if name in self.counted or name.endswith(suffixes)]

    def usage(self, obj: Obj) -> Amounts:
        """Return the claim and the bytes it requests or holds, in total and by storage class."""
        spec, status = obj.get("spec") or {}, obj.get("status") or {}
        out = {"count/persistentvolumeclaims": ONE, "persistentvolumeclaims": ONE}
        name = storage_class(obj)
        if name:
            out[name + CLASS_SUFFIX + "persistentvolumeclaims"] = ONE
        wanted = pod_objects.amounts((spec.get("resources") or {}).get("requests")).get("storage")
        if wanted is not None:
            # A reverted expansion still holds what was allocated.
            held = pod_objects.amounts(status.get("allocatedResources")).get("storage")
            need = (held if held is not None and held > wanted else wanted).round_up(0)[0]
            out["requests.storage"] = need
            if name:
                out[name + CLASS_SUFFIX + "requests.storage"] = need
        return out

    def in_scope(self, scope: Obj, obj: Obj) -> bool:
        """Return whether the claim is in a VolumeAttributesClass scope by its current, requested or target class."""
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
    """Usage of a ResourceClaim: devices by class, and the extended resources that pods may request instead (KEP-5004)."""

    operations = (CREATE, UPDATE)
    steady = False  # usage also depends on pods and device classes

    def __init__(self, objects: Objects, informers: Informers) -> None:
        self.counted = ["count/resourceclaims.resource.k8s.io"]
        self._objects = objects
        indexes = {"extended": lambda name: [name] if name else []}
        self._classes = informers.lister("resource.k8s.io", "deviceclasses", _extended_name, indexes)
        by_pod = {"pod": lambda it: [it.pod] if it.pod else []}
        self._of_pods = informers.lister("resource.k8s.io", "resourceclaims", _of_pod, by_pod)

    def _extended(self, limit: str) -> bool:
        """Return whether a limit applies to the extended resource of a device class."""
        if not limit.startswith("requests.") or not features.DEFAULT.enabled("DRAExtendedResource"):
            return False
        resource = limit.removeprefix("requests.")
        if resource.startswith(IMPLICIT) and resource.removeprefix(IMPLICIT) in self._classes.all():
            return True
        return bool(self._classes.by_index("extended", resource))

    def matching(self, hard: Iterable[str]) -> list[str]:
        """Return those of the ``hard`` limits that apply to claims: claims, devices by class, extended resources."""
        return [name for name in hard if name in self.counted or name.endswith(DEVICE_SUFFIX) or self._extended(name)]

    def usage(self, obj: Obj) -> Amounts:
        """Return the claim, and the maximum of devices of each class, less what its pod already counts as extended resources."""
        devices: Amounts = {}
        for request in ((obj.get("spec") or {}).get("devices") or {}).get("requests") or ():
            choices = [request.get("exactly") or request] if not request.get("firstAvailable") else request["firstAvailable"]
            most: dict[str, int] = {}
            for choice in choices:
                name = choice.get("deviceClassName") or ""
                count = MAX_DEVICES if choice.get("allocationMode") == "All" else choice.get("count") or 0
                most[name] = max(most.get(name, 0), count)
            pod_objects.add(devices, {name: Quantity(count) for name, count in most.items()})
        out = super().usage(obj) | {name + DEVICE_SUFFIX: count for name, count in devices.items()}
        if not features.DEFAULT.enabled("DRAExtendedResource"):
            return out
        classes, paid = self._classes.all(), self._paid_by_pod(obj)
        for name, count in devices.items():
            for resource in filter(None, (IMPLICIT + name if name else "", classes.get(name))):
                rest = count - paid.get(f"requests.{resource}", ZERO)
                if rest > ZERO:
                    out[f"requests.{resource}"] = rest
        return out

    def _paid_by_pod(self, claim: Obj) -> Amounts:
        """Return the usage of the pod for which the scheduler created the claim: devices are not counted twice, and a pod offsets only
        one claim."""
        meta = claim["metadata"]
        owner = _pod_owner(meta)
        if owner is None:
            return {}
        namespace, name = meta.get("namespace") or "", meta.get("name") or ""
        pod = self._objects.get("", "pods", namespace, owner.get("name") or "-")
        if pod is None or pod["metadata"].get("uid") != owner.get("uid"):
            return {}
        status = (pod.get("status") or {}).get("extendedResourceClaimStatus")
        if status is not None:
            return Pods().usage(pod) if status.get("resourceClaimName") == name else {}
        others = list(self._of_pods.by_index("pod", f"{namespace}/{owner.get('uid')}").values())  # one step: may run in a thread
        return {} if any(other.age < _age(meta) for other in others) else Pods().usage(pod)


def _extended_name(device_class: Obj) -> str:
    return device_class["spec"].get("extendedResourceName") or ""


def _pod_owner(meta: Obj) -> Obj | None:
    """Return the owner reference to the pod that controls a claim for extended resources, or None."""
    if (meta.get("annotations") or {}).get(EXTENDED_CLAIM) != "true":
        return None
    owner: Obj = next((ref for ref in meta.get("ownerReferences") or () if ref.get("controller")), {})
    return owner if (owner.get("apiVersion"), owner.get("kind")) == ("v1", "Pod") else None


def _age(meta: Obj) -> tuple[str, str]:
    return meta.get("creationTimestamp") or "", meta.get("name") or ""


class _OfPod(NamedTuple):
    """The cached data of a claim: "namespace/uid" of the pod for whose extended resources it was created, "" for others, and its sort key
    by age."""

    pod: str
    age: tuple[str, str]


def _of_pod(claim: Obj) -> _OfPod:
    meta = claim["metadata"]
    owner = _pod_owner(meta)
    return _OfPod("" if owner is None else f"{meta.get('namespace') or ''}/{owner.get('uid')}", _age(meta))


class Pods(Evaluator):
    """Usage of a Pod: itself, and the requests and limits of its containers."""

    rest: Amounts = {"count/pods": ONE}

    def __init__(self) -> None:
        self.counted = sorted(POD_RESOURCES)

    def handles(self, a: Attributes) -> bool:
        """Return whether the request creates or resizes a pod, or is an update that moves it to other scopes."""
        if a.subresource:
            return a.operation == UPDATE and a.subresource == "resize"
        # The only relevant update is one that moves the pod to other quotas.
        return a.operation == CREATE or _terminating(a.obj) != _terminating(a.old)

    def matching(self, hard: Iterable[str]) -> list[str]:
        """Return those of the ``hard`` limits that apply to pods."""
        return [
            name
            for name in hard
            if name in POD_RESOURCES
            or name.startswith(("hugepages-", "requests.hugepages-"))
            or (name.startswith("requests.") and (not is_native(name) or name.startswith(f"requests.{IMPLICIT}")))
        ]

    def usage(self, obj: Obj) -> Amounts:
        """Return the pod and, unless it is over, its requests and limits with overhead."""
        out = dict(self.rest)
        # A pod that has ended, or should have, is stored but uses no resources.
        if not _ended(obj) and time.time() <= self.over_at(obj):
            spec, status = obj.get("spec") or {}, obj.get("status") or {}
            out |= compute(*(pod_objects.effective(spec, kind, overhead=True, status=status) for kind in ("requests", "limits")))
        return out

    def over_at(self, obj: Obj) -> float:
        """Return the deletion timestamp plus the grace period: from then on a deleted pod counts as over, though its node has not
        confirmed it."""
        meta = obj["metadata"]
        at, grace = meta.get("deletionTimestamp"), meta.get("deletionGracePeriodSeconds")
        return math.inf if at is None or grace is None or _ended(obj) else datetime.fromisoformat(at).timestamp() + grace

    def same(self, now: Obj, before: Obj) -> bool:
        """Return True for most updates of a pod: they change its conditions or other status that usage does not depend on."""
        return now.get("spec") == before.get("spec") and _usage_inputs(now) == _usage_inputs(before)

    def constraints(self, required: list[str], obj: Obj) -> str:
        """Return an error for containers that omit resources a quota requires, else ""."""
        needed = MUST_BE_SAID.intersection(required)
        spec = obj.get("spec") or {}
        whole = spec.get("resources") or {}
        # Pod-level resources apply to all containers, so none has to specify them.
        if not needed or any(pod_objects.pod_level(name) for kind in ("requests", "limits") for name in whole.get(kind) or ()):
            return ""
        missing: dict[str, set[str]] = {}
        for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
            own = container.get("resources") or {}
            for name in needed - compute(pod_objects.amounts(own.get("requests")), pod_objects.amounts(own.get("limits"))).keys():
                missing.setdefault(name, set()).add(container.get("name") or "")
        texts = [f"{name} for: {','.join(sorted(missing[name]))}" for name in sorted(missing)]
        return f"must specify {'; '.join(texts)}" if texts else ""

    def in_scope(self, scope: Obj, obj: Obj) -> bool:
        """Return whether the pod is in the scope: by deadline, quality of service, priority class or affinity to other namespaces."""
        spec, name = obj.get("spec") or {}, scope.get("scopeName")
        if name in ("Terminating", "NotTerminating"):
            return _terminating(obj) == (name == "Terminating")
        if name in ("BestEffort", "NotBestEffort"):
            return (quality_of_service(obj) == "BestEffort") == (name == "BestEffort")
        if name == "PriorityClass":
            return _selects(scope, spec.get("priorityClassName") or "")
        return name == "CrossNamespacePodAffinity" and _crosses_namespaces(spec)


def _terminating(pod: Obj) -> bool:
    return (pod.get("spec") or {}).get("activeDeadlineSeconds") is not None


def _usage_inputs(pod: Obj) -> tuple[Any, ...]:
    """Return what, besides the spec, determines the usage of a pod."""
    meta, status = pod["metadata"], pod.get("status") or {}
    known = (*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ()))
    held = [(c.get("name"), c.get("resources"), c.get("allocatedResources")) for c in known if c.get("resources") is not None]
    pending: Obj = next((c for c in status.get("conditions") or () if c.get("type") == "PodResizePending"), {})
    whole = status.get("resources"), status.get("allocatedResources"), pending.get("reason")
    return meta.get("deletionTimestamp"), meta.get("deletionGracePeriodSeconds"), status.get("phase"), held, whole


def _ended(pod: Obj) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded")


def compute(requests: Amounts, limits: Amounts) -> Amounts:
    """Return the usage of a pod or container under the names that quotas use."""
    out = {"pods": ONE}
    for name in COMPUTE:
        if name in requests:
            out[name] = out[f"requests.{name}"] = requests[name]
        if name in limits:
            out[f"limits.{name}"] = limits[name]
    for name, need in requests.items():
        if name.startswith("hugepages-"):
            out[name] = out[f"requests.{name}"] = need
        elif is_extended(name) or name.startswith(IMPLICIT):
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


class Evaluators:
    """The evaluators by resource; special ones are created on first use and cached."""

    def __init__(self, objects: Objects, informers: Informers) -> None:
        self._known: dict[tuple[str, str], Evaluator] = {}
        self._special: dict[tuple[str, str], Callable[[], Evaluator]] = {
            ("", "pods"): Pods,
            ("", "services"): Services,
            ("", "persistentvolumeclaims"): Claims,
            ("resource.k8s.io", "resourceclaims"): lambda: ResourceClaims(objects, informers),
        }

    def of(self, group: str, resource: str) -> Evaluator:
        """Return the evaluator of a resource; most use the general one."""
        found = self._known.get((group, resource))
        if found is None:
            make = self._special.get((group, resource))
            if make is None:
                return Evaluator(group, resource)  # not cached, since custom resources come and go
            found = self._known[group, resource] = make()
        return found


def matches(quota: Obj, evaluator: Evaluator, obj: Obj) -> bool:
    """Return whether a quota applies to this object (``generic.Matches``)."""
    if not evaluator.matching((quota.get("status") or {}).get("hard") or {}):
        return False
    return all(evaluator.in_scope(scope, obj) for scope in scopes_of(quota))


def scopes_of(quota: Obj) -> list[Obj]:
    """Return the quota's scopes in the form of scope selector terms."""
    spec = quota.get("spec") or {}
    scopes = [{"scopeName": name, "operator": "Exists"} for name in spec.get("scopes") or ()]
    return scopes + ((spec.get("scopeSelector") or {}).get("matchExpressions") or [])
