"""Writes the objects that every server has, and restores those that were deleted or changed."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
from collections.abc import Callable, Iterator
from pathlib import Path

from kas.registry import bootstrap
from kas.registry.bootstrap import Change, Entry
from kas.registry.registries import Registries
from kas.registry.strategy import Context
from kas.store import Conflict, Op

ATTEMPTS = 20


class Bootstrapper:
    """``wanted`` returns the objects for a server with these options, with new uids and times at each call; ``changed``
    returns whether they differ from those at its last call."""

    def __init__(self, registries: Registries, wanted: Callable[[], list[Entry]], changed: Callable[[], bool] = lambda: False) -> None:
        self._registries, self._wanted, self._changed = registries, wanted, changed
        self._kept: dict[frozenset[str], list[Entry]] = {}
        self._stale = asyncio.Event()

    def write(self, lock: Path) -> None:
        """Brings the store up to date; blocks. Holds a file lock, so that one worker does the work and the others find it done."""
        with open(lock, "w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            for attempt in range(ATTEMPTS):
                changes = self._changes(self._wanted(), starting=True)
                try:
                    self._commit([op for change in changes for op in self._ops(change)])
                    return
                except Conflict:  # another server of the cluster is starting, too
                    if attempt == ATTEMPTS - 1:
                        raise

    def _commit(self, ops: list[Op]) -> None:
        store = self._registries.store
        # Recreating a binding takes two operations on one key.
        most = store.most_ops if len({op.key for op in ops}) == len(ops) else 1
        for i in range(0, len(ops), most):
            store.commit_now(*ops[i : i + most])

    def names(self, resource: str) -> set[str]:
        """Returns the names of the bootstrap objects of a resource."""
        return {e.name for e in self._of(frozenset((resource,)))}

    def forget(self) -> None:
        """Drops the cached objects: the wanted ones have changed."""
        self._kept = {}  # a new dict: a thread that is just computing fills the previous one
        self._stale.set()

    async def due(self, within_s: float) -> None:
        """Waits until the wanted objects have changed, for at most ``within_s`` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._stale.wait()
        self._stale.clear()

    def missing(self, resources: frozenset[str]) -> list[list[Op]]:
        """Returns the writes, in independent groups, that restore the bootstrap objects of these resources."""
        if self._changed():
            self._kept = {}
        known = self._kept
        kept = known.get(resources)
        if kept is None:
            # Only for finding out whether there is anything to do: never written, since their uids and times are of the first call.
            kept = known[resources] = self._of(resources)
        if not self._changes(kept, starting=False):
            return []
        return [ops for ops in (list(self._ops(c)) for c in self._changes(self._of(resources), starting=False)) if ops]

    def _changes(self, wanted: list[Entry], starting: bool) -> list[Change]:
        return [*bootstrap.plan(wanted, self._registries.get, starting), *bootstrap.obsolete(wanted, self._registries.list)]

    def _of(self, resources: frozenset[str]) -> list[Entry]:
        return [e for e in self._wanted() if e.resource in resources]

    def _ops(self, change: Change) -> Iterator[Op]:
        entry = change.entry
        reg = self._registries.of(entry.group, entry.resource)
        key = reg.key(entry.namespace, entry.name)
        obj = entry.obj
        if change.action == "delete":
            yield Op(key, None, int(obj["metadata"].get("resourceVersion") or 0) or None)
            return
        if change.action == "recreate":
            yield Op(key, None, None)
        expected = (
            int(obj["metadata"].pop("resourceVersion", 0) or 0)
            if change.action == "update"
            else (None if change.action == "recreate" else 0)
        )
        yield Op(key, reg.draft(obj), expected)
        if entry.resource == "services":
            # Its address and ports are allocated from the beginning; if another Service has them, the repair loop reports it.
            assert reg.allocator is not None  # services have one
            old = self._registries.get(entry.group, entry.resource, entry.namespace, entry.name)
            for op in reg.allocator.ops(Context(self._registries.now()), obj, old):
                if op.expected != 0 or self._registries.store.get(op.key) is None:
                    yield op
