"""Loads, after the start and in small steps between requests, what the first client would otherwise wait for."""

from __future__ import annotations

import asyncio
import functools
import gc
import importlib
from collections.abc import Callable
from typing import Any

from kas import kinds
from kas.registry.registries import Registries
from kas.types.checktables import TABLES

PAUSE_S = 0.02


async def warm_up(registries: Registries) -> None:
    """Imports the rooms of all kinds, makes their strategies and builds their checks; what was made lives as long as the process."""
    groups = dict.fromkeys(reg.resource.group for reg in registries)
    modules = [name for group in groups for name in kinds.modules(group)]
    modules += ["kas.types.yaml_codec", "isal.igzip"]
    steps: list[Callable[[], Any]] = [functools.partial(importlib.import_module, name) for name in modules]
    steps.append(lambda: [reg.strategy for reg in registries])
    for one in steps:
        await asyncio.sleep(PAUSE_S)
        one()
    for table in tuple(TABLES):
        await asyncio.sleep(PAUSE_S)
        table.build()
    gc.collect()
    gc.freeze()
