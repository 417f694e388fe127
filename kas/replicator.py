"""etcd as the store of ``kas serve``: the process that maintains the machine's replica, and how a worker opens it.

The process starts before the workers and fills the replica, which they read. It ends with ``EXIT_LOST`` when the
replica cannot be continued: the supervisor then ends the workers, and all of them start again.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from kas import kinds
from kas.config import features
from kas.config.flags.storage import JSON
from kas.config.options import Completed
from kas.config.overrides import Override
from kas.encryption.atrest import EncryptionAtRest
from kas.encryption.kms.keys import use_short_timeouts
from kas.meta import clock
from kas.meta.fdwait import BEAT
from kas.observe.process import mappable
from kas.registry.etcdvalues import AS_JSON, StoredValues
from kas.registry.registries import Registries
from kas.store import Corrupt, Store, StoreError, Unavailable, open_store
from kas.store.etcd.client import Client, Config
from kas.store.etcd.compactor import Compactor
from kas.store.etcd.layout import Keys
from kas.store.etcd.partitioned import Partitioned
from kas.store.etcd.replica import discard, disown, read_note
from kas.store.etcd.replicator import Lost, Replicator, tells_progress_in_order
from kas.store.etcd.store import EtcdStore
from kas.store.lmdb import LMDBStore
from kas.store.shared import NO_FILES, Shared
from kas.store.transform import Transformers
from kas.types.scheme import Scheme

AGAIN_S = 1.0
# Decoded objects have no reference cycles. Collecting garbage after every 700 objects, over everything that is loaded,
# took 4 % of this process's time.
LOOKED_AT = 10_000, 10, 10
# Keys in etcd that belong to no resource, and the name in the core group by which ``--etcd-servers-overrides`` refers
# to them.
WITHOUT_RESOURCE = {
    "/registry/ranges/": "services",
    "/registry/masterleases/": "apiServerIPInfo",
    "/registry/peerserverleases/": "apiServerPeerIPInfo",
}
EXIT_LOST = 4  # the supervisor has it too, without importing this module

log = logging.getLogger("kas")


def cluster(o: Completed) -> Config:
    """The etcd cluster of ``--etcd-servers``. User and password come from the environment, which other users cannot read."""
    raw = o.raw
    user, password = os.environ.get("ETCD_USERNAME", ""), os.environ.get("ETCD_PASSWORD", "")
    reuse_s = raw.lease_reuse_duration_seconds
    return Config(tuple(raw.etcd_servers), raw.etcd_cafile, raw.etcd_certfile, raw.etcd_keyfile, reuse_s, user, password)


def values_of(o: Completed) -> Callable[[Store], StoredValues]:
    """Returns a function that makes, for a store, the mapping between values in etcd and objects of the built-in
    kinds and custom resources."""

    def values(store: Store) -> StoredValues:
        registries = Registries(store, clock.now)
        scheme = Scheme()
        registries.add_stored(scheme.resources, scheme.resource, 0, {})
        # A store that is being filled has no revision to read at yet, and reading it would claim that it has.
        return StoredValues(registries, o.raw.storage_media_type == JSON, lambda key: store.get(key) if store.revision else None)

    return values


def clusters(o: Completed) -> list[Config]:
    """The cluster of ``--etcd-servers``, then those of ``--etcd-servers-overrides``, which are reached in the same way."""
    main = cluster(o)
    return [main, *(replace(main, servers=other.servers) for other in o.overrides)]


def replica_path(o: Completed, servers: Sequence[str] = ()) -> Path:
    """The directory of a replica: that of ``--etcd-servers``, or of other ``servers``."""
    if not servers:
        return o.data_dir / "replica"
    return o.data_dir / f"replica-{hashlib.sha256(','.join(sorted(servers)).encode()).hexdigest()[:12]}"


def replica_paths(o: Completed) -> list[Path]:
    """The directories of all ``clusters``."""
    return [replica_path(o), *(replica_path(o, other.servers) for other in o.overrides)]


def replica_bytes(o: Completed) -> int:
    """The maximum size of each replica: every process that reads them maps all of them."""
    return mappable(o.store_max_size, 1 + len(o.overrides))


def kept_below(override: Override) -> list[str]:
    """The key prefixes, each ending with "/", that an override keeps in its cluster, for resources that are compiled in.

    As in kube-apiserver (storage_factory.go): Events go where those of the core group go, those of events.k8s.io
    included; keys without a resource have a name for this flag or go with a resource that has one; and the servers
    for custom resource definitions and APIServices know no other cluster.
    """
    found = {f"{r.etcd_prefix}/": None for r in Scheme().resources if r.etcd_prefix is not None and _kept(override, r.group, r.resource)}
    found |= {prefix: None for prefix, resource in WITHOUT_RESOURCE.items() if override.keeps("", resource)}
    return list(found)


def _kept(override: Override, group: str, resource: str) -> bool:
    if group in AS_JSON:
        return False
    return override.keeps("" if (group, resource) == ("events.k8s.io", "events") else group, resource)


def _answers_in_order(config: Config, url: str) -> bool:
    """Whether the progress notifications of a server can be trusted. One that does not answer may be an old version."""
    try:
        # its certificates may be in the middle of a replacement
        with contextlib.closing(Client(replace(config, servers=(url,)))) as client:
            return tells_progress_in_order(client, within_s=2.0)
    except StoreError:
        return False


def open_etcd_store(o: Completed, shared: Sequence[Shared], ask: int, transformers: Transformers | None = None) -> EtcdStore | Partitioned:
    """Opens a worker's store, with one shared memory page for each of ``clusters``; their replicas must be complete.

    Writing a byte with the number of a cluster to the descriptor ``ask`` makes the replicator request a progress
    notification from it. ``transformers`` decrypt what is encrypted in etcd. Raises ``StoreError``.
    """
    # the process that made the replica has checked the cluster
    paths, configs = replica_paths(o), [replace(config, later=True) for config in clusters(o)]

    def opened(i: int) -> EtcdStore:
        def ask_progress() -> None:
            with contextlib.suppress(BlockingIOError):  # a request is already pending
                os.write(ask, bytes((i,)))

        store = EtcdStore(
            str(paths[i]), configs[i], values_of(o), keys=Keys(o.raw.etcd_prefix), max_size=replica_bytes(o), shared=shared[i],
            transformers=transformers, ask_progress=ask_progress,
            ordered_progress=lambda: all(_answers_in_order(configs[i], url) for url in configs[i].servers),
        )  # fmt: skip
        store.as_protobuf = o.raw.storage_media_type != JSON
        return store

    main, *others = (opened(i) for i in range(len(configs)))
    if not others:
        return main
    return Partitioned(main, [(store, kept_below(other)) for store, other in zip(others, o.overrides, strict=True)])


def _encryption(o: Completed) -> EncryptionAtRest:
    """The transformers for values in etcd, after one call to their KMS plug-ins. What cannot be decrypted yet is
    decrypted by its reader."""
    raw = o.raw
    reload, v1 = raw.encryption_provider_config_automatic_reload, "KMSv1" in features.enabled(raw.feature_gates)
    encryption = EncryptionAtRest(raw.encryption_provider_config, reload, v1, Scheme().resources, o.run_dir / "kms", "replicator")
    encryption.begin()
    return encryption


def _follow(encryption: EncryptionAtRest) -> None:
    """Follows the configuration file, as workers do."""
    while True:
        time.sleep(1.0)
        try:
            if encryption.changed():
                encryption.reread()
        except Exception:  # as for a worker's periodic tasks: the next turn may succeed
            log.exception("the encryption configuration could not be followed")


def _beat(report: int) -> None:
    """Reports once a second that this process runs. Whether the replica keeps up is read from the replica."""
    with contextlib.suppress(BrokenPipeError):  # the supervisor is gone
        while True:
            time.sleep(1.0)
            os.write(report, BEAT)


def _begin(replicator: Replicator, patient: bool) -> LMDBStore:
    """Returns a complete replica. Raises ``StoreError``; if etcd does not answer, only after ``patience_s``, and
    never if ``patient``. An etcd that answered may stop while the replica is filled, for example because its leader
    is lost."""
    until = time.monotonic() + replicator.patience_s
    while True:
        try:
            return replicator.begin()
        except Unavailable as e:
            if not patient and time.monotonic() >= until:
                raise
            log.warning("the replica is rebuilt once etcd answers: %s", e)
            time.sleep(AGAIN_S)


class Cluster:
    """One cluster, its replica, and what keeps the two in step. ``shared`` is the replicator's slot in the shared memory."""

    def __init__(self, o: Completed, config: Config, path: Path, shared: Shared, encryption: EncryptionAtRest | None) -> None:
        self._client = Client(config)
        self.replicator = Replicator(
            self._client, values_of(o), Keys(o.raw.etcd_prefix), path,
            lambda: open_store(str(path), max_size=replica_bytes(o), sync=False, shared=shared),
            encryption.transformer if encryption is not None else None, o.raw.storage_initialization_timeout,
        )  # fmt: skip
        self._config, self._path, self._compact_s = config, path, o.raw.etcd_compaction_interval
        self._shared = shared
        self.replica: LMDBStore | None = None

    def begin(self, alone: bool, patient: bool) -> None:
        """Makes the replica complete, or checks that it can be continued. Raises ``StoreError``, which includes ``Lost``."""
        if alone:
            self._shared.files = NO_FILES  # those of a replicator that died are nobody's
        self.replica = _begin(self.replicator, patient) if alone else self.replicator.resume()

    def run(self) -> int:
        """Follows the cluster until ``replicator.stop()``; returns the exit code. A KMS plug-in that hangs does not
        delay values that do not need it."""
        use_short_timeouts()
        note = read_note(self._path)
        # Only this cluster's history may be compacted.
        client = Client(replace(self._config, cluster_id=note.cluster_id if note is not None else 0))
        compactor = Compactor(client, self._compact_s)
        compactor.start()
        try:
            self.replicator.run()
        except Lost as e:
            log.error("the replica of etcd is rebuilt: %s", e)
            disown(self._path)  # a cluster that went back may have caught up by the next check
            return EXIT_LOST
        finally:
            compactor.stop()
            client.close()
        return 0

    def close(self) -> None:
        """Closes everything; after ``run``."""
        if self.replica is not None:
            self.replica.close()
        self._client.close()


