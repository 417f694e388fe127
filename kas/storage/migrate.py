"""``kas storage migrate``: rewrites objects with today's encryption keys. On LMDB the server must be stopped, and the history
is dropped; an etcd cluster may be in use.

While a server runs, an update without changes does the same for one object.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import lmdb

from kas import kinds
from kas.config.flags.storage import JSON
from kas.config.options import Completed, complete, read
from kas.meta.files import private
from kas.meta.stdio import CONTROLS
from kas.preflight import preflight
from kas.storage.command import EXIT_FAILED, Usage, encryption_of, exit_code
from kas.storage.places import ROOT, Forms
from kas.store import open_store
from kas.store.etcd.layout import Keys
from kas.store.lmdb import LMDBStore
from kas.store.rewrite import Rewritten, rewrite_stale

USAGE = """usage: kas storage migrate [flags of kas serve]

Writes every object in --data-dir again that is not stored as --encryption-provider-config says today, forgets the history, and
writes the file anew, so that nothing of what was there before is left in it. The server must not run.
With --storage-backend=etcd3 and --etcd-servers it does so in etcd, also to what stands there in another version or form than
a write would store; servers may run. What was there before is left in etcd's history until it is compacted, and in its file until
`etcdctl defrag`.
"""


def main(args: Sequence[str]) -> int:
    """Runs the command; returns the exit code. All errors are reported on standard error."""
    if set(args) & {"-h", "--help"}:
        print(USAGE, end="")
        return 0
    return exit_code(_run, args, "what was written again stays so, and the same command again writes the rest")


def _run(args: list[str]) -> int:
    options, errors = read(args)
    errors += preflight(options)
    if errors:
        raise Usage("\n".join(text.translate(CONTROLS) for text in errors))
    done = (migrate_etcd if options.storage_backend == "etcd3" else migrate)(complete(options))
    for error in done.failed:
        print(f"kas: unable to transform key {error.key}: {error.why}", file=sys.stderr)
    print(f"kas: {done.written} of {done.seen} objects written again, {len(done.failed)} could not be read")
    return EXIT_FAILED if done.failed else 0


def migrate(o: Completed) -> Rewritten:
    """Migrates a store on LMDB. Raises ValueError for an invalid configuration, a plug-in that does not answer, or a
    directory in use; StoreError and OSError for errors of the store and the system."""
    if not (o.data_dir / "store").is_dir():
        raise ValueError(f"--data-dir: {o.data_dir} holds no store")
    with open(o.data_dir / "lock", "a+", opener=private) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ValueError(f"--data-dir: {o.data_dir} is in use by another kas: stop it first") from None
        encryption = encryption_of(o)
        if encryption is not None and (why := encryption.begin()):
            raise ValueError(f"KMS provider {why}")
        store = open_store(
            str(o.data_dir / "store"), max_size=o.store_max_size, sync=not o.raw.unsafe_no_fsync,
            transformers=encryption.transformer if encryption is not None else None,
        )  # fmt: skip
        try:
            done = rewrite_stale(store, ROOT, int(time.time()))
            _forget(store)
        finally:
            store.close()
            if encryption is not None:
                encryption.close()
        _write_anew(o.data_dir / "store")
        return done


def migrate_etcd(o: Completed) -> Rewritten:
    """Migrates an etcd cluster, but keeps its history. Raises ValueError and StoreError as ``migrate``."""
    try:
        from kas.replicator import clusters
        from kas.storage.migrate_etcd import EtcdMigration
    except ImportError as e:
        raise ValueError(f"etcd needs the extra kas[etcd]: {e}") from None
    kinds.install()
    encryption = encryption_of(o)
    if encryption is not None and (why := encryption.begin()):
        raise ValueError(f"KMS provider {why}")
    done, values = Rewritten(), Forms(o.raw.storage_media_type == JSON).values
    try:
        for i, config in enumerate(clusters(o)):
            with contextlib.closing(
                EtcdMigration(config, Keys(o.raw.etcd_prefix), values, encryption.transformer if encryption else None)
            ) as migration:
                if not i:  # clusters of overrides may be empty
                    migration.look()
                done += migration.run()
    finally:
        if encryption is not None:
            encryption.close()
    return done


def _forget(store: LMDBStore) -> None:
    while not store.compact(store.revision):
        pass


def _write_anew(path: Path) -> None:
    """Writes the same data to a new file: free pages still contain old data."""
    copy = path / "migrated"
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir(mode=0o700)
    with lmdb.open(str(path), max_dbs=16, readonly=True) as env:
        env.copy(str(copy), compact=True)
    with open(copy / "data.mdb", "rb") as f:
        os.fsync(f.fileno())
    os.replace(copy / "data.mdb", path / "data.mdb")
    shutil.rmtree(copy)
