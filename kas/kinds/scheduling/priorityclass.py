"""Strategy of PriorityClass (upstream ``pkg/registry/scheduling/priorityclass``)."""

from __future__ import annotations

from typing import Any

from kas.kinds.core.objectmeta import object_meta, object_meta_update
from kas.meta import errors, field, names
from kas.meta.age import age
from kas.meta.checks import immutable, unsupported
from kas.meta.field import FieldError
from kas.registry.printing.rows import printer
from kas.registry.strategy import Context, Obj, Strategy, strategy_for

SYSTEM_PREFIX = "system-"
MAX_USER_VALUE = 1_000_000_000
SYSTEM_VALUES = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}
PREEMPTION_POLICIES = ("PreemptLowerPriority", "Never")


@strategy_for("scheduling.k8s.io", "priorityclasses")
class PriorityClassStrategy(Strategy):
    """PriorityClasses; value and preemption policy are immutable, because pods have copied them."""

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        """``ValidatePriorityClass``: names and values of the system are reserved for the system's own classes."""
        errs = object_meta(obj["metadata"], False, names.dns_subdomain)
        name, value = obj["metadata"].get("name") or "", obj.get("value") or 0
        if name.startswith(SYSTEM_PREFIX):
            problem = _system_problem(name, value, bool(obj.get("globalDefault")))
            if problem:
                text = f"priority class names with '{SYSTEM_PREFIX}' prefix are reserved for system use only. error: {problem}"
                errs.append(field.forbidden("metadata.name", text))
        elif value > MAX_USER_VALUE:
            errs.append(field.forbidden("value", f"maximum allowed value of a user defined priority is {MAX_USER_VALUE}"))
        policy = obj.get("preemptionPolicy")
        if policy is not None:
            if not policy:
                errs.append(field.required("preemptionPolicy"))
            elif policy not in PREEMPTION_POLICIES:
                errs.append(unsupported("preemptionPolicy", policy, PREEMPTION_POLICIES))
        return errs

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidatePriorityClassUpdate``: value and preemption policy may not change."""
        errs = object_meta_update(obj["metadata"], old["metadata"])
        if (obj.get("value") or 0) != (old.get("value") or 0):
            errs.append(field.forbidden("value", "may not be changed in an update."))
        return errs + immutable(obj.get("preemptionPolicy"), old.get("preemptionPolicy"), "preemptionPolicy")

    def refuse_delete(self, name: str) -> None:
        """Refuse to delete the system's own classes (``REST.Delete``); as upstream, deleting a collection may include them."""
        if name in SYSTEM_VALUES:
            why = "this is a system priority class and cannot be deleted"
            raise errors.forbidden(self.resource.group, self.resource.resource, name, why)


def _system_problem(name: str, value: int, is_default: bool) -> str:
    if name not in SYSTEM_VALUES:
        return f"{name} is not a known system priority class"
    if value != SYSTEM_VALUES[name]:
        return f"value of {name} PriorityClass must be {SYSTEM_VALUES[name]}"
    return f"globalDefault of {name} PriorityClass must be false" if is_default else ""


@printer("scheduling.k8s.io", "PriorityClass")
def priority_class_row(obj: Obj, now: float) -> list[Any]:
    """The cells of a Table row: name, value, global default, age, preemption policy."""
    return [
        obj["metadata"].get("name", ""), obj.get("value", 0), obj.get("globalDefault", False), age(obj, now),
        obj.get("preemptionPolicy", ""),
    ]  # fmt: skip
