"""Keys and values in etcd: what kube-apiserver stores, to the byte.

A key is ``--etcd-prefix`` and upstream's path of the object; the store's own keys begin with ``/registry``, which is the prefix unless
another one is given. What a value looks like depends on the kind, so who knows the kinds brings a ``Values``.
"""

from __future__ import annotations

import posixpath
from typing import Protocol

from kas.store._engine import Draft

OWN_PREFIX = "/registry"


# What the note at ``Keys.copied`` says of a copy that is not complete.
HALF = b'"complete": false'


class Undecodable(ValueError):
    """A value that is no object that this server can read."""


class Values(Protocol):
    """From drafts to etcd's values, and back. ``encode`` may be called by any thread, ``decode`` by that of the replicator.

    ``first`` are prefixes (the store's) whose values have to be decoded before others can be."""

    @property
    def first(self) -> tuple[str, ...]:
        """See above."""

    def before(self, key: str) -> str:
        """Which key of those has to be decoded before the value of ``key``; "" where none has."""
        ...

    def learn(self, key: str) -> None:
        """Takes what ``before`` names as it stands in the store now, for who has not decoded it, or not all that became of it. Raises
        ``TransformError``."""
        ...

    def unseen(self, key: str) -> None:
        """What stands at ``key`` now cannot be opened: what was decoded of it before does not count."""
        ...

    def encode(self, key: str, draft: Draft) -> bytes:
        """The value of ``key`` (with the store's own prefix) for a draft."""
        ...

    def decode(self, key: str, value: bytes) -> Draft:
        """The draft of what stands at ``key``. Raises ``Undecodable``."""
        ...

    @property
    def whole(self) -> bool:
        """Whether the value that was decoded last had nothing that a draft does not show: fields of a newer version."""

    def handed_on(self, key: str, old: bytes, new: bytes) -> bytes:
        """The value ``new``, which is to take the place of ``old``, with what of that no draft shows."""
        ...


class Keys:
    """Between the store's keys and etcd's."""

    def __init__(self, prefix: str = OWN_PREFIX) -> None:
        # As kube-apiserver's path.Join cleans it; "" where all of etcd is meant.
        self.prefix = posixpath.normpath("/" + prefix.lstrip("/")).rstrip("/")
        self.root = self.prefix.encode() + b"/"
        # Written by readers that must be as new as etcd, where nothing cheaper tells (see EtcdStore.fresh); holds nothing.
        self.fence = self.root + b"kas/fence"
        # Where a copy to this prefix says how far it is, beside what servers read.
        self.copied = b"kas_copy" + self.root.rstrip(b"/")
        self._same = self.prefix == OWN_PREFIX

    def to_etcd(self, key: str) -> bytes:
        """The key in etcd."""
        return key.encode() if self._same else (self.prefix + key[len(OWN_PREFIX) :]).encode()

    def from_etcd(self, key: bytes) -> str:
        """The store's key. Raises ``UnicodeDecodeError`` for one that nobody here writes."""
        text = key.decode()
        return text if self._same else OWN_PREFIX + text[len(self.prefix) :]
