"""The store on LMDB: a single file that all workers of a machine map, and the replica of external stores that assign the
revisions."""

from kas.store.lmdb.compaction import HistoryPolicy
from kas.store.lmdb.store import LMDBStore

__all__ = ["HistoryPolicy", "LMDBStore"]
