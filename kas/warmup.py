"""Loads, after the start and in small steps between requests, what the first client would otherwise wait for: the kinds nearly all clients
begin with, and those of any other group once somebody asks for it. A server that is not asked for a group keeps no code for its kinds."""

from __future__ import annotations

import asyncio
import functools
import gc
import importlib
from collections.abc import Callable
from typing import Any

from kas import kinds
from kas.registry.registries import Registries

PAUSE_S = 0.02
FIRST = ("", "apps")  # by far the largest room, and what is written with it
# Half of that room, all for one kind: who asks for a kind before the warm-up has come to it waits for the rest of the room only, 5 ms.
LARGEST = "kas.kinds.core.pod.strategy"


def load_largest() -> None:
    """Imports what is not left for after the start."""
    importlib.import_module(LARGEST)


class WarmUp:
    """``cold`` are the groups that nobody has asked for yet: whoever sees a request for one calls ``ask``. ``give_back`` returns freed
    memory to the system, in a thread."""

    def __init__(self, registries: Registries, give_back: Callable[[], object]) -> None:
        self._registries, self._give_back = registries, give_back
        self.cold = {reg.resource.group for reg in registries}.difference(FIRST)
        self._asked: asyncio.Queue[str] = asyncio.Queue()  # each group once

    def ask(self, group: str) -> None:
        """Load this group soon, if it is cold."""
        if group in self.cold:
            self.cold.discard(group)
            self._asked.put_nowait(group)

    async def run(self) -> None:
        """Imports the rooms of groups, makes the strategies of their kinds and builds their checks. What of it was made first lives as long
        as the process. Ends when every group was asked for."""
        for group in FIRST:
            await self._warm(group, _settle)
        await asyncio.to_thread(self._give_back)
        while self.cold or not self._asked.empty():
            await self._warm(await self._asked.get())

    async def _warm(self, group: str, settle: Callable[[], object] = lambda: None) -> None:
        steps: list[Callable[[], Any]] = [functools.partial(importlib.import_module, name) for name in kinds.modules(group)]
        steps.append(lambda: [reg.strategy for reg in self._registries if reg.resource.group == group])
        for one in steps:
            await asyncio.sleep(PAUSE_S)
            one()
            settle()
        from kas.types.checktables import TABLES  # which the first of the rooms has loaded

        for table in [table for table in TABLES if not table.built]:
            await asyncio.sleep(PAUSE_S)
            table.build()
            settle()


def _settle() -> None:
    """What was made lives as long as the process. After each step: to look through what all of them, and requests meanwhile, have made
    would keep the loop for longer the more that is."""
    gc.collect()
    gc.freeze()
