"""Resource lists and requirements: names, quantities, requests against limits (``pkg/apis/core/validation``, ``helper``).

Quantities come canonical out of decoding; ``amount`` gives their exact value so that comparison is by value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from kas.meta import field, names, quantity
from kas.meta.field import FieldError
from kas.observe.caches import remembered

if TYPE_CHECKING:
    from kas.kinds.core.pod.options import Options

NANO = 10**9

NEGATIVE = "must be greater than or equal to 0"
NOT_POSITIVE = "must be greater than zero"
NOT_INTEGER = "must be an integer"
HUGEPAGES = "hugepages-"
REQUESTS_HUGEPAGES = "requests.hugepages-"

CONTAINER_RESOURCES = frozenset({"cpu", "memory", "ephemeral-storage"})
STANDARD_RESOURCES = frozenset(
    {
        "cpu", "memory", "ephemeral-storage", "requests.cpu", "requests.memory", "requests.ephemeral-storage", "limits.cpu",
        "limits.memory", "limits.ephemeral-storage", "pods", "resourcequotas", "services", "replicationcontrollers",
        "secrets", "persistentvolumeclaims", "configmaps", "services.nodeports", "services.loadbalancers", "storage",
        "requests.storage",
    }
)  # fmt: skip
QUOTA_RESOURCES = frozenset(
    {
        "cpu", "memory", "ephemeral-storage", "requests.cpu", "requests.memory", "requests.storage",
        "requests.ephemeral-storage", "limits.cpu", "limits.memory", "limits.ephemeral-storage", "pods", "resourcequotas",
        "services", "replicationcontrollers", "secrets", "persistentvolumeclaims", "configmaps", "services.nodeports",
        "services.loadbalancers",
    }
)  # fmt: skip
INTEGER_RESOURCES = frozenset(
    {
        "pods", "resourcequotas", "services", "replicationcontrollers", "secrets", "configmaps", "persistentvolumeclaims",
        "services.nodeports", "services.loadbalancers",
    }
)  # fmt: skip


@remembered("quantity_amounts", "quantities in billionths", 8192, 32, 512)
def amount(text: str) -> int:
    """Return the exact value of a quantity in billionths, the finest that parsing keeps. Raises DecodeError."""
    parsed = quantity.parse(text)
    return parsed.unscaled * 10 ** (9 - parsed.scale)


def value(text: str) -> int:
    """``Quantity.Value()``: whole units, rounded away from zero."""
    n = amount(text)
    return -(-n // NANO) if n >= 0 else n // NANO


def milli(text: str) -> int:
    """``Quantity.MilliValue()``, rounded up."""
    return -(-amount(text) // 10**6)


# -- kinds of resource names -------------------------------------------------------------------------------------------


def is_hugepages(name: str) -> bool:
    """``IsHugePageResourceName``: huge pages of some size."""
    return name.startswith(HUGEPAGES)


def is_native(name: str) -> bool:
    """``IsNativeResource``: without a prefix, or within kubernetes.io."""
    return "/" not in name or "kubernetes.io/" in name


def is_extended(name: str) -> bool:
    """Fully qualified, outside kubernetes.io and usable with the quota prefix ``requests.``."""
    if is_native(name) or name.startswith("requests."):
        return False
    return not names.is_qualified_name("requests." + name)


def overcommit_allowed(name: str) -> bool:
    """``IsOvercommitAllowed``: the limit may be above the request."""
    return is_native(name) and not is_hugepages(name)


def is_integer_resource(name: str) -> bool:
    """``IsIntegerResourceName``: counted in whole units."""
    return name in INTEGER_RESOURCES or is_extended(name)


def is_standard_resource(name: str) -> bool:
    """``IsStandardResourceName``: one that may stand without a prefix anywhere."""
    return name in STANDARD_RESOURCES or is_hugepages(name) or name.startswith(REQUESTS_HUGEPAGES)


def is_standard_container_resource(name: str) -> bool:
    """``IsStandardContainerResourceName``: one that a container may ask for without a prefix."""
    return name in CONTAINER_RESOURCES or is_hugepages(name)


def is_standard_quota_resource(name: str) -> bool:
    """``IsStandardQuotaResourceName``: one that a quota may limit without a prefix."""
    return name in QUOTA_RESOURCES or is_hugepages(name) or name.startswith(REQUESTS_HUGEPAGES)


NameRule = Callable[[str, str], list[FieldError]]


def resource_name(name: str, path: str) -> list[FieldError]:
    """``validateResourceName``: a qualified name, a standard one when it has no prefix."""
    errs = [field.invalid(path, name, m) for m in names.is_qualified_name(name)]
    if not errs and "/" not in name and not is_standard_resource(name):
        errs.append(field.invalid(path, name, "must be a standard resource type or fully qualified"))
    return errs


def container_resource_name(name: str, path: str) -> list[FieldError]:
    """``validateContainerResourceName``: a standard one of containers, or an extended resource."""
    if name in CONTAINER_RESOURCES:
        return []
    errs = resource_name(name, path)
    if "/" not in name:
        if not is_standard_container_resource(name):
            errs.append(field.invalid(path, name, "must be a standard resource for containers"))
    elif not is_native(name) and not is_extended(name):
        errs.append(field.invalid(path, name, "doesn't follow extended resource name standard"))
    return errs


def pod_resource_name(name: str, path: str) -> list[FieldError]:
    """``validatePodResourceName``: what a pod as a whole may ask for."""
    errs = resource_name(name, path)
    if not errs and name not in ("cpu", "memory") and not is_hugepages(name):
        errs.append(field.not_supported(path, name, ["cpu", "hugepages-", "memory"]))
    return errs


def quota_resource_name(name: str, path: str) -> list[FieldError]:
    """``ValidateResourceQuotaResourceName``: a qualified name, one of those for quotas when it has no prefix."""
    errs = resource_name(name, path)
    if "/" not in name and not is_standard_quota_resource(name):
        errs.append(field.invalid(path, name, "must be a standard resource for quota"))
    return errs


# -- quantities --------------------------------------------------------------------------------------------------------


def nonnegative_quantity(text: str, path: str) -> list[FieldError]:
    """``ValidateNonnegativeQuantity``."""
    return [field.invalid(path, text, NEGATIVE)] if amount(text) < 0 else []


def positive_quantity(text: str, path: str) -> list[FieldError]:
    """``ValidatePositiveQuantityValue``."""
    return [field.invalid(path, text, NOT_POSITIVE)] if amount(text) <= 0 else []


def basic_resource(text: str, path: str) -> list[FieldError]:
    """``ValidateBasicResource``: in whole units, rounded up, not below zero."""
    n = value(text)
    return [field.invalid(path, n, "must be a valid resource quantity")] if n < 0 else []


def resource_quantity(name: str, text: str, path: str) -> list[FieldError]:
    """``ValidateResourceQuantityValue``: not negative, and whole for resources counted in whole units."""
    errs = nonnegative_quantity(text, path)
    if name not in CONTAINER_RESOURCES and is_integer_resource(name) and milli(text) % 1000:
        errs.append(field.invalid(path, text, NOT_INTEGER))
    return errs


def resource_map(items: Mapping[str, str] | None, name_rule: NameRule, path: str) -> list[FieldError]:
    """Validate names by ``name_rule`` and their quantities, in the order of the names; paths contain the name."""
    errs: list[FieldError] = []
    items = items or {}
    for name in sorted(items):
        at = f"{path}[{name}]"
        errs += name_rule(name, at)
        errs += resource_quantity(name, items[name], at)
    return errs


# -- sums --------------------------------------------------------------------------------------------------------------


def _add(total: dict[str, quantity.Quantity], items: Mapping[str, str] | None) -> None:
    for name, text in (items or {}).items():
        total[name] = total[name] + quantity.parse(text) if name in total else quantity.parse(text)


def aggregate(spec: Mapping[str, Any], kind: str) -> dict[str, quantity.Quantity]:
    """Return the total of a pod's containers (``AggregateContainerRequests``; with ``kind`` "limits", ``AggregateContainerLimits``).

    It is the sum of regular containers and sidecars, or, if larger, the most that an init container and the sidecars before it need.
    """
    total: dict[str, quantity.Quantity] = {}
    for container in spec.get("containers") or ():
        _add(total, (container.get("resources") or {}).get(kind))
    sidecars: dict[str, quantity.Quantity] = {}
    peak: dict[str, quantity.Quantity] = {}
    # Only resources that a container names itself can exceed the earlier steps: the sidecars' share of others was counted with the sidecar
    # that added it.
    for container in spec.get("initContainers") or ():
        own = (container.get("resources") or {}).get(kind) or {}
        step: dict[str, quantity.Quantity] = {}
        if container.get("restartPolicy") == "Always":
            _add(total, own)
            _add(sidecars, own)
            step = {name: sidecars[name] for name in own}
        else:
            # The order matters: a sum is written in the format of its first part.
            _add(step, own)
            step = {name: need + sidecars[name] if name in sidecars else need for name, need in step.items()}
        _raise(peak, step)
    _raise(total, peak)
    return total


def _raise(most: dict[str, quantity.Quantity], needs: Mapping[str, quantity.Quantity]) -> None:
    for name, need in needs.items():
        if name not in most or most[name] < need:
            most[name] = need


# -- requirements ------------------------------------------------------------------------------------------------------


class ClaimNames(frozenset[str]):
    """The names of a pod's resource claims."""

    @cached_property
    def unknown(self) -> str:
        """The error for another name. Made once for all containers: a pod can make it long, and can have many errors that contain it."""
        listed = ": " + ", ".join(sorted(self)) if self else " which is empty"
        return f"must be one of the names in pod.spec.resourceClaims{listed}"


