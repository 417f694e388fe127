"""The loops that run inside the server: on every worker (bookmarks, metrics), or on the one that leads.

The leader is the worker that holds a file lock in the run directory; when it dies another takes over. A crash of a controller is
logged and it is started again.
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
PAUSE_S, STORE_PAUSE_S = 30.0, 5.0  # at most, before a controller runs again
# A store that takes no writes, or does not answer, or not what became of a write, has checks of its own: nothing is wrong with who waits.
STORES_OWN = (Damaged, Failed, Full, Unavailable, Unknown)
LEAD_EVERY_S = 0.5
# (name, how often in seconds, what is done; it may be awaitable)
Periodic = tuple[str, float, Callable[[], Awaitable[object] | None]]


class Expiring(Protocol):
    """What of the store the leader's own upkeep uses (see ``kas.store``)."""

    def expire(self, now_s: None, limit: int) -> int:
        """Delete at most ``limit`` keys whose lease has ended; how many were due. Blocks."""


async def keep(controller: Controller, hooks: Hooks) -> None:
    """Runs a controller until cancelled, again when it fails. ``hooks`` are told, but not of what is the store's own: the loop looks at
    what is there when it begins."""
    pause = 0.1
    while True:
        began, most = time.monotonic(), PAUSE_S
        hooks.running(controller.name)
        try:
            await controller.run()
        except asyncio.CancelledError:
            raise
        except Exception as e:  # a task root: logged, and started again with a growing pause
            why = _alone(e)
            if isinstance(why, STORES_OWN):
                most = STORE_PAUSE_S
                log.warning("controller %s waits: %s", controller.name, why)
            else:
                # Nothing is wrong with who reads what cannot be read: in the store, or a file, which the error names.
                if isinstance(why, TransformError) or (isinstance(why, OSError) and why.filename is not None):
                    log.warning("controller %s failed: %s", controller.name, why)
                else:
                    log.exception("controller %s failed", controller.name)
                hooks.failed(controller.name, f"{type(why).__name__}: {why}")
        pause = 0.1 if time.monotonic() - began > 60 else min(most, pause * 2)
        await asyncio.sleep(pause)


def _alone(e: Exception) -> Exception:
    """What has failed, also where that is the one task of a group."""
    while isinstance(e, ExceptionGroup) and len(e.exceptions) == 1:
        e = e.exceptions[0]
    return e


class Runner:
    """Owns every background task of a worker; ``stop`` cancels and awaits them.

    ``index`` is the worker's number, ``run_dir`` the directory it shares with the others; ``periodic`` runs on every worker,
    ``compact`` (blocking, given a monotonic time in seconds) and the ``controllers``, which are made then, on the one that leads.
    ``hooks`` are told which of them run.
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
        """Start the periodic work of every worker and the race to be the leader; needs a running loop."""
        self._hooks.begin()
        for name, seconds, work in self._periodic:
            self._task(name, self._every(name, seconds, work))
        self._task("leader", self._lead())

    def _task(self, name: str, coro: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.get_running_loop().create_task(coro, name=name))

    async def stop(self) -> None:
        """Cancel everything and wait for it; another worker may lead afterwards."""
        for t in self.tasks:
            t.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        if self._lock is not None:
            self._lock.close()

    async def end(self, names: Collection[str]) -> None:
        """Ends some of them before the others, and waits for them."""
        mine = [t for t in self.tasks if t.get_name() in names]
        for t in mine:
            t.cancel()
        await asyncio.gather(*mine, return_exceptions=True)

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
            except Exception as e:  # a full disk, say; the next turn may go better
                if repr(e) != failed:  # told once: each second again, a log would be all that the disk gets to hold
                    log.exception("%s, every %g s, failed", name, seconds)
                failed = repr(e)
                self._hooks.kept(name, "" if isinstance(e, STORES_OWN) else f"{type(e).__name__}: {e}")

    async def _lead(self) -> None:
        """Waits for the lock, then runs what must run once."""
        path, told = self._run_dir / "leader.lock", ""
        while True:
            try:
                if self._lock is None:
                    self._lock = path.open("w")
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                pass  # another worker leads
            except OSError as e:  # no descriptor is left, say; where there is one worker nobody leads meanwhile
                self._hooks.hindered(str(e))
                if str(e) != told:
                    log.error("worker %d cannot lead yet: %s", self._index, e)
                told = str(e)
            await asyncio.sleep(LEAD_EVERY_S)
        log.info("worker %d leads", self._index)
        self._hooks.lead()
        self._task("compaction", self._compact())
        self._task("expiry", self._expire())
        for controller in self._controllers():
            self._task(controller.name, keep(controller, self._hooks))
            await asyncio.sleep(0)  # it begins, and its health check passes, before the next is loaded

    async def _compact(self) -> None:
        while True:
            await asyncio.sleep(COMPACT_EVERY_S)
            try:
                await asyncio.to_thread(self._compact_to, time.monotonic())
            except StoreError as e:
                log.error("compaction: %s", e)
            except Exception:  # whatever it is: without it the history grows until the store is full
                log.exception("compaction failed")

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(EXPIRE_EVERY_S)
            try:
                while await asyncio.to_thread(self._store.expire, None, EXPIRE_AT_ONCE) >= EXPIRE_AT_ONCE:
                    pass
            except StoreError as e:
                log.error("expiry: %s", e)
            except Exception:  # as above
                log.exception("expiry failed")
