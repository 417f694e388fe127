"""Compacts etcd's history, in turns with every other server of the cluster (upstream's storage/etcd3/compact.go).

The version of ``compact_rev_key`` is a clock shared by all: the server that advances it from the version it saw last also
compacts, to the revision that was current when it last looked. So history is kept for between one and two intervals, however
many servers there are. A server whose etcd user may not compact leaves the turns to others.
"""

from __future__ import annotations

import contextlib
import logging
import threading

from kas.store.errors import Compacted, StoreError
from kas.store.etcd import etcd_pb2 as pb
from kas.store.etcd.client import COMPACT, TXN, Client, Denied

KEY = b"compact_rev_key"
EMPTY = 1  # a revision that holds nothing, in any cluster

log = logging.getLogger("kas.store.etcd")


class Compactor:
    """One server's part in the turns. ``interval_s`` 0: never compacts."""

    def __init__(self, client: Client, interval_s: float) -> None:
        self._client, self._interval_s = client, interval_s
        self._stop = threading.Event()
        self.version, self.revision = 0, 0
        self._denied = False

    def start(self) -> None:
        """Runs until ``stop()``, in a thread of its own."""
        if self._interval_s:
            threading.Thread(target=self._run, name="kas-compactor", daemon=True).start()

    def stop(self) -> None:
        """Ends the thread. Idempotent."""
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.wait(self._interval_s):
            try:
                self.turn()
            except StoreError as e:
                log.warning("compacting etcd: %s", e)

    def turn(self) -> int:
        """Takes one turn; returns the compacted revision, 0 if it was another server's turn, or the first, or the etcd user
        may not compact."""
        if self._denied and not self._may():
            return 0
        compare = pb.Compare(target=pb.Compare.VERSION, key=KEY, version=self.version)
        put = pb.RequestOp(request_put=pb.PutRequest(key=KEY, value=str(self.revision).encode()))
        get = pb.RequestOp(request_range=pb.RangeRequest(key=KEY))
        answer = self._client.call(TXN, pb.TxnRequest(compare=[compare], success=[put], failure=[get]))
        if not answer.succeeded:
            self.version = answer.responses[0].response_range.kvs[0].version if answer.responses[0].response_range.kvs else 0
            self.revision = answer.header.revision
            return 0
        self.version += 1
        before, self.revision = self.revision, answer.header.revision
        if not before:
            return 0
        try:
            self._client.call(COMPACT, pb.CompactionRequest(revision=before))
        except Compacted:
            return 0
        except Denied:
            self._denied = True
            log.warning("etcd's user may not compact the history, which needs the role root: compaction is left to others")
            return 0
        return before

    def _may(self) -> bool:
        """Returns whether etcd permits this user to compact by now."""
        with contextlib.suppress(Compacted):
            try:
                self._client.call(COMPACT, pb.CompactionRequest(revision=EMPTY))
            except Denied:
                return False
        self._denied = False
        return True
