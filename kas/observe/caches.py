"""The list of all that remembers: each cache has a name, a budget in bytes and a way to say how much of it is used.

A cache never keeps a text of a client that is longer than it says when it is made: such a text is worked out anew each time. When one is
full it forgets its oldest entries, or all of them. Sizes are what the entries may take at most, so that they cost nothing to keep.
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

# An entry without its texts: its place in a dictionary, the headers of a key and of a small value.
ENTRY_BYTES = 400
# A character of a str takes so many at most.
CHARACTER_BYTES = 4


class Sized(Protocol):
    """A cache as the list sees it; both in bytes."""

    @property
    def budget(self) -> int:
        """What it may hold."""

    @property
    def size(self) -> int:
        """What it holds at most."""


class Row(NamedTuple):
    """What all caches of a name hold together."""

    name: str
    what: str
    budget: int
    size: int


class _Fixed:
    """A cache whose size is asked for."""

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
    """Lists a cache that keeps its bound by itself, for as long as the process lives."""
    fixed = _Fixed(budget, size)
    _add(name, what, lambda: fixed)


def follow(name: str, what: str, budget: int, owner: Owner, size: Callable[[Owner], int]) -> None:
    """Lists a pool that keeps its bound by itself, for as long as its ``owner`` lives."""
    ref = weakref.ref(owner)

    def find() -> Sized | None:
        found = ref()
        return None if found is None else _Fixed(budget, lambda: size(found))

    _add(name, what, find)


def rows() -> list[Row]:
    """Every cache there is, by name."""
    out = []
    for name in sorted(_known):
        what, finders = _known[name]
        alive = [(find, cache) for find in finders if (cache := find()) is not None]
        finders[:] = [find for find, _ in alive]
        if alive:
            out.append(Row(name, what, sum(c.budget for _, c in alive), sum(c.size for _, c in alive)))
    return out


class Budget:
    """What a cache that is kept elsewhere may hold, and holds."""

    __slots__ = ("__weakref__", "budget", "longest", "size")

    def __init__(self, name: str, what: str, budget: int, longest: int) -> None:
        """Texts longer than ``longest`` are not to be kept."""
        self.budget, self.longest, self.size = budget, longest, 0
        _add(name, what, weakref.ref(self))

    def take(self, length: int, entries: int = 1) -> bool:
        """Counts entries with texts of that length together; False when there is no room: then all is to be forgotten."""
        size = ENTRY_BYTES * entries + CHARACTER_BYTES * length
        if self.size + size > self.budget:
            self.size = 0
            return False
        self.size += size
        return True


class Cache(Generic[K, V]):
    """A dictionary with a budget. ``entries`` may be read directly; what is put says how long its texts are, in bytes or characters.
    Full, it starts anew."""

    __slots__ = ("__weakref__", "budget", "entries", "longest", "size")

    def __init__(self, name: str, what: str, budget: int, longest: int) -> None:
        """Entries whose texts are longer than ``longest`` are not kept."""
        self.budget, self.longest = budget, longest
        self.entries: dict[K, V] = {}
        self.size = 0
        _add(name, what, weakref.ref(self))

    def put(self, key: K, value: V, length: int) -> None:
        """Remembers ``value``; ``length`` is that of the texts in key and value."""
        if length > self.longest:
            return
        size = ENTRY_BYTES + CHARACTER_BYTES * length
        if self.size + size > self.budget:
            self.clear()
        if key not in self.entries:
            self.size += size
        self.entries[key] = value

    def drop(self, key: K, length: int) -> None:
        """Forgets one, whose texts have that ``length``."""
        if self.entries.pop(key, None) is not None:
            self.size -= ENTRY_BYTES + CHARACTER_BYTES * length

    def clear(self) -> None:
        """Forgets everything; ``entries`` stays the same dictionary."""
        self.entries.clear()
        self.size = 0


class Expiring(Cache[K, tuple[Any, ...]]):
    """A cache of what counts for a while only: the second item of a value is until when, by ``time.monotonic()``. What is over is gone
    with the next ``sweep``: so that no key, which may be a credential, stays in memory because nobody asked again."""

    __slots__ = ("_sizes",)

    def __init__(self, name: str, what: str, budget: int, longest: int) -> None:
        super().__init__(name, what, budget, longest)
        self._sizes: dict[K, int] = {}
        _expiring.add(self)

    def put(self, key: K, value: tuple[Any, ...], length: int) -> None:
        """Remembers ``value``; ``length`` is that of the texts in key and value."""
        super().put(key, value, length)
        if key in self.entries:
            self._sizes.setdefault(key, ENTRY_BYTES + CHARACTER_BYTES * length)

    def clear(self) -> None:
        """Forgets everything; ``entries`` stays the same dictionary."""
        super().clear()
        self._sizes.clear()

    def sweep(self, now: float) -> None:
        """Forgets what does not count any more."""
        for key in [key for key, value in self.entries.items() if value[1] <= now]:
            del self.entries[key]
            self.size -= self._sizes.pop(key)


_expiring: weakref.WeakSet[Expiring[Any]] = weakref.WeakSet()


def sweep() -> None:
    """Forgets in all such caches what does not count any more. Called every few seconds."""
    now = monotonic()
    for cache in list(_expiring):
        cache.sweep(now)


def remembered(
    name: str, what: str, entries: int, longest: int, value_bytes: int = 0
) -> Callable[[Callable[[str], V]], Callable[[str], V]]:
    """Decorates a function of one text that always answers the same: the ``entries`` last answers to texts of at most ``longest``
    characters are kept. ``value_bytes`` is what an answer takes beyond ``ENTRY_BYTES``. Answers are shared: callers only read them."""
    each = ENTRY_BYTES + CHARACTER_BYTES * longest + value_bytes

    def decorate(work: Callable[[str], V]) -> Callable[[str], V]:
        kept = lru_cache(maxsize=entries)(work)
        register(name, what, entries * each, lambda: kept.cache_info().currsize * each)

        def answer(text: str) -> V:
            return kept(text) if len(text) <= longest else work(text)

        answer.__name__, answer.__doc__ = getattr(work, "__name__", name), work.__doc__
        return answer

    return decorate
