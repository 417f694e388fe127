"""Keys and values in etcd: byte for byte as kube-apiserver stores them.

A key is ``--etcd-prefix`` and upstream's path of the object; the store's own keys begin with ``/registry``, which is the
default prefix. The form of a value depends on the kind, so a layer that knows the kinds provides ``Values``.
"""

from __future__ import annotations

import posixpath
from typing import Protocol

from kas.store._engine import Draft

OWN_PREFIX = "/registry"


# Part of the note at ``Keys.copied`` while a copy is incomplete.
HALF = b'"complete": false'


class Undecodable(ValueError):
    """A value that is no object that this server can read."""


class Values(Protocol):
    """Converts drafts to etcd's values, and back. ``encode`` may be called by any thread, ``decode`` by the replicator's.

    ``first`` are prefixes of the store whose values must be decoded before others.
    """

    @property
    def first(self) -> tuple[str, ...]:
        """See above."""

    def before(self, key: str) -> str:
        """Returns the key below ``first`` that must be decoded before the value of ``key``; "" for none."""
        ...

    def learn(self, key: str) -> None:
        """Decodes the current value in the store of the key named by ``before``, for a process that has not decoded it in all
        its revisions. Raises ``TransformError``."""
        ...

    def unseen(self, key: str) -> None:
        """Discards what was decoded from ``key`` before: its current value cannot be opened."""
        ...

    def encode(self, key: str, draft: Draft) -> bytes:
        """Returns the value of ``key`` (with the store's own prefix) for a draft."""
        ...

    def decode(self, key: str, value: bytes) -> Draft:
        """Returns the draft for a value of ``key``. Raises ``Undecodable``."""
        ...

    @property
    def whole(self) -> bool:
        """Whether the value decoded last contained only what its draft shows; False if it had fields of a newer version."""

    def handed_on(self, key: str, old: bytes, new: bytes) -> bytes:
        """Returns the value ``new``, which replaces ``old``, with those parts of ``old`` that no draft shows."""
        ...


class Keys:
    """Converts between keys of the store and of etcd."""

    def __init__(self, prefix: str = OWN_PREFIX) -> None:
        # Cleaned as by kube-apiserver's path.Join; "" for all of etcd.
        self.prefix = posixpath.normpath("/" + prefix.lstrip("/")).rstrip("/")
        self.root = self.prefix.encode() + b"/"
        # Written by reads that must be as new as etcd, where there is no cheaper way (see EtcdStore.fresh); it is empty.
        self.fence = self.root + b"kas/fence"
        # Where a copy to this prefix records its progress, outside of the range that servers read.
        self.copied = b"kas_copy" + self.root.rstrip(b"/")
        self._same = self.prefix == OWN_PREFIX

    def to_etcd(self, key: str) -> bytes:
        """Returns the key in etcd."""
        return key.encode() if self._same else (self.prefix + key[len(OWN_PREFIX) :]).encode()

    def from_etcd(self, key: bytes) -> str:
        """Returns the store's key. Raises ``UnicodeDecodeError`` for a key that no API server writes."""
        text = key.decode()
        return text if self._same else OWN_PREFIX + text[len(self.prefix) :]
