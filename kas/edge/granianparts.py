"""What a listener is made of, from granian, without what granian's own command line needs.

The package's ``__init__`` loads that, too: process pools, logging's configuration, pickle; 15 ms of CPU at each start and 1.6 MiB of a
worker. So its modules are imported below a package that is only a place, and which is gone afterwards: who imports granian in the same
program gets all of it.

It brings an allocator of its own, jemalloc, which gives freed memory back when it is next used, so that after a flood a worker that has
little to do keeps what the flood took. A thread of its does so at any time, where that is asked for when it is loaded. A fork ends the
thread, so it is loaded by who uses it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from types import ModuleType


@contextlib.contextmanager
def bare_package(name: str) -> Iterator[None]:
    """Inside, the modules of a package that is not loaded are imported without its ``__init__``. Raises ModuleNotFoundError."""
    spec = None if name in sys.modules else importlib.util.find_spec(name)
    if spec is None:
        yield
        return
    package = ModuleType(name)
    package.__spec__, package.__path__ = spec, list(spec.submodule_search_locations or ())
    sys.modules[name] = package
    try:
        yield
    finally:
        if sys.modules.get(name) is package:
            del sys.modules[name]


# The prefix is that of Rust's jemalloc; an operator's own settings stand.
ALLOCATOR, GIVES_BACK = "_RJEM_MALLOC_CONF", "background_thread:true"


@contextlib.contextmanager
def giving_back() -> Iterator[None]:
    """What is loaded inside gives back freed memory by a thread of its own; programs that are started later know nothing of it."""
    if ALLOCATOR in os.environ:
        yield
        return
    os.environ[ALLOCATOR] = GIVES_BACK
    try:
        yield
    finally:
        del os.environ[ALLOCATOR]


with giving_back(), bare_package("granian"):
    from granian._granian import ASGIWorker, CallbackScheduler, SocketHolder, WorkerSignal
    from granian.http import HTTP1Settings, HTTP2Settings
    from granian.net import SocketSpec, UnixSocketSpec

__all__ = [
    "ASGIWorker", "CallbackScheduler", "HTTP1Settings", "HTTP2Settings", "SocketHolder", "SocketSpec", "UnixSocketSpec", "WorkerSignal",
]  # fmt: skip
