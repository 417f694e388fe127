"""Registers the subresources with their own handlers. All others are views of the object (see ``rest.py``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from kas.auth.attributes import Authorizer
from kas.endpoints.kubelet import KubeletAccess
from kas.endpoints.longrunning import LongRunning
from kas.endpoints.rest import Rest, Virtual
from kas.endpoints.write import Writer
from kas.informers import Objects
from kas.meta.lazy import Lazy
from kas.registry.registries import Registries

if TYPE_CHECKING:
    from kas.kinds.authentication.tokenrequest import Issuer
    from kas.kinds.core.pod.storage import PodRegistry

SCALABLE = (("apps", "deployments"), ("apps", "replicasets"), ("apps", "statefulsets"), ("", "replicationcontrollers"))
# Field manager of the server's own writes to a disruption budget.
SELF = "kube-apiserver"


def install(
    rest: Rest, writer: Writer, registries: Registries, authorizer: Authorizer, served: Sequence[Any], kubelet: KubeletAccess,
    issuer: Callable[[], Issuer], store_check: Callable[[], str], long_running: LongRunning,
) -> None:  # fmt: skip
    """Register the handlers with ``rest``.

    ``served`` are the records of the served resources. ``issuer`` is called for the first token. ``store_check`` returns "" or the
    store's problem. ``long_running`` counts requests in progress.
    """
    pods = cast("PodRegistry", registries.of("", "pods"))
    scale = Lazy(lambda: _scale(writer))
    for group, resource in SCALABLE:
        rest.subresource(group, resource, "scale", **{verb: _method(scale, verb) for verb in ("get", "update", "patch")})
    binding = Lazy(lambda: _binding(writer, pods))
    rest.subresource("", "pods", "binding", create=_method(binding, "create"))
    rest.subresource("", "pods", "eviction", create=_method(Lazy(lambda: _eviction(writer, registries)), "create"))
    rest.subresource("", "serviceaccounts", "token", create=_method(Lazy(lambda: _token(writer, registries, issuer)), "create"))
    statuses = Lazy(lambda: _component_statuses(store_check))
    virtual = {
        "bindings": {"create": _method(binding, "create")},
        "componentstatuses": {"get": _method(statuses, "get"), "list": _method(statuses, "list")},
    }
    locations = Lazy(lambda: _locations(registries, kubelet))
    connects = Lazy(lambda: _connects(writer, locations, authorizer, pods, kubelet.bytes_per_second))
    follow = long_running.following
    rest.subresource("", "pods", "log", get=follow(_method(Lazy(lambda: _log(locations)), "get")))
    for name in ("exec", "attach", "portforward"):
        handler = follow(_method(connects, name))
        rest.subresource("", "pods", name, get=handler, create=handler)
    for resource, name in (("nodes", "node_proxy"), ("pods", "pod_proxy"), ("services", "service_proxy")):
        handler = follow(_method(connects, name))
        # OPTIONS has no verb.
        rest.subresource("", resource, "proxy", **dict.fromkeys(("get", "create", "update", "patch", "delete", ""), handler))
    for record in served:
        if record.group == "" and record.resource in virtual:
            rest.add(Virtual(record, **virtual[record.resource]))


def _method(owner: Lazy, name: str) -> Any:
    """Return a function that calls a method of an object which is built by the first request for it."""
    return lambda *args: getattr(owner, name)(*args)


# The handlers' modules are imported by the first request that needs them.


def _scale(writer: Writer) -> Any:
    from kas.endpoints.scale import Scale

    return Scale(writer)


def _binding(writer: Writer, pods: PodRegistry) -> Any:
    from kas.endpoints.subresources.binding import Binding

    return Binding(writer, pods)


def _eviction(writer: Writer, registries: Registries) -> Any:
    from kas.endpoints.subresources.eviction import Eviction
    from kas.kinds.core.pod.eviction import Evictions

    return Eviction(writer, Evictions(registries.of("", "pods"), registries.of("policy", "poddisruptionbudgets"), _own_budget))


def _token(writer: Writer, objects: Objects, issuer: Callable[[], Issuer]) -> Any:
    from kas.endpoints.subresources.token import Token

    return Token(writer, issuer, lambda resource, namespace, name: objects.get("", resource, namespace, name))


def _component_statuses(store_check: Callable[[], str]) -> Any:
    from kas.endpoints.subresources.componentstatuses import ComponentStatuses

    return ComponentStatuses(store_check)


def _locations(objects: Objects, kubelet: KubeletAccess) -> Any:
    from kas.endpoints.proxy_locations import Locations

    return Locations(objects, kubelet)


def _connects(writer: Writer, locations: Any, authorizer: Authorizer, pods: PodRegistry, bytes_per_second: int) -> Any:
    from kas.endpoints.subresources.connect import Connects

    return Connects(writer, locations, authorizer, pods, bytes_per_second)


def _log(locations: Any) -> Any:
    from kas.endpoints.subresources.log import Log

    return Log(locations)


def _own_budget(before: dict[str, Any], after: dict[str, Any], ctx: Any) -> None:
    from kas.patch.fieldmanager import builtin, update

    schema = builtin("policy", "v1", "PodDisruptionBudget")
    entries = update(schema, before, after, SELF, now=ctx.now, subresource=ctx.subresource)
    if entries:
        after["metadata"]["managedFields"] = entries
