"""Several providers, or several keys of one provider, each with a prefix: the first one writes, all of them read
(``value.prefixTransformers``)."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Protocol

from kas.auth.attributes import aggregate
from kas.encryption.ciphers import SealError


class Opener(Protocol):
    """A provider, or a union of providers."""

    def seal(self, plain: bytes, key: bytes) -> bytes:
        """Returns the value in its stored form. Raises SealError."""
        ...

    def open(self, sealed: bytes, key: bytes) -> tuple[bytes, bool]:
        """Returns (value, whether it should be rewritten). Raises SealError."""
        ...


class Rotates(Opener):
    """A provider whose key changes while it is used."""

    @abc.abstractmethod
    def key_of(self, sealed: bytes) -> bytes:
        """Returns which key a value names. Raises SealError."""

    @abc.abstractmethod
    def writes_with(self, key: bytes) -> bool:
        """Returns whether ``seal`` uses that key now."""


class Union:
    """``members`` are (prefix, provider) in their order, ``missing`` is the error for a value that none of them claims."""

    def __init__(self, missing: str, members: Sequence[tuple[bytes, Opener]]) -> None:
        self.members, self._missing = tuple(members), missing
        self._prefix, self._first = self.members[0]

    def seal(self, plain: bytes, key: bytes) -> bytes:
        """Seals with the first member, and adds its prefix."""
        return self._prefix + self._first.seal(plain, key)

    def open(self, sealed: bytes, key: bytes) -> tuple[bytes, bool]:
        """Opens with the first member that can; stale unless that is the very first one."""
        plain, stale, _ = self.open_with(sealed, key)
        return plain, stale

    def open_with(self, sealed: bytes, key: bytes) -> tuple[bytes, bool, bytes]:
        """``open``, and the prefix of the member that opened it. Members may share a prefix, so if one fails the next one is
        tried."""
        failed: list[str] = []
        for i, (prefix, member) in enumerate(self.members):
            if not sealed.startswith(prefix):
                continue
            try:
                plain, stale = member.open(sealed[len(prefix) :], key)
            except SealError as e:
                if prefix:  # identity's error would not say why
                    failed.append(str(e))
                continue
            return plain, stale or i > 0, prefix
        raise SealError(aggregate(failed) if failed else self._missing)

    def key_of(self, sealed: bytes) -> bytes:
        """See ``kas.store.transform.Rotating``."""
        for prefix, member in self.members:
            if sealed.startswith(prefix) and isinstance(member, Rotates):
                return prefix + member.key_of(sealed[len(prefix) :])
        return b""

    def writes_with(self, key: bytes) -> bool:
        """See ``kas.store.transform.Rotating``."""
        first = self._first
        return key.startswith(self._prefix) and isinstance(first, Rotates) and first.writes_with(key[len(self._prefix) :])

    def claims(self, sealed: bytes) -> str:
        """Returns the first matching prefix of a value, "" for none."""
        return next((prefix.decode() for prefix, _ in self.members if prefix and sealed.startswith(prefix)), "")
