"""Random identities and name suffixes, from the system's source but not one call a time: a system call costs more than its bytes.

Safe across forks: a child starts with an empty pool.
"""

from __future__ import annotations

import os

# apimachinery ``util/rand``: no vowels and nothing that looks like one, so that no words come out.
ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
POOL_B = 4096

_pool = b""
_at = 0


def _take(size: int) -> bytes:
    global _pool, _at
    end = _at + size
    if end > len(_pool):
        _pool = os.urandom(POOL_B)
        _at, end = 0, size
    out = _pool[_at:end]
    _at = end
    return out


def _forget() -> None:
    global _pool, _at
    _pool, _at = b"", 0


os.register_at_fork(after_in_child=_forget)


def new_uid() -> str:
    """A random UUID (version 4) as text."""
    h = _take(16).hex()
    variant = "89ab"[int(h[16], 16) & 3]
    return f"{h[:8]}-{h[8:12]}-4{h[13:16]}-{variant}{h[17:20]}-{h[20:]}"


_UNBIASED = 256 - 256 % len(ALPHABET)


def random_suffix(size: int = 5) -> str:
    """``size`` characters of the alphabet, each as likely as any other."""
    out = ""
    while len(out) < size:
        out += "".join([ALPHABET[b % len(ALPHABET)] for b in _take(size - len(out)) if b < _UNBIASED])
    return out
