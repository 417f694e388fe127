"""The loops that run inside the server: on every worker (bookmarks, metrics), or on the one that leads.

The leader is the worker that holds a file lock in the run directory; when it dies another takes over. Each controller is an
object with ``name`` and ``async run(stop)``, made from the server; a crash of one is logged and it is started again.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import time
from collections.abc import Callable
from typing import Any

from kas.store import StoreError
from kas.store.compaction import HistoryPolicy

log = logging.getLogger("kas.controllers")

BOOKMARK_EVERY_S = 55.0
METRICS_EVERY_S = 1.0
COMPACT_EVERY_S = 5.0
EXPIRE_EVERY_S = 1.0
EXPIRE_AT_ONCE = 500
LEAD_EVERY_S = 0.5


class Runner:
    """Owns every background task of a worker; ``stop`` cancels and awaits them."""

    def __init__(self, server: Any) -> None:
        self.server = server
        self.tasks: list[asyncio.Task] = []
        self._lock: Any = None

    def start(self) -> None:
        s = self.server
        self._task("bookmarks", self._every(BOOKMARK_EVERY_S, s.watches.send_bookmarks))
        self._task("metrics", self._every(METRICS_EVERY_S, s.metrics_endpoint.dump))
        self._task("leader", self._lead())

    def _task(self, name: str, coro: Any) -> None:
        self.tasks.append(asyncio.get_running_loop().create_task(coro, name=name))

    async def stop(self) -> None:
        for t in self.tasks:
            t.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        if self._lock is not None:
            self._lock.close()

    @staticmethod
    async def _every(seconds: float, work: Callable[[], Any]) -> None:
        while True:
            await asyncio.sleep(seconds)
            try:
                done = work()
                if done is not None and hasattr(done, "__await__"):
                    await done
            except Exception:  # a full disk, say; the next turn may go better
                log.exception("what runs every %g s failed", seconds)

    async def _lead(self) -> None:
        """Waits for the lock, then runs what must run once."""
        path = self.server.options.run_dir / "leader.lock"
        self._lock = path.open("w")
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                await asyncio.sleep(LEAD_EVERY_S)
        log.info("worker %d leads", self.server.index)
        self._task("compaction", self._compact())
        self._task("expiry", self._expire())
        for controller in self.server.controllers():
            self._task(controller.name, self._keep(controller))

    async def _keep(self, controller: Any) -> None:
        pause = 0.1
        while True:
            began = time.monotonic()
            try:
                await controller.run()
            except asyncio.CancelledError:
                raise
            except Exception:  # a task root: logged, and started again with a growing pause
                log.exception("controller %s failed", controller.name)
            pause = 0.1 if time.monotonic() - began > 60 else min(30.0, pause * 2)
            await asyncio.sleep(pause)

    async def _compact(self) -> None:
        o = self.server.options
        policy = HistoryPolicy(int(o.raw.history_window), o.history_max_size)
        while True:
            await asyncio.sleep(COMPACT_EVERY_S)
            try:
                await asyncio.to_thread(policy.run, self.server.store, int(time.time()))
            except StoreError as e:
                log.error("compaction: %s", e)

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(EXPIRE_EVERY_S)
            try:
                while await asyncio.to_thread(self.server.store.expire, int(time.time()), EXPIRE_AT_ONCE) >= EXPIRE_AT_ONCE:
                    pass
            except StoreError as e:
                log.error("expiry: %s", e)
