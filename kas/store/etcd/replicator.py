"""Copies the changes of etcd into the machine's replica: a list at one revision, then a watch from there on.

Every revision of etcd becomes the same revision of the replica, with all its keys, so that watches, lists and reads of old
revisions there see what they would see in etcd. The replica is never ahead of the events received in order. There is one
replicator per replica; it runs in a process of its own or in a thread, and recovers from failures of servers by itself. A
failure that it cannot recover from is ``Lost``: the replica must be built anew, and its readers restarted.
"""

from __future__ import annotations

import contextlib
import logging
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from kas.meta import duration
from kas.store import PAGE_BYTES, open_store
from kas.store._engine import Draft, Event, Op
from kas.store.errors import Compacted, Full, FutureRevision, KeyTooLong, StoreError, Unavailable
from kas.store.etcd import etcd_pb2 as pb
from kas.store.etcd import originals
from kas.store.etcd.atrevision import unlinked
from kas.store.etcd.client import RANGE, STATUS, Client, Denied, prefix_end
from kas.store.etcd.layout import HALF, Keys, Undecodable, Values
from kas.store.etcd.pages import pages
from kas.store.etcd.replica import Note, boot_id, discard, disown, read_note, write_note
from kas.store.etcd.replicaretry import ReplicaRetry
from kas.store.etcd.rpc import Change, Undecoded, Watched, watched
from kas.store.etcd.rpc.blocking import Following
from kas.store.etcd.rpc.status import RpcError
from kas.store.etcd.sealing import SealedOp, Sealing
from kas.store.etcd.unreadable import ROOT, UnreadableOp, note, note_key
from kas.store.lmdb import LMDBStore
from kas.store.shared import NO_FILES
from kas.store.transform import Transformers

NOTES = 1000  # read at once
RETRY_S, RETRY_MAX_S = 0.1, 3.0
SOON_S = 2.0  # how long a starting server waits for etcd before it logs a warning
LOADS = 5  # how often a replica is filled anew because etcd compacted the revision it was filled from
SILENT_S = 3.0  # a server that does not answer a progress request for this long is left for the next one
# The newest puts of this many keys, looked for this far back, must also be in etcd's history. A single one may be common to
# two histories: a lease is renewed again and again, possibly at the same revision.
WITNESSES, REACHES = 8, (16, 256, 10_000)
TOLD = 20  # unreadable values named in the log

log = logging.getLogger("kas.store.etcd")

KeyValue: TypeAlias = pb.KeyValue | Change

PROGRESS = pb.WatchRequest(progress_request=pb.WatchProgressRequest()).SerializeToString()

# The least versions whose progress responses never overtake events (upstream's feature support checker).
ORDERED_PROGRESS = {(3, 4): 31, (3, 5): 13}
VERSION = re.compile(r"v?(\d+)\.(\d+)\.(\d+)(?P<before>-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?", re.ASCII)


class Lost(StoreError):
    """The replica cannot follow the cluster any more: history that it has not seen was compacted, or the cluster is another
    one or has gone back to an older state."""


def ordered_progress(version: str) -> bool:
    """Returns whether a server of this version sends progress responses in the order of events; False for an invalid version."""
    found = VERSION.fullmatch(version)
    if found is None:
        return False
    major, minor, patch = map(int, found.group(1, 2, 3))
    least = ORDERED_PROGRESS.get((major, minor))
    if least is None:
        return (major, minor) > (3, 5)
    return patch > least or (patch == least and not found["before"])


def tells_progress_in_order(client: Client, within_s: float = 10.0) -> bool:
    """Returns whether the server that gets the next request sends progress responses in the order of events. Raises
    ``StoreError``."""
    try:
        return ordered_progress(client.call(STATUS, pb.StatusRequest(), within_s).version)
    except Denied:  # servers that hide their version from users are newer
        return True


def _json(draft: Draft, revision: int) -> bytes:
    """Returns the JSON of the record made from a draft."""
    comma = b"" if draft.tail.startswith(b"}") else b","
    return draft.head + b'"resourceVersion":"%d"' % revision + comma + draft.tail


