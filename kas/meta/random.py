"""Random identities and name suffixes, from the system's source but not one call a time: a system call costs more than its bytes.

Safe across forks: a child starts with an empty pool. Safe across threads: a piece is popped, so nobody gets another's.
"""

from __future__ import annotations

import os

# apimachinery ``util/rand``: no vowels and nothing that looks like one, so that no words come out.
ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
POOL_B = 4096
PIECE_B = 16

_pool: list[bytes] = []


def _take() -> bytes:
    """``PIECE_B`` random bytes that nobody else has seen."""
    while True:
        try:
            return _pool.pop()
        except IndexError:
            block = os.urandom(POOL_B)
            _pool.extend([block[i : i + PIECE_B] for i in range(0, POOL_B, PIECE_B)])


os.register_at_fork(after_in_child=_pool.clear)


def new_uid() -> str:
    """A random UUID (version 4) as text."""
    h = _take().hex()
    return f"{h[:8]}-{h[8:12]}-4{h[13:16]}-{_VARIANT[h[16]]}{h[17:20]}-{h[20:]}"


# The first digit of the fourth group has two random bits.
_VARIANT = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}
_UNBIASED = 256 - 256 % len(ALPHABET)
_LETTERS = {b: ALPHABET[b % len(ALPHABET)] for b in range(_UNBIASED)}


def random_suffix(size: int = 5) -> str:
    """``size`` characters of the alphabet, each as likely as any other."""
    out = ""
    while len(out) < size:
        out += "".join([_LETTERS[b] for b in _take() if b < _UNBIASED])
    return out[:size]
