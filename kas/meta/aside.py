"""Long work beside the event loop: a few threads for what is pure, so that others are answered meanwhile.

What goes here decodes, validates, patches, converts or encodes one request's own objects. It may read the store (any thread may) and fill
memos whose entries are found by single lookups; it does not touch futures, the hub, informers' indexes or another request's objects. Writes
stay on the loop.

Two threads: they take the interpreter's lock in turns with the loop, which gets it after ``SWITCH_S`` at the latest, or after the longest
stretch of compiled code that keeps it (measured in docs/threat-model.md). More threads would not be faster and would make that wait longer.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

# Bodies and objects from here on are worked on aside: handing over costs a tenth of a millisecond, and work on less than this keeps the
# loop for some milliseconds at most.
LARGE = 64 << 10
THREADS = 2
STACK_BYTES = 16 << 20  # what is nested as deep as allowed is walked recursively
SWITCH_S = 0.001  # while work runs aside; otherwise the interpreter's own 5 ms

Job = tuple[Future[Any], Callable[[], Any]]


class Aside:
    """The threads, started with the first job. Jobs wait in a queue that is as long as there are requests in flight."""

    def __init__(self, threads: int = THREADS) -> None:
        self._jobs: SimpleQueue[Job] = SimpleQueue()
        self._wanted, self._lock, self._running = threads, threading.Lock(), 0
        self._usual = sys.getswitchinterval()
        self.done = 0

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """``work(*args, **kwargs)`` in one of the threads. Cancelled, it is not begun, or its outcome is dropped."""
        if self._wanted:
            self._start()
        future: Future[T] = Future()
        with self._lock:
            self._running += 1
            if self._running == 1:
                sys.setswitchinterval(SWITCH_S)
        future.add_done_callback(self._ended)
        self._jobs.put((future, lambda: work(*args, **kwargs)))
        return await asyncio.wrap_future(future)

    def _start(self) -> None:
        usual = threading.stack_size(STACK_BYTES)
        try:
            while self._wanted:
                self._wanted -= 1
                threading.Thread(target=self._serve, name="kas-aside", daemon=True).start()
        finally:
            threading.stack_size(usual)

    def _ended(self, _: Future[Any]) -> None:
        with self._lock:
            self._running -= 1
            self.done += 1
            if not self._running:
                sys.setswitchinterval(self._usual)

    def _serve(self) -> None:
        while True:
            future, work = self._jobs.get()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = work()
            except BaseException as e:  # the root of the job: whoever waits for it gets the error
                future.set_exception(e)
            else:
                future.set_result(result)
            del future, work  # an idle thread holds nothing


POOL = Aside()


async def step(large: bool, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """``work(*args, **kwargs)``: aside when it is ``large``, else here."""
    return await POOL.run(work, *args, **kwargs) if large else work(*args, **kwargs)
