"""NamespaceAutoProvision: creates a namespace with the first object in it.

Upstream: ``plugin/pkg/admission/namespace/autoprovision``.
"""

from __future__ import annotations

from typing import Any

from kas.admission import CREATE, Attributes
from kas.meta.errors import ApiError
from kas.patch.fieldmanager import builtin, create, field_set
from kas.registry import pipeline
from kas.registry.registries import Registries
from kas.registry.strategy import Context


class Plugin:
    """Applies to everything created in a namespace."""

    name = "NamespaceAutoProvision"

    def __init__(self, registries: Registries) -> None:
        self._registries = registries

    def handles(self, a: Attributes) -> bool:
        """Handle creates of everything but namespaces."""
        return a.operation == CREATE and (a.group, a.resource) != ("", "namespaces")

    def admit(self, a: Attributes) -> Any:
        """Create the namespace if it does not exist; not in a dry run."""
        if not a.namespace or a.dry_run:
            return None
        registry = self._registries.of("", "namespaces")
        return None if registry.find("", a.namespace) is not None else self._provision(a, registry)

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
            if e.reason == "AlreadyExists":  # created concurrently
                return
            raise e if e.reason == "Forbidden" else a.forbid(e.message) from None
