"""What an object counts against quotas (``pkg/quota/v1/evaluator/core`` and ``apiserver/pkg/quota/v1/generic``).

An evaluator says which operations it counts, which of a quota's resources it knows, what an object uses, and whether a
quota's scopes are about the object.
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
# How pods ask for devices of a class as for an extended resource, and what marks the claim that the scheduler makes of it.
IMPLICIT = "deviceclass.resource.kubernetes.io/"
EXTENDED_CLAIM = "resource.kubernetes.io/extended-resource-claim"
ZERO = Quantity(0)
MAX_DEVICES = 32  # a request for all devices may get as many


class Evaluator:
    """Counts objects, nothing else; for every resource without rules of its own. ``counted`` are the names it counts under."""

    operations: tuple[str, ...] = (CREATE,)
    steady = True  # what an object uses is said by itself, and by the time
    rest: Amounts = {}  # what one uses that is over

    def __init__(self, group: str, resource: str) -> None:
        self.counted = [f"count/{resource}.{group}" if group else f"count/{resource}"]
        if not group and resource in COUNTED_BY_NAME:
            self.counted.append(resource)

    def handles(self, a: Attributes) -> bool:
        """Whether the request changes what counts: in general, a write of the object itself."""
        return a.operation in self.operations and not a.subresource

    def matching(self, hard: Iterable[str]) -> list[str]:
        """Those of a quota's resources that this kind uses."""
        return [name for name in hard if name in self.counted]

    def usage(self, obj: Obj) -> Amounts:
        """What the object counts for; in general one object."""
        return dict.fromkeys(self.counted, ONE)

    def over_at(self, obj: Obj) -> float:
        """After which moment it uses no more than ``rest``, though nobody writes it: never, in general."""
        return math.inf

    def same(self, now: Obj, before: Obj) -> bool:
        """Whether it is seen at a glance that two states use the same. False says nothing."""
        return False

    def constraints(self, required: list[str], obj: Obj) -> str:
        """What the object has to say and does not; "" when all is there."""
        return ""

    def in_scope(self, scope: Obj, obj: Obj) -> bool:
        """Whether the object is in the scope; in general nothing is in any."""
        return False


class Services(Evaluator):
    """What a Service uses: itself, load balancers, ports of nodes."""

    operations = (CREATE, UPDATE)

    def __init__(self) -> None:
        self.counted = ["count/services", "services", "services.nodeports", "services.loadbalancers"]

    def usage(self, obj: Obj) -> Amounts:
        """The object itself, load balancers, and the ports it takes on nodes."""
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
    """What a PersistentVolumeClaim uses: itself and its storage, in all and by storage class."""

    operations = (CREATE, UPDATE)

    def __init__(self) -> None:
        self.counted = ["count/persistentvolumeclaims", "persistentvolumeclaims", "requests.storage"]

    def handles(self, a: Attributes) -> bool:
        """A status update counts too."""
        # By its status a claim comes to hold more, or to be of another attributes class.
        return super().handles(a) or (a.operation == UPDATE and a.subresource == "status")

    def matching(self, hard: Iterable[str]) -> list[str]:
        """Those of the ``hard`` limits that claims count against, for each class too."""
        suffixes = (CLASS_SUFFIX + "persistentvolumeclaims", CLASS_SUFFIX + "requests.storage")
        return [name for name in hard if name in self.counted or name.endswith(suffixes)]

    def usage(self, obj: Obj) -> Amounts:
        """The claim and the bytes it asks for or holds, in all and by storage class."""
        spec, status = obj.get("spec") or {}, obj.get("status") or {}
        out = {"count/persistentvolumeclaims": ONE, "persistentvolumeclaims": ONE}
        name = storage_class(obj)
        if name:
            out[name + CLASS_SUFFIX + "persistentvolumeclaims"] = ONE
        wanted = pod_objects.amounts((spec.get("resources") or {}).get("requests")).get("storage")
        if wanted is not None:
            # An expansion that was taken back still holds what was allocated.
            held = pod_objects.amounts(status.get("allocatedResources")).get("storage")
            need = (held if held is not None and held > wanted else wanted).round_up(0)[0]
            out["requests.storage"] = need
            if name:
                out[name + CLASS_SUFFIX + "requests.storage"] = need
        return out

    def in_scope(self, scope: Obj, obj: Obj) -> bool:
        """VolumeAttributesClass: by the class it has, asks for or is moving to."""
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
    """Counts devices by class, and as the extended resources that pods may ask for instead (KEP-5004)."""

    operations = (CREATE, UPDATE)
    steady = False  # pods and classes say it, too

    def __init__(self, objects: Objects, informers: Informers) -> None:
        self.counted = ["count/resourceclaims.resource.k8s.io"]
        self._objects = objects
        indexes = {"extended": lambda name: [name] if name else []}
        self._classes = informers.lister("resource.k8s.io", "deviceclasses", _extended_name, indexes)
        by_pod = {"pod": lambda it: [it.pod] if it.pod else []}
        self._of_pods = informers.lister("resource.k8s.io", "resourceclaims", _of_pod, by_pod)

    def _extended(self, limit: str) -> bool:
        """Whether a limit is about the extended resource that stands for a class."""
        if not limit.startswith("requests.") or not features.DEFAULT.enabled("DRAExtendedResource"):
            return False
        resource = limit.removeprefix("requests.")
        if resource.startswith(IMPLICIT) and resource.removeprefix(IMPLICIT) in self._classes.all():
            return True
        return bool(self._classes.by_index("extended", resource))

    def matching(self, hard: Iterable[str]) -> list[str]:
        """Those of the ``hard`` limits that claims count against: themselves, devices by class, extended resources."""
        return [name for name in hard if name in self.counted or name.endswith(DEVICE_SUFFIX) or self._extended(name)]

    def usage(self, obj: Obj) -> Amounts:
        """The claim, and the most devices of each class that it may get, less what its pod pays for as extended resources."""
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
        """What the pod already counts for which the scheduler made the claim: nobody pays twice, and no pod pays for two claims."""
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
        others = list(self._of_pods.by_index("pod", f"{namespace}/{owner.get('uid')}").values())  # in one step: it may be beside the loop
        return {} if any(other.age < _age(meta) for other in others) else Pods().usage(pod)


