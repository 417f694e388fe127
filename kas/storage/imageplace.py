"""A snapshot file of etcd's as a source (``places.py``), and what its values share with those of a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from kas.storage.places import PAGE, ROOT, Entry, Refused
from kas.store.errors import TransformError
from kas.store.etcd.bolt import Bolt
from kas.store.etcd.layout import Keys
from kas.store.transform import Transformers

SEALED = b"k8s:enc:"
OBJECTS = b"/"  # what keys begin with that servers keep objects at, whatever their prefix is; what is beside those does not


class KeyLike(Protocol):
    """etcd's KeyValue, whoever read it."""

    @property
    def key(self) -> bytes:
        """With the prefix."""

    @property
    def value(self) -> bytes:
        """As stored."""

    @property
    def mod_revision(self) -> int:
        """Of the last write."""

    @property
    def create_revision(self) -> int:
        """Of the first."""

    @property
    def version(self) -> int:
        """1 after the first."""


def name_of(keys: Keys, key: bytes) -> str:
    """The store's key; of one that is no text, which stands for no object here, what shows it; "" for what is no object at all."""
    if key == keys.fence:
        return ""
    try:
        return keys.from_etcd(key)
    except UnicodeDecodeError:
        return keys.from_etcd(key.decode(errors="backslashreplace").encode())


def only_elsewhere(name: str, keys: Keys) -> Refused:
    """What is told of a place that holds objects, but none below the prefix: to do with nothing what was asked for would look like
    success."""
    prefix = keys.prefix or "/"
    return Refused(f"{name} holds nothing below {prefix}, but keys elsewhere: say by --etcd-prefix where its servers keep their objects")


class Values:
    """Opens what is sealed and seals what is to be: kube-apiserver's encryption of etcd's values, bound to their keys."""

    def __init__(self, transformers: Transformers | None, stays: bool = True) -> None:
        """Without ``transformers`` values stay sealed, unless their keys become others: ``stays`` says whether they do not."""
        self._transformers, self._stays = transformers, stays

    def entry(self, kv: KeyLike, key: str, lease_s: int) -> Entry:
        """What stands at the store's key, opened."""
        out = Entry(key, kv.mod_revision, kv.create_revision, kv.version, lease_s)
        try:
            kv.key.decode()
        except UnicodeDecodeError:
            out.why = "its key is no text"
            return out
        try:
            out.value = self._open(key, kv.key, kv.value)
        except TransformError as e:
            out.why = f"cannot be opened: {e.why}"
        return out

    def _open(self, key: str, at: bytes, value: bytes) -> bytes:
        """The plain value. Raises ``TransformError``."""
        if not value.startswith(SEALED):
            return value
        if self._transformers is None:
            if not self._stays:
                raise TransformError(key, "it is sealed for its key, which becomes another one: name --encryption-provider-config")
            return value
        transformer = self._transformers(key)
        if transformer is None:
            raise TransformError(key, "it is sealed, and the configuration does not name its resource")
        try:
            return transformer.open(value, at)[0]
        except ValueError as e:
            raise TransformError(key, str(e)) from None

    def seal(self, key: str, at: bytes, value: bytes) -> bytes:
        """What is written."""
        transformer = self._transformers(key) if self._transformers is not None else None
        return value if transformer is None or transformer.plain else transformer.seal(value, at)


class ImageSource:
    """One file; what it holds is of one moment."""

    def __init__(self, path: Path, keys: Keys, transformers: Transformers | None = None, stays: bool = True) -> None:
        """``stays``: see ``Values``. Raises ``BadSnapshot`` and ``OSError``; reads the whole index."""
        self.name, self._keys, self._values = str(path), keys, Values(transformers, stays)
        self._bolt = Bolt(path)
        try:
            self.sha256 = self._bolt.check()
            self.revision, self.revisions, self._found = self._bolt.newest(keys.root)
            self._leases = self._bolt.leases()
        except BaseException:
            self._bolt.close()
            raise
        self.identity = f"snapshot:{self.sha256}{keys.prefix}"

    def look(self) -> None:
        """Raises ``Refused`` for a file of other prefixes' objects only."""
        if not self._found and self._bolt.newest(OBJECTS)[2]:
            raise only_elsewhere(self.name, self._keys)

    def newest(self) -> int:
        """See ``Source``."""
        return self.revision

    def count(self) -> int:
        """See ``Source``."""
        return sum(1 for _ in self.keys(self.revision))

    def scan(self, revision: int, prefix: str = ROOT, *, start: str = "", end: str = "", after: int = 0) -> Iterator[list[Entry]]:
        """See ``Source``. Leases begin anew, as in etcd when it is restored."""
        page: list[Entry] = []
        first, last = start.encode(), end.encode()
        for key, mod_revision, at, size in self._found:
            name = name_of(self._keys, key)
            text = name.encode()
            if not name.startswith(prefix) or text <= first or (end and text > last) or mod_revision <= after:
                continue
            kv = self._bolt.read(at, size)
            page.append(self._values.entry(kv, name, max(1, self._leases.get(kv.lease, 1)) if kv.lease else 0))
            if len(page) >= PAGE:
                yield page
                page = []
        if page:
            yield page

    def keys(self, revision: int) -> Iterator[str]:
        """See ``Source``."""
        return filter(None, (name_of(self._keys, key) for key, *_ in self._found))

    def close(self) -> None:
        """See ``Source``."""
        self._bolt.close()
