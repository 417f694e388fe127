"""Regular expressions that few processes use: compiling one takes 0.1 to 6 ms, of which a start has many and a first request none."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator
from typing import Any, AnyStr, cast


class _Later:
    """Stands for a pattern, which is compiled when the first of its methods is asked for; each method is looked up once."""

    def __init__(self, pattern: Any, flags: int) -> None:
        self._source = pattern, flags

    def __getattr__(self, name: str) -> Any:
        found = getattr(re.compile(*self._source), name)
        setattr(self, name, found)
        return found


def later(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """As ``re.compile``, for what most servers never look for. A mistake in the pattern shows at its first use."""
    return cast("re.Pattern[AnyStr]", _Later(pattern, flags))


@contextlib.contextmanager
def compiled_later(package: str) -> Iterator[None]:
    """Inside, the patterns of modules of ``package`` that are imported are as those of ``later``."""
    compile_now = re.compile

    def compile_as_asked(pattern: Any, flags: int = 0) -> Any:
        asks = sys._getframe(1).f_globals.get("__name__", "")
        return later(pattern, flags) if asks.partition(".")[0] == package else compile_now(pattern, flags)

    re.compile = compile_as_asked
    try:
        yield
    finally:
        re.compile = compile_now
