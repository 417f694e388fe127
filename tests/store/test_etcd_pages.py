"""Ranges of etcd are read in pages whose size in memory is bounded, however large the values are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kas.registry.etcdvalues import custom
from kas.store.etcd import etcd_pb2 as pb
from kas.store.etcd import pages as paging
from kas.store.etcd.client import PUT, RANGE, Client, TooLarge
from kas.store.etcd.pages import pages
from tests.etcd import Etcd
from tests.store.test_etcd_store import Server

MOST = 1 << 20
SMALL, LARGE, HUGE = 10, 200_000, 1_400_000


@pytest.fixture
def etcd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Etcd]:
    monkeypatch.setattr(paging, "PAGE_BYTES", MOST)
    with Etcd(tmp_path) as etcd:
        yield etcd


@pytest.fixture
def client(etcd: Etcd) -> Iterator[Client]:
    client = Client(etcd.config)
    for i, size in enumerate([SMALL] * 20 + [LARGE] * 12 + [HUGE] * 2 + [SMALL] * 8):
        value = b'{"apiVersion":"a.io/v1","kind":"A","metadata":{"name":"%03d"},"x":"%b"}\n' % (i, b"x" * size)
        client.call(PUT, pb.PutRequest(key=b"/registry/a.io/as/ns/%03d" % i, value=value))
    yield client
    client.close()


def test_a_page_has_as_many_keys_as_fit(client: Client) -> None:
    found = list(pages(client, b"/registry/"))
    assert [kv.key[-3:] for page in found for kv in page.kvs] == [b"%03d" % i for i in range(42)]
    assert all(page.ByteSize() <= MOST or len(page.kvs) == 1 for page in found)
    assert max(len(page.kvs) for page in found) > 1
    assert [kv.key[-3:] for page in pages(client, b"/registry/", start=b"/registry/a.io/as/ns/040") for kv in page.kvs] == [b"040", b"041"]


def test_later_pages_are_read_at_the_first_ones_revision_unless_moving(client: Client) -> None:
    def names(moving: bool) -> list[bytes]:
        found = []
        for page in pages(client, b"/registry/", most=20, moving=moving):
            found += [kv.key[-3:] for kv in page.kvs]
            if len(found) == 20:
                client.call(PUT, pb.PutRequest(key=b"/registry/a.io/as/ns/zzz", value=b"x"))
        return found

    assert b"zzz" not in names(False)
    assert names(True)[-1] == b"zzz"


def test_an_answer_larger_than_the_limit_is_refused(client: Client) -> None:
    everything = pb.RangeRequest(key=b"/registry/", range_end=b"/registry0")
    with pytest.raises(TooLarge, match="a message of 5"):
        client.call(RANGE, everything, most=MOST)
    assert len(client.call(RANGE, everything).kvs) == 42


def test_a_replica_is_filled_by_pages_within_the_limit(etcd: Etcd, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    call = Client.call

    def spy(self, what, *args, **more):
        answer = call(self, what, *args, **more)
        if what is RANGE and len(answer.kvs) > 1:
            read.append(answer.ByteSize())
        return answer

    monkeypatch.setattr(Client, "call", spy)
    server = Server(etcd, tmp_path / "replica")
    try:
        assert server.store.count("/registry/a.io/as/") == 42 and max(read) <= MOST
        record = server.store.get("/registry/a.io/as/ns/032")
        assert record is not None and len(record.json) > HUGE and custom(record.json, ()) is not None
        beside = server.store.at_revision("/registry/a.io/as/", False, 0)
        assert beside.count("/registry/a.io/as/") == 42 and max(read) <= MOST
        beside.close()
    finally:
        server.stop()
