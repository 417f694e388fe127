"""Configurations that take long to compile, as selectors of thousands of terms do: beside the loop, when the first request comes that they
may be about."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from kas.informers.reflector import split_key
from kas.meta.offload import LARGE, POOL
from kas.store import Record

T = TypeVar("T")


class LazyCompile(Generic[T]):
    """``make(record)`` compiles one, in any thread; ``put(name, compiled)`` and then ``arrange()`` put it in force."""

    def __init__(self, make: Callable[[Record], T], put: Callable[[str, T], None], arrange: Callable[[], None]) -> None:
        self._make, self._put, self._arrange = make, put, arrange
        self._records: dict[str, Record] = {}
        self._one = asyncio.Lock()  # who comes meanwhile finds them read

    def __bool__(self) -> bool:
        return bool(self._records)

    def clear(self) -> None:
        """None of them is there any more."""
        self._records.clear()

    def take(self, key: str, record: Record | None) -> str:
        """What became of a configuration, None where it is gone. Its name where it is to be put in force or out of it now, "" where it is
        large, and read later: until then the one it takes the place of counts no more, either."""
        name = split_key("", key)[1]
        self._records.pop(name, None)
        if record is None or len(record) < LARGE:
            return name
        self._records[name] = record
        return ""

    async def read(self) -> None:
        """Compiles them all."""
        async with self._one:
            found = bool(self._records)
            while self._records:
                name, record = next(iter(self._records.items()))
                made = await POOL.run(self._make, record)
                if self._records.get(name) is record:  # else it is another one by now, or gone
                    del self._records[name]
                    self._put(name, made)
            if found:
                self._arrange()
