"""Random UIDs and name suffixes, from the system's generator (``fastpath/identity.pxi``)."""

from __future__ import annotations

from kas._fastpath import new_uid, random_bytes

__all__ = ["ALPHABET", "new_uid", "random_suffix"]

# apimachinery ``util/rand``: no vowels or characters that resemble them, so that no words result.
ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_UNBIASED = 256 - 256 % len(ALPHABET)
_LETTERS = {b: ALPHABET[b % len(ALPHABET)] for b in range(_UNBIASED)}


def random_suffix(size: int = 5) -> str:
    """``size`` characters of ``ALPHABET``, uniformly distributed."""
    out = ""
    while len(out) < size:
        out += "".join([_LETTERS[b] for b in random_bytes() if b < _UNBIASED])
    return out[:size]
