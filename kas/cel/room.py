"""Room for expressions that go deep.

Every walk goes down the tree by recursion of functions in Python, for which the interpreter has a limit far below what an expression may
be, as it may be in its own stack: 250 operators, fields and calls on one another, in each of 250 brackets no more than a few nodes. That is
some 2000 nodes; what goes down by way of C takes less than 1 KiB of the stack for each.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import TypeVar

FRAMES = 12_000  # of functions in one another, while anybody has room

T = TypeVar("T")
_lock = threading.Lock()
_inside = 0  # how many have it
_before = 0  # the limit that was


def roomy(work: Callable[[], T]) -> T:
    """What ``work``, which may be done twice, comes to; with more room where it needs that."""
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
