"""The roles of a user with hundreds of bindings in one scope, maintained incrementally as bindings and roles change.

Walking all of the user's bindings after each change would cost microseconds per binding on the event loop. Here the cost of a change
depends only on the affected roles. The roles are in the order in which a walk over the bindings by name meets them.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Generic, TypeVar

Ref = tuple[str, str]  # a role's kind and name
B = TypeVar("B")  # a binding that matches the user, with the matching subject
H = TypeVar("H")  # a role the user has by it


class ManyBound(Generic[B, H]):
    """``bound(name)`` returns a binding if it matches the user, else None; ``ref(b)`` its role's reference; ``held(b)`` the role the user
    has by it, or an error text."""

    def __init__(
        self, bound: Callable[[str], B | None], ref: Callable[[B], Ref], held: Callable[[B], H | str], names: Iterable[str]
    ) -> None:
        """``names`` are the user's bindings, in order."""
        self._bound, self._ref, self._held = bound, ref, held
        self._changed: dict[str, None] = dict.fromkeys(names)
        self._otherwise: set[Ref] = set()
        self._refs: dict[str, Ref] = {}  # by binding
        self._names: dict[Ref, list[str]] = {}  # sorted names of bindings
        # By the first binding of each existing role, in order: its name, and the role. For missing roles, the error texts.
        self._firsts: list[str] = []
        self._have: list[H] = []
        self._lacks: dict[Ref, str] = {}
        self._given: tuple[list[H], list[str]] = [], []
        self._taken = False  # changes were applied by ``take`` since the last ``have``
        self.cluster_roles: dict[Ref, None] = {}

    def __len__(self) -> int:
        """The number of bindings that are known or pending."""
        return len(self._refs) + len(self._changed)

    @property
    def unasked(self) -> int:
        """The number of bindings still to be examined."""
        return len(self._changed)

    def changed(self, name: str) -> None:
        """Record that a binding was created, changed or deleted."""
        self._changed[name] = None

    def otherwise(self, ref: Ref) -> None:
        """Record that a role was created, changed or deleted."""
        if ref in self._names:
            self._otherwise.add(ref)

    def have(self) -> tuple[list[H], list[str]]:
        """Return the user's roles, each once, in the order of their first bindings, and the errors of missing roles. Do not modify
        them."""
        if self._changed or self._otherwise or self._taken:
            self._look_again(list(self._changed))
            self._taken = False
            lacking = sorted(self._lacks, key=lambda ref: self._names[ref][0])
            self._given = self._have.copy(), [self._lacks[ref] for ref in lacking]
        return self._given

    def take(self, most: int) -> None:
        """Examine up to ``most`` pending bindings. After an error, here or in ``have``, the object must be discarded."""
        self._taken = True
        self._look_again(list(islice(self._changed, most)))

    def _look_again(self, changed: Iterable[str]) -> None:
        moved = dict[Ref, None]()

        def take_out(ref: Ref) -> list[str]:
            names = self._names.setdefault(ref, [])
            if ref not in moved:
                moved[ref] = None
                if names and self._lacks.pop(ref, None) is None:
                    at = bisect_left(self._firsts, names[0])
                    del self._firsts[at], self._have[at]
            return names

        for ref in self._otherwise:
            take_out(ref)
        for name in changed:
            del self._changed[name]
            before, found = self._refs.pop(name, None), self._bound(name)
            if before is not None:
                names = take_out(before)
                del names[bisect_left(names, name)]
            if found is not None:
                self._refs[name] = ref = self._ref(found)
                insort(take_out(ref), name)
        self._otherwise = set()
        for ref in moved:
            self._put_back(ref)

    def _put_back(self, ref: Ref) -> None:
        names = self._names[ref]
        found = self._bound(names[0]) if names else None
        if found is None:
            del self._names[ref]
            self.cluster_roles.pop(ref, None)
            return
        if ref[0] == "ClusterRole":
            self.cluster_roles[ref] = None
        have = self._held(found)
        if isinstance(have, str):
            self._lacks[ref] = have
            return
        at = bisect_left(self._firsts, names[0])
        self._firsts.insert(at, names[0])
        self._have.insert(at, have)
