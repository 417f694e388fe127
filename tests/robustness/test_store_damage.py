"""A damaged data file ends in a result or a typed error, never in a crash or a hang. ``KAS_DAMAGE_CASES`` sets the number of cases."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import requests

from kas.store import Corrupt, Op, build_record, open_store
from kas.store.etcd.replica import NOTE
from tests.etcd import Etcd
from tests.processes import children
from tests.server.test_flag_effects import until

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


@pytest.mark.lmdb  # etcd's replica has one writer
@pytest.mark.parametrize("name", ["lock.mdb", "data.mdb"])
def test_no_worker_opens_other_files_than_the_rest(name: str, kas_server, connect) -> None:
    """With a lock file of its own a worker would write at the same time as another, and each over what the other wrote."""
    server = kas_server("--controllers=none", workers=2)
    client, config_maps = connect(server), "/api/v1/namespaces/default/configmaps"
    assert client("POST", config_maps, {"metadata": {"name": "kept"}})[0] == 201
    file = server.data_dir / "store" / name
    file.rename(file.with_suffix(".moved"))
    reason = f"internal server error: {file} is not the file that was opened\n"
    assert client("GET", "/readyz/etcd-readiness") == (500, reason) and client("GET", "/livez") == (200, "ok")
    os.kill(server.worker_pids()[0], signal.SIGKILL)
    assert server.process.wait(60) == 1
    server.stop()  # all of its output is there
    where = file.parent
    assert f"kas: a file of the store in {where} was removed or replaced while the server used it\n" in server.output
    file.with_suffix(".moved").rename(file)
    server.start()
    assert client("GET", f"{config_maps}/kept")[0] == 200


@pytest.mark.parametrize("name", ["lock.mdb", NOTE])
def test_a_replica_whose_files_are_gone_is_made_anew_with_all_its_readers(name: str, kas_server, connect, tmp_path: Path) -> None:
    """When the process that fills it is replaced: with a lock file of its own it would write over what workers read."""
    with Etcd(tmp_path) as etcd:
        server = kas_server("--storage-backend=etcd3", f"--etcd-servers={etcd.url}", "--controllers=none")
        client, config_maps = connect(server), "/api/v1/namespaces/default/configmaps"
        assert client("POST", config_maps, {"metadata": {"name": "kept"}})[0] == 201
        (file,) = server.data_dir.rglob(name)
        file.unlink()
        if name == "lock.mdb":
            assert client("GET", "/readyz/etcd-readiness") == (500, f"internal server error: {file} is not the file that was opened\n")
        (replicator,) = (pid for pid, called in children(server.pid).items() if called == "kas-replicator")
        before = server.worker_pids()
        os.kill(replicator, signal.SIGKILL)
        until(lambda: "the replica of etcd cannot be continued; the workers are restarted" in server.output)
        until(lambda: not set(before) & set(server.worker_pids()))

        def ready() -> bool:
            with contextlib.suppress(requests.ConnectionError):
                return client("GET", "/readyz")[0] == 200
            return False

        until(ready)
        assert client("GET", f"{config_maps}/kept")[0] == 200 and client("POST", config_maps, {"metadata": {"name": "new"}})[0] == 201
