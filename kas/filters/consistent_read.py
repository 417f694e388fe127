"""Reads without a resourceVersion see all writes that any server of the cluster has acknowledged (KEP-2340, consistent reads from cache).

With a store on this machine every read does. With etcd the request waits until the replica has caught up, together
with all others that wait at the moment. A read at ``resourceVersion=0`` returns what is there; one at a revision
that has not arrived yet waits in the same way. Writes of stored objects do not wait: etcd decides, and what fails
before etcd is involved is checked again (``kas.registry.write``).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from kas._fastpath import ConsistentRead, FreshRead
from kas.filters.handler import Filter
from kas.request.http import Request, Response
from kas.request.parking import Parked
from kas.request.requestinfo import RequestInfo
from kas.store import Behind, Compacted, Unavailable


class Part(Protocol):
    """The store that keeps a resource."""

    @property
    def revision(self) -> int:
        """The revision of reads now."""

    async def fresh(self) -> None:
        """Waits until reads see all acknowledged writes. Raises what the store raises if that takes too long."""

    def park(self, parked: Parked) -> None:
        """Like ``fresh``, for a request that needs no task while it waits."""


PartOf = Callable[[RequestInfo], Part]


class Fallback(Protocol):
    """Answers a GET or LIST without the replica; the awaited result is None if it cannot."""

    def __call__(self, req: Request) -> Awaitable[Response | None]:
        """See above."""

    def past(self, req: Request) -> bool:
        """Whether a list asks for a revision before the first one of the replica."""


async def _passing(read: FreshRead, passed: Awaitable[None]) -> Response | None:
    """The filter's result once the wait of a read is over."""
    req, fallback = read.req, read.fallback
    try:
        await passed
    except Behind:
        known = fallback is not None and req.info.verb in ("get", "list") and not req.params.get("resourceVersion")
        found: Response | None = await fallback(req) if known and fallback is not None else None
        if found is None:
            raise
        return found
    return None


READS = ("get", "list", "watch")
WRITES = ("create", "update", "patch", "delete")
# Reviews are created, but only read.
REVIEWS = ("authorization.k8s.io", "authentication.k8s.io")


def _names_one(req: Request, given: str) -> bool:
    """Whether a list must be of exactly one revision; ``given`` means that together with a limit, too."""
    match = req.params.get("resourceVersionMatch")
    return "continue" in req.params or match == "Exact" or (given != "" and match == "" and req.params.get("limit") not in ("", "0"))


def consistent_read(part_of: PartOf, fallback: Fallback | None = None) -> Filter:
    """``part_of(info)`` is the store of what a request is about.

    ``fallback`` answers a GET or LIST without a resourceVersion when the replica stays ``Behind``, and a list at a
    revision before the replica was made, which another server of the cluster may have begun.
    """

    async def elsewhere(req: Request, fallback: Fallback) -> Response | None:
        try:
            return await fallback(req)
        except (Compacted, Unavailable):  # etcd has compacted it, too, or it is too much: the replica has the error for that
            return None

    def rest(req: Request) -> Awaitable[Response | None] | None:
        info = req.info
        given = req.params.get("resourceVersion") if info.verb in READS else ""
        if given == "0" and (info.verb != "list" or "continue" not in req.params):
            return None
        part = part_of(info)
        if info.verb == "list" and fallback is not None and _names_one(req, given) and fallback.past(req):
            return elsewhere(req, fallback)
        if info.verb in READS:
            if given and not (given.isascii() and given.isdigit() and len(given) < 20 and int(given) > part.revision):
                return None
        elif info.verb in WRITES and info.subresource in ("", "status") and info.api_group not in REVIEWS and "dryRun" not in req.params:
            return None
        return FreshRead(req, part, fallback, _passing)

    return Filter("consistent_read", ConsistentRead(part_of, fallback, _passing, rest))