def _begin_all(all_: Sequence[Cluster], report: int, alone: bool, patient: bool) -> int:
    """Makes every replica ready. Returns -1, or an exit code if one fails, with the reason written to ``report``."""
    for followed in all_:
        try:
            followed.begin(alone, patient)
        except Lost:
            return EXIT_LOST
        except Corrupt as e:
            if alone:
                raise
            log.error("the replica of etcd is rebuilt: %s", e)
            return EXIT_LOST
        except StoreError as e:
            os.write(report, f"{'--etcd-servers' if followed is all_[0] else '--etcd-servers-overrides'}: {e}".encode())
            return 1
    return -1


def _run_all(all_: Sequence[Cluster]) -> int:
    """Follows every cluster until one of them ends; returns the exit code. Raises what one of them raises."""

    def stop(*_: object) -> None:
        for followed in all_:
            followed.replicator.stop()

    for s in (signal.SIGTERM, signal.SIGINT):
        signal.signal(s, stop)

    def run(followed: Cluster) -> int:
        try:
            return followed.run()
        finally:
            stop()

    if len(all_) == 1:
        return run(all_[0])
    with ThreadPoolExecutor(len(all_), "kas-replicator") as pool:
        return max(pool.map(run, all_))


def serve(o: Completed, specs: Sequence[str], index: int, report: int, ask: int, alone: bool, patient: bool = False) -> int:
    """Runs the replicator until SIGTERM; returns the exit code.

    - ``specs`` name the memory shared with the workers, one for each of ``clusters``.
    - ``report`` gets "ready" or the reason of a failure, and ``BEAT`` once a second.
    - ``ask`` is read for requests of progress notifications.
    - ``alone``: no worker reads the replicas yet, so they may be thrown away.
    - ``patient``: there was a replicator before, so a cluster that does not answer now is waited for.
    """
    kinds.install()
    encryption = _encryption(o) if o.raw.encryption_provider_config else None
    paths = replica_paths(o)
    all_ = [
        Cluster(o, replace(config, later=patient or not alone), path, Shared.attach(spec, index), encryption)
        for config, path, spec in zip(clusters(o), paths, specs, strict=True)
    ]
    if alone:
        for left in set(o.data_dir.glob("replica-*")) - set(paths):
            discard(left, "no resource is kept there any more")
    code = _begin_all(all_, report, alone, patient)
    if code >= 0:
        return code

    def asked() -> None:
        while wanted := os.read(ask, 65536):
            for i in set(wanted):
                all_[i].replicator.request_progress()

    threading.Thread(target=asked, name="kas-progress", daemon=True).start()
    threading.Thread(target=_beat, args=(report,), name="kas-heartbeat", daemon=True).start()
    if encryption is not None:
        threading.Thread(target=_follow, args=(encryption,), name="kas-encryption", daemon=True).start()
    gc.freeze()  # what exists now lives as long as the process
    gc.set_threshold(*LOOKED_AT)
    os.write(report, b"ready\n")
    try:
        return _run_all(all_)
    finally:
        for followed in all_:
            followed.close()
