"""Background tasks of the server: on every worker (bookmarks, metrics), or on the leading worker only.

The leader is the worker that holds a file lock in the run directory; if it dies, another takes over. A controller that crashes is logged
and restarted.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Sequence
from pathlib import Path
from typing import IO, Any, Protocol

from kas.controllers import Controller
from kas.observe.hooks import Hooks
from kas.store import Damaged, Failed, Full, StoreError, TransformError, Unavailable, Unknown

log = logging.getLogger("kas.controllers")

COMPACT_EVERY_S = 5.0
EXPIRE_EVERY_S = 1.0
EXPIRE_AT_ONCE = 500
PAUSE_S, STORE_PAUSE_S = 30.0, 5.0  # the longest delays before a controller runs again
# Errors of the store, which has its own health checks: the controller that waits for it is not at fault.
STORES_OWN = (Damaged, Failed, Full, Unavailable, Unknown)
LEAD_EVERY_S = 0.5
# (name, interval in seconds, function that may return an awaitable)
Periodic = tuple[str, float, Callable[[], Awaitable[object] | None]]


class Expiring(Protocol):
    """The part of the store that the leader's maintenance uses (see ``kas.store``)."""

    def expire(self, now_s: None, limit: int) -> int:
        """Delete at most ``limit`` keys whose lease has ended; return how many were due. Blocks."""


async def keep(controller: Controller, hooks: Hooks) -> None:
    """Run a controller until cancelled, restarting it after failures. ``hooks`` are informed of failures, except those of the store: a
    controller reads the current state when it starts."""
    pause = 0.1
    while True:
        began, most = time.monotonic(), PAUSE_S
        hooks.running(controller.name)
        try:
            await controller.run()
        except asyncio.CancelledError:
            raise
        except Exception as e:  # a task root: log, and restart with a growing delay
            why = _alone(e)
            if isinstance(why, STORES_OWN):
                most = STORE_PAUSE_S
                log.warning("controller %s waits: %s", controller.name, why)
            else:
                # The controller that reads an unreadable object or file is not at fault; the error names it.
                if isinstance(why, TransformError) or (isinstance(why, OSError) and why.filename is not None):
                    log.warning("controller %s failed: %s", controller.name, why)
                else:
                    log.exception("controller %s failed", controller.name)
                hooks.failed(controller.name, f"{type(why).__name__}: {why}")
        pause = 0.1 if time.monotonic() - began > 60 else min(most, pause * 2)
        await asyncio.sleep(pause)


def _alone(e: Exception) -> Exception:
    """Return the cause of a failure, unwrapping groups with a single exception."""
    while isinstance(e, ExceptionGroup) and len(e.exceptions) == 1:
        e = e.exceptions[0]
    return e


class Runner:
    """Owns every background task of a worker; ``stop`` cancels and awaits them.

    ``index`` is the worker's number, ``run_dir`` the directory shared by the workers. ``periodic`` runs on every worker. ``compact``
    (blocking, called with a monotonic time in seconds) and the ``controllers``, which are constructed then, run on the leader. ``hooks``
    track which of them run.
    """

    def __init__(
        self, index: int, run_dir: Path, store: Expiring, compact: Callable[[float], object], periodic: Sequence[Periodic],
        controllers: Callable[[], Iterable[Controller]], hooks: Hooks,
    ) -> None:  # fmt: skip
        self._index, self._run_dir, self._store, self._compact_to = index, run_dir, store, compact
        self._periodic, self._controllers, self._hooks = periodic, controllers, hooks
        self.tasks: list[asyncio.Task[None]] = []
        self._lock: IO[str] | None = None

    def start(self) -> None:
        """Start the periodic tasks and the competition for leadership; requires a running event loop."""
        self._hooks.begin()
        for name, seconds, work in self._periodic:
            self._task(name, self._every(name, seconds, work))
        self._task("leader", self._lead())

    def _task(self, name: str, coro: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.get_running_loop().create_task(coro, name=name))

    async def stop(self) -> None:
        """Cancel all tasks and wait for them; another worker may lead afterwards."""
        for t in self.tasks:
            t.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        if self._lock is not None:
            self._lock.close()

    async def end(self, names: Collection[str]) -> None:
        """Cancel the named tasks before the others, and wait for them."""
        selected = [t for t in self.tasks if t.get_name() in names]
        for t in selected:
            t.cancel()
        await asyncio.gather(*selected, return_exceptions=True)

    async def _every(self, name: str, seconds: float, work: Callable[[], Awaitable[object] | None]) -> None:
        failed = ""
        while True:
            await asyncio.sleep(seconds)
            try:
                done = work()
                if done is not None:
                    await done
                failed = ""
                self._hooks.kept(name)
            except Exception as e:  # e.g. a full disk; the next attempt may succeed
                if repr(e) != failed:  # log it once: repeated each second, the log would fill the disk
                    log.exception("%s, every %g s, failed", name, seconds)
                failed = repr(e)
                self._hooks.kept(name, "" if isinstance(e, STORES_OWN) else f"{type(e).__name__}: {e}")

    async def _lead(self) -> None:
        """Wait for the lock, then run what must run only once."""
        path, logged = self._run_dir / "leader.lock", ""
        while True:
            try:
                if self._lock is None:
                    self._lock = path.open("w")
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                pass  # another worker leads
            except OSError as e:  # e.g. out of file descriptors; with a single worker there is no leader meanwhile
                self._hooks.election_failed(str(e))
                if str(e) != logged:
                    log.error("worker %d cannot lead yet: %s", self._index, e)
                logged = str(e)
            await asyncio.sleep(LEAD_EVERY_S)
        log.info("worker %d leads", self._index)
        self._hooks.lead()
        self._task("compaction", self._compact())
        self._task("expiry", self._expire())
        for controller in self._controllers():
            self._task(controller.name, keep(controller, self._hooks))
            await asyncio.sleep(0)  # let it start, so that its health check passes, before the next one is loaded

    async def _compact(self) -> None:
        while True:
            await asyncio.sleep(COMPACT_EVERY_S)
            try:
                await asyncio.to_thread(self._compact_to, time.monotonic())
            except StoreError as e:
                log.error("compaction: %s", e)
            except Exception:  # catch everything: without compaction the history grows until the store is full
                log.exception("compaction failed")

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(EXPIRE_EVERY_S)
            try:
                while await asyncio.to_thread(self._store.expire, None, EXPIRE_AT_ONCE) >= EXPIRE_AT_ONCE:
                    pass
            except StoreError as e:
                log.error("expiry: %s", e)
            except Exception:  # as in compaction
                log.exception("expiry failed")