class Replicator:
    """Follows the cluster into one replica."""

    def __init__(
        self, client: Client, values: Callable[[LMDBStore], Values], keys: Keys, path: Path, open_replica: Callable[[], LMDBStore],
        transformers: Transformers | None = None, patience_s: float = 60.0,
    ) -> None:  # fmt: skip
        """``open_replica`` opens (or creates) the environment in ``path``; ``begin`` calls it. ``values(replica)`` returns
        the codec for its objects; ``transformers`` open sealed values of etcd. ``patience_s`` is how long ``begin`` waits for
        an etcd that does not answer."""
        self.patience_s = patience_s
        self._sealing = Sealing(transformers, keys)
        self._client, self._values_of, self._keys, self._path, self._open = client, values, keys, path, open_replica
        self._values: Values
        self.followed = ""  # the server that is followed
        self._stream: Following | None = None
        self._unfinished: list[Change] = []  # the beginning of a revision whose rest has not arrived
        self._stopping = threading.Event()
        self._note: Note | None = None
        self.replica: LMDBStore
        self.synced_at = 0.0
        self.unreadable = 0
        self._noted: set[str] = set()  # keys that may have a note in the replica that they are unreadable
        self._with_originals: set[str] = set()  # keys that may have a note with the original value
        self._ordered = False  # whether the followed server sends progress responses in the order of events
        self._asked_at = 0.0  # time of an unanswered progress request; 0: none
        self._hearing = False  # received messages are being applied
        self._room_retry = ReplicaRetry(path)

    # -- before there are readers

    def begin(self) -> LMDBStore:
        """Opens the replica, complete up to some revision: the existing one if it still fits, otherwise a new one. Raises
        ``StoreError`` if the cluster cannot be reached."""
        before = read_note(self._path)
        first = self._first_answer()
        while before is not None and self._is_stray(first, before):
            self._client.next_server()
            first = self._client.call(RANGE, pb.RangeRequest(key=self._keys.root, limit=1, keys_only=True), within_s=30.0)
        self._refuse_partial_copy()
        now = self._note_of(first)
        if why := "it is not finished" if before is None else now.misfit(before):
            discard(self._path, why)
        self._check_kept(first.header.revision)
        for attempt in range(LOADS):
            self.replica = self._open()
            self.replica.start()
            self._find_values()
            if self.replica.revision:
                break
            try:
                self._load(self.replica)
                break
            except Compacted:
                self._close_unread()
                discard(self._path, "etcd has forgotten the revision it was being filled from")
                if attempt == LOADS - 1:
                    raise
            except StoreError:
                self._close_unread()  # the next attempt opens it again
                raise
        self._take_note(now)
        self.synced_at = time.monotonic()
        return self.replica

    def _close_unread(self) -> None:
        """Closes a replica that no worker has opened yet, so that the next one may be in other files."""
        self.replica.close()
        self.replica.shared.files = NO_FILES

    def _first_answer(self) -> pb.RangeResponse:
        """Returns an answer that identifies the cluster and its revision. Logs while it waits; raises ``StoreError`` in the end."""
        request = pb.RangeRequest(key=self._keys.root, limit=1, keys_only=True)
        try:
            return self._client.call(RANGE, request, within_s=SOON_S)
        except Unavailable as e:
            log.warning("waiting for etcd, for up to %s: %s", duration.format_ns(round(self.patience_s * 1e9)), e)
        return self._client.call(RANGE, request, within_s=self.patience_s)

    def _refuse_partial_copy(self) -> None:
        """Raises ``StoreError`` if a ``kas storage copy``, or ``kas snapshot restore``, was interrupted: etcd has only a part
        of the content, and after a server's first write the rest would not be copied."""
        with contextlib.suppress(Denied):  # if etcd does not permit the read
            kvs = self._client.call(RANGE, pb.RangeRequest(key=self._keys.copied)).kvs
            if kvs and HALF in kvs[0].value:
                raise StoreError(
                    f"a copy to {self._keys.prefix or '/'} was interrupted: run the kas storage copy, or kas snapshot restore, again,"
                    f" or delete the key {self._keys.copied.decode()}"
                )

    def _check_kept(self, newest: int) -> None:
        """Discards a replica that cannot be continued. It opens the replica separately, because a revision that has been
        published to the workers must not go back."""
        if read_note(self._path) is None:
            return
        why = ""
        try:
            self.replica = open_store(str(self._path), sync=False)
        except StoreError as e:  # it is damaged, and only a copy
            discard(self._path, str(e))
            return
        try:
            self._find_values()
            self._check_history(newest)
        except Lost as e:
            why = str(e)
        finally:
            self.replica.close()
        if why:
            discard(self._path, why)

    def _is_stray(self, answer: pb.RangeResponse, known: Note) -> bool:
        """Returns whether an answer came from another cluster although a server of the known one still exists: a single
        server, not all of them, belongs to another cluster now. The next server is to be used then."""
        if answer.header.cluster_id == known.cluster_id or not self._client.has(known.cluster_id):
            return False
        log.warning("%s belongs to another cluster than the other servers and is skipped", self._client.asked)
        return True

    def _note_of(self, answer: pb.RangeResponse) -> Note:
        return Note(answer.header.cluster_id, self._keys.prefix, answer.header.raft_term, boot_id())

    def resume(self) -> LMDBStore:
        """Opens the replica that others already read; ``run`` finds out whether it can be continued. Raises ``Lost`` if it
        was not even completed."""
        self._note = read_note(self._path)
        if self._note is None:
            raise Lost("the replica was not finished")
        self.replica = self._open()
        self.replica.start()
        self._find_values()
        return self.replica

    def _find_values(self) -> None:
        """Sets up the codec and the transformers for the opened replica."""
        self._values = self._values_of(self.replica)
        self.replica.open_with(self._sealing.replica(self._values, writes=True))
        self._noted = self._with_notes(ROOT)
        self._with_originals = self._with_notes(originals.ROOT)

    def _with_notes(self, root: str) -> set[str]:
        found, start = set[str](), ""
        while True:
            page = self.replica.range(root + "/", start, NOTES, max_bytes=PAGE_BYTES)
            found.update(record.key[len(root) :] for record in page.records)
            if not page.more:
                return found
            start = page.next_key

    def _check_history(self, newest: int) -> None:
        """Checks that etcd, at the revision ``newest``, still has everything after the replica's revision, and the same past.
        Raises ``Lost``."""
        have = self.replica.revision
        if not have:
            raise Lost("it is empty")
        if newest < have:
            raise Lost(f"the cluster went back from revision {have} to {newest}")
        try:
            # Not the next revision: servers before 3.4.33 and 3.5.15 have already dropped the deletes of the compacted
            # revision itself.
            self._client.call(RANGE, pb.RangeRequest(key=self._keys.root, limit=1, keys_only=True, revision=have))
        except (Compacted, FutureRevision):
            raise Lost(f"etcd has forgotten what follows revision {have}") from None
        self._check_past(have)

    def _check_past(self, have: int) -> None:
        """Checks that the newest puts known to the replica are also in etcd's history. A cluster that was restored from a
        backup, and written to since, may be at any revision, with the same id and term."""
        for put in self._newest_puts(have):
            try:
                kvs = self._client.call(RANGE, pb.RangeRequest(key=self._keys.to_etcd(put.key), revision=put.revision)).kvs
            except Compacted:
                return
            op = self._put(kvs[0]) if kvs and kvs[0].mod_revision == put.revision else None
            if isinstance(op, SealedOp) and not op.opened:
                continue
            draft = op.draft if op is not None else None
            if draft is None or put.record is None or _json(draft, put.revision) != put.record.json:
                note = self.replica.get(originals.note_key(put.key), put.revision)  # perhaps decoded by another definition than today's
                if note is not None and note.revision == put.revision and originals.value_of(note) == kvs[0].value:
                    continue
                raise Lost(f"the cluster was restored from a backup: at revision {put.revision} it holds something else")

    def _newest_puts(self, have: int) -> list[Event]:
        """Returns the newest put of each of the ``WITNESSES`` keys written last, the newest first."""
        forgotten, found = self.replica.compacted_revision, dict[str, Event]()
        for reach in REACHES:
            after = max(forgotten, have - reach)
            whole = after == forgotten
            found.clear()
            while after < have:
                try:
                    events, after = self.replica.events("", after)
                except Compacted:
                    return []
                for event in events:
                    if event.record is not None and not event.key.startswith((ROOT, originals.ROOT)):
                        found.pop(event.key, None)
                        found[event.key] = event
                while len(found) > WITNESSES:
                    del found[next(iter(found))]
            if whole or len(found) == WITNESSES:
                break
        return list(reversed(found.values()))

    def _decode_first(self) -> None:
        for prefix in self._values.first:
            for page in pages(self._client, self._keys.to_etcd(prefix)):
                for kv in page.kvs:
                    self._put(kv)

    def _load(self, replica: LMDBStore) -> None:
        """Fills an empty replica with everything, at one revision."""
        began, revision, n = time.monotonic(), 0, 0
        self._decode_first()
        for page in pages(self._client, self._keys.root):
            revision = revision or page.header.revision
            ops, states = [], []
            for kv in page.kvs:
                for op in self._ops(kv):
                    if op.draft is not None:
                        ops.append(op)
                        states.append((kv.mod_revision, kv.create_revision, kv.version))
            if ops:
                replica.load(ops, states)
            n += len(ops)
        replica.loaded(revision)
        log.info("%d objects at revision %d were read in %.1f s", n, revision, time.monotonic() - began)

    # -- following

    def run(self) -> None:
        """Follows until ``stop()``. Raises ``Lost``."""
        threading.Thread(target=self._monitor, name="kas-replicator-watch", daemon=True).start()
        pause = RETRY_S
        while not self._stopping.is_set():
            try:
                self._check()
                self._decode_first()
                if self._follow():
                    pause = RETRY_S
            except RpcError as e:
                if not self._stopping.is_set():
                    log.warning("the watch on etcd ended: %s", e.details)
            except Lost:
                raise
            except Full as e:
                # Later events may be deletes, but revisions must keep their order; a new replica has room for what is left then.
                disown(self._path)
                log.warning("following etcd: %s; the replica is rebuilt at the next start, or when a new one has room", e)
                self._look_for_room()
            except StoreError as e:
                log.warning("following etcd: %s", e)
            self._client.next_server()
            if self._stopping.wait(pause):
                return
            pause = min(2 * pause, RETRY_MAX_S)

    def _look_for_room(self) -> None:
        """Raises ``Lost`` if a new replica of etcd's current content fits, with some space left. It is filled beside the
        current one, which serves reads unchanged meanwhile."""
        stats = self.replica.statistics()
        if not self._room_retry.due(stats["file_bytes"]):
            return
        found = False
        with contextlib.suppress(StoreError, OSError):
            new = unlinked(str(self._path), stats["limit"])
            try:
                new.open_with(self._sealing.replica(self._values, writes=True))
                self._load(new)
                found = not new.full()
            finally:
                new.close()
        if found:
            raise Lost("it has no room for what happens, and a new one has")
        self._room_retry.failed()

    def stop(self) -> None:
        """Ends ``run``. From any thread."""
        self._stopping.set()
        stream = self._stream
        if stream is not None:
            stream.cancel()

    def request_progress(self) -> None:
        """Asks etcd for the revision up to which everything was sent, for a waiter. From any thread."""
        stream = self._stream
        if stream is not None:
            stream.send(PROGRESS)
        if not self._asked_at:
            self._asked_at = time.monotonic()

    def _monitor(self) -> None:
        while not self._stopping.wait(SILENT_S / 4):
            self._look()

    def _look(self) -> None:
        """Leaves a server that hangs without closing its connection: keepalive would take 40 s, while writes continue at
        other servers. Requests progress when there are no events. Ends the watch of a replica whose files were deleted."""
        now, asked, stream = time.monotonic(), self._asked_at, self._stream
        if stream is not None and self.replica.replaced():
            stream.cancel()  # the check before the next watch says why
            return
        if self._hearing:  # the delay is here, not in etcd
            return
        if asked and now - asked > SILENT_S and stream is not None:
            log.warning("etcd has sent nothing on the watch for %g s", SILENT_S)
            self._asked_at = 0.0
            stream.cancel()
        elif not asked and now - self.synced_at > SILENT_S:
            self.request_progress()

    def _check(self) -> None:
        """Checks that the cluster is the same and has not gone back, and that the replica's files are still there."""
        answer = self._client.call(RANGE, pb.RangeRequest(key=self._keys.root, limit=1, keys_only=True))
        if self._note is not None and self._is_stray(answer, self._note):
            raise Unavailable("a server of another cluster than the others is passed over")
        now = self._note_of(answer)
        if self._note is not None and (why := now.misfit(self._note)):
            raise Lost(why)
        if why := self.replica.replaced():
            raise Lost(why)  # a worker that starts would not find it
        self._check_history(answer.header.revision)
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
        """Follows one watch until it breaks; returns whether any message came."""
        self._asked_at = 0.0
        self._ordered = tells_progress_in_order(self._client)
        self.followed = self._client.asked  # the server that answered: others of the cluster may have other versions
        stream = self._stream = self._client.watch(self._create(self.replica.revision + 1))
        if self._stopping.is_set():
            stream.cancel()
        heard, self._unfinished = False, []
        try:
            for messages in stream:
                self.synced_at = time.monotonic()
                self._asked_at = 0.0
                try:
                    answers = [watched(message) for message in messages]
                except Undecoded:
                    raise Unavailable("what came on the watch cannot be read") from None
                self._hearing = True
                try:
                    if not self._receive(answers):
                        return heard
                finally:
                    if self._asked_at:  # while messages were applied, silence cannot be measured
                        self._asked_at = time.monotonic()
                    self._hearing = False
                heard = True
        finally:
            self._stream = None
            stream.close()
        return heard

    def _receive(self, answers: list[Watched]) -> bool:
        """Applies messages that arrived together in as few transactions as possible; returns whether the watch continues."""
        whole: list[Change] = []
        for answer in answers:
            if answer.events:
                whole += self._whole(answer)
                continue
            self._apply(whole)
            whole = []
            if answer.canceled:
                if answer.compact_revision:
                    raise Lost(f"etcd has forgotten what happened before revision {answer.compact_revision}")
                log.warning("etcd cancelled the watch: %s", answer.cancel_reason)
                return False
            if answer.created:
                self._created(answer)
            elif not self._unfinished and self._believed(answer) and answer.revision > self.replica.revision:
                self.replica.apply(answer.revision, [])
        self._apply(whole)
        return True

    def _created(self, answer: Watched) -> None:
        """Checks that the watch was created by a server of the cluster, and that nothing after the replica's revision was
        compacted meanwhile; repeats the progress request, which may have been sent before."""
        if self._note is not None and answer.cluster_id != self._note.cluster_id:
            raise Unavailable("the watch was made at a server of another cluster")
        if answer.revision > self.replica.revision:
            self._check_history(answer.revision)
        if self._stream is not None:
            self._stream.send(PROGRESS)

    def _believed(self, answer: Watched) -> bool:
        """Returns whether everything up to the revision of an answer without events has arrived. Notifications that a watch
        sends by itself are in order; responses to progress requests (watch id -1) are only from some versions on."""
        return self._ordered or answer.watch_id >= 0

    def _whole(self, answer: Watched) -> list[Change]:
        """Returns the events of complete revisions. Those of the last revision may continue in the next fragment, and are
        kept until then."""
        events = self._unfinished
        n = len(events)
        events += answer.events
        if not answer.fragment:
            self._unfinished = []
            return events
        last = events[-1].mod_revision
        if n and events[n - 1].mod_revision == last:  # all kept events have the same revision, which continues
            return []
        n = len(events)
        while n and events[n - 1].mod_revision == last:
            n -= 1
        self._unfinished = events[n:]
        return events[:n]

    def _apply(self, events: list[Change]) -> None:
        """Applies whole revisions, in order."""
        revisions: list[tuple[int, list[Op]]] = []
        newest = self.replica.revision
        for event in events:
            revision = event.mod_revision
            if revision <= newest:
                continue
            if not revisions or revisions[-1][0] != revision:
                revisions.append((revision, []))
            revisions[-1][1].extend(self._ops(event, event.put))
        if revisions:
            self.replica.apply_many(revisions)
            self._room_retry.over()

    def _ops(self, kv: KeyValue, put: bool = True) -> list[Op]:
        """Returns the operations for a changed key, and for the notes on it."""
        op = self._put(kv) if put else self._gone(kv)
        if op is None:
            return []
        ops = [op]
        if isinstance(op, UnreadableOp):
            self._noted.add(op.key)
            ops.append(op.note)
        elif op.key in self._noted:
            ops.append(Op(note_key(op.key), None))
        unseen = isinstance(op, SealedOp) and not op.opened
        if op.draft is not None and (unseen or not self._values.whole):
            with contextlib.suppress(KeyTooLong):
                ops.append(Op(originals.note_key(op.key), originals.note(kv.value)))
                self._with_originals.add(op.key)
        elif op.key in self._with_originals:
            ops.append(Op(originals.note_key(op.key), None))
        return ops

    def _put(self, kv: KeyValue) -> Op | None:
        """Returns the put of a key; for an unreadable value the delete, so that no older value is taken for it."""
        name = kv.key
        if name == self._keys.fence:
            return None
        try:
            key = self._keys.from_etcd(name)
            return self._sealing.taken(key, kv.value, self._values)
        except (Undecodable, UnicodeDecodeError, KeyTooLong) as e:
            self.unreadable += 1
            if self.unreadable <= TOLD:
                more = "; further ones are only counted" if self.unreadable == TOLD else ""
                log.warning("%s cannot be read, and is left out: %s%s", kv.key.decode(errors="replace"), e, more)
            return self._unreadable(kv, str(e))

    def _unreadable(self, kv: KeyValue, why: str) -> Op | None:
        """As ``_gone``, for a key that exists in etcd."""
        try:
            op = UnreadableOp(self._keys.from_etcd(kv.key), None)
            op.note = Op(note_key(op.key), note(why))
        except (UnicodeDecodeError, KeyTooLong):
            return self._gone(kv)
        return op

    def _gone(self, kv: KeyValue) -> Op | None:
        """Returns the delete of a key, which may be absent here."""
        try:
            return Op(self._keys.from_etcd(kv.key), None)
        except (UnicodeDecodeError, KeyTooLong):
            return None
