"""How many handshakes came to nothing, told to those who show metrics. Nothing is loaded for it before the first one did."""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path

log = logging.getLogger("kas.front")


class Failures:
    """``path`` is where workers look for what others have counted. What a front that died had told there goes on."""

    def __init__(self, path: Path) -> None:
        self._path, self.count, self._told = path, 0, 0
        self._before: bytes | None = None
        self._wrong = ""  # why it could not be told, as it was logged last

    @property
    def due(self) -> bool:
        """Whether there is something that was not told yet."""
        return self.count > self._told

    def tell(self) -> None:
        """Writes it down; blocks. What cannot be written is logged, and due again."""
        from kas.observe.counted import failed_handshakes
        from kas.observe.metrics import Registry

        count, registry = self.count, Registry()
        try:
            if self._before is None:
                self._before = b""
                with contextlib.suppress(FileNotFoundError):  # no front was there before
                    self._before = self._path.read_bytes()
            registry.resume(self._before)
            registry.add(failed_handshakes()).inc(by=count)
            new = self._path.with_suffix(".new")
            new.write_bytes(registry.dump())
            os.replace(new, self._path)
        except OSError as e:
            if self._wrong != str(e):
                self._wrong = str(e)
                log.warning("failed handshakes were not reported to workers: %s", e)
            return
        self._told, self._wrong = count, ""
