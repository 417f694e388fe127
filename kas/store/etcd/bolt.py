"""Reads etcd's own snapshot files: a bbolt database, followed, as ``etcdctl snapshot save`` writes it, by the SHA-256 of
everything before.

The file consists of pages: two meta pages (the valid one with the higher transaction counts), trees of branch and leaf pages,
and a list of free pages, which a reader does not need. Each bucket is a tree; a small one is a page inside the value that
names it. etcd's bucket ``key`` holds every revision that was not compacted: 8 bytes of main revision, ``_``, 8 bytes of sub
revision, and ``t`` for a delete; its values are ``mvccpb.KeyValue``. Formats: go.etcd.io/bbolt (page.go, bucket.go, db.go),
etcd server/storage/mvcc.

The file is not trusted: any inconsistency raises ``BadSnapshot``, and no page is visited twice.
"""

from __future__ import annotations

import hashlib
import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kas.meta.protowire import BYTES, VARINT, fields, read_varint

MAGIC, VERSION = 0xED0CDAED, 2
BRANCH, LEAF, META = 0x01, 0x02, 0x04
SUB_BUCKET = 0x01
PAGE, ELEMENT, HEADER = struct.Struct("<QHHI"), struct.Struct("<IIII"), struct.Struct("<QQ")
# magic, version, page size, flags; root page, its sequence, free list, pages in use, transaction, checksum
META_PAGE = struct.Struct("<IIIIQQQQQQ")
SHA, SHA_BLOCK = 32, 512
MOST_DEPTH = 32
MOST_KEY, MOST_VALUE = 32 << 10, 1 << 30  # bbolt's MaxKeySize; etcd's requests are far smaller
READ = 1 << 20


class BadSnapshot(ValueError):
    """The file is not valid; the message says why, in one line."""


@dataclass(frozen=True, slots=True)
class KeyValue:
    """The newest state of a key. ``lease`` is 0 without one."""

    key: bytes
    value: bytes
    create_revision: int
    mod_revision: int
    version: int
    lease: int


def key_value(message: bytes) -> KeyValue:
    """Parses the message ``mvccpb.KeyValue``. Raises ``ValueError``."""
    texts, numbers = {1: b"", 5: b""}, {2: 0, 3: 0, 4: 0, 6: 0}
    for number, kind, value in fields(message):
        if kind == BYTES and number in texts and isinstance(value, bytes):
            texts[number] = value
        elif kind == VARINT and number in numbers and isinstance(value, int):
            numbers[number] = value
    return KeyValue(texts[1], texts[5], numbers[2], numbers[3], numbers[4], numbers[6])


