"""A client's TLS context that follows the files it is made of, as client-go's does: certificates are replaced while a server runs."""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Callable, Sequence
from time import monotonic

from kas.meta.files import read_configuration

log = logging.getLogger("kas.client")

LOOK_AGAIN_S = 1.0  # client-go checks certificates as often, and CAs every five minutes
Seen = list[tuple[int, int, int]]


class ReloadingTLS:
    """``make`` makes a context of the contents of ``files``, which were ``contents`` when ``context`` was made. If
    files cannot be read or used, the last context remains in use: files are not replaced all at once, and the next
    look may find them complete."""

    def __init__(
        self, files: Sequence[str], contents: Sequence[bytes], context: ssl.SSLContext, make: Callable[..., ssl.SSLContext],
        clock: Callable[[], float] = monotonic,
    ) -> None:  # fmt: skip
        self._files, self._contents, self._context, self._make, self._clock = files, list(contents), context, make, clock
        self._seen: Seen = []
        self._refused: list[bytes] = []  # logged once
        self._next_look = 0.0

    @property
    def fixed(self) -> bool:
        """Whether ``context`` never changes."""
        return not self._files

    def context(self) -> ssl.SSLContext:
        """The context to connect with; a new one after a file has changed."""
        if self._files and self._clock() >= self._next_look:
            self._next_look = self._clock() + LOOK_AGAIN_S
            try:
                self._look()
            except OSError as e:
                log.warning("the files for TLS cannot be read: %s", e)
        return self._context

    def _look(self) -> None:
        seen = [(s.st_mtime_ns, s.st_size, s.st_ino) for s in map(os.stat, self._files)]
        if seen == self._seen:
            return
        contents = list(map(read_configuration, self._files))
        if contents != self._contents:
            try:
                context = self._make(*contents)
            except ValueError as e:
                if contents != self._refused:
                    log.warning("%s cannot be used, the previous contents stay in use: %s", ", ".join(self._files), e)
                self._refused = contents
                return
            self._contents, self._context = contents, context
        self._seen = seen
