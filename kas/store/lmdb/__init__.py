"""The store on LMDB: one file that all workers of a machine map, and the replica of whatever else decides about revisions."""

from kas.store.lmdb.compaction import HistoryPolicy
from kas.store.lmdb.store import LMDBStore

__all__ = ["HistoryPolicy", "LMDBStore"]
