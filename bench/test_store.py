"""Store benchmarks. Run with ``python -m pytest bench/test_store.py --benchmark-enable``.

The data is 5,000 pods of 6.9 KB with 100 labels.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from kas.store import Draft, Event, Op, build_record, compile_matcher, frame_record, open_store
from kas.store.hub import Hub
from kas.store.lmdb import LMDBStore

TYPE = b'{"kind":"Pod","apiVersion":"v1",'
PODS = 5000


def draft(name: str, size: int, label: str = "a") -> Draft:
    head = TYPE + b'"metadata":{"name":"%s","namespace":"ns",' % name.encode()
    tail = b'"uid":"u"},"spec":{"data":"%s"}}' % (b"x" * size)
    labels = {"app": label, "tier": "backend", "pod-template-hash": "5d4f8c7b9"}
    fields = {"metadata.name": name, "metadata.namespace": "ns", "spec.nodeName": "node-1", "status.phase": "Running"}
    return build_record(head, tail, labels, fields, len(TYPE), metadata_tail=len(b'"uid":"u"}'))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LMDBStore]:
    store = open_store(str(tmp_path_factory.mktemp("data")), sync=False)
    for first in range(0, PODS, 500):
        ops = [Op(f"/registry/pods/ns/pod-{i:05d}", draft(f"pod-{i:05d}", 6700, f"a{i % 100}"), 0) for i in range(first, first + 500)]
        store.commit_now(*ops)
    yield store
    store.close()


def test_get(store: LMDBStore, benchmark: Any) -> None:
    benchmark(lambda: store.get("/registry/pods/ns/pod-02500").json)


def test_get_sealed(tmp_path: Path, benchmark: Any) -> None:
    """With AES-GCM: the cost of decryption in a read of 6.9 KB."""
    cipher, nonce = AESGCM(b"k" * 32), b"n" * 12

    class Transformer:
        plain, waits, refuses_plain = False, False, ""

        def seal(self, plain: bytes, key: bytes) -> bytes:
            return cipher.encrypt(nonce, plain, key)

        def open(self, sealed: bytes, key: bytes) -> tuple[bytes, bool]:
            return cipher.decrypt(nonce, sealed, key), False

    store = open_store(str(tmp_path), sync=False, transformers=lambda key: Transformer())
    store.commit_now(Op("/registry/secrets/ns/a", draft("a", 6700), 0))
    benchmark(lambda: store.get("/registry/secrets/ns/a").json)
    store.close()


def test_read_events(store: LMDBStore, benchmark: Any) -> None:
    events, reached = benchmark(lambda: store.events("/registry/pods/", 0, 512, 1 << 30))
    assert len(events) == reached == 512


def test_compact(tmp_path: Path, benchmark: Any) -> None:
    """The history of 2,000 creates of 1.5 KB, forgotten in one step."""
    numbers = itertools.count()

    def fill() -> tuple[tuple[LMDBStore], dict[str, Any]]:
        store = open_store(str(tmp_path / str(next(numbers))), sync=False)
        store.commit_now(*(Op(f"/registry/configmaps/ns/{i}", draft(f"{i}", 1300), 0) for i in range(2000)))
        return (store,), {}

    def compact(store: LMDBStore) -> None:
        assert store.compact(2000, 5000)
        store.close()

    benchmark.pedantic(compact, setup=fill, rounds=5)


def test_list_500(store: LMDBStore, benchmark: Any) -> None:
    result = benchmark(lambda: store.range_json("/registry/pods/", limit=500, count=True))
    assert (result.count, result.remaining) == (500, PODS - 500)


def test_list_5000(store: LMDBStore, benchmark: Any) -> None:
    result = benchmark(lambda: store.range_json("/registry/pods/", wrap=lambda r: (b'{"items":[', b"]}\n")))
    assert result.count == PODS


def test_list_by_label(store: LMDBStore, benchmark: Any) -> None:
    matcher = compile_matcher([("app", "=", ("a7",))])
    result = benchmark(lambda: store.range_json("/registry/pods/", matcher=matcher))
    assert result.count == 50


def test_list_by_field(store: LMDBStore, benchmark: Any) -> None:
    matcher = compile_matcher((), [("spec.nodeName", "=", "node-2")])
    assert benchmark(lambda: store.range_json("/registry/pods/", matcher=matcher)).count == 0


def test_build_record(benchmark: Any) -> None:
    benchmark(lambda: draft("pod-00001", 1500))


def test_frame(store: LMDBStore, benchmark: Any) -> None:
    record = store.get("/registry/pods/ns/pod-02500")
    assert record is not None
    benchmark(lambda: frame_record("MODIFIED", record))


@pytest.mark.parametrize("clients", [1, 64])
@pytest.mark.parametrize("sync", [True, False], ids=["durable", "no-fsync"])
def test_create(tmp_path: Path, benchmark: Any, clients: int, sync: bool) -> None:
    """Time of `clients` concurrent creates of 1.5 KB."""
    loop = asyncio.new_event_loop()
    store = open_store(str(tmp_path), sync=sync)
    store.start(loop)
    numbers = itertools.count()

    async def create() -> None:
        futures = []
        for _ in range(clients):
            name = f"c{next(numbers)}"
            futures.append(store.commit(Op(f"/registry/configmaps/ns/{name}", draft(name, 1300), 0)))
        await asyncio.gather(*futures)

    benchmark(lambda: loop.run_until_complete(create()))
    store.close()
    loop.close()


@pytest.mark.parametrize(("watchers", "by_node"), [(1, False), (1000, False), (1000, True)])
def test_dispatch(benchmark: Any, watchers: int, by_node: bool) -> None:
    """One event to one of so many watchers, each of a namespace or of the pods of a node, and taken."""
    events: list[Any] = []

    class FakeEvent:
        key = "/registry/pods/ns7/a"
        error = None

        def __init__(self, revision: int) -> None:
            self.revision = revision

        def __len__(self) -> int:
            return 2000

        def values(self, field: str) -> tuple[str, ...]:
            return ("node-7",)

    hub = Hub(lambda prefix, after, limit: ([], after), lambda: 0, 0)
    streams = [
        hub.watch("/registry/pods/", 0, lambda: None, None, 1024, ("spec.nodeName", f"node-{i}"))
        if by_node
        else hub.watch(f"/registry/pods/ns{i}/", 0, lambda: None, None, 1024)
        for i in range(7, 7 + watchers)
    ]
    revisions = itertools.count(1)

    def one() -> None:
        revision = next(revisions)
        hub.publish([cast(Event, FakeEvent(revision))], revision - 1, revision)
        events[:] = streams[0].take()

    benchmark(one)
    assert len(events) == 1
