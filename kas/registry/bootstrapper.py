"""Writes the objects every server has, and puts back what somebody deleted or changed of them."""

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
    """``wanted`` gives what a server of these options has, fresh (uids and times of now) at each call; ``changed`` says whether that is
    something else than when last asked."""

    def __init__(self, registries: Registries, wanted: Callable[[], list[Entry]], changed: Callable[[], bool] = lambda: False) -> None:
        self._registries, self._wanted, self._changed = registries, wanted, changed
        self._kept: dict[frozenset[str], list[Entry]] = {}
        self._stale = asyncio.Event()

    def write(self, lock: Path) -> None:
        """Brings the store up to date; blocks. Under a file lock, so that one worker does it and the others find it done."""
        with open(lock, "w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            for attempt in range(ATTEMPTS):
                changes = self._changes(self._wanted(), starting=True)
                try:
                    self._commit([op for change in changes for op in self._ops(change)])
                    return
                except Conflict:  # another server of the cluster starts, too
                    if attempt == ATTEMPTS - 1:
                        raise

    def _commit(self, ops: list[Op]) -> None:
        store = self._registries.store
        # A recreated binding is two operations on one key.
        most = store.most_ops if len({op.key for op in ops}) == len(ops) else 1
        for i in range(0, len(ops), most):
            store.commit_now(*ops[i : i + most])

    def names(self, resource: str) -> set[str]:
        """The names of the bootstrap objects of a resource."""
        return {e.name for e in self._of(frozenset((resource,)))}

    def forget(self) -> None:
        """What is wanted has changed."""
        self._kept = {}  # who is just looking, in a thread, keeps what he finds in the one before
        self._stale.set()

    async def due(self, within_s: float) -> None:
        """Waits until what is wanted has changed, or for so long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._stale.wait()
        self._stale.clear()

    def missing(self, resources: frozenset[str]) -> list[list[Op]]:
        """The writes, each group for itself, that bring bootstrap objects of these resources back to what they have to be."""
        if self._changed():
            self._kept = {}
        known = self._kept
        kept = known.get(resources)
        if kept is None:
            # For looking whether there is anything to do: never written, their uids and times are of the first look.
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
            # Its address and port are taken from the first moment on; when somebody else has them, the repair loop says so.
            assert reg.allocator is not None  # services have one
            old = self._registries.get(entry.group, entry.resource, entry.namespace, entry.name)
            for op in reg.allocator.ops(Context(self._registries.now()), obj, old):
                if op.expected != 0 or self._registries.store.get(op.key) is None:
                    yield op