NO_CLAIMS = ClaimNames()

def container_requirements(
    spec: Mapping[str, Any] | None, claims: ClaimNames, path: str, options: Options | None = None
) -> list[FieldError]:
    """``ValidateContainerResourceRequirements``; ``claims`` are the names of the pod's resource claims."""
    return _requirements(spec, container_resource_name, claims, path, options) if spec else []


def pod_requirements(spec: Mapping[str, Any], claims: ClaimNames, path: str, options: Options | None = None) -> list[FieldError]:
    """Validate pod-level resources; ``claims`` are the names of the pod's resource claims."""
    return _requirements(spec, pod_resource_name, claims, path, options)


def _requirements(
    spec: Mapping[str, Any], name_rule: NameRule, claims: ClaimNames, path: str, options: Options | None
) -> list[FieldError]:
    errs: list[FieldError] = []
    limits, requests = spec.get("limits") or {}, spec.get("requests") or {}
    has_cpu_or_memory = has_hugepages = False
    for name, text in limits.items():
        if name == "cpu" or name == "memory":
            has_cpu_or_memory = True
            if amount(text) >= 0:
                continue
        at = f"{path}.limits[{name}]"
        errs += name_rule(name, at)
        errs += resource_quantity(name, text, at)
        if is_hugepages(name):
            has_hugepages = True
            errs += _hugepages_multiple(name, text, at, options)
    for name, text in requests.items():
        limit = limits.get(name)
        if name == "cpu" or name == "memory":
            has_cpu_or_memory = True
            n = amount(text)
            if n >= 0 and (limit is None or n <= amount(limit)):
                continue
        at = f"{path}.requests[{name}]"
        errs += name_rule(name, at)
        errs += resource_quantity(name, text, at)
        if limit is not None:
            have, cap = amount(text), amount(limit)
            if have != cap and not overcommit_allowed(name):
                errs.append(field.invalid(f"{path}.requests", text, f"must be equal to {name} limit of {limit}"))
            elif have > cap:
                errs.append(field.invalid(f"{path}.requests", text, f"must be less than or equal to {name} limit of {limit}"))
        elif not overcommit_allowed(name):
            errs.append(field.required(f"{path}.limits", "Limit must be set for non overcommitable resources"))
        if is_hugepages(name):
            has_hugepages = True
            errs += _hugepages_multiple(name, text, at, options)
    if has_hugepages and not has_cpu_or_memory:
        errs.append(field.forbidden(path, "HugePages require cpu or memory"))
    if spec.get("claims"):
        errs += _claim_names(spec["claims"], claims, f"{path}.claims")
    return errs


