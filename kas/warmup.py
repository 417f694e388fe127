"""Loads code after the start, in small steps between requests, that the first client would otherwise wait for.

These are the kinds that nearly all clients use first, and those of any other group once a client requests it. A
server that gets no request for a group never loads the code for its kinds.
"""

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
FIRST = ("", "apps")  # by far the largest folder of kinds, and what is written with it
# Half of that folder, all for one kind. A request for a kind that the warm-up has not reached waits only for the rest
# of the folder, 5 ms.
LARGEST = "kas.kinds.core.pod.strategy"


def load_largest() -> None:
    """Imports what must not wait for the warm-up."""
    importlib.import_module(LARGEST)


class WarmUp:
    """``cold`` are the groups that no request has named yet; whoever sees a request for one calls ``ask``.
    ``give_back`` returns freed memory to the system; it is called in a thread."""

    def __init__(self, registries: Registries, give_back: Callable[[], object]) -> None:
        self._registries, self._give_back = registries, give_back
        self.cold = {reg.resource.group for reg in registries}.difference(FIRST)
        self._asked: asyncio.Queue[str] = asyncio.Queue()  # each group once

    def ask(self, group: str) -> None:
        """Loads this group soon, if it is cold."""
        if group in self.cold:
            self.cold.discard(group)
            self._asked.put_nowait(group)

    async def run(self) -> None:
        """Imports the modules of groups, creates the strategies of their kinds and builds their validation tables.
        What is created for the first groups lives as long as the process. Ends when every group has been requested."""
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
        from kas.types.checktables import TABLES  # loaded by the first of the modules

        for table in [table for table in TABLES if not table.built]:
            await asyncio.sleep(PAUSE_S)
            table.build()
            settle()


def _settle() -> None:
    """Freezes what was created, which lives as long as the process. It is called after each step, because one
    collection over everything that the steps and the requests meanwhile have created would block the event loop for
    longer."""
    gc.collect()
    gc.freeze()
