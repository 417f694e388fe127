"""The ``poststarthook/`` health checks: what has to be done at start or kept running since, and whether it is.

A hook is one of three kinds:

- a step of the start, which is done once (``done``);
- a controller of the leading worker (``running``, ``failed``). The other workers read its state, which the leader writes to the run
  directory, so that all workers of a server answer alike;
- periodic work of each worker (``kept``), which reports only for itself.
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
    """``steps`` are the start-up hooks of every worker. ``loops`` maps the leader's controllers to their hooks. ``upkeep`` maps every
    worker's periodic work to its hooks. A hook may be a step and have several controllers. ``path`` is the file in which the leader reports
    to the other workers.
    """

    def __init__(self, steps: Sequence[str], loops: dict[str, str], path: Path, upkeep: Mapping[str, str] | None = None) -> None:
        self._upkeep = upkeep or {}
        self.names = tuple(dict.fromkeys((*steps, *loops.values(), *self._upkeep.values())))
        self._failed_work: dict[str, str] = {}  # periodic work -> why its last run failed
        self._pending = set(steps)
        self._loops, self._path = loops, path
        self._failed: dict[str, str] = {}  # controller -> why it failed
        self._leads = self._started = self._unwritten = False
        self._hindered = ""
        self._read_at = 0

    def done(self, *names: str) -> None:
        """Marks start-up steps as finished."""
        self._pending.difference_update(names)

    def begin(self) -> None:
        """The worker now runs its controllers, or waits to become the leader."""
        self._started = True

    def election_failed(self, why: str) -> None:
        """This worker cannot find out whether it leads. Unless another worker does, no controller runs."""
        self._hindered = why

    def lead(self) -> None:
        """This worker is the leader from now on."""
        self._leads = True
        self._failed = {}
        self._write()

    def running(self, controller: str) -> None:
        """The controller runs again; clears its failure."""
        if self._failed.pop(controller, None) is not None:
            self._write()

    def failed(self, controller: str, why: str) -> None:
        """The controller crashed; ``running`` reports its restart."""
        if controller in self._loops:
            self._failed[controller] = why
            self._write()

    def kept(self, work: str, why: str = "") -> None:
        """Reports a run of this worker's periodic work: ``why`` it failed, or "" when it succeeded."""
        if why:
            self._failed_work[work] = why
        else:
            self._failed_work.pop(work, None)

    def why(self, name: str) -> str:
        """What is wrong with a hook, "" when it is healthy."""
        controllers = [controller for controller, hook in self._loops.items() if hook == name]
        work = [each for each, hook in self._upkeep.items() if hook == name]
        if name in self._pending or ((controllers or work) and not self._started):
            return NOT_FINISHED
        if stuck := next((self._failed_work[each] for each in work if each in self._failed_work), ""):
            return stuck
        if controllers and not self._leads and not self._read() and self._hindered:
            return self._hindered
        return next((self._failed[controller] for controller in controllers if controller in self._failed), "")

    def tell(self) -> None:
        """Retries a report to the other workers that could not be written; to be called periodically."""
        if self._unwritten:
            self._write()

    def _write(self) -> None:
        new = self._path.with_suffix(".new")
        try:
            new.write_text(json.dumps(self._failed))
            os.replace(new, self._path)
        except OSError as e:  # a full disk must not end the controllers that are reported on
            if not self._unwritten:
                log.warning("the other workers do not know yet of a controller that failed or runs again: %s", e)
            self._unwritten = True
        else:
            self._unwritten = False

    def _read(self) -> bool:
        """Reads the leader's report; False when no worker has led yet."""
        try:
            changed = self._path.stat().st_mtime_ns
        except FileNotFoundError:
            return False
        if changed != self._read_at:
            self._failed, self._read_at = json.loads(self._path.read_text()), changed
        return True