def divisible(name: str, text: str) -> bool:
    """Whether an amount of huge pages is a multiple of the page size, including zero."""
    try:
        page = amount(name[len(HUGEPAGES) :])
    except quantity.DecodeError:
        return False
    return page > 0 and page % NANO == 0 and value(text) * NANO % page == 0


def _hugepages_multiple(name: str, text: str, path: str, options: Options | None) -> list[FieldError]:
    if divisible(name, text) or (options is not None and options.partial_hugepages):
        return []
    return [field.invalid(path, text, f"{text} is not positive integer multiple of {name}")]


def _claim_names(claims: list[dict[str, Any]], known: ClaimNames, path: str) -> list[FieldError]:
    errs: list[FieldError] = []
    seen: set[str] = set()
    with_request: Counter[str] = Counter()
    for i, claim in enumerate(claims):
        at, name, request = f"{path}[{i}]", claim.get("name") or "", claim.get("request") or ""
        if not name:
            errs.append(field.required(at))
            continue
        if name in seen:
            errs.append(field.duplicate(at, name))
        else:
            full = name
            if request:
                errs += [field.invalid(f"{at}.request", request, m) for m in names.is_dns1123_label(request)]
                full = f"{name}/{request}"
            if full in seen:
                errs.append(field.duplicate(at, full))
            elif not request:
                errs += [field.duplicate(at, name)] * with_request[name]
            if full not in seen and "/" in full:
                with_request[full.split("/", 1)[0]] += 1
            seen.add(full)
        if name not in known:
            errs.append(FieldError(field.NOT_FOUND, at, name, known.unknown))
    return errs
