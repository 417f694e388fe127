"""How much history is kept: by age and by size. Run by one worker, every few seconds, in a thread."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from kas.store import _engine
from kas.store.lmdb import ballast

if TYPE_CHECKING:
    from kas.store.lmdb.store import LMDBStore

TRIM_STEP = 500  # entries a transaction: what it copies has to fit into the reserve


def trim(store: LMDBStore) -> bool:
    """Forgets the older half of the history to make room for a write that found none; False when what is left of it would make none.

    Ends with a transaction more, because pages that one has freed can be used from the next but one on. Blocks: for the committer's
    thread.
    """
    statistics = store.statistics()
    newest, compacted = statistics["revision"], statistics["compacted_revision"]
    least = _engine.margin(statistics["limit"])
    if store.ballast.given_up:  # it is the disk that is full
        least = min(least, ballast.BYTES)
    if statistics["log_bytes"] <= least:
        return False
    target = newest - (newest - compacted) // 2
    while not store.compact(target, TRIM_STEP):
        pass
    return store.compact(target, TRIM_STEP)


class HistoryPolicy:
    """Keeps ``window_s`` seconds of history, and up to a sixtieth more; less when the log takes more than ``max_bytes``.

    kube-apiserver compacts every 5 minutes, so clients can resume watches and continue lists for 5 to 10. As there, age is measured while
    somebody looks, and never read from a calendar: what this process has seen current ``window_s`` ago may be forgotten. So history
    survives a clock that is set, forth or back, and the time in which nothing ran.
    """

    def __init__(self, window_s: int = 600, max_bytes: int = 1 << 30, chunk: int = 2000) -> None:
        self.window_s, self.max_bytes, self.chunk = window_s, max_bytes, chunk
        self._seen: deque[tuple[float, int]] = deque()  # when, and the newest revision then; at most 62
        self._old = 0  # the newest revision that is known to be older than the window

    def target(self, store: LMDBStore, now_s: float) -> int:
        """The revision up to which history may be forgotten now. ``now_s``: seconds of a clock that is never set."""
        statistics = store.statistics()
        if not self._seen or now_s - self._seen[-1][0] >= self.window_s / 60:
            self._seen.append((now_s, statistics["revision"]))
        while self._seen and now_s - self._seen[0][0] >= self.window_s:
            self._old = self._seen.popleft()[1]
        size, entries, revision = statistics["log_bytes"], statistics["log_entries"], self._old
        if size > self.max_bytes and entries:
            # Back to three quarters of the bound, as if all revisions were equally large; the next run corrects the rest.
            compacted = statistics["compacted_revision"]
            drop = int((statistics["revision"] - compacted) * (1 - 0.75 * self.max_bytes / size))
            revision = max(revision, compacted + drop)
        return revision

    def run(self, store: LMDBStore, now_s: float) -> int:
        """Compacts to the target in bounded transactions (writers get in between); returns the compacted revision."""
        target = self.target(store, now_s)
        if target > store.compacted_revision:
            while not store.compact(target, self.chunk):
                pass
        store.check_readers()
        return store.compacted_revision
