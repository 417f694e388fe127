"""An etcd snapshot file as a source (``places.py``), and the handling of values that it shares with clusters."""

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
OBJECTS = b"/"  # first byte of the keys of objects, under any prefix; servers keep other data elsewhere


class KeyLike(Protocol):
    """etcd's KeyValue, from either reader."""

    @property
    def key(self) -> bytes:
        """Including the prefix."""

    @property
    def value(self) -> bytes:
        """In its stored form."""

    @property
    def mod_revision(self) -> int:
        """Revision of the last write."""

    @property
    def create_revision(self) -> int:
        """Revision of the create."""

    @property
    def version(self) -> int:
        """1 after the create."""


def name_of(keys: Keys, key: bytes) -> str:
    """Returns the store's key; for a key that is no text, and so of no object here, a printable form; "" for a key that is of
    no object at all."""
    if key == keys.fence:
        return ""
    try:
        return keys.from_etcd(key)
    except UnicodeDecodeError:
        return keys.from_etcd(key.decode(errors="backslashreplace").encode())


def only_elsewhere(name: str, keys: Keys) -> Refused:
    """Returns the error for a place that has objects, but none below the prefix: doing nothing would look like success."""
    prefix = keys.prefix or "/"
    return Refused(f"{name} holds nothing below {prefix}, but keys elsewhere: say by --etcd-prefix where its servers keep their objects")


class Values:
    """Opens and seals values: kube-apiserver's encryption of etcd's values, bound to their keys."""

    def __init__(self, transformers: Transformers | None, stays: bool = True) -> None:
        """Without ``transformers`` values stay sealed, which is possible only if their keys stay the same (``stays``)."""
        self._transformers, self._stays = transformers, stays

    def entry(self, kv: KeyLike, key: str, lease_s: int) -> Entry:
        """Returns the opened entry of the store's key."""
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
        """Returns the plain value. Raises ``TransformError``."""
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
        """Returns the value to be written."""
        transformer = self._transformers(key) if self._transformers is not None else None
        return value if transformer is None or transformer.plain else transformer.seal(value, at)


class ImageSource:
    """A snapshot file; its content is of one revision."""

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
        """Raises ``Refused`` for a file that only has objects of other prefixes."""
        if not self._found and self._bolt.newest(OBJECTS)[2]:
            raise only_elsewhere(self.name, self._keys)

    def newest(self) -> int:
        """See ``Source``."""
        return self.revision

    def count(self) -> int:
        """See ``Source``."""
        return sum(1 for _ in self.keys(self.revision))

    def scan(self, revision: int, prefix: str = ROOT, *, start: str = "", end: str = "", after: int = 0) -> Iterator[list[Entry]]:
        """See ``Source``. Leases start anew, as in a restored etcd."""
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
