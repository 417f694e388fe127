"""How much history is kept, by age and by size. Run by one worker, every few seconds, in a thread."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from kas.store import _engine
from kas.store.lmdb import ballast

if TYPE_CHECKING:
    from kas.store.lmdb.store import LMDBStore

TRIM_STEP = 500  # entries per transaction: the pages it copies have to fit into the reserve


def trim(store: LMDBStore) -> bool:
    """Drops the older half of the history to make space for a write that found none; returns False if the rest of the history
    is too small for that.

    Ends with an extra transaction, because pages that a transaction frees can be reused from the next but one on. Blocks: for
    the committer's thread.
    """
    statistics = store.statistics()
    newest, compacted = statistics["revision"], statistics["compacted_revision"]
    least = _engine.margin(statistics["limit"])
    if store.ballast.given_up:  # the disk is full
        least = min(least, ballast.BYTES)
    if statistics["log_bytes"] <= least:
        return False
    target = newest - (newest - compacted) // 2
    while not store.compact(target, TRIM_STEP):
        pass
    return store.compact(target, TRIM_STEP)


class HistoryPolicy:
    """Keeps ``window_s`` seconds of history, and up to a sixtieth more; less when the log is larger than ``max_bytes``.

    kube-apiserver compacts every 5 minutes, so clients can resume watches and continue lists for 5 to 10. As there, age is
    measured while the process runs, and never by the time of day: revisions that this process saw as current ``window_s`` ago
    may be dropped. So history survives changes of the system clock, in either direction, and downtime.
    """

    def __init__(self, window_s: int = 600, max_bytes: int = 1 << 30, chunk: int = 2000) -> None:
        self.window_s, self.max_bytes, self.chunk = window_s, max_bytes, chunk
        self._seen: deque[tuple[float, int]] = deque()  # (time, newest revision at that time); at most 62
        self._old = 0  # the newest revision known to be older than the window

    def target(self, store: LMDBStore, now_s: float) -> int:
        """Returns the revision up to which history may be dropped now. ``now_s``: seconds of a monotonic clock."""
        statistics = store.statistics()
        if not self._seen or now_s - self._seen[-1][0] >= self.window_s / 60:
            self._seen.append((now_s, statistics["revision"]))
        while self._seen and now_s - self._seen[0][0] >= self.window_s:
            self._old = self._seen.popleft()[1]
        size, entries, revision = statistics["log_bytes"], statistics["log_entries"], self._old
        if size > self.max_bytes and entries:
            # Reduces the log to three quarters of the bound, assuming revisions of equal size; the next run corrects the rest.
            compacted = statistics["compacted_revision"]
            drop = int((statistics["revision"] - compacted) * (1 - 0.75 * self.max_bytes / size))
            revision = max(revision, compacted + drop)
        return revision

    def run(self, store: LMDBStore, now_s: float) -> int:
        """Compacts to the target in bounded transactions (writers run in between); returns the compacted revision."""
        target = self.target(store, now_s)
        if target > store.compacted_revision:
            while not store.compact(target, self.chunk):
                pass
        store.check_readers()
        return store.compacted_revision
