"""Reads from etcd itself when the local replica cannot serve them, as upstream's cacher does.

These are consistent reads while the replica has been behind for three seconds, and lists at a revision older than the replica.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

from kas.endpoints import read
from kas.endpoints.options import list_resource_version
from kas.endpoints.postfilter import LONG_QUERY, parse_list_query
from kas.endpoints.rest import LIST_TYPES, READ_TYPES, check_accept
from kas.endpoints.served import Served
from kas.meta.errors import ApiError
from kas.meta.fairqueue import FairSemaphore
from kas.meta.offload import step
from kas.meta.waiting import awaited
from kas.registry.requests import Pages
from kas.request.http import Request, Response
from kas.store import continuetoken


class ReplicaFallback:
    """Serves reads from etcd.

    ``find(info)`` returns the resource of a request, or None if it is not stored. ``open_(prefix, one, revision)`` returns a store with
    what etcd holds; it blocks. One such response is built at a time, and as a whole.
    """

    def __init__(self, find: Callable[[Any], Served | None], open_: Callable[[str, bool, int], Any]) -> None:
        self._find, self._open = find, open_
        self._one = FairSemaphore(1)

    def past(self, req: Request) -> bool:
        """Return whether a list asks for a revision before the replica's oldest.

        False for invalid options, whose errors are reported in the order of an ordinary list.
        """
        info, served = req.info, self._find(req.info)
        if served is None or info.verb != "list" or info.subresource or (info.namespace and not served.record.namespaced):
            return False
        namespace = info.namespace if served.record.namespaced else ""
        token = req.params.get("continue")
        try:
            if token:
                revision = continuetoken.decode(token, served.registry.prefix(namespace))[1]
            else:
                revision = list_resource_version(req.params.get("resourceVersion"))
        except (ApiError, continuetoken.ContinueError):
            return False
        return 0 < revision < served.registry.store.compacted_revision

    async def __call__(self, req: Request) -> Response | None:
        """Answer a GET or LIST; returns None for a request that has to wait for the replica."""
        info = req.info
        served = self._find(info)
        if served is None or info.subresource or req.method != "GET" or info.verb not in ("get", "list"):
            return None
        one = info.verb == "get"
        namespaced = served.record.namespaced
        if bool(info.namespace) != namespaced and (one or not namespaced):
            return None
        check_accept(req, READ_TYPES if one else LIST_TYPES)
        namespace, registry = info.namespace if namespaced else "", copy.copy(served.registry)
        revision = 0
        if not one:
            query = await step(len(req.query) >= LONG_QUERY, parse_list_query, req, served)
            revision = read.position(served, namespace, query.options)[0]
        store, client = await self._acquire(registry.key(namespace, info.name) if one else registry.prefix(namespace), one, revision)
        try:
            registry.store, registry.pages = store, Pages(store, registry.requests)
            seen = copy.copy(served)
            seen.registry, seen.streams = registry, False
            return await awaited(read.get(req, seen, namespace, info.name) if one else read.list_(req, seen, namespace))
        finally:
            self._release(client, store)

    async def _acquire(self, where: str, one: bool, revision: int) -> tuple[Any, Hashable]:
        """Return a store and the holder of the slot, for ``_release``.

        If the request is cancelled, the slot stays taken until the thread ends, which then releases it.
        """
        client = await self._one.take()
        opening = asyncio.ensure_future(asyncio.to_thread(self._open, where, one, revision))
        try:
            return await asyncio.shield(opening), client
        except asyncio.CancelledError:
            opening.add_done_callback(partial(self._release_abandoned, client))
            raise
        except BaseException:
            self._one.give_back(client)
            raise

    def _release_abandoned(self, client: Hashable, opening: asyncio.Future[Any]) -> None:
        if opening.cancelled() or opening.exception() is not None:
            self._one.give_back(client)
        else:
            self._release(client, opening.result())

    def _release(self, client: Hashable, store: Any) -> None:
        self._one.give_back(client)
        store.close()
