"""Counts failed handshakes, for the workers that expose metrics. Nothing is loaded for it before the first failure."""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path

log = logging.getLogger("kas.front")


class Failures:
    """``path`` is a file in which workers find the counts of other processes. The count of a front that died is
    continued."""

    def __init__(self, path: Path) -> None:
        self._path, self.count, self._written = path, 0, 0
        self._before: bytes | None = None
        self._last_error = ""  # the error that was logged last

    @property
    def due(self) -> bool:
        """Whether there are failures that have not been written."""
        return self.count > self._written

    def tell(self) -> None:
        """Writes the count to the file; blocks. An error is logged, and the count stays due."""
        from kas.observe.counted import failed_handshakes
        from kas.observe.metrics import Registry

        count, registry = self.count, Registry()
        try:
            if self._before is None:
                self._before = b""
                with contextlib.suppress(FileNotFoundError):  # there was no front before
                    self._before = self._path.read_bytes()
            registry.resume(self._before)
            registry.add(failed_handshakes()).inc(by=count)
            new = self._path.with_suffix(".new")
            new.write_bytes(registry.dump())
            os.replace(new, self._path)
        except OSError as e:
            if self._last_error != str(e):
                self._last_error = str(e)
                log.warning("failed handshakes were not reported to workers: %s", e)
            return
        self._written, self._last_error = count, ""
