"""``kas storage check`` finds errors in what is stored, and nothing else."""

from __future__ import annotations

from pathlib import Path

import lmdb
import orjson
import pytest

from kas.storage import main
from kas.storage.places import Forms
from kas.store import Op, build_record
from kas.store.etcd import etcd_pb2 as pb
from kas.store.etcd.client import PUT, Client
from tests.etcd import Etcd
from tests.storage.places import MADE, MAPS, WIDGET, config_map, make_etcd, make_lmdb, opened, write


def findings(capsys, *args: str) -> list[str]:
    code = main(["check", "--from", *args])
    out = capsys.readouterr().out.splitlines()
    assert code == (1 if out else 0)
    return out


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    make_lmdb(tmp_path / "a", 5)
    return tmp_path / "a"


def draft(text: bytes):
    return Forms().values.decode(MAPS + "x", text)


def test_a_store_with_all_kinds_of_writes_has_no_findings(data_dir: Path, capsys) -> None:
    store = opened(data_dir)
    for i in range(30):
        write(store, {MAPS + f"c000{i % 5}": config_map(f"c000{i % 5}", str(i))})
    store.compact(20)
    store.commit_now(Op(MAPS + "c0001", None))
    store.commit_now(Op(MAPS + "c0001", draft(config_map("c0001"))), Op(MAPS + "c0002", None), one_revision=True)
    store.commit_now(Op(WIDGET, None))
    store.close()
    assert findings(capsys, f"lmdb:{data_dir}") == []


def test_objects_under_wrong_keys_and_with_wrong_fields(data_dir: Path, capsys) -> None:
    good = draft(config_map("c9", labels={"a": "b"}))
    secret = Forms().values.decode("/registry/secrets/ns/s", orjson.dumps({
        "kind": "Secret", "apiVersion": "v1", "metadata": {"name": "s", "namespace": "ns", "creationTimestamp": "2024-01-02T03:04:05Z"},
    }))  # fmt: skip
    store = opened(data_dir)
    fields = {"metadata.name": "c9", "metadata.namespace": "ns"}
    store.commit_now(Op(MAPS + "other", good))
    store.commit_now(Op(MAPS + "s", secret))
    store.commit_now(Op(MAPS + "c9", build_record(good.head, good.tail, {"a": "c"}, fields, good.type_prefix_len, 0, good.metadata_tail)))
    store.commit_now(Op(MAPS + "c8", build_record(b'{"metadata":{', b"}}{", {}, {}, 1)))
    store.close()
    out = findings(capsys, f"lmdb:{data_dir}")
    assert f"{MAPS}other: holds ns/c9" in out
    assert f"{MAPS}c9: has the labels {{'a': 'b'}}, and is found by {{'a': 'c'}}" in out
    assert any(line.startswith(f"{MAPS}c8: cannot be read: ") for line in out)
    assert any(line.startswith(f"{MAPS}s: ") for line in out)


def test_missing_history_and_leases(data_dir: Path, capsys) -> None:
    """An entry of the log, and the table of expiring keys, are removed from the store."""
    with lmdb.open(str(data_dir / "store"), max_dbs=16) as env, env.begin(write=True) as txn:
        cursor = txn.cursor(env.open_db(b"log", txn, create=False))
        assert cursor.last() and cursor.prev() and cursor.delete()
        txn.drop(env.open_db(b"expiry", txn, create=False), delete=False)
    assert findings(capsys, f"lmdb:{data_dir}") == [
        f"{MAPS}c0004: has revision 7, and the history has no write",
        "/registry/events/ns/e: has a lease, and is not in the table of expiring keys",
    ]


def test_a_history_with_a_gap(data_dir: Path, capsys) -> None:
    store = opened(data_dir)
    for i in range(3):
        write(store, {MAPS + "c0000": config_map("c0000", str(i))})
    store.close()
    with lmdb.open(str(data_dir / "store"), max_dbs=16) as env, env.begin(write=True) as txn:
        cursor = txn.cursor(env.open_db(b"log", txn, create=False))
        assert cursor.last() and cursor.prev() and cursor.delete()
    out = findings(capsys, f"lmdb:{data_dir}")
    why = f"the log and the record of {MAPS}c0000 do not fit together"
    assert len(out) == 1 and out[0].startswith(f"history: cannot be read behind revision 0: {why}")


def test_values_in_etcd(etcd: Etcd, prefix: str, capsys) -> None:
    place = make_etcd(etcd, prefix, 3)
    assert findings(capsys, place, f"--prefix={prefix}") == []
    client = Client(etcd.config)
    client.call(PUT, pb.PutRequest(key=f"{prefix}/pods/ns/p".encode(), value=b"k8s\0nonsense"))
    client.call(PUT, pb.PutRequest(key=f"{prefix}/configmaps/ns/moved".encode(), value=config_map("c0000")))
    client.call(PUT, pb.PutRequest(key=f"{prefix}/acme.io/widgets/w".encode(), value=orjson.dumps({
        "kind": "Widget", "apiVersion": "acme.io/v1", "metadata": {"name": "w", "namespace": "ns", "creationTimestamp": MADE},
    })))  # fmt: skip
    client.close()
    out = findings(capsys, place, f"--prefix={prefix}")
    wrong = ["/registry/acme.io/widgets/w", f"{MAPS}moved", "/registry/pods/ns/p"]
    assert [line.partition(": ")[0] for line in out] == wrong
    assert "/registry/configmaps/ns/moved: holds ns/c0000" in out
