"""A damaged data file ends in a result or a typed error, never in a crash or a hang. ``KAS_DAMAGE_CASES`` sets the number of cases."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from kas.store import Corrupt, Op, build_record, open_store

READER = Path(__file__).with_name("store_damage.py")
CASES = int(os.environ.get("KAS_DAMAGE_CASES", "40"))


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Returns the data file of a store with small and large records, history and leases."""
    path = tmp_path_factory.mktemp("image")
    store = open_store(str(path), max_size=64 << 20, sync=False)
    for i in range(60):
        record = build_record(b'{"metadata":{', b'"x":1},"d":"%s"}' % (b"x" * (i * 150)), {"a": "b"}, lease_s=i % 3 * 1000)
        store.commit_now(Op(f"/registry/x/{i % 40:03d}", record))
    store.close()
    return (path / "data.mdb").read_bytes()


def damage(image: bytes, rng: random.Random) -> bytes:
    data = bytearray(image)
    page = rng.randrange(len(data) // 4096) * 4096
    kind = rng.randrange(4)
    if kind == 0:
        for _ in range(rng.choice([1, 3, 30])):
            data[rng.randrange(len(data))] = rng.randrange(256)
    elif kind == 1:
        data[page : page + 4096] = rng.randbytes(4096)
    elif kind == 2:
        for _ in range(4):
            data[page + rng.randrange(64)] = rng.randrange(256)
    else:
        del data[rng.randrange(len(data)) :]
    return bytes(data)


def test_damaged_bytes(image: bytes, tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    ends = set()
    for case in range(CASES):
        path = tmp_path / str(case)
        path.mkdir()
        (path / "data.mdb").write_bytes(damage(image, random.Random(case)))
        run = subprocess.run([sys.executable, str(READER), str(path)], capture_output=True, text=True, env=env, timeout=60, check=False)
        assert run.returncode == 0, f"case {case} ended with {run.returncode}: {run.stderr[-500:]}"
        ends.add(run.stdout.strip())
    assert "refused Corrupt" in ends


def test_a_truncated_file_has_its_own_error(image: bytes, tmp_path: Path) -> None:
    (tmp_path / "data.mdb").write_bytes(image[: len(image) // 2])
    with pytest.raises(Corrupt, match="cut off"):
        open_store(str(tmp_path), max_size=64 << 20)


def test_file_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "data.mdb").write_bytes(b"not a database" * 1000)
    with pytest.raises(Corrupt):
        open_store(str(tmp_path), max_size=64 << 20)


def test_other_format_version(tmp_path: Path) -> None:
    import lmdb

    env = lmdb.open(str(tmp_path), max_dbs=8)
    with env.begin(write=True) as txn:
        txn.put(b"kas.format", b"99")
    env.close()
    with pytest.raises(Corrupt, match="data format 99"):
        open_store(str(tmp_path), max_size=64 << 20)
