"""A store for controllers that run in the test's own loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from kas import kinds
from kas.meta import clock
from kas.registry.registries import Registries
from kas.store import open_store
from kas.types.scheme import BUILTIN


@contextlib.asynccontextmanager
async def stored(directory: Path) -> AsyncIterator[Registries]:
    """Returns the registries of all built-in resources, over a new store in ``directory``."""
    kinds.install()
    store = open_store(str(directory), sync=False)
    store.start(asyncio.get_running_loop())
    registries = Registries(store, clock.now)
    registries.add_stored(BUILTIN.resources, BUILTIN.resource, 3600, {})
    try:
        yield registries
    finally:
        store.close()
