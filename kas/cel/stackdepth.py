"""Stack depth for deeply nested expressions.

Every walk of the tree recurses in Python, whose recursion limit is far below the depth that an expression may have: 250 operators, fields
and calls on one another, or 250 nested brackets with a few nodes each. That is some 2000 nodes, and the thread's stack suffices for them:
recursion through C takes less than 1 KiB of it per node.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import TypeVar

FRAMES = 12_000  # recursion limit while any thread needs more depth

T = TypeVar("T")
_lock = threading.Lock()
_inside = 0  # number of threads that need it
_before = 0  # the original limit


def with_deep_stack(work: Callable[[], T]) -> T:
    """Return the result of ``work``. It may run twice: again with a higher recursion limit if the current one does not suffice."""
    try:
        return work()
    except RecursionError:
        pass
    _enter()
    try:
        return work()
    finally:
        _leave()


def _enter() -> None:
    global _inside, _before
    with _lock:
        _inside += 1
        if _inside == 1:
            _before = sys.getrecursionlimit()
            sys.setrecursionlimit(max(FRAMES, _before))


def _leave() -> None:
    global _inside
    with _lock:
        _inside -= 1
        if not _inside:
            sys.setrecursionlimit(_before)
