"""NamespaceAutoProvision: a namespace comes into being with the first object in it.

Uses ``server.registry`` and ``server.store``. Upstream: ``plugin/pkg/admission/namespace/autoprovision``.
"""

from __future__ import annotations

from typing import Any

from kas.admission import CREATE, Attributes
from kas.api.errors import ApiError
from kas.api.fieldmanager import builtin, create, field_set
from kas.registry import pipeline
from kas.registry.strategy import Context


class Plugin:
    name = "NamespaceAutoProvision"

    def __init__(self, server: Any) -> None:
        self._server = server

    def handles(self, a: Attributes) -> bool:
        return a.operation == CREATE and a.resource != "namespaces"

    def mutate(self, a: Attributes) -> Any:
        if not a.namespace or a.dry_run:
            return None
        registry = self._server.registry("", "namespaces")
        return None if self._server.store.get(registry.root + a.namespace) is not None else self._provision(a, registry)

    async def _provision(self, a: Attributes, registry: Any) -> None:
        ctx = Context(a.now, "", a.user.to_dict())
        obj = {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": a.namespace}, "spec": {}, "status": {}}
        namespace, _ = pipeline.decode_input(registry.resource, obj)
        reset = field_set(tuple(registry.resource.reset_on_spec_write))
        entries = create(builtin("", "v1", "Namespace"), namespace, "kube-apiserver", now=ctx.now, reset_fields=reset)
        if entries:
            namespace["metadata"]["managedFields"] = entries
        try:
            await registry.create(ctx, namespace)
        except ApiError as e:
            if e.reason != "AlreadyExists":  # someone else was quicker
                raise
