"""Lazily compiled regular expressions: compiling one takes 0.1 to 6 ms; there are many at start-up, and a first request needs none of them.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator
from typing import Any, AnyStr, cast


class _Later:
    """A proxy of a pattern, which is compiled at the first use of one of its methods; each method is looked up once."""

    def __init__(self, pattern: Any, flags: int) -> None:
        self._source = pattern, flags

    def __getattr__(self, name: str) -> Any:
        found = getattr(re.compile(*self._source), name)
        setattr(self, name, found)
        return found


def later(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Like ``re.compile``, for patterns that most processes never use. Errors in the pattern surface at its first use."""
    return cast("re.Pattern[AnyStr]", _Later(pattern, flags))


@contextlib.contextmanager
def compiled_later(package: str) -> Iterator[None]:
    """A context in which ``re.compile`` in modules of ``package`` behaves like ``later``, for imports."""
    compile_now = re.compile

    def compile_as_asked(pattern: Any, flags: int = 0) -> Any:
        asks = sys._getframe(1).f_globals.get("__name__", "")
        return later(pattern, flags) if asks.partition(".")[0] == package else compile_now(pattern, flags)

    re.compile = compile_as_asked
    try:
        yield
    finally:
        re.compile = compile_now