def _extended_name(device_class: Obj) -> str:
    return device_class["spec"].get("extendedResourceName") or ""


def _pod_owner(meta: Obj) -> Obj | None:
    """The pod that controls a claim for extended resources."""
    if (meta.get("annotations") or {}).get(EXTENDED_CLAIM) != "true":
        return None
    owner: Obj = next((ref for ref in meta.get("ownerReferences") or () if ref.get("controller")), {})
    return owner if (owner.get("apiVersion"), owner.get("kind")) == ("v1", "Pod") else None


def _age(meta: Obj) -> tuple[str, str]:
    return meta.get("creationTimestamp") or "", meta.get("name") or ""


class _OfPod(NamedTuple):
    """What is kept of a claim: "namespace/uid" of the pod for whose extended resources it was made, "" for others, and what says which of
    two is older."""

    pod: str
    age: tuple[str, str]


def _of_pod(claim: Obj) -> _OfPod:
    meta = claim["metadata"]
    owner = _pod_owner(meta)
    return _OfPod("" if owner is None else f"{meta.get('namespace') or ''}/{owner.get('uid')}", _age(meta))


class Pods(Evaluator):
    """What a Pod uses: itself, and the requests and limits of its containers."""

    rest: Amounts = {"count/pods": ONE}

    def __init__(self) -> None:
        self.counted = sorted(POD_RESOURCES)

    def handles(self, a: Attributes) -> bool:
        """Creates, resizes, and updates that move the pod to other scopes."""
        if a.subresource:
            return a.operation == UPDATE and a.subresource == "resize"
        # Of an update only that it moves the pod to other quotas.
        return a.operation == CREATE or _terminating(a.obj) != _terminating(a.old)

    def matching(self, hard: Iterable[str]) -> list[str]:
        """Those of the ``hard`` limits that pods count against."""
        return [
            name
            for name in hard
            if name in POD_RESOURCES
            or name.startswith(("hugepages-", "requests.hugepages-"))
            or (name.startswith("requests.") and (not is_native(name) or name.startswith(f"requests.{IMPLICIT}")))
        ]

    def usage(self, obj: Obj) -> Amounts:
        """The pod and, unless it is over, its requests and limits with overhead."""
        out = dict(self.rest)
        # A pod that has ended, or should have, is stored but needs nothing.
        if not _ended(obj) and time.time() <= self.over_at(obj):
            spec, status = obj.get("spec") or {}, obj.get("status") or {}
            out |= compute(*(pod_objects.effective(spec, kind, overhead=True, status=status) for kind in ("requests", "limits")))
        return out

    def over_at(self, obj: Obj) -> float:
        """When it was to end and its node has not said so in twice the time it had."""
        meta = obj["metadata"]
        at, grace = meta.get("deletionTimestamp"), meta.get("deletionGracePeriodSeconds")
        return math.inf if at is None or grace is None or _ended(obj) else datetime.fromisoformat(at).timestamp() + grace

    def same(self, now: Obj, before: Obj) -> bool:
        """Most updates of a pod are of its conditions, or of what else its node says of it."""
        return now.get("spec") == before.get("spec") and _told(now) == _told(before)

    def constraints(self, required: list[str], obj: Obj) -> str:
        """What containers leave unsaid of resources that a quota demands, in words; "" for nothing."""
        needed = MUST_BE_SAID.intersection(required)
        spec = obj.get("spec") or {}
        whole = spec.get("resources") or {}
        # Where the pod speaks for all of its containers, none has to.
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
        """By deadline, quality of service, priority class or affinity to other namespaces."""
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


def _told(pod: Obj) -> tuple[Any, ...]:
    """What says beside its spec what a pod uses."""
    meta, status = pod["metadata"], pod.get("status") or {}
    known = (*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ()))
    held = [(c.get("name"), c.get("resources"), c.get("allocatedResources")) for c in known if c.get("resources") is not None]
    pending: Obj = next((c for c in status.get("conditions") or () if c.get("type") == "PodResizePending"), {})
    whole = status.get("resources"), status.get("allocatedResources"), pending.get("reason")
    return meta.get("deletionTimestamp"), meta.get("deletionGracePeriodSeconds"), status.get("phase"), held, whole


def _ended(pod: Obj) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded")


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
    """The evaluator of each resource; those with rules of their own are made when they are first asked for, and kept."""

    def __init__(self, objects: Objects, informers: Informers) -> None:
        self._known: dict[tuple[str, str], Evaluator] = {}
        self._special: dict[tuple[str, str], Callable[[], Evaluator]] = {
            ("", "pods"): Pods,
            ("", "services"): Services,
            ("", "persistentvolumeclaims"): Claims,
            ("resource.k8s.io", "resourceclaims"): lambda: ResourceClaims(objects, informers),
        }

    def of(self, group: str, resource: str) -> Evaluator:
        """The evaluator of a resource; the general one for most."""
        found = self._known.get((group, resource))
        if found is None:
            make = self._special.get((group, resource))
            if make is None:
                return Evaluator(group, resource)  # a definition's may come and go
            found = self._known[group, resource] = make()
        return found


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
