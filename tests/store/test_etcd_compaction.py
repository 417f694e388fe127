"""Which process compacts etcd's history."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kas.store.errors import Compacted
from kas.store.etcd import etcd_pb2 as pb
from kas.store.etcd.client import PUT, RANGE, Client
from kas.store.etcd.compactor import KEY, Compactor
from tests.controllers.waiting import until
from tests.etcd import Etcd


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with Etcd(tmp_path) as etcd:
        client = Client(etcd.config)
        yield client
        client.close()


def turns(client: Client) -> int:
    kvs = client.call(RANGE, pb.RangeRequest(key=KEY)).kvs
    return kvs[0].version if kvs else 0


def compactors() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "kas-compactor"}


def test_without_an_interval_kas_does_not_compact(client: Client) -> None:
    """With ``--etcd-compaction-interval=0``, etcd compacts itself, or another program has it compact."""
    idle, busy, others = Compactor(client, 0), Compactor(client, 0.01), compactors()
    idle.start()
    assert compactors() <= others
    busy.start()
    assert compactors() - others
    first = client.call(PUT, pb.PutRequest(key=b"/registry/a")).header.revision
    until(lambda: turns(client) >= 3)
    until(lambda: _forgotten(client, first))
    busy.stop()
    until(lambda: compactors() <= others)
    assert idle.version == 0


def _forgotten(client: Client, revision: int) -> bool:
    client.call(PUT, pb.PutRequest(key=b"/registry/a"))
    try:
        client.call(RANGE, pb.RangeRequest(key=b"/registry/a", revision=revision))
    except Compacted:
        return True
    return False
