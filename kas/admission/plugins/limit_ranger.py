"""LimitRanger: sets a namespace's default requests and limits on containers, and refuses what is out of bounds.

Upstream: ``plugin/pkg/admission/limitranger/admission.go``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from kas.admission import CREATE, UPDATE, Attributes
from kas.admission import pods as pod_objects
from kas.auth.attributes import aggregate
from kas.informers import Informers
from kas.meta import errors
from kas.meta.offload import POOL
from kas.meta.quantity import Quantity
from kas.meta.quantity import cached as quantity
from kas.meta.records import NamedTuple

Obj = dict[str, Any]
ANNOTATION = "kubernetes.io/limit-ranger"
# Larger quantities do not fit into an int64 as milli units and are compared in whole units (resource.MaxMilliValue).
MAX_MILLI = ((1 << 63) - 1) // 1000
ZERO = Quantity(0)
# Resources for which limits of type Pod use pod-level values; huge pages are still summed over the containers.
WHOLE = frozenset(("cpu", "memory"))
MANY = 500  # amounts times containers; each takes about 10 to 20 µs
MOST_FOUND = 10_000  # examined messages, a tenth of a second, most of them repeated for one container after another
MOST_BYTES = 3 << 20  # added to a pod, which could not be stored with more

BOUNDS = ("min", "max", "default", "defaultRequest", "maxLimitRequestRatio")


class _Range(NamedTuple):
    """A LimitRange: its limits, and the number of amounts in them, at least one per limit."""

    limits: list[Obj]
    amounts: int


def _range(obj: Obj) -> _Range:
    limits = obj["spec"].get("limits") or []
    return _Range(limits, sum(max(1, *(len(item.get(bound) or ()) for bound in BOUNDS)) for item in limits))


class Plugin:
    """Applies to new and resized pods and to PersistentVolumeClaims; reads the LimitRanges of their namespace."""

    name = "LimitRanger"

    def __init__(self, informers: Informers) -> None:
        self._ranges = informers.lister("", "limitranges", _range)

    def handles(self, a: Attributes) -> bool:
        """Handle creates and resizes of pods; creates and updates of claims."""
        if a.group:
            return False
        if a.resource == "pods":
            return (a.operation == CREATE and not a.subresource) or (a.operation == UPDATE and a.subresource == "resize")
        return a.resource == "persistentvolumeclaims" and not a.subresource and a.operation in (CREATE, UPDATE)

    def _limits(self, a: Attributes) -> list[_Range]:
        ranges = self._ranges.namespace(a.namespace)
        # An object being deleted is not checked, so that its finalizers can be removed.
        if not ranges or (a.old is not None and a.old["metadata"].get("deletionTimestamp")):
            return []
        return list(ranges.values())

    def admit(self, a: Attributes) -> Awaitable[None] | None:
        """Set the default requests and limits of the namespace's LimitRanges."""
        if a.resource != "pods":
            return None
        return _done(_set_all_defaults, a, self._limits(a))

    def validate(self, a: Attributes) -> Awaitable[None] | None:
        """Refuse what is out of bounds; all violations of one LimitRange are reported together."""
        return _done(_check_all, a, self._limits(a))


def _done(work: Callable[[Attributes, list[_Range]], None], a: Attributes, ranges: list[_Range]) -> Awaitable[None] | None:
    """Run ``work``, in the thread pool if many amounts must be compared for many containers."""
    if not ranges:
        return None
    spec = a.obj["spec"]
    containers = len(spec.get("containers") or ()) + len(spec.get("initContainers") or ())
    if sum(r.amounts for r in ranges) * max(1, containers) >= MANY:
        return POOL.run(work, a, ranges)
    work(a, ranges)
    return None


def _set_all_defaults(a: Attributes, ranges: list[_Range]) -> None:
    added = 0
    for limits, _ in ranges:
        added += _set_defaults(a.obj, limits)
    a.adds(added)


def _check_all(a: Attributes, ranges: list[_Range]) -> None:
    spec = a.obj["spec"]
    for limits, _ in ranges:
        found = _bounded(_check_pod(spec, limits) if a.resource == "pods" else _check_claim(spec, limits))
        if found:
            raise a.forbid(aggregate(found))


def _bounded(found: Iterator[str]) -> list[str]:
    """Return the distinct messages, limited in number and length like field errors.

    A missing ratio is reported for every container, whether it names the resource or not, so there may be as many messages as amounts
    times containers; other messages are at most as many as the pod has amounts.
    """
    out, left = dict[str, None](), errors.MAX_PRINTED
    for looked, text in enumerate(found):
        if len(out) >= errors.MAX_CAUSES or left <= 0 or looked >= MOST_FOUND:
            return [*out, "and more"]
        if text not in out:
            left -= len(text)
            out[text] = None
    return list(out)


