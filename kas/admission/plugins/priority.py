"""Priority: the class of a pod, or of a group of pods, becomes its number; there is one default class.

Upstream: ``plugin/pkg/admission/priority/admission.go``.
"""

from __future__ import annotations

from typing import Any

from kas.admission import CREATE, UPDATE, Attributes
from kas.config import features
from kas.informers import Informers
from kas.informers.informer import whole

GROUP = "scheduling.k8s.io"
LOWER = "PreemptLowerPriority"


def _default(priority_class: dict[str, Any]) -> list[str]:
    """The indexer of classes that are the default."""
    return ["true"] if priority_class.get("globalDefault") else []


class Plugin:
    """Sees pods, groups of them while the gate WorkloadAwarePreemption is open, and PriorityClasses; asks for the classes."""

    name = "Priority"

    def __init__(self, informers: Informers) -> None:
        self._classes = informers.lister(GROUP, "priorityclasses", whole, {"default": _default})

    def handles(self, a: Attributes) -> bool:
        """Creates and updates of pods and PriorityClasses, creates of PodGroups."""
        if a.subresource or a.operation not in (CREATE, UPDATE):
            return False
        if (a.group, a.resource) == (GROUP, "podgroups"):
            return a.operation == CREATE and features.DEFAULT.enabled("WorkloadAwarePreemption")
        return (a.group, a.resource) in (("", "pods"), (GROUP, "priorityclasses"))

    def admit(self, a: Attributes) -> None:
        """Give a new pod or PodGroup the number of its class; an update keeps what the client did not send."""
        if a.resource == "priorityclasses":
            return
        spec = a.obj["spec"]
        if a.resource == "podgroups":
            self._number(a, spec)
        elif a.operation == UPDATE:
            old = a.old["spec"]
            # A client that does not know the numbers sends none; neither can change.
            if spec.get("priority") is None and old.get("priority") is not None:
                spec["priority"] = old["priority"]
            if spec.get("preemptionPolicy") is None and old.get("preemptionPolicy") is not None:
                spec["preemptionPolicy"] = old["preemptionPolicy"]
        else:  # mirror pods, too: who may create pods may call any of them one
            policy = self._number(a, spec)
            given = spec.get("preemptionPolicy")
            if given is not None and given != policy:
                raise a.forbid(
                    f"the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission controller "
                    f"computed {policy} from the given PriorityClass name"
                )
            spec["preemptionPolicy"] = policy

    def _number(self, a: Attributes, spec: dict[str, Any]) -> str:
        """Sets class and number; the policy of the class."""
        name = spec.get("priorityClassName")
        policy: str
        if not name:
            name, value, policy = self._default()
            if name:
                spec["priorityClassName"] = name
        else:
            found = self._classes.all().get(name)
            if found is None:
                raise a.forbid(f"no PriorityClass with name {name} was found")
            value, policy = found.get("value") or 0, found.get("preemptionPolicy") or LOWER
        if spec.get("priority") is not None and spec["priority"] != value:
            kind = "pod" if a.resource == "pods" else "pod group"
            raise a.forbid(
                f"the integer value of priority ({spec['priority']}) must not be provided in {kind} spec; priority admission controller "
                f"computed {value} from the given PriorityClass name"
            )
        spec["priority"] = value
        return policy

    def _default(self) -> tuple[str, int, str]:
        """Name, number and policy that a pod without a class gets."""
        default = self._default_class()
        if default is None:
            return "", 0, LOWER
        return default["metadata"]["name"], default.get("value") or 0, default.get("preemptionPolicy") or LOWER

    def _default_class(self) -> dict[str, Any] | None:
        """The default class with the lowest number; several can only come about by racing writes."""
        found = self._classes.by_index("default", "true").values()
        return min(found, key=lambda c: (c.get("value") or 0, c["metadata"]["name"]), default=None)

    def validate(self, a: Attributes) -> None:
        """Refuse a second default among the PriorityClasses."""
        if a.resource != "priorityclasses" or not a.obj.get("globalDefault"):
            return
        # A class stays the default it is; another one may not become it besides.
        default = self._default_class()
        if default is not None and (a.operation == CREATE or default["metadata"]["name"] != a.obj["metadata"].get("name")):
            raise a.forbid(f"PriorityClass {default['metadata']['name']} is already marked as default. Only one default can exist")
