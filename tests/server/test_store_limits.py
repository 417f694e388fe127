"""A full LMDB store, and damaged store files, as clients and operators see them. On etcd the file is a replica: it is rebuilt
(tests/store/test_etcd_store.py), and etcd reports when it is full."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kas.testing.server import KasServer
from tests.conftest import Client
from tests.controllers.waiting import until

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


def create(client: Client, name: str, size: int = 100_000):
    return client("POST", CONFIG_MAPS, {"metadata": {"name": name}, "data": {"k": "x" * size}})


def test_a_full_store_is_reported_and_works_again_after_deletes(tmp_path: Path):
    with KasServer(tmp_path, "--unsafe-no-fsync", "--store-max-size", "16Mi", "--controllers", "none", "--storage-backend=lmdb") as server:
        client = Client(server)

        def told() -> bool:
            """Whether /readyz reports the full store; a small write, as of a lease, may still have had space."""
            nonlocal count
            count += create(client, f"c{count}")[0] == 201
            status, text = client("GET", "/readyz")
            return status == 500 and "[-]etcd-space failed" in text

        for _turn in range(2):
            count = 0
            while True:
                status, body = create(client, f"c{count}")
                if status != 201:
                    break
                count += 1
                assert count < 1000, "it never became full"
            # The message with which kube-apiserver passes on etcd's error.
            assert (status, body.get("reason"), body["message"]) == (500, None, "etcdserver: mvcc: database space exceeded")
            assert body["kind"] == "Status" and count > 50
            assert client("GET", f"{CONFIG_MAPS}/c0")[0] == 200
            until(told)
            assert client("GET", "/livez")[0] == 200
            for i in range(count):
                assert client("DELETE", f"{CONFIG_MAPS}/c{i}")[0] == 200
            assert create(client, "after", 100)[0] == 201
            assert client("GET", "/readyz") == (200, "ok")
            assert client("DELETE", f"{CONFIG_MAPS}/after")[0] == 200


def started(directory: Path) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "kas.cli", "serve", "--data-dir", str(directory / "data"), "--secure-port", "auto", "--workers", "2"]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def emptied(data: Path) -> None:
    os.truncate(data, 0)


def halved(data: Path) -> None:
    os.truncate(data, data.stat().st_size // 8192 * 4096)


def foreign(data: Path) -> None:
    data.write_bytes(b"SQLite format 3\0" * 4096)


def half_written(data: Path) -> None:
    size = data.stat().st_size
    os.truncate(data, 3 * 4096)
    os.truncate(data, size)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (emptied, "was committed to it: restore it from a backup, or remove"), (halved, "restore the data directory from a backup"),
        (foreign, "was not written by this program"), (half_written, "restore it from a backup"),
    ],
)  # fmt: skip
def test_a_damaged_store_is_refused_with_advice(tmp_path: Path, damage, says: str):
    with KasServer(tmp_path, "--unsafe-no-fsync", "--storage-backend=lmdb") as server:
        client = Client(server)
        assert client("POST", CONFIG_MAPS, {"metadata": {"name": "kept"}})[0] == 201
        deadline = time.monotonic() + 60
        while client("GET", "/readyz")[0] != 200:
            assert time.monotonic() < deadline
    damage(tmp_path / "data" / "store" / "data.mdb")
    done = started(tmp_path)
    lines = done.stderr.splitlines()
    assert done.returncode == 1 and len(lines) == 1, done.stderr
    assert says in lines.pop()
