"""Leases for keys with a limited lifetime, shared as in upstream (storage/etcd3/lease_manager.go).

Keys of the same lifetime share a lease for a while: for at most ``--lease-reuse-duration-seconds`` or a twentieth of the
lifetime, in whole seconds, and at most ``KEYS`` of them. The lease is longer by that time, so that no key expires early.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from kas.store.errors import StoreError
from kas.store.etcd import etcd_pb2 as pb
from kas.store.etcd.client import GRANT, AsyncClient

REUSE_S, KEYS = 60, 1000


@dataclass
class _Lease:
    id: int
    until: float
    keys: int


class Leases:
    """The leases of one event loop."""

    def __init__(
        self, client: AsyncClient, reuse_s: float = REUSE_S, keys: int = KEYS, now: Callable[[], float] = time.monotonic,
        used_up: Callable[[int], object] = lambda keys: None,
    ) -> None:  # fmt: skip
        """``used_up`` is called with the number of keys of a lease when the next one replaces it."""
        self._client, self._reuse_s, self._keys, self._now, self._used_up = client, reuse_s, keys, now, used_up
        self._current: dict[int, _Lease] = {}
        self._granting: dict[int, asyncio.Future[None]] = {}

    async def lease(self, ttl_s: int) -> int:
        """Returns the lease for a key that is to live ``ttl_s`` seconds. Raises ``StoreError``."""
        while True:
            current = self._current.get(ttl_s)
            if current is not None and self._now() < current.until and current.keys < self._keys:
                current.keys += 1
                return current.id
            granting = self._granting.get(ttl_s)
            if granting is None:
                return await self._grant(ttl_s)
            await asyncio.shield(granting)  # concurrent callers share the grant in progress, or its error

    async def _grant(self, ttl_s: int) -> int:
        """Returns a new lease, for its first key."""
        granting = self._granting[ttl_s] = asyncio.get_running_loop().create_future()
        try:
            reuse, began = int(min(self._reuse_s, 0.05 * ttl_s)), self._now()
            answer = await self._client.call(GRANT, pb.LeaseGrantRequest(TTL=ttl_s + reuse))
            if answer.error:
                raise StoreError(f"etcdserver: {answer.error}")
        except StoreError as e:
            granting.set_exception(e)
            granting.exception()  # there may be no other waiter
            raise
        finally:
            del self._granting[ttl_s]
            if not granting.done():
                granting.set_result(None)  # they look, after this has gone on
        if ttl_s in self._current:
            self._used_up(self._current[ttl_s].keys)
        self._current[ttl_s] = _Lease(answer.ID, began + reuse, 1)
        return int(answer.ID)

    def forget(self, lease: int) -> None:
        """Drops a lease that ended early: it was revoked, or the cluster went back to a state before it was granted."""
        self._current = {ttl_s: one for ttl_s, one in self._current.items() if one.id != lease}
