"""Which subresources have handlers of their own; everything else is a view of the object (see ``rest.py``)."""

from __future__ import annotations

from typing import Any

from kas.endpoints.rest import Virtual
from kas.later import Later

SCALABLE = (("apps", "deployments"), ("apps", "replicasets"), ("apps", "statefulsets"), ("", "replicationcontrollers"))
# Whom the server's own writes to a budget are put down to.
SELF = "kube-apiserver"


def install(server: Any) -> None:
    """Registers the handlers with ``server.rest``."""
    rest, writer = server.rest, server.writer
    pods = server.registry("", "pods")
    scale = Later(lambda: _scale(writer))
    for group, resource in SCALABLE:
        rest.subresource(group, resource, "scale", **{verb: _method(scale, verb) for verb in ("get", "update", "patch")})
    binding = Later(lambda: _binding(writer, pods))
    rest.subresource("", "pods", "binding", create=_method(binding, "create"))
    rest.subresource("", "pods", "eviction", create=_method(Later(lambda: _eviction(server, pods)), "create"))
    rest.subresource("", "serviceaccounts", "token", create=_method(Later(lambda: _token(server)), "create"))
    statuses = Later(lambda: _component_statuses(server))
    virtual = {
        "bindings": {"create": _method(binding, "create")},
        "componentstatuses": {"get": _method(statuses, "get"), "list": _method(statuses, "list")},
    }
    _install_connects(server, pods)
    for record in server.served:
        if record.group == "" and record.resource in virtual:
            rest.add(Virtual(record, **virtual[record.resource]))


def _method(owner: Later, name: str) -> Any:
    """A method of an object that is made by the first request for it."""
    return lambda *args: getattr(owner, name)(*args)


def _scale(writer: Any) -> Any:
    from kas.endpoints.scale import Scale

    return Scale(writer)


def _binding(writer: Any, pods: Any) -> Any:
    from kas.endpoints.subresources.binding import Binding

    return Binding(writer, pods)


def _eviction(server: Any, pods: Any) -> Any:
    from kas.endpoints.subresources.eviction import Eviction
    from kas.registry.core.eviction import Evictions

    return Eviction(server.writer, Evictions(pods, server.registry("policy", "poddisruptionbudgets"), _own_budget))


def _token(server: Any) -> Any:
    from kas.endpoints.subresources.token import Token

    return Token(server.writer, lambda: _issuer(server), lambda resource, ns, name: server.object("", resource, ns, name))


def _component_statuses(server: Any) -> Any:
    from kas.endpoints.subresources.componentstatuses import ComponentStatuses

    return ComponentStatuses(server._store_check)


def _install_connects(server: Any, pods: Any) -> None:
    rest = server.rest
    locations = Later(lambda: _locations(server))
    connects = Later(lambda: _connects(server, locations, pods))
    rest.subresource("", "pods", "log", get=_method(Later(lambda: _log(locations)), "get"))
    for name in ("exec", "attach", "portforward"):
        handler = _method(connects, name)
        rest.subresource("", "pods", name, get=handler, create=handler)
    for resource, name in (("nodes", "node_proxy"), ("pods", "pod_proxy"), ("services", "service_proxy")):
        handler = _method(connects, name)
        # OPTIONS has no verb of its own.
        rest.subresource("", resource, "proxy", **dict.fromkeys(("get", "create", "update", "patch", "delete", ""), handler))


def _locations(server: Any) -> Any:
    from kas.endpoints.proxy_locations import KubeletAccess, Locations

    raw = server.options.raw
    access = KubeletAccess(
        raw.kubelet_preferred_address_types, raw.kubelet_client_certificate, raw.kubelet_client_key, raw.kubelet_certificate_authority
    )

    def objects(group: str, resource: str, namespace: str) -> list[dict[str, Any]]:
        registry = server.registry(group, resource)
        return [registry.object(rec) for rec in registry.store.range(registry.prefix(namespace)).records]

    return Locations(server.object, objects, access)


def _connects(server: Any, locations: Any, pods: Any) -> Any:
    from kas.endpoints.subresources.connect import Connects

    return Connects(server.writer, locations, server.authorizer, pods)


def _log(locations: Any) -> Any:
    from kas.endpoints.subresources.log import Log

    return Log(locations)


def _issuer(server: Any) -> Any:
    from kas.registry.authentication.token_request import Issuer

    raw = server.options.raw
    longest = int(raw.service_account_max_token_expiration)
    return Issuer(server.signer, server.audiences, longest, raw.service_account_extend_token_expiration)


def _own_budget(before: dict[str, Any], after: dict[str, Any], ctx: Any) -> None:
    from kas.api.fieldmanager import builtin, update

    schema = builtin("policy", "v1", "PodDisruptionBudget")
    entries = update(schema, before, after, SELF, now=ctx.now, subresource=ctx.subresource)
    if entries:
        after["metadata"]["managedFields"] = entries
