"""The store on LMDB: a file that all workers of a machine map. It also serves as the replica of an etcd cluster."""

from kas.store.lmdb.compaction import HistoryPolicy
from kas.store.lmdb.store import LMDBStore

__all__ = ["HistoryPolicy", "LMDBStore"]
