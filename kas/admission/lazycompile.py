"""Deferred compilation of configurations that take long, such as selectors with thousands of terms: in the thread pool, when the first
request arrives that they may apply to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from kas.informers.reflector import split_key
from kas.meta.offload import LARGE, POOL
from kas.store import Record

T = TypeVar("T")


class LazyCompile(Generic[T]):
    """``make(record)`` compiles a configuration, in any thread; ``put(name, compiled)`` followed by ``arrange()`` puts it into effect."""

    def __init__(self, make: Callable[[Record], T], put: Callable[[str, T], None], arrange: Callable[[], None]) -> None:
        self._make, self._put, self._arrange = make, put, arrange
        self._records: dict[str, Record] = {}
        self._one = asyncio.Lock()  # concurrent callers of ``read`` wait for the same work

    def __bool__(self) -> bool:
        return bool(self._records)

    def clear(self) -> None:
        """Forget all pending records."""
        self._records.clear()

    def take(self, key: str, record: Record | None) -> str:
        """Process a changed configuration, None if it was deleted.

        Returns its name if it is to be compiled or removed now, and "" if it is large and will be read later. Until then its previous
        version is not in effect, either.
        """
        name = split_key("", key)[1]
        self._records.pop(name, None)
        if record is None or len(record) < LARGE:
            return name
        self._records[name] = record
        return ""

    async def read(self) -> None:
        """Compile all pending configurations."""
        async with self._one:
            found = bool(self._records)
            while self._records:
                name, record = next(iter(self._records.items()))
                made = await POOL.run(self._make, record)
                if self._records.get(name) is record:  # otherwise it was replaced or deleted in the meantime
                    del self._records[name]
                    self._put(name, made)
            if found:
                self._arrange()
