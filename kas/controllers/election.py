"""Leader election between servers: the holder of the Lease runs the controllers of ``--controllers`` (client-go's ``leaderelection``).

The holder renews the Lease. If it cannot do so in time, it stops its controllers before other servers may consider the Lease free.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import logging
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

from kas.controllers import Controller
from kas.controllers.client import Client
from kas.controllers.runner import keep
from kas.meta.errors import ApiError
from kas.meta.random import new_uid
from kas.meta.records import NamedTuple
from kas.observe.hooks import Hooks
from kas.registry.registries import Registries
from kas.store import StoreError

# kube-controller-manager's --leader-elect-*.
LEASE_DURATION_S, RENEW_DEADLINE_S, RETRY_PERIOD_S = 15, 10.0, 2.0
GROUP, NAMESPACE, NAME = "coordination.k8s.io", "kube-system", "kas-controllers"
MICRO_TIME = "%Y-%m-%dT%H:%M:%S.%fZ"

log = logging.getLogger("kas.controllers")


class Times(NamedTuple):
    """In seconds: how long a Lease is valid after its renewal, how long its holder tries to renew it, and the retry interval."""

    lease_s: float = LEASE_DURATION_S
    deadline_s: float = RENEW_DEADLINE_S
    retry_s: float = RETRY_PERIOD_S


TIMES = Times()


class LeaderElection:
    """Runs ``controllers()``, constructed anew each time, while this server holds ``lease`` in kube-system."""

    name = "leader-election"

    def __init__(
        self, registries: Registries, controllers: Callable[[], Sequence[Controller]], hooks: Hooks, lease: str = NAME,
        times: Times = TIMES,
    ) -> None:  # fmt: skip
        self._client = Client(registries, lease, "system:apiserver")
        self._lease, self._times = lease, times
        self._registry = registries.of(GROUP, "leases")
        self._controllers, self._hooks = controllers, hooks
        self.identity = f"{socket.gethostname().lower()}_{new_uid()}"
        # Another holder's Lease is valid from when its renewal was seen here, since the clocks of machines differ.
        self._seen: tuple[Any, float] = (None, 0.0)

    async def run(self) -> None:
        """Lead whenever possible, until cancelled; then release the Lease."""
        while True:
            began = time.monotonic()
            if await self._acquire():
                log.info("this server holds %s and runs what belongs to it", self._lease)
                await self._lead(began)
                log.warning("this server does not hold %s any more", self._lease)
            await asyncio.sleep(self._times.retry_s)

    async def _lead(self, since: float) -> None:
        tasks = [asyncio.create_task(keep(c, self._hooks), name=c.name) for c in self._controllers()]
        until = since + self._times.deadline_s
        try:
            while (left := until - time.monotonic()) > 0:
                await asyncio.sleep(min(self._times.retry_s, left))
                began = time.monotonic()  # the written renewTime, however late the answer arrives
                if await self._acquire(until - began):
                    until = began + self._times.deadline_s
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            with contextlib.suppress(ApiError, StoreError):
                await self._release()

    async def _acquire(self, within_s: float | None = None) -> bool:
        """Acquire or renew the Lease; return whether this server holds it now. A call to the store may take ``within_s`` seconds."""
        try:
            async with asyncio.timeout(self._times.deadline_s if within_s is None else within_s):
                return await self._try()
        except (ApiError, StoreError, TimeoutError) as e:
            log.info("leader election: %s", e)
            return False

    async def _try(self) -> bool:
        now = datetime.datetime.now(datetime.UTC).strftime(MICRO_TIME)
        renewal = {"holderIdentity": self.identity, "leaseDurationSeconds": max(1, round(self._times.lease_s)), "renewTime": now}
        taken = False

        def take(lease: dict[str, Any]) -> bool:
            nonlocal taken
            spec = lease.setdefault("spec", {})
            holder = spec.get("holderIdentity")
            if holder and holder != self.identity and self._holds(spec):
                taken = False
                return False
            taken = True
            if holder != self.identity:
                spec.update(acquireTime=now, leaseTransitions=(spec.get("leaseTransitions") or 0) + 1)
            spec.update(renewal)
            return True

        if await self._client.update(self._registry, NAMESPACE, self._lease, take) is not None:
            return taken
        if self._client.get(GROUP, "leases", NAMESPACE, self._lease) is not None:
            return False
        lease = {
            "kind": "Lease", "apiVersion": "coordination.k8s.io/v1", "metadata": {"name": self._lease, "namespace": NAMESPACE},
            "spec": {**renewal, "acquireTime": now, "leaseTransitions": 0},
        }  # fmt: skip
        return await self._client.create(GROUP, "leases", lease) is not None

    def _holds(self, spec: dict[str, Any]) -> bool:
        """Return whether the other holder must be assumed to lead."""
        state = (spec.get("holderIdentity"), spec.get("renewTime"))
        if state != self._seen[0]:
            self._seen = (state, time.monotonic())
        return time.monotonic() - self._seen[1] < (spec.get("leaseDurationSeconds") or self._times.lease_s)

    async def _release(self) -> None:
        def give_back(lease: dict[str, Any]) -> bool:
            spec = lease.get("spec") or {}
            if spec.get("holderIdentity") != self.identity:
                return False
            spec.update(holderIdentity="", leaseDurationSeconds=1)
            return True

        await self._client.update(self._registry, NAMESPACE, self._lease, give_back)
