"""The values of a cluster are rewritten page by page while it is used."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kas.registry.etcdvalues import StoredValues
from kas.registry.registries import Registries
from kas.storage import main, migrate_etcd
from kas.storage.migrate_etcd import EtcdMigration
from kas.store.etcd import etcd_pb2 as pb
from kas.store.etcd.client import COMPACT, PUT, RANGE, Client
from kas.store.etcd.layout import Keys
from kas.types.scheme import BUILTIN
from tests.etcd import Etcd
from tests.storage.places import config_map

OBJECTS = 7


class Disturbed(EtcdMigration):
    """Runs a function before each page is read."""

    disturb: Callable[[int], Any]

    def _pages(self) -> Iterator[Any]:
        for n, page in enumerate(super()._pages()):
            self.disturb(n)
            yield page


@pytest.fixture
def client(etcd: Etcd) -> Iterator[Client]:
    client = Client(etcd.config)
    yield client
    client.close()


@pytest.fixture
def migration(etcd: Etcd, prefix: str, client: Client, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disturbed]:
    monkeypatch.setattr(migrate_etcd, "PAGE", 3)
    registries = Registries(None, lambda: "")  # type: ignore[arg-type]
    registries.add_stored(BUILTIN.resources, BUILTIN.resource, 0, {})
    for i in range(OBJECTS):
        client.call(PUT, pb.PutRequest(key=f"{prefix}/configmaps/ns/c{i}".encode(), value=config_map(f"c{i}")))
    migration = Disturbed(etcd.config, Keys(prefix), StoredValues(registries), None)
    yield migration
    migration.close()


def test_compaction_during_a_migration_is_harmless(migration: Disturbed, client: Client, prefix: str) -> None:
    """Servers compact while a migration runs for hours."""
    seen: list[int] = []

    def disturb(page: int) -> None:
        seen.append(page)
        newest = client.call(PUT, pb.PutRequest(key=prefix.encode() + b"x")).header.revision
        client.call(COMPACT, pb.CompactionRequest(revision=newest))

    migration.disturb = disturb
    done = migration.run()
    assert (done.seen, done.written, done.failed, seen) == (OBJECTS, OBJECTS, [], [0, 1, 2])
    kvs = client.range(f"{prefix}/configmaps/".encode()).kvs
    assert len(kvs) == OBJECTS and all(kv.value.startswith(b"k8s\0") and kv.version == 2 for kv in kvs)
    migration.disturb = lambda page: None
    assert migration.run().written == 0


def test_concurrent_writes_are_kept(migration: Disturbed, client: Client, prefix: str) -> None:
    key = f"{prefix}/configmaps/ns/c1".encode()
    newer = config_map("c1", "newer")
    migration.disturb = lambda page: page or client.call(PUT, pb.PutRequest(key=key, value=newer))
    done = migration.run()
    assert (done.seen, done.written) == (OBJECTS, OBJECTS - 1)
    assert client.call(RANGE, pb.RangeRequest(key=key)).kvs[0].value == newer


def test_an_interrupt_is_one_line(migration: Disturbed, etcd: Etcd, prefix: str, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: EtcdMigration) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(EtcdMigration, "run", interrupted)
    assert main(["migrate", "--storage-backend=etcd3", f"--etcd-servers={etcd.url}", f"--etcd-prefix={prefix}"]) == 130
    said = "kas: interrupted; what was written again stays so, and the same command again writes the rest\n"
    assert capsys.readouterr().err == said
