"""An etcd cluster as a place (``places.py``). Needs the extra ``kas[etcd]``."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from kas.storage.imageplace import OBJECTS, Values, name_of, only_elsewhere
from kas.storage.places import PAGE, ROOT, Entry, Forms, Note, Refused, Source, chunks
from kas.store.errors import Unavailable
from kas.store.etcd import etcd_pb2 as pb
from kas.store.etcd.client import GRANT, RANGE, TIME_TO_LIVE, TXN, Client, Config, Denied, prefix_end
from kas.store.etcd.layout import Keys, Undecodable
from kas.store.etcd.pages import pages
from kas.store.transform import Transformers

MOST_OPS, MOST_BYTES = 100, 1 << 20  # etcd's default limits are 128 operations and 1.5 MiB
LEASE_KEYS, LEASE_S = 1000, 5.0
CALL_S = 60.0
REACH_S = 10.0  # for the first answer, so that a wrong address is reported soon


def holds_only_others(client: Client, keys: Keys) -> bool:
    """Returns whether a cluster has objects, but none below the prefix. Raises ``StoreError``; ``Denied`` if etcd does not
    permit the read."""
    some = (pb.RangeRequest(key=root, range_end=prefix_end(root), limit=1, keys_only=True) for root in (keys.root, OBJECTS))
    ours, any_ = (bool(client.call(RANGE, request, CALL_S).kvs) for request in some)
    return any_ and not ours


class EtcdPlace:
    """A cluster: a source that may be in use, or a target that is empty or was filled by the same copy."""

    def __init__(
        self, config: Config, keys: Keys, transformers: Transformers | None = None, reach_s: float = REACH_S, stays: bool = True
    ) -> None:
        """``stays``: see ``Values``. Raises ``Refused`` if no server answers within ``reach_s``; ``StoreError``."""
        self.name = "etcd:" + ",".join(config.servers)
        self._client, self._keys, self._values = Client(config), keys, Values(transformers, stays)
        self._note_key = keys.copied
        self._noted = 0  # mod revision of the note
        self._granted: dict[int, tuple[int, int, float]] = {}
        self._ends: dict[int, float] = {}
        self._forms: Forms
        first = pb.RangeRequest(key=keys.root, range_end=prefix_end(keys.root), limit=1, keys_only=True)
        try:
            header = self._client.call(RANGE, first, reach_s).header
        except Unavailable as e:
            raise Refused(f"{self.name} does not answer: {e}") from None
        self._cluster = header.cluster_id
        self.identity = f"etcd:{header.cluster_id:x}{self._keys.prefix}"

    def close(self) -> None:
        """See ``Source``."""
        self._client.close()

    def _range(self, **more: Any) -> pb.RangeResponse:
        return self._client.range(self._keys.root, **more)

    def look(self) -> None:
        """Raises ``Refused`` for a cluster that only has objects of other prefixes."""
        with contextlib.suppress(Denied):  # if etcd does not permit the read
            if holds_only_others(self._client, self._keys):
                raise only_elsewhere(self.name, self._keys)

    def snapshot(self) -> Iterator[bytes]:
        """Returns the database file of one server, with its checksum at the end, as a stream."""
        return (piece.blob for piece in self._client.snapshot())

    # -- source

    def newest(self) -> int:
        """See ``Source``."""
        return int(self._range(limit=1, keys_only=True).header.revision)

    def count(self) -> int:
        """See ``Source``."""
        return int(self._range(count_only=True).count)

    def scan(self, revision: int, prefix: str = ROOT, *, start: str = "", end: str = "", after: int = 0) -> Iterator[list[Entry]]:
        """See ``Source``."""
        last = end.encode()
        for kvs in self._pages(revision, prefix, start=start, min_mod_revision=after + 1 if after else 0):
            found = [self._entry(kv, name) for kv in kvs if (name := name_of(self._keys, kv.key)) and (not end or name.encode() <= last)]
            if found:
                yield found
            if end and kvs[-1].key > self._keys.to_etcd(end):
                return

    def _pages(self, revision: int, prefix: str = ROOT, start: str = "", **more: Any) -> Iterator[list[pb.KeyValue]]:
        after = self._keys.to_etcd(start) + b"\0" if start else b""
        most = 10 * PAGE if more.get("keys_only") else PAGE
        for page in pages(self._client, self._keys.to_etcd(prefix), start=after, revision=revision, most=most, within_s=CALL_S, **more):
            if page.kvs:
                yield list(page.kvs)

    def _entry(self, kv: pb.KeyValue, name: str) -> Entry:
        return self._values.entry(kv, name, self._seconds(kv.lease) if kv.lease else 0)

    def _seconds(self, lease: int) -> int:
        """Returns the remaining time of a lease; each lease is requested once."""
        if lease not in self._ends:
            self._ends[lease] = time.monotonic() + self._client.call(TIME_TO_LIVE, pb.LeaseTimeToLiveRequest(ID=lease)).TTL
        return max(1, int(self._ends[lease] - time.monotonic()))

    def keys(self, revision: int) -> Iterator[str]:
        """See ``Source``."""
        for kvs in self._pages(revision, keys_only=True):
            yield from filter(None, (name_of(self._keys, kv.key) for kv in kvs))

    # -- target

    def overlaps(self, source: Source) -> bool:
        """See ``Target``: another place of this cluster, if one prefix is within the other."""
        if not isinstance(source, EtcdPlace) or source._cluster != self._cluster or source._keys.root == self._keys.root:
            return False  # ``begin`` refuses a target with the same keys
        one, two = self._keys.root, source._keys.root
        return one.startswith(two) or two.startswith(one)

    def stored(self) -> Iterator[str]:
        """See ``Target``."""
        return self.keys(0)

    def begin(self, forms: Forms) -> Note | None:
        """See ``Target``."""
        self._forms = forms
        kvs = self._client.call(RANGE, pb.RangeRequest(key=self._note_key)).kvs
        if not kvs:
            if self._range(count_only=True).count:
                below = self._keys.prefix or "/"
                raise Refused(f"{self.name} has keys below {below} already: name an empty cluster, or another --prefix or --to-prefix")
            return None
        self._noted = kvs[0].mod_revision
        if self._range(limit=1, keys_only=True, min_mod_revision=self._noted + 1).kvs:
            raise Refused(f"{self.name} was written to since it was copied: nothing is copied over that")
        return Note.from_json(kvs[0].value)

    def put(self, entries: list[Entry], note: Note) -> list[tuple[str, str]]:
        """See ``Target``."""
        ops: list[pb.RequestOp] = []
        refused: list[tuple[str, str]] = []
        size, before = 0, ""
        for e in entries:
            at = self._keys.to_etcd(e.key)
            try:
                value = self._values.seal(e.key, at, self._forms.value(e))
            except Undecodable as why:
                refused.append((e.key, str(why)))
                continue
            if ops and (len(ops) >= MOST_OPS or size + len(value) > MOST_BYTES):
                self._write(ops, note if note.caught_up else note.moved(before))
                ops, size = [], 0
            ops.append(pb.RequestOp(request_put=pb.PutRequest(key=at, value=value, lease=self._lease(e.lease_s) if e.lease_s else 0)))
            size += len(value) + len(at)
            before = e.key
        self._write(ops, note)
        return refused

    def _write(self, ops: list[pb.RequestOp], note: Note) -> None:
        """Commits a transaction with the note, unless another process has changed the note."""
        compare = pb.Compare(target=pb.Compare.MOD, key=self._note_key, mod_revision=self._noted)
        noted = pb.RequestOp(request_put=pb.PutRequest(key=self._note_key, value=note.to_json()))
        answer = self._client.call(TXN, pb.TxnRequest(compare=[compare], success=[*ops, noted]), CALL_S)
        if not answer.succeeded:
            raise Refused(f"another copy writes to {self.name}")
        self._noted = answer.header.revision

    def _lease(self, seconds: int) -> int:
        """Returns a lease that ends in ``seconds``, or up to a twentieth later; shared."""
        seconds = math.ceil(seconds / (step := max(1, seconds // 20))) * step
        lease, keys, until = self._granted.get(seconds, (0, LEASE_KEYS, 0.0))
        if keys >= LEASE_KEYS or time.monotonic() > until:
            lease, keys, until = self._client.call(GRANT, pb.LeaseGrantRequest(TTL=seconds)).ID, 0, time.monotonic() + LEASE_S
        self._granted[seconds] = (lease, keys + 1, until)
        return lease

    def remove(self, keys: list[str], note: Note) -> None:
        """See ``Target``."""
        for chunk in chunks(keys, MOST_OPS):
            self._write([pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=self._keys.to_etcd(key))) for key in chunk], note)

    def complete(self, note: Note) -> None:
        """See ``Target``."""
        self._write([], replace(note, complete=True))

    def read(self) -> Iterator[tuple[Entry, bytes]]:
        """See ``Target``."""
        for page in self.scan(0):
            for found in page:
                yield found, self._forms.value(found)

    def form(self, entry: Entry) -> bytes:
        """See ``Target``."""
        return self._forms.value(entry)

    def finish(self) -> str:
        """See ``Target``."""
        return f"objects have etcd's own resourceVersions now (it is at revision {self._noted}): every client has to list anew"
