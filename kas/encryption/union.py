"""Several providers, or several keys of one, each with a prefix: the first one writes, all of them read (``value.prefixTransformers``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kas.auth.attributes import aggregate
from kas.encryption.ciphers import SealError


class Opener(Protocol):
    """A provider, or a union of some."""

    def seal(self, plain: bytes, key: bytes) -> bytes:
        """The value as it is stored. Raises SealError."""
        ...

    def open(self, sealed: bytes, key: bytes) -> tuple[bytes, bool]:
        """(value, whether it should be written again). Raises SealError."""
        ...


class Union:
    """``members`` are (prefix, provider) in their order, ``missing`` is what is said of a value that none of them claims."""

    def __init__(self, missing: str, members: Sequence[tuple[bytes, Opener]]) -> None:
        self.members, self._missing = tuple(members), missing
        self._prefix, self._first = self.members[0]

    def seal(self, plain: bytes, key: bytes) -> bytes:
        """Sealed by the first member, with its prefix."""
        return self._prefix + self._first.seal(plain, key)

    def open(self, sealed: bytes, key: bytes) -> tuple[bytes, bool]:
        """Opened by the first member that can; stale when that is not the first of all."""
        plain, stale, _ = self.open_with(sealed, key)
        return plain, stale

    def open_with(self, sealed: bytes, key: bytes) -> tuple[bytes, bool, bytes]:
        """``open``, and the prefix of the member that could. Members may share a prefix, so the next one is tried when one cannot."""
        failed: list[str] = []
        for i, (prefix, member) in enumerate(self.members):
            if not sealed.startswith(prefix):
                continue
            try:
                plain, stale = member.open(sealed[len(prefix) :], key)
            except SealError as e:
                if prefix:  # identity does not say why it is not for it
                    failed.append(str(e))
                continue
            return plain, stale or i > 0, prefix
        raise SealError(aggregate(failed) if failed else self._missing)

    def claims(self, sealed: bytes) -> str:
        """The first prefix that a value has, "" for none."""
        return next((prefix.decode() for prefix, _ in self.members if prefix and sealed.startswith(prefix)), "")