def fnv1a(data: bytes) -> int:
    """Returns the checksum of meta pages (FNV-1a of 64 bits)."""
    h = 0xCBF29CE484222325
    for byte in data:
        h = (h ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return h


def sha256(path: Path, size: int) -> bytes:
    """Returns the digest of the first ``size`` bytes of a file."""
    digest, left = hashlib.sha256(), size
    with open(path, "rb") as f:
        while left:
            block = f.read(min(READ, left))
            if not block:
                break
            digest.update(block)
            left -= len(block)
    return digest.digest()


class Bolt:
    """A mapped snapshot file. A context manager."""

    def __init__(self, path: Path) -> None:
        """Raises ``OSError``, and ``BadSnapshot`` for a file that is no bbolt database."""
        self.path = path
        with open(path, "rb") as f:
            size = f.seek(0, 2)
            if size < 2 * SHA_BLOCK:
                raise BadSnapshot(f"{path} is too short to be a snapshot")
            self._map = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
        # A database is a whole number of pages, whose size is a multiple of 512; the rest is the checksum.
        self.trailer = self._map[-SHA:] if size % SHA_BLOCK == SHA else b""
        self.size = size - len(self.trailer)
        try:
            self._root, self._page_size, self._high = self._meta()
        except BadSnapshot:
            self.close()
            raise

    def __enter__(self) -> Bolt:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the file. Idempotent."""
        self._map.close()

    def check(self) -> str:
        """Verifies the checksum, and returns it in hexadecimal; "" if the file has none (a member's own ``member/snap/db``)."""
        if self.size % SHA_BLOCK:
            raise self._bad("its length is that of no snapshot: it was cut off, or something was added")
        if self.trailer and sha256(self.path, self.size) != self.trailer:
            raise self._bad("its checksum does not fit: it was damaged or cut off")
        return self.trailer.hex()

    def _bad(self, why: str) -> BadSnapshot:
        return BadSnapshot(f"{self.path} is no usable snapshot: {why}")

    # -- pages

    def _meta(self) -> tuple[int, int, int]:
        """Returns (root page of the buckets, page size, pages in use) of the newest valid meta page."""
        found: list[tuple[int, int, int, int]] = []
        sizes = [first[1]] if (first := self._meta_at(0)) else [1 << n for n in range(9, 17)]
        for at in (0, *sizes):
            meta = self._meta_at(at)
            if meta is not None and meta not in found:
                found.append(meta)
        if not found:
            raise self._bad("it does not begin as a database of etcd does")
        _, page_size, root, high = max(found)
        if high > -(-self.size // page_size):
            raise self._bad(f"it was cut off: {high} pages of {page_size} bytes are in use, and it has {self.size} bytes")
        return root, page_size, high

    def _meta_at(self, at: int) -> tuple[int, int, int, int] | None:
        """Returns (transaction, page size, root, pages in use) of a meta page; None if it is not valid."""
        end = at + PAGE.size + META_PAGE.size
        if end > self.size:
            return None
        flags = PAGE.unpack_from(self._map, at)[1]
        raw = self._map[at + PAGE.size : end]
        magic, version, page_size, _, root, _, _, high, transaction, checksum = META_PAGE.unpack(raw)
        whole = flags & META and (magic, version) == (MAGIC, VERSION) and fnv1a(raw[:-8]) == checksum
        if not whole or page_size % SHA_BLOCK or not SHA_BLOCK <= page_size <= 1 << 20:
            return None
        return transaction, page_size, root, high

    def _page(self, number: int, seen: set[int]) -> tuple[int, int]:
        """Returns (start, end) of a page. Each page may be visited once."""
        if not 2 <= number < self._high or number in seen:
            raise self._bad(f"its pages are damaged (page {number})")
        seen.add(number)
        at = number * self._page_size
        own, _, _, overflow = PAGE.unpack_from(self._map, at)
        end = at + (overflow + 1) * self._page_size
        if own != number or number + overflow >= self._high or end > self.size:
            raise self._bad(f"its pages are damaged (page {number})")
        return at, end

    def _tree(self, root: int, seen: set[int], depth: int = 0) -> Iterator[tuple[int, bytes, int, int]]:
        """Yields (flags, key, offset of its value in the file, length) of each element, in order."""
        if depth > MOST_DEPTH:
            raise self._bad("its pages are damaged (too deep)")
        at, end = self._page(root, seen)
        _, flags, count, _ = PAGE.unpack_from(self._map, at)
        if flags & LEAF:
            yield from self._leaf(at, end)
        elif flags & BRANCH and at + PAGE.size + count * ELEMENT.size <= end:
            for i in range(count):
                child = struct.unpack_from("<Q", self._map, at + PAGE.size + i * ELEMENT.size + 8)[0]
                yield from self._tree(child, seen, depth + 1)
        else:
            raise self._bad(f"its pages are damaged (page {root})")

    def _leaf(self, at: int, end: int) -> Iterator[tuple[int, bytes, int, int]]:
        """Yields the elements of a leaf page between two offsets of the file."""
        count = PAGE.unpack_from(self._map, at)[2] if at + PAGE.size <= end else 1 << 16
        if at + PAGE.size + count * ELEMENT.size > end:
            raise self._bad("its pages are damaged (a leaf)")
        for i in range(count):
            here = at + PAGE.size + i * ELEMENT.size
            flags, offset, key_size, value_size = ELEMENT.unpack_from(self._map, here)
            begins = here + offset
            if key_size > MOST_KEY or value_size > MOST_VALUE or begins + key_size + value_size > end:
                raise self._bad("its pages are damaged (an element)")
            yield flags, self._map[begins : begins + key_size], begins + key_size, value_size

    def bucket(self, name: bytes) -> Iterator[tuple[bytes, int, int]]:
        """Yields (key, offset of its value in the file, length) of a bucket's content, in order. Raises ``BadSnapshot``, also
        if there is no such bucket."""
        found = [(at, size) for flags, key, at, size in self._tree(self._root, set()) if key == name and flags & SUB_BUCKET]
        if not found or found[0][1] < HEADER.size:
            raise self._bad(f"it has no bucket {name.decode()!r}: it is not a database of etcd")
        at, size = found[0]
        root, _ = HEADER.unpack_from(self._map, at)
        elements = self._tree(root, set()) if root else self._leaf(at + HEADER.size, at + size)  # a small bucket is a page in the value
        for flags, key, begins, length in elements:
            if not flags & SUB_BUCKET:
                yield key, begins, length

    # -- etcd's content

    def newest(self, prefix: bytes) -> tuple[int, int, list[tuple[bytes, int, int, int]]]:
        """Returns the newest revision, the number of revisions kept, and for every existing key under ``prefix`` (key, its
        mod revision, offset of its message, length), in the order of keys. Memory grows by some 300 bytes per key; values
        stay in the file."""
        newest = count = 0
        found: dict[bytes, tuple[int, int, int] | None] = {}
        for key, at, size in self.bucket(b"key"):
            if len(key) not in (17, 18) or key[8:9] != b"_" or (len(key) == 18 and key[17:] != b"t"):
                raise self._bad("its bucket 'key' holds what is no revision")
            revision = int.from_bytes(key[:8], "big")
            newest, count = max(newest, revision), count + 1
            if not size:  # without a key: written by etcdutl snapshot restore --bump-revision
                continue
            name = self._name(at, size)
            if name.startswith(prefix):
                found[name] = None if len(key) == 18 else (revision, at, size)
        return newest, count, [(key, *there) for key, there in sorted(found.items()) if there is not None]

    def _name(self, at: int, size: int) -> bytes:
        """Returns the key, which comes first in a ``KeyValue``, without reading the value after it."""
        try:
            length, begins = read_varint(self._map[at + 1 : at + 11], 0)
        except ValueError:
            length, begins = size, 0
        begins += at + 1
        if self._map[at] != 0x0A or begins + length > at + size:
            raise self._bad("its bucket 'key' holds what is no KeyValue")
        return self._map[begins : begins + length]

    def read(self, at: int, size: int) -> KeyValue:
        """Returns the ``KeyValue`` at a position from ``newest``."""
        try:
            return key_value(self._map[at : at + size])
        except ValueError:
            raise self._bad("its bucket 'key' holds what is no KeyValue") from None

    def leases(self) -> dict[int, int]:
        """Returns lease → its granted TTL in seconds."""
        out = {}
        for _, at, size in self.bucket(b"lease"):
            try:
                numbers = {number: n for number, kind, n in fields(self._map[at : at + size]) if kind == VARINT and isinstance(n, int)}
            except ValueError:
                raise self._bad("its bucket 'lease' holds what is no lease") from None
            remaining, granted = numbers.get(3, 0), numbers.get(2, 0)
            out[numbers.get(1, 0)] = remaining if 0 < remaining < 1 << 62 else granted
        return out
