"""The register of all caches: each has a name, a budget in bytes, and a way to tell how much of it is used.

A cache never keeps client text longer than a limit set at its creation; results for such text are computed anew each time. A full cache
drops its oldest entries, or all of them. Sizes are upper bounds of what the entries take, so that maintaining them costs nothing.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from functools import lru_cache
from time import monotonic
from typing import Any, Generic, Protocol, TypeVar

from kas.meta.records import NamedTuple

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
Owner = TypeVar("Owner")
F = TypeVar("F", bound=Callable[..., Any])

# The size of an entry without its texts: its dictionary slot, and the object headers of a key and a small value.
ENTRY_BYTES = 400
# The most that a character of a str takes.
CHARACTER_BYTES = 4


class Sized(Protocol):
    """The register's view of a cache. Both properties are in bytes."""

    @property
    def budget(self) -> int:
        """The most that the cache may hold."""

    @property
    def size(self) -> int:
        """An upper bound of what the cache holds."""


class Row(NamedTuple):
    """The totals of all caches with the same name."""

    name: str
    what: str
    budget: int
    size: int


class _Fixed:
    """A cache whose size is computed by a callback."""

    __slots__ = ("_size", "budget")

    def __init__(self, budget: int, size: Callable[[], int]) -> None:
        self.budget, self._size = budget, size

    @property
    def size(self) -> int:
        return self._size()


_known: dict[str, tuple[str, list[Callable[[], Sized | None]]]] = {}


def _add(name: str, what: str, find: Callable[[], Sized | None]) -> None:
    _known.setdefault(name, (what, []))[1].append(find)


def register(name: str, what: str, budget: int, size: Callable[[], int]) -> None:
    """Registers a cache that enforces its own bound, for the life of the process."""
    fixed = _Fixed(budget, size)
    _add(name, what, lambda: fixed)


def follow(name: str, what: str, budget: int, owner: Owner, size: Callable[[Owner], int]) -> None:
    """Registers a pool that enforces its own bound, for the life of ``owner``, which is referenced weakly."""
    ref = weakref.ref(owner)

    def find() -> Sized | None:
        found = ref()
        return None if found is None else _Fixed(budget, lambda: size(found))

    _add(name, what, find)


def rows() -> list[Row]:
    """All registered caches, by name."""
    out = []
    for name in sorted(_known):
        what, finders = _known[name]
        alive = [(find, cache) for find in finders if (cache := find()) is not None]
        finders[:] = [find for find, _ in alive]
        if alive:
            out.append(Row(name, what, sum(c.budget for _, c in alive), sum(c.size for _, c in alive)))
    return out


class Budget:
    """The budget of a cache whose entries are stored elsewhere."""

    __slots__ = ("__weakref__", "budget", "longest", "size")

    def __init__(self, name: str, what: str, budget: int, longest: int) -> None:
        """The owner must not keep texts longer than ``longest``."""
        self.budget, self.longest, self.size = budget, longest, 0
        _add(name, what, weakref.ref(self))

    def take(self, length: int, entries: int = 1) -> bool:
        """Accounts for ``entries`` entries whose texts have a total ``length``. Returns False when they exceed the budget: the count is
        reset to 0 and the caller must drop all entries.
        """
        size = ENTRY_BYTES * entries + CHARACTER_BYTES * length
        if self.size + size > self.budget:
            self.size = 0
            return False
        self.size += size
        return True


class Cache(Generic[K, V]):
    """A dictionary with a budget. ``entries`` may be read directly. The caller of ``put`` states the length of an entry's texts, in bytes
    or characters. A full cache is cleared.
    """

    __slots__ = ("__weakref__", "budget", "entries", "longest", "size")

    def __init__(self, name: str, what: str, budget: int, longest: int) -> None:
        """Entries whose texts are longer than ``longest`` are not stored."""
        self.budget, self.longest = budget, longest
        self.entries: dict[K, V] = {}
        self.size = 0
        _add(name, what, weakref.ref(self))

    def put(self, key: K, value: V, length: int) -> None:
        """Stores ``value``, unless its texts are too long; ``length`` is that of the texts in key and value."""
        if length > self.longest:
            return
        size = ENTRY_BYTES + CHARACTER_BYTES * length
        if self.size + size > self.budget:
            self.clear()
        if key not in self.entries:
            self.size += size
        self.entries[key] = value

    def drop(self, key: K, length: int) -> None:
        """Removes an entry whose texts have that ``length``."""
        if self.entries.pop(key, None) is not None:
            self.size -= ENTRY_BYTES + CHARACTER_BYTES * length

    def clear(self) -> None:
        """Removes all entries; ``entries`` stays the same dictionary."""
        self.entries.clear()
        self.size = 0


class Expiring(Cache[K, tuple[Any, ...]]):
    """A cache of values that expire: the second item of a value is its expiry, by ``time.monotonic()``.

    ``sweep`` removes expired entries, so that a key, which may be a credential, does not stay in memory because it is not looked up again.
    """

    __slots__ = ("_sizes",)

    def __init__(self, name: str, what: str, budget: int, longest: int) -> None:
        super().__init__(name, what, budget, longest)
        self._sizes: dict[K, int] = {}
        _expiring.add(self)

    def put(self, key: K, value: tuple[Any, ...], length: int) -> None:
        """Stores ``value``, unless its texts are too long; ``length`` is that of the texts in key and value."""
        super().put(key, value, length)
        if key in self.entries:
            self._sizes.setdefault(key, ENTRY_BYTES + CHARACTER_BYTES * length)

    def clear(self) -> None:
        """Removes all entries; ``entries`` stays the same dictionary."""
        super().clear()
        self._sizes.clear()

    def sweep(self, now: float) -> None:
        """Removes entries that have expired at ``now``."""
        for key in [key for key, value in self.entries.items() if value[1] <= now]:
            del self.entries[key]
            self.size -= self._sizes.pop(key)


_expiring: weakref.WeakSet[Expiring[Any]] = weakref.WeakSet()


def sweep() -> None:
    """Removes the expired entries of all ``Expiring`` caches. Called every few seconds."""
    now = monotonic()
    for cache in list(_expiring):
        cache.sweep(now)


def remembered(
    name: str, what: str, entries: int, longest: int, value_bytes: int = 0
) -> Callable[[Callable[[str], V]], Callable[[str], V]]:
    """Decorates a pure function of one string with an LRU cache of ``entries`` results, for strings of at most ``longest`` characters.

    ``value_bytes`` is what a result takes beyond ``ENTRY_BYTES``. Results are shared: callers must not change them.
    """
    each = ENTRY_BYTES + CHARACTER_BYTES * longest + value_bytes

    def decorate(work: Callable[[str], V]) -> Callable[[str], V]:
        kept = lru_cache(maxsize=entries)(work)
        register(name, what, entries * each, lambda: kept.cache_info().currsize * each)

        def answer(text: str) -> V:
            return kept(text) if len(text) <= longest else work(text)

        answer.__name__, answer.__doc__ = getattr(work, "__name__", name), work.__doc__
        return answer

    return decorate
