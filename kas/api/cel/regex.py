"""Go's regular expressions: RE2, which takes linear time whatever the pattern."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

MAX_CACHED = 512


class RegexError(Exception):
    """A pattern that RE2 does not take; ``str`` is as Go words it, but for the exact cause."""


@lru_cache(maxsize=MAX_CACHED)
def compiled(pattern: str) -> Any:
    import re2  # a compiled library that few servers need

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as e:
        reason = e.args[0] if e.args else ""
        text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise RegexError(f"error parsing regexp: {text}") from None
