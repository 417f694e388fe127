"""Brings what happens in etcd into the machine's replica: a list at one revision, then one watch from there on.

Every revision of etcd becomes the same revision of the replica, with all its keys, so that watches, lists and old revisions read there
what they would read in etcd. Nothing of the replica's is ever ahead of what was received in order. One per replica; it lives in a process
of its own or in a thread, and goes on through failures of servers by itself. What it cannot mend is ``Lost``: the replica has to be made
anew, with whoever reads it.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc

from kas.store._engine import Op
from kas.store.errors import Compacted, FutureRevision, StoreError
from kas.store.etcd import etcd_pb2 as pb
from kas.store.etcd.client import RANGE, Client, prefix_end
from kas.store.etcd.layout import Keys, Undecodable, Values
from kas.store.etcd.replica import Note, discard, read_note, write_note
from kas.store.lmdb import LMDBStore

PAGE = 1000
RETRY_S, RETRY_MAX_S = 0.1, 3.0
TOLD = 20  # unreadable values that are named in the log

log = logging.getLogger("kas.store.etcd")

# Versions from which on an answer to a progress request never overtakes events (upstream's feature support checker).
ORDERED_PROGRESS = {(3, 4): 31, (3, 5): 13}


class Lost(StoreError):
    """The replica cannot follow the cluster any more: history it has not seen is forgotten, or the cluster is another one or has gone
    back to an older state."""


def ordered_progress(version: str) -> bool:
    """Whether a server of this version answers progress requests in the order of events."""
    try:
        major, minor, patch = (int(x) for x in version.split("-")[0].split("+")[0].split(".")[:3])
    except ValueError:
        return False
    least = ORDERED_PROGRESS.get((major, minor))
    return patch >= least if least is not None else (major, minor) > (3, 5)


class Replicator:
    """Follows the cluster into one replica."""

    def __init__(
        self, client: Client, values: Callable[[LMDBStore], Values], keys: Keys, path: Path, open_replica: Callable[[], LMDBStore]
    ) -> None:
        """``open_replica`` opens (or makes) the environment in ``path``; it is called by ``begin``. ``values(replica)`` are those of its
        objects."""
        self._client, self._values_of, self._keys, self._path, self._open = client, values, keys, path, open_replica
        self._values: Values
        self._requests: queue.SimpleQueue[pb.WatchRequest | None] = queue.SimpleQueue()
        self._stream: Any = None
        self._stopping = threading.Event()
        self._note: Note | None = None
        self.replica: LMDBStore
        self.synced_at = 0.0
        self.unreadable = 0

    # -- before anybody reads

    def begin(self) -> LMDBStore:
        """Opens the replica, complete up to some revision: the one that is there when it still fits, else a new one. Raises
        ``StoreError`` when the cluster cannot be asked."""
        first = self._client.call(RANGE, pb.RangeRequest(key=self._keys.root, limit=1, keys_only=True), within_s=30.0)
        now = Note(first.header.cluster_id, self._keys.prefix, first.header.raft_term)
        before = read_note(self._path)
        if before is None or not now.fits(before):
            why = "it is not finished" if before is None else "it belongs to another cluster, or to a later state of this one"
            discard(self._path, why)
        self.replica = self._open()
        self.replica.start()
        have = self.replica.revision
        if before is not None and have and (have > first.header.revision or self._compacted(have)):
            self.replica.close()
            discard(self._path, "the cluster has forgotten, or never had, what follows it")
            self.replica = self._open()
            self.replica.start()
            have = 0
        self._values = self._values_of(self.replica)
        if not have:
            self._load()
        self._take_note(now)
        self.synced_at = time.monotonic()
        return self.replica

    def resume(self) -> LMDBStore:
        """Opens the replica that others read already; whether it can be continued is ``run``'s to find out. Raises ``Lost`` when it was not
        even finished."""
        self._note = read_note(self._path)
        if self._note is None:
            raise Lost("the replica was not finished")
        self.replica = self._open()
        self.replica.start()
        self._values = self._values_of(self.replica)
        return self.replica

    def _compacted(self, revision: int) -> bool:
        """Whether etcd has forgotten what happened after ``revision``."""
        try:
            self._client.call(RANGE, pb.RangeRequest(key=self._keys.root, limit=1, keys_only=True, revision=revision + 1))
        except Compacted:
            return True
        except FutureRevision:
            pass
        return False

    def _decode_first(self) -> None:
        for prefix in self._values.first:
            for kv in self._client.range(self._keys.to_etcd(prefix)).kvs:
                self._put(kv)

    def _load(self) -> None:
        """Fills an empty replica with everything, at one revision."""
        began, revision, n = time.monotonic(), 0, 0
        start, end = self._keys.root, prefix_end(self._keys.root)
        self._decode_first()
        while True:
            page = self._client.call(RANGE, pb.RangeRequest(key=start, range_end=end, limit=PAGE, revision=revision), within_s=60.0)
            revision = revision or page.header.revision
            ops, states = [], []
            for kv in page.kvs:
                op = self._put(kv)
                if op is not None and op.draft is not None:
                    ops.append(op)
                    states.append((kv.mod_revision, kv.create_revision, kv.version))
            if ops:
                self.replica.load(ops, states)
            n += len(ops)
            if not page.more or not page.kvs:
                break
            start = page.kvs[-1].key + b"\0"
        self.replica.loaded(revision)
        log.info("the replica has %d objects at revision %d after %.1f s", n, revision, time.monotonic() - began)

    # -- following

    def run(self) -> None:
        """Follows until ``stop()``. Raises ``Lost``."""
        pause = RETRY_S
        while not self._stopping.is_set():
            try:
                self._check()
                self._decode_first()
                if self._follow():
                    pause = RETRY_S
            except grpc.RpcError as e:
                if not self._stopping.is_set():
                    log.warning("the watch on etcd ended: %s", e.details())
            except Lost:
                raise
            except StoreError as e:
                log.warning("following etcd: %s", e)
            self._client.next_server()
            if self._stopping.wait(pause):
                return
            pause = min(2 * pause, RETRY_MAX_S)

    def stop(self) -> None:
        """Ends ``run``. From any thread."""
        self._stopping.set()
        self._requests.put(None)
        if self._stream is not None:
            self._stream.cancel()

    def request_progress(self) -> None:
        """Asks etcd up to which revision everything was sent. From any thread."""
        self._requests.put(pb.WatchRequest(progress_request=pb.WatchProgressRequest()))

    def _check(self) -> None:
        """Whether the cluster is still the one, and has not gone back."""
        answer = self._client.call(RANGE, pb.RangeRequest(key=self._keys.root, limit=1, keys_only=True))
        now = Note(answer.header.cluster_id, self._keys.prefix, answer.header.raft_term)
        if self._note is not None and not now.fits(self._note):
            raise Lost("the cluster is another one, or was restored from a backup")
        if answer.header.revision < self.replica.revision:
            raise Lost(f"the cluster went back from revision {self.replica.revision} to {answer.header.revision}")
        self._take_note(now)

    def _take_note(self, note: Note) -> None:
        if note != self._note:
            self._note = note
            write_note(self._path, note)

    def _create(self, revision: int) -> pb.WatchRequest:
        root = self._keys.root
        return pb.WatchRequest(
            create_request=pb.WatchCreateRequest(
                key=root, range_end=prefix_end(root), start_revision=revision, progress_notify=True, fragment=True
            )
        )

    def _follow(self) -> bool:
        """One watch, until it breaks; whether it ever said something."""
        requests: queue.SimpleQueue[pb.WatchRequest | None]
        requests = self._requests = queue.SimpleQueue()
        requests.put(self._create(self.replica.revision + 1))

        def feed() -> Iterator[pb.WatchRequest]:
            while (request := requests.get()) is not None:
                yield request

        stream, self._stream = self._client.watch(feed())
        if self._stopping.is_set():
            self._stream.cancel()
        gathered: list[pb.Event] = []
        heard = False
        try:
            for answer in stream:
                if answer.canceled:
                    if answer.compact_revision:
                        raise Lost(f"etcd has forgotten what happened before revision {answer.compact_revision}")
                    log.warning("etcd cancelled the watch: %s", answer.cancel_reason)
                    return heard
                heard = True
                self.synced_at = time.monotonic()
                if answer.events:
                    gathered += answer.events
                    if not answer.fragment:
                        self._apply(gathered)
                        gathered = []
                elif not answer.created and not gathered and answer.header.revision > self.replica.revision:
                    self.replica.apply(answer.header.revision, [])
        finally:
            requests.put(None)
            self._stream.cancel()
        return heard

    def _apply(self, events: list[pb.Event]) -> None:
        """Whole revisions, in order."""
        revisions: list[tuple[int, list[Op]]] = []
        newest = self.replica.revision
        for event in events:
            revision = event.kv.mod_revision
            if revision <= newest:
                continue
            if not revisions or revisions[-1][0] != revision:
                revisions.append((revision, []))
            op = self._put(event.kv) if event.type == pb.Event.PUT else self._gone(event.kv)
            if op is not None:
                revisions[-1][1].append(op)
        self.replica.apply_many(revisions)

    def _put(self, kv: pb.KeyValue) -> Op | None:
        """The put of a key; of one whose value cannot be read the delete, so that nothing older is taken for it."""
        if kv.key == self._keys.fence:
            return None
        try:
            key = self._keys.from_etcd(kv.key)
            return Op(key, self._values.decode(key, kv.value))
        except (Undecodable, UnicodeDecodeError) as e:
            self.unreadable += 1
            if self.unreadable <= TOLD:
                more = "; further ones are only counted" if self.unreadable == TOLD else ""
                log.warning("%s cannot be read, and is left out: %s%s", kv.key.decode(errors="replace"), e, more)
            return self._gone(kv)

    def _gone(self, kv: pb.KeyValue) -> Op | None:
        """The delete of a key, which may not be here."""
        try:
            return Op(self._keys.from_etcd(kv.key), None)
        except UnicodeDecodeError:
            return None
