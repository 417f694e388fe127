"""The parts of granian that a listener needs, without those of granian's command line.

The package's ``__init__`` also loads process pools, logging configuration and pickle, which costs 15 ms of CPU time
at each start and 1.6 MiB per worker. Its modules are therefore imported below an empty package object, which is
removed afterwards, so that a program that imports granian itself gets all of it.

granian has an allocator of its own, jemalloc, which returns freed memory to the system only on later use; after a
flood, an idle worker would keep the memory that the flood took. With a background thread, which must be requested
when the library is loaded, it returns memory at any time. A fork ends that thread, so each process that uses granian
loads it for itself.
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
    """Imports the modules of a package without its ``__init__`` while the context is open, unless the package is
    loaded already. Raises ModuleNotFoundError."""
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


# The prefix is the one that Rust's jemalloc has. An operator's own setting is left as it is.
ALLOCATOR, GIVES_BACK = "_RJEM_MALLOC_CONF", "background_thread:true"


@contextlib.contextmanager
def giving_back() -> Iterator[None]:
    """Makes an allocator that is loaded inside return freed memory in a background thread. Programs that are started
    later do not inherit the setting."""
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
