"""What somebody who misspelt a word most likely meant."""

from __future__ import annotations

from collections.abc import Iterable


def did_you_mean(word: str, known: Iterable[str], prefix: str = "") -> str:
    """`` (did you mean X?)`` for the word of ``known`` that looks most like ``word``, behind ``prefix``; an empty text if none does."""
    from difflib import get_close_matches  # only who is refused pays for it

    shape = {name.lower(): name for name in known}
    found = get_close_matches(word.lower(), shape, 1, 0.75) if len(word) <= 100 else []
    return f" (did you mean {prefix}{shape[found[0]]}?)" if found else ""
