"""Reads from etcd at one revision, of one object or below a prefix, as a temporary store: for reads that the replica cannot serve.

Values are decoded as by the replicator, kept in unlinked files, and read like the replica.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator

from kas.store._engine import Op
from kas.store.errors import KeyTooLong, Unavailable
from kas.store.etcd import etcd_pb2 as pb
from kas.store.etcd.client import RANGE, Client
from kas.store.etcd.layout import Keys, Undecodable, Values
from kas.store.etcd.pages import pages
from kas.store.etcd.sealing import Sealing
from kas.store.etcd.unreadable import error
from kas.store.lmdb.store import LMDBStore

MOST_BYTES = 64 << 20  # of values; larger reads have to wait for the replica


def unlinked(directory: str, max_size: int) -> LMDBStore:
    """Returns a new store whose files, on the disk of ``directory``, are private, and deleted when it is closed."""
    path = tempfile.mkdtemp(prefix="beside-", dir=directory)
    try:
        return LMDBStore(path, max_size=max_size, sync=False)
    finally:
        shutil.rmtree(path)


class AtRevision:
    """Creates such stores below ``directory``, one at a time."""

    def __init__(self, client: Client, keys: Keys, values: Values, sealing: Sealing, directory: str) -> None:
        self._client, self._keys, self._values, self._sealing, self._directory = client, keys, values, sealing, directory

    def read(self, prefix: str, one: bool, revision: int) -> LMDBStore:
        """Returns the objects below ``prefix``, or with ``one`` the object at that key, at ``revision`` (0: now). Blocks. The
        caller closes the store. Raises etcd's errors, ``Unavailable`` for more than ``MOST_BYTES``, and ``TransformError``
        for a single value that is no object."""
        store = unlinked(self._directory, 4 * MOST_BYTES)
        try:
            store.open_with(self._sealing.replica(self._values, writes=True))
            for page in self._defining(prefix, one):  # the definitions for the selectable fields and defaults of custom resources
                for kv in page.kvs:
                    self._take(kv, None)
            store.loaded(self._fill(store, prefix, one, revision))
        except BaseException:
            store.close()
            raise
        return store

    def _defining(self, prefix: str, one: bool) -> Iterator[pb.RangeResponse]:
        """Yields the values that must be decoded first."""
        if not one:
            for first in self._values.first:
                yield from pages(self._client, self._keys.to_etcd(first))
        elif before := self._values.before(prefix):
            yield self._client.call(RANGE, pb.RangeRequest(key=self._keys.to_etcd(before)))

    def _fill(self, store: LMDBStore, prefix: str, one: bool, revision: int) -> int:
        start, size = self._keys.to_etcd(prefix), 0
        if one:
            found = iter((self._client.call(RANGE, pb.RangeRequest(key=start, revision=revision)),))
        else:
            found = pages(self._client, start, revision=revision, within_s=10.0)
        for page in found:
            revision = revision or page.header.revision
            size += sum(len(kv.value) for kv in page.kvs)
            if size > MOST_BYTES:
                raise Unavailable("etcdserver: the replica is behind, and this is too much to be read without it")
            taken = [(kv, op) for kv in page.kvs if (op := self._take(kv, one)) is not None]
            if taken:
                store.load([op for _, op in taken], [(kv.mod_revision, kv.create_revision, kv.version) for kv, _ in taken])
        return revision

    def _take(self, kv: pb.KeyValue, one: bool | None) -> Op | None:
        try:
            key = self._keys.from_etcd(kv.key)
            return self._sealing.taken(key, kv.value, self._values)
        except (Undecodable, UnicodeDecodeError, KeyTooLong) as e:
            if one:
                raise error(key, str(e), kv.mod_revision) from None
            return None
