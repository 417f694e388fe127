"""What has to be done at start, or kept running since, and whether it is: the ``poststarthook/`` health checks.

A hook is done once and for all (``done``), or it is a loop of the worker that leads (``running``, ``failed``): the others read what the
leader says in the run directory, so that all workers of a server answer alike. Or it is periodic work of each worker (``kept``), which says
of itself alone whether that goes well.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

log = logging.getLogger("kas.hooks")

NOT_FINISHED = "not finished"


class Hooks:
    """``steps`` are the hooks of every worker's start; ``loops`` maps the names of the leader's controllers to those of their hooks. A
    hook may be a step and have several controllers. ``path`` is where the leader writes for the other workers. ``upkeep`` maps the names of
    every worker's periodic work to those of its hooks."""

    def __init__(self, steps: Sequence[str], loops: dict[str, str], path: Path, upkeep: Mapping[str, str] | None = None) -> None:
        self._upkeep = upkeep or {}
        self.names = tuple(dict.fromkeys((*steps, *loops.values(), *self._upkeep.values())))
        self._stuck: dict[str, str] = {}  # periodic work, and why it failed at its last turn
        self._open = set(steps)
        self._loops, self._path = loops, path
        self._failed: dict[str, str] = {}  # controllers, and why
        self._led = self._runs = self._untold = False
        self._hindered = ""
        self._read_at = 0

    def done(self, *names: str) -> None:
        """These steps of the start are finished."""
        self._open.difference_update(names)

    def begin(self) -> None:
        """The worker runs its loops, or waits to lead."""
        self._runs = True

    def hindered(self, why: str) -> None:
        """This worker cannot find out whether it leads: unless another one does, no loop runs."""
        self._hindered = why

    def lead(self) -> None:
        """This worker's loops are the ones that count from here on."""
        self._led = True
        self._failed = {}
        self._write()

    def running(self, controller: str) -> None:
        """The controller runs again: what was told of its failure is taken back."""
        if self._failed.pop(controller, None) is not None:
            self._write()

    def failed(self, controller: str, why: str) -> None:
        """The loop crashed; ``running`` says when it is started again."""
        if controller in self._loops:
            self._failed[controller] = why
            self._write()

    def kept(self, work: str, why: str = "") -> None:
        """A turn of this worker's periodic work went well, or it failed: why."""
        if why:
            self._stuck[work] = why
        else:
            self._stuck.pop(work, None)

    def why(self, name: str) -> str:
        """What is wrong with a hook; "" when nothing is."""
        controllers = [controller for controller, hook in self._loops.items() if hook == name]
        work = [each for each, hook in self._upkeep.items() if hook == name]
        if name in self._open or ((controllers or work) and not self._runs):
            return NOT_FINISHED
        if stuck := next((self._stuck[each] for each in work if each in self._stuck), ""):
            return stuck
        if controllers and not self._led and not self._read() and self._hindered:
            return self._hindered
        return next((self._failed[controller] for controller in controllers if controller in self._failed), "")

    def tell(self) -> None:
        """Tell the other workers what they could not be told when it happened; to be called now and then."""
        if self._untold:
            self._write()

    def _write(self) -> None:
        new = self._path.with_suffix(".new")
        try:
            new.write_text(json.dumps(self._failed))
            os.replace(new, self._path)
        except OSError as e:  # a full disk must not end the loops that this is about
            if not self._untold:
                log.warning("the other workers do not know yet of a controller that failed or runs again: %s", e)
            self._untold = True
        else:
            self._untold = False

    def _read(self) -> bool:
        """What the leader says; False when nobody has led yet."""
        try:
            changed = self._path.stat().st_mtime_ns
        except FileNotFoundError:
            return False
        if changed != self._read_at:
            self._failed, self._read_at = json.loads(self._path.read_text()), changed
        return True
