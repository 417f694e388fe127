"""Parts of pods that were found valid before: pods come in copies that differ in little more than their names.

A part is known by its JSON together with all else that its rules look at, so that "valid" is a fact about the key. Only successes
are kept: what is refused is always judged anew, in its own words and order. Callers run on the event loop only.
"""

from __future__ import annotations

from typing import Any

import orjson

KEY_LIMIT_B = 16 * 1024
TOTAL_LIMIT_B = 4 * 1024 * 1024


class Known:
    """A bounded set of keys; the oldest go first."""

    def __init__(self, total_b: int = TOTAL_LIMIT_B) -> None:
        self._keys: dict[bytes, None] = {}
        self._left_b = total_b

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, key: bytes | None) -> None:
        """None and keys that are too long are not kept."""
        if key is None or len(key) > KEY_LIMIT_B or key in self._keys:
            return
        self._keys[key] = None
        self._left_b -= len(key)
        while self._left_b < 0:
            oldest = next(iter(self._keys))
            del self._keys[oldest]
            self._left_b += len(oldest)


def key_of(value: Any) -> bytes | None:
    """None for what has no JSON: numbers beyond 64 bits and broken text, which the rules themselves have to meet."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return None
