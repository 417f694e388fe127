"""``pods/NAME/binding`` and the older ``bindings``: assigns a pod to a node (``pkg/registry/core/pod/storage/storage.go``)."""

from __future__ import annotations

from typing import Any

from kas.endpoints.subresources import named
from kas.endpoints.write import Writer
from kas.kinds.core.pod import validation as pods
from kas.kinds.core.pod.storage import PodRegistry
from kas.meta import errors
from kas.request.http import Request, Response
from kas.types.scheme import builtin_kind

BINDING = builtin_kind("", "v1", "Binding")


class Binding:
    """Serves the binding of pods to nodes."""

    def __init__(self, writer: Writer, pods: PodRegistry) -> None:
        self.writer, self.pods = writer, pods

    async def create(self, req: Request, served: Any, namespace: str, name: str) -> Response:
        """Bind the pod that the URL names, or for ``bindings`` the one that the body names."""
        subresource = "binding" if served.resource == "pods" else ""
        posted = await named.read(self.writer, req, served, BINDING, namespace, name, subresource, keep_system=True)
        given = posted.obj["metadata"].get("name") or ""
        name = name or given
        if name != given:
            raise errors.bad_request("name in URL does not match name in Binding object")
        found = pods.binding(posted.obj)
        if found:
            # Upstream returns the bare error list, which becomes a server error.
            raise errors.ApiError(500, "", errors.aggregate(found))
        await posted.validate()
        await self.pods.bind(posted.ctx, name, posted.obj)
        return named.done(req)
