"""Snapshots: a file, streamed while servers write, that ends with the SHA-256 (32 bytes) of everything before it.

For etcd it is etcd's own file, as ``etcdctl snapshot save`` writes it and ``etcdctl`` and ``etcdutl`` read it. For LMDB it is
a compact copy of the data file at one revision (``mdb_env_copy``), so it is a store in the format of
``kas/store/_engine.pxd`` without the last 32 bytes. Both consist of whole pages, so their length shows whether there is a
checksum, and the first page identifies the database.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import lmdb

from kas.meta.files import private
from kas.storage.lmdbplace import LMDBSource, claim, move_on
from kas.storage.places import ROOT, Refused
from kas.store import open_store
from kas.store.etcd.bolt import READ, SHA, SHA_BLOCK, BadSnapshot, sha256
from kas.store.transform import Transformers
from kas.store.unfinished import RESTORING

LMDB_MAGIC = 0xBEEFC0DE  # at byte 16, after the header of the first page
LMDB, ETCD = "lmdb", "etcd"
MOST = 1 << 40

Progress = Callable[[int], None]  # bytes so far


@dataclass(frozen=True)
class Status:
    """The content of a snapshot. ``keys`` are objects below the prefix, ``revisions`` what etcd keeps of all keys."""

    form: str
    sha256: str
    revision: int
    keys: int
    size: int


def kind_of(path: Path) -> str:
    """Returns ``LMDB`` or ``ETCD``. Raises ``BadSnapshot`` for any other file, ``OSError``."""
    size = path.stat().st_size
    with open(path, "rb") as f:
        head = f.read(64)
    if len(head) < 64 or size > MOST:
        raise BadSnapshot(f"{path} is no snapshot: it has {size} bytes")
    if struct.unpack_from("<I", head, 16)[0] == LMDB_MAGIC:
        if size % SHA_BLOCK != SHA:
            raise BadSnapshot(f"{path} is no usable snapshot: its length is that of no snapshot: it was cut off, or something was added")
        return LMDB
    return ETCD


def save(pieces: Iterator[bytes], to: Path, progress: Progress, sealed: bool) -> str:
    """Writes a stream to a new file; returns its SHA-256 in hexadecimal. ``sealed``: the stream already ends with its digest,
    which is verified. Raises ``Refused`` for an existing file, ``BadSnapshot`` for a damaged stream."""
    if to.exists():
        raise Refused(f"{to} is there already: name a new file")
    partial = to.with_name(to.name + ".part")
    digest, held, written = hashlib.sha256(), b"", 0
    fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(fd, "wb") as f:
            for piece in pieces:
                f.write(piece)
                written += len(piece)
                progress(written)
                held += piece
                if sealed:
                    digest.update(held[:-SHA])
                    held = held[-SHA:]
                else:
                    digest.update(held)
                    held = b""
            if sealed and held != digest.digest():
                raise BadSnapshot(f"what the server sent was damaged or broke off after {written} bytes")
            if not sealed:
                f.write(digest.digest())
            f.flush()
            os.fsync(f.fileno())
        os.replace(partial, to)
    except BaseException as e:
        partial.unlink(missing_ok=True)
        if isinstance(e, OSError) and e.filename is None:  # errors of writing do not name the file
            e.filename = str(to)
        raise
    return digest.hexdigest()


def lmdb_pieces(store_dir: Path) -> Iterator[bytes]:
    """Yields the compact copy of a store that may be in use."""
    if not (store_dir / "data.mdb").is_file():
        raise Refused(f"{store_dir.parent} holds no store")
    r, w = os.pipe()
    failed: list[lmdb.Error] = []

    def copy() -> None:
        try:
            with lmdb.open(str(store_dir), max_dbs=16, readonly=True) as env:
                env.copyfd(w, compact=True)
        except lmdb.Error as e:
            failed.append(e)
        finally:
            os.close(w)

    thread = threading.Thread(target=copy, name="kas-snapshot", daemon=True)
    thread.start()
    with os.fdopen(r, "rb", buffering=0) as pipe:
        while piece := pipe.read(READ):
            yield piece
    thread.join()
    if failed:
        raise Refused(f"{store_dir}: {failed[0]}")


def check_sum(path: Path) -> str:
    """Verifies and returns the checksum of an LMDB snapshot. Raises ``BadSnapshot``."""
    size = path.stat().st_size - SHA
    digest = sha256(path, size)
    with open(path, "rb") as f:
        f.seek(size)
        if f.read() != digest:
            raise BadSnapshot(f"{path} is no usable snapshot: its checksum does not fit: it was damaged or cut off")
    return digest.hex()


def unpack(path: Path, store_dir: Path) -> None:
    """Writes the data file of a checked LMDB snapshot to a new directory."""
    store_dir.mkdir(mode=0o700, parents=True)
    left = path.stat().st_size - SHA
    with open(path, "rb") as f, open(store_dir / "data.mdb", "wb", opener=private) as out:
        while left:
            block = f.read(min(READ, left))
            if not block:
                raise BadSnapshot(f"{path} was cut off while it was read")
            out.write(block)
            left -= len(block)
        out.flush()
        os.fsync(out.fileno())
    try:
        with lmdb.open(str(store_dir), max_dbs=16, readonly=True, lock=False) as env, env.begin() as txn:
            known = txn.get(b"kas.format") is not None
    except lmdb.Error as e:
        raise BadSnapshot(f"{path} is no usable snapshot: {e}") from None
    if not known:
        raise BadSnapshot(f"{path} is no snapshot: it is LMDB's, but holds no store of kas")


@contextmanager
def unpacked(path: Path, directory: Path, transformers: Transformers | None = None) -> Iterator[LMDBSource]:
    """Returns an LMDB snapshot as a source, from a temporary copy."""
    digest = check_sum(path)
    at = directory / f".{path.name}.{os.getpid()}"
    try:
        unpack(path, at)
        source = LMDBSource(at, str(path), max(MOST >> 4, 2 * path.stat().st_size), transformers)
        source.identity = f"snapshot:{digest}"
        try:
            yield source
        finally:
            source.close()
    finally:
        shutil.rmtree(at, ignore_errors=True)


def restore_lmdb(path: Path, data_dir: Path, bump: int, max_size: int) -> int:
    """Creates the store of a data directory without one; returns its revision, which is ``bump`` above the snapshot's. Raises
    ``BadSnapshot``, ``Refused``."""
    final, at = data_dir / "store", data_dir / RESTORING
    if not final.exists():
        check_sum(path)
    with claim(data_dir):
        if final.exists():
            raise Refused(f"{data_dir} holds a store already: name a directory without one")
        shutil.rmtree(at, ignore_errors=True)
        try:
            unpack(path, at)
            revision = bumped(at, bump, max_size)
            os.replace(at, final)
        finally:
            shutil.rmtree(at, ignore_errors=True)
    return revision


def bumped(store_dir: Path, bump: int, max_size: int) -> int:
    """Advances a store's revision; returns it."""
    store = open_store(str(store_dir), max_size=max_size)
    try:
        if bump:
            move_on(store, store.revision + bump)
        return store.revision
    finally:
        store.close()


def lmdb_status(path: Path, directory: Path) -> Status:
    """Returns the status of an LMDB snapshot. Raises ``BadSnapshot``."""
    with unpacked(path, directory) as source:
        revision, keys = source.newest(), source.store.count(ROOT)
    size = path.stat().st_size
    with open(path, "rb") as f:
        f.seek(size - SHA)
        return Status(LMDB, f.read().hex(), revision, keys, size)
