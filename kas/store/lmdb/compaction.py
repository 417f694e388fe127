"""How much history is kept: by age and by size. Run by one worker, every few seconds, in a thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kas.store import _engine

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
    if statistics["log_bytes"] <= _engine.margin(statistics["limit"]):
        return False
    target = newest - (newest - compacted) // 2
    while not store.compact(target, TRIM_STEP):
        pass
    return store.compact(target, TRIM_STEP)


class HistoryPolicy:
    """Keeps ``window_s`` seconds of history, less when the log takes more than ``max_bytes``.

    kube-apiserver compacts every 5 minutes, so clients can resume watches and continue lists for 5 to 10.
    """

    def __init__(self, window_s: int = 600, max_bytes: int = 1 << 30, chunk: int = 2000) -> None:
        self.window_s, self.max_bytes, self.chunk = window_s, max_bytes, chunk

    def target(self, store: LMDBStore, now_s: int) -> int:
        """The revision up to which history may be forgotten now."""
        revision = store.revision_before(max(0, now_s - self.window_s))
        statistics = store.statistics()
        size, entries = statistics["log_bytes"], statistics["log_entries"]
        if size > self.max_bytes and entries:
            # Back to three quarters of the bound, as if all revisions were equally large; the next run corrects the rest.
            compacted = statistics["compacted_revision"]
            drop = int((statistics["revision"] - compacted) * (1 - 0.75 * self.max_bytes / size))
            revision = max(revision, compacted + drop)
        return revision

    def run(self, store: LMDBStore, now_s: int) -> int:
        """Compacts to the target in bounded transactions (writers get in between); returns the compacted revision."""
        target = self.target(store, now_s)
        if target > store.compacted_revision:
            while not store.compact(target, self.chunk):
                pass
        store.check_readers()
        store.trim_clock(max(0, now_s - self.window_s))
        return store.compacted_revision
