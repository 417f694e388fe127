"""Priority: resolves the priority class of a pod or pod group to its value, and allows only one default class.

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
    """Index function for classes that are the default."""
    return ["true"] if priority_class.get("globalDefault") else []


class Plugin:
    """Applies to pods, to PodGroups while the gate WorkloadAwarePreemption is on, and to PriorityClasses; reads PriorityClasses."""

    name = "Priority"

    def __init__(self, informers: Informers) -> None:
        self._classes = informers.lister(GROUP, "priorityclasses", whole, {"default": _default})

    def handles(self, a: Attributes) -> bool:
        """Handle creates and updates of pods and PriorityClasses, creates of PodGroups."""
        if a.subresource or a.operation not in (CREATE, UPDATE):
            return False
        if (a.group, a.resource) == (GROUP, "podgroups"):
            return a.operation == CREATE and features.DEFAULT.enabled("WorkloadAwarePreemption")
        return (a.group, a.resource) in (("", "pods"), (GROUP, "priorityclasses"))

    def admit(self, a: Attributes) -> None:
        """Set the priority of a new pod or PodGroup from its class; on update, keep the values that the client did not send."""
        if a.resource == "priorityclasses":
            return
        spec = a.obj["spec"]
        if a.resource == "podgroups":
            self._number(a, spec)
        elif a.operation == UPDATE:
            old = a.old["spec"]
            # A client that does not know these fields sends none; they cannot change.
            if spec.get("priority") is None and old.get("priority") is not None:
                spec["priority"] = old["priority"]
            if spec.get("preemptionPolicy") is None and old.get("preemptionPolicy") is not None:
                spec["preemptionPolicy"] = old["preemptionPolicy"]
        else:  # mirror pods, too: any client that may create pods may mark one as a mirror pod
            policy = self._number(a, spec)
            given = spec.get("preemptionPolicy")
            if given is not None and given != policy:
                raise a.forbid(
                    f"the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission controller "
                    f"computed {policy} from the given PriorityClass name"
                )
            spec["preemptionPolicy"] = policy

    def _number(self, a: Attributes, spec: dict[str, Any]) -> str:
        """Set class and priority; return the preemption policy of the class."""
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
        """Return name, value and preemption policy for a pod without a class."""
        default = self._default_class()
        if default is None:
            return "", 0, LOWER
        return default["metadata"]["name"], default.get("value") or 0, default.get("preemptionPolicy") or LOWER

    def _default_class(self) -> dict[str, Any] | None:
        """Return the default class with the lowest value; several can only result from racing writes."""
        found = self._classes.by_index("default", "true")
        if not found:
            return None
        return min(found.values(), key=lambda c: (c.get("value") or 0, c["metadata"]["name"]))

    def validate(self, a: Attributes) -> None:
        """Refuse a second default PriorityClass."""
        if a.resource != "priorityclasses" or not a.obj.get("globalDefault"):
            return
        # The default class may stay the default; another one may not become it, too.
        default = self._default_class()
        if default is not None and (a.operation == CREATE or default["metadata"]["name"] != a.obj["metadata"].get("name")):
            raise a.forbid(f"PriorityClass {default['metadata']['name']} is already marked as default. Only one default can exist")
