"""Suggestions for misspelt words."""

from __future__ import annotations

from collections.abc import Iterable


def did_you_mean(word: str, known: Iterable[str], prefix: str = "") -> str:
    """`` (did you mean X?)`` for the word of ``known`` that is most similar to ``word``, with ``prefix`` before it; "" if none is similar.
    """
    from difflib import get_close_matches  # imported only when needed

    shape = {name.lower(): name for name in known}
    found = get_close_matches(word.lower(), shape, 1, 0.75) if len(word) <= 100 else []
    return f" (did you mean {prefix}{shape[found[0]]}?)" if found else ""
