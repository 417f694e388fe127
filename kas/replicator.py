"""etcd as the store of ``kas serve``: the process that keeps the machine's replica, and how a worker opens it.

The process starts before the workers and fills the replica; they read it. It ends with ``EXIT_LOST`` when the replica cannot be continued:
the supervisor then ends the workers, and all begin anew.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

from kas import kinds
from kas.config import features
from kas.config.options import Completed
from kas.encryption.atrest import EncryptionAtRest
from kas.meta import clock
from kas.registry.etcdvalues import StoredValues
from kas.registry.registries import Registries
from kas.store import Corrupt, Store, StoreError, Unavailable, open_store
from kas.store.etcd.client import STATUS, Client, Config
from kas.store.etcd.compactor import Compactor
from kas.store.etcd.etcd_pb2 import StatusRequest
from kas.store.etcd.layout import Keys
from kas.store.etcd.replicator import Lost, Replicator, ordered_progress
from kas.store.etcd.store import EtcdStore
from kas.store.lmdb import LMDBStore
from kas.store.shared import Shared
from kas.store.transform import Transformers
from kas.types.scheme import BUILTIN

AGAIN_S = 1.0
EXIT_LOST = 4  # the supervisor knows it too, without this module

log = logging.getLogger("kas")


def cluster(o: Completed) -> Config:
    """The etcd cluster of ``--etcd-servers``; user and password are the environment's, which other users cannot read."""
    raw = o.raw
    user, password = os.environ.get("ETCD_USERNAME", ""), os.environ.get("ETCD_PASSWORD", "")
    reuse_s = raw.lease_reuse_duration_seconds
    return Config(tuple(raw.etcd_servers), raw.etcd_cafile, raw.etcd_certfile, raw.etcd_keyfile, reuse_s, user, password)


def values(store: Store) -> StoredValues:
    """What stands in etcd for the objects of every built-in kind, and of custom resources."""
    registries = Registries(store, clock.now)
    registries.add_stored(BUILTIN.resources, BUILTIN.resource, 0, {})
    return StoredValues(registries)


def replica_path(o: Completed) -> Path:
    """Where the replica lies."""
    return o.data_dir / "replica"


def _answers_in_order(config: Config, url: str) -> bool:
    """Whether the progress that a server tells may be believed; one that does not answer may be an old one."""
    client = Client(replace(config, servers=(url,)))
    try:
        return ordered_progress(client.call(STATUS, StatusRequest(), within_s=2.0).version)
    except StoreError:
        return False
    finally:
        client.close()


def open_etcd_store(o: Completed, shared: Shared, ask: int, transformers: Transformers | None = None) -> EtcdStore:
    """A worker's store. The replica is complete; a byte to the descriptor ``ask`` has the replicator ask etcd how far it is.
    ``transformers`` say what is sealed in etcd. Raises ``StoreError``."""
    config = cluster(o)
    ordered = all(_answers_in_order(config, url) for url in config.servers)

    def ask_progress() -> None:
        with contextlib.suppress(BlockingIOError):  # it is being asked already
            os.write(ask, b"\1")

    return EtcdStore(
        str(replica_path(o)), config, values, keys=Keys(o.raw.etcd_prefix), max_size=o.store_max_size, shared=shared,
        transformers=transformers, ask_progress=ask_progress, ordered_progress=ordered,
    )  # fmt: skip


def _encryption(o: Completed) -> EncryptionAtRest:
    """What opens the values of etcd, and its plug-ins asked once: what cannot be opened yet is opened by who reads it."""
    raw = o.raw
    reload, v1 = raw.encryption_provider_config_automatic_reload, "KMSv1" in features.enabled(raw.feature_gates)
    encryption = EncryptionAtRest(raw.encryption_provider_config, reload, v1, BUILTIN.resources, o.run_dir / "kms", "replicator")
    encryption.begin()
    return encryption


def _follow(encryption: EncryptionAtRest) -> None:
    """The file, as workers do."""
    while True:
        time.sleep(1.0)
        try:
            if encryption.changed():
                encryption.reread()
        except Exception:  # as workers do with what they do now and then: the next turn may go better
            log.exception("the encryption configuration could not be followed")


def _begin(replicator: Replicator, patient: bool) -> LMDBStore:
    """A complete replica. Raises ``StoreError``; with ``patient`` not because etcd does not answer."""
    while True:
        try:
            return replicator.begin()
        except Unavailable as e:
            if not patient:
                raise
            log.warning("the replica is made anew once etcd answers: %s", e)
            time.sleep(AGAIN_S)


def serve(o: Completed, shared_spec: str, index: int, report: int, ask: int, alone: bool, patient: bool = False) -> int:
    """Runs the replicator until SIGTERM. ``report`` gets "ready" or the reason of a failure; ``ask`` is read for requests of progress.
    ``alone``: no worker reads the replica yet, so that it may be thrown away; ``patient``: there was one before, so a cluster that does not
    answer now is waited for. Returns the exit code."""
    kinds.install()
    shared = Shared.attach(shared_spec, index)
    path = replica_path(o)
    client = Client(cluster(o))
    keys = Keys(o.raw.etcd_prefix)
    encryption = _encryption(o) if o.raw.encryption_provider_config else None
    replicator = Replicator(
        client, values, keys, path, lambda: open_store(str(path), max_size=o.store_max_size, sync=False, shared=shared),
        encryption.transformer if encryption is not None else None,
    )  # fmt: skip
    try:
        replica = _begin(replicator, patient) if alone else replicator.resume()
    except Lost:
        return EXIT_LOST
    except Corrupt as e:
        if alone:
            raise
        log.error("the replica of etcd is made anew: %s", e)
        return EXIT_LOST
    except StoreError as e:
        os.write(report, f"--etcd-servers: {e}".encode())
        return 1
    compactor = Compactor(client, o.raw.etcd_compaction_interval)
    for s in (signal.SIGTERM, signal.SIGINT):
        signal.signal(s, lambda *_: replicator.stop())

    def asked() -> None:
        while os.read(ask, 65536):
            replicator.request_progress()

    threading.Thread(target=asked, name="kas-progress", daemon=True).start()
    if encryption is not None:
        threading.Thread(target=_follow, args=(encryption,), name="kas-encryption", daemon=True).start()
    compactor.start()
    os.write(report, b"ready\n")
    try:
        replicator.run()
    except Lost as e:
        log.error("the replica of etcd is made anew: %s", e)
        return EXIT_LOST
    finally:
        compactor.stop()
        replica.close()
        client.close()
    return 0
