"""Reads that name no revision, and writes, see all that any server of the cluster has acknowledged (KEP-2340, consistent reads from cache).

On a store of this machine alone every read does; on etcd the request waits until the replica has caught up, together with all others that
wait at the moment. A read at ``resourceVersion=0`` takes what is there; one at a later revision waits for that one only, in its endpoint.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from kas.filters.handler import Filter
from kas.request.http import Request, Response

Fresh = Callable[[], Awaitable[None]]


def consistent_read(fresh: Fresh) -> Filter:
    """``fresh()`` waits, and raises what the store raises when that takes too long."""

    async def wait() -> Response | None:
        await fresh()
        return None

    def before(req: Request) -> Awaitable[Response | None] | None:
        if not req.info.is_resource_request or (req.info.verb in ("get", "list", "watch") and req.params.get("resourceVersion")):
            return None
        return wait()

    return Filter("consistent_read", before)
