"""Which subresources have handlers of their own; everything else is a view of the object (see ``rest.py``)."""

from __future__ import annotations

from typing import Any

from kas.api.fieldmanager import builtin, update
from kas.endpoints.proxy_locations import KubeletAccess, Locations
from kas.endpoints.rest import Virtual
from kas.endpoints.scale import Scale
from kas.endpoints.subresources.binding import Binding
from kas.endpoints.subresources.componentstatuses import ComponentStatuses
from kas.endpoints.subresources.connect import Connects
from kas.endpoints.subresources.eviction import Eviction
from kas.endpoints.subresources.log import Log
from kas.endpoints.subresources.token import Token
from kas.registry.authentication.token_request import Issuer
from kas.registry.core.eviction import Evictions
from kas.registry.strategy import Context, Obj

SCALABLE = (("apps", "deployments"), ("apps", "replicasets"), ("apps", "statefulsets"), ("", "replicationcontrollers"))
# Whom the server's own writes to a budget are put down to.
SELF = "kube-apiserver"


def install(server: Any) -> None:
    """Registers the handlers with ``server.rest``."""
    rest, writer = server.rest, server.writer
    scale = Scale(writer)
    for group, resource in SCALABLE:
        rest.subresource(group, resource, "scale", get=scale.get, update=scale.update, patch=scale.patch)
    pods = server.registry("", "pods")
    binding = Binding(writer, pods)
    rest.subresource("", "pods", "binding", create=binding.create)
    evictions = Evictions(pods, server.registry("policy", "poddisruptionbudgets"), _own_budget)
    rest.subresource("", "pods", "eviction", create=Eviction(writer, evictions).create)
    token = Token(writer, lambda: _issuer(server), lambda resource, ns, name: server.object("", resource, ns, name))
    rest.subresource("", "serviceaccounts", "token", create=token.create)
    statuses = ComponentStatuses(server._store_check)
    virtual = {"bindings": {"create": binding.create}, "componentstatuses": {"get": statuses.get, "list": statuses.list}}
    _install_connects(server, pods)
    for record in server.served:
        if record.group == "" and record.resource in virtual:
            rest.add(Virtual(record, **virtual[record.resource]))


def _install_connects(server: Any, pods: Any) -> None:
    raw, rest = server.options.raw, server.rest
    access = KubeletAccess(
        raw.kubelet_preferred_address_types, raw.kubelet_client_certificate, raw.kubelet_client_key, raw.kubelet_certificate_authority
    )

    def objects(group: str, resource: str, namespace: str) -> list[Obj]:
        registry = server.registry(group, resource)
        return [registry.object(rec) for rec in registry.store.range(registry.prefix(namespace)).records]

    locations = Locations(server.object, objects, access)
    connects = Connects(server.writer, locations, server.authorizer, pods)
    rest.subresource("", "pods", "log", get=Log(locations).get)
    for name, handler in (("exec", connects.exec), ("attach", connects.attach), ("portforward", connects.portforward)):
        rest.subresource("", "pods", name, get=handler, create=handler)
    for resource, handler in (("nodes", connects.node_proxy), ("pods", connects.pod_proxy), ("services", connects.service_proxy)):
        # OPTIONS has no verb of its own.
        rest.subresource("", resource, "proxy", **dict.fromkeys(("get", "create", "update", "patch", "delete", ""), handler))


def _issuer(server: Any) -> Issuer:
    raw = server.options.raw
    longest = int(raw.service_account_max_token_expiration)
    return Issuer(server.signer, server.audiences, longest, raw.service_account_extend_token_expiration)


def _own_budget(before: Obj, after: Obj, ctx: Context) -> None:
    schema = builtin("policy", "v1", "PodDisruptionBudget")
    entries = update(schema, before, after, SELF, now=ctx.now, subresource=ctx.subresource)
    if entries:
        after["metadata"]["managedFields"] = entries