def _set_defaults(pod: Obj, limits: list[Obj]) -> int:
    """Set the defaults and return how many amounts were added. Raises 413 if the pod would be too large to be stored."""
    requests: dict[str, str] = {}
    maxima: dict[str, str] = {}
    for item in limits:
        if item.get("type") == "Container":
            requests.update(item.get("defaultRequest") or {})
            maxima.update(item.get("default") or {})
    said, added, left = [], 0, MOST_BYTES
    for kind, title in (("containers", "container"), ("initContainers", "init container")):
        for container in pod["spec"].get(kind) or ():
            for field, defaults, word in (("requests", requests, "request"), ("limits", maxima, "limit")):
                new = _merge(container, field, defaults)
                if new:
                    added += len(new)
                    left -= sum(len(name) + len(defaults[name]) for name in new)
                    if left < 0:
                        raise errors.request_entity_too_large(f"limit is {MOST_BYTES}")
                    said.append(f"{', '.join(new)} {word} for {title} {container.get('name', '')}")
    if said:
        meta = pod["metadata"]
        meta["annotations"] = {**(meta.get("annotations") or {}), ANNOTATION: "LimitRanger plugin set: " + "; ".join(said)}
    return added


def _merge(container: Obj, field: str, defaults: dict[str, str]) -> list[str]:
    have = (container.get("resources") or {}).get(field) or {}
    new = sorted(k for k in defaults if k not in have)
    if new:
        container["resources"] = {**(container.get("resources") or {}), field: {**have, **{k: defaults[k] for k in new}}}
    return new


def _check_claim(spec: Obj, limits: list[Obj]) -> Iterator[str]:
    requests = pod_objects.amounts((spec.get("resources") or {}).get("requests"))
    for item in limits:
        if item.get("type") != "PersistentVolumeClaim":
            continue
        for name, bound in sorted((item.get("min") or {}).items()):
            yield from _minimum(item["type"], name, bound, requests, {})
        for name, bound in sorted((item.get("max") or {}).items()):
            yield from _maximum_request(item["type"], name, bound, requests)


def _check_pod(spec: Obj, limits: list[Obj]) -> Iterator[str]:
    for item in limits:
        kind = item.get("type")
        if kind == "Container":
            for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
                resources = container.get("resources") or {}
                yield from _check(item, pod_objects.amounts(resources.get("requests")), pod_objects.amounts(resources.get("limits")))
        elif kind == "Pod":
            yield from _check(item, *(pod_objects.effective(spec, kind, whole=WHOLE.__contains__) for kind in ("requests", "limits")))


def _check(item: Obj, requests: pod_objects.Amounts, limits: pod_objects.Amounts) -> Iterator[str]:
    kind = item["type"]
    for name, bound in sorted((item.get("min") or {}).items()):
        yield from _minimum(kind, name, bound, requests, limits)
    for name, bound in sorted((item.get("max") or {}).items()):
        yield from _maximum(kind, name, bound, requests, limits)
    for name, bound in sorted((item.get("maxLimitRequestRatio") or {}).items()):
        yield from _ratio(kind, name, bound, requests, limits)


def _values(request: Quantity, limit: Quantity, bound: Quantity) -> tuple[int, int, int]:
    values = request.value(), limit.value(), bound.value()
    if max(values) <= MAX_MILLI:
        return request.milli_value(), limit.milli_value(), bound.milli_value()
    return values


def _minimum(kind: str, name: str, text: str, requests: pod_objects.Amounts, limits: pod_objects.Amounts) -> Iterator[str]:
    bound = quantity(text)
    says = f"minimum {name} usage per {kind} is {bound}"
    request, limit, least = _values(requests.get(name, ZERO), limits.get(name, ZERO), bound)
    if name not in requests:
        yield f"{says}.  No request is specified"
    elif request < least:
        yield f"{says}, but request is {requests[name]}"
    elif name in limits and limit < least:
        yield f"{says}, but limit is {limits[name]}"


def _maximum_request(kind: str, name: str, text: str, requests: pod_objects.Amounts) -> Iterator[str]:
    bound = quantity(text)
    says = f"maximum {name} usage per {kind} is {bound}"
    request, _, most = _values(requests.get(name, ZERO), ZERO, bound)
    if name not in requests:
        yield f"{says}.  No request is specified"
    elif request > most:
        yield f"{says}, but request is {requests[name]}"


def _maximum(kind: str, name: str, text: str, requests: pod_objects.Amounts, limits: pod_objects.Amounts) -> Iterator[str]:
    bound = quantity(text)
    says = f"maximum {name} usage per {kind} is {bound}"
    request, limit, most = _values(requests.get(name, ZERO), limits.get(name, ZERO), bound)
    if name not in limits:
        yield f"{says}.  No limit is specified"
    elif limit > most:
        yield f"{says}, but limit is {limits[name]}"
    elif name in requests and request > most:
        yield f"{says}, but request is {requests[name]}"


def _ratio(kind: str, name: str, text: str, requests: pod_objects.Amounts, limits: pod_objects.Amounts) -> Iterator[str]:
    bound = quantity(text)
    says = f"{name} max limit to request ratio per {kind} is {bound}, but"
    request, limit, _ = _values(requests.get(name, ZERO), limits.get(name, ZERO), bound)
    if not request:
        yield f"{says} no request is specified or request is 0"
        return
    if not limit:
        yield f"{says} no limit is specified or limit is 0"
        return
    observed = limit / request
    milli = bound.value() <= MAX_MILLI
    if (observed * 1000 if milli else observed) > (bound.milli_value() if milli else bound.value()):
        yield f"{says} provided ratio is {observed:f}"
