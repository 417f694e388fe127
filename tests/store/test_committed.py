"""The record of the committed revision beside the data file: a data file that lost committed data is refused, with an error that says what
to do."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest

from kas.store import Corrupt, Op, build_record, open_store
from kas.store.lmdb.committed import Committed

LIMIT = 64 << 20


def put(key: str, size: int = 100) -> Op:
    return Op(key, build_record(b'{"metadata":{', b'"x":1},"d":"%s"}' % (b"x" * size)), None)


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """Returns the directory of a closed store with forty revisions."""
    store = open_store(str(tmp_path), max_size=LIMIT, sync=False)
    for i in range(40):
        store.commit_now(put(f"/registry/x/{i:03d}", i * 150))
    store.close()
    return tmp_path


def refused(path: Path) -> str:
    with pytest.raises(Corrupt) as e:
        open_store(str(path), max_size=LIMIT, sync=False)
    text = str(e.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize("how", ["emptied", "gone"])
def test_an_empty_data_file_is_refused_and_not_initialized(written: Path, how: str) -> None:
    data = written / "data.mdb"
    data.write_bytes(b"") if how == "emptied" else data.unlink()
    text = refused(written)
    assert "revision 40 was committed" in text and "restore it from a backup" in text and f"remove {written / 'committed'}" in text
    # Following the advice of the error message works.
    (written / "committed").unlink()
    store = open_store(str(written), max_size=LIMIT, sync=False)
    assert store.revision == 0
    store.close()


def test_an_older_file_is_refused(written: Path) -> None:
    shutil.copy(written / "data.mdb", written / "old")
    store = open_store(str(written), max_size=LIMIT, sync=False)
    store.commit_now(put("/registry/x/new"))
    store.close()
    shutil.copy(written / "old", written / "data.mdb")
    assert "at revision 40, but revision 41 was committed" in refused(written)


@pytest.mark.parametrize("keep", [1, 4096, 8191, 8192, 3 << 14])
def test_a_cut_off_file(written: Path, keep: int) -> None:
    os.truncate(written / "data.mdb", keep)
    assert "restore" in refused(written)


def test_an_incomplete_copy_is_refused(written: Path) -> None:
    """The file has its full length, but only its first part was copied."""
    size = (written / "data.mdb").stat().st_size
    os.truncate(written / "data.mdb", 3 << 14)
    os.truncate(written / "data.mdb", size)
    assert "restore it from a backup" in refused(written)


def test_another_programs_database(tmp_path: Path) -> None:
    import lmdb

    env = lmdb.open(str(tmp_path), max_dbs=8)
    with env.begin(write=True) as txn:
        txn.put(b"theirs", b"1")
    env.close()
    before = (tmp_path / "data.mdb").read_bytes()
    assert "another program's database" in refused(tmp_path)
    assert (tmp_path / "data.mdb").read_bytes() == before


def test_an_invalid_record_is_ignored(written: Path) -> None:
    (written / "committed").write_bytes(b"x")
    store = open_store(str(written), max_size=LIMIT, sync=False)
    assert store.revision == 40
    store.close()
    # It was created anew.
    (written / "data.mdb").write_bytes(b"")
    assert "revision 40 was committed" in refused(written)


def test_a_record_is_never_read_half_written(tmp_path: Path) -> None:
    record, below, above = Committed(str(tmp_path)), (1 << 32) - 1, 1 << 32
    record.open()
    record.note(below)
    child = os.fork()
    if not child:  # another worker
        while True:
            record.note(below)
            record.note(above)
    try:
        assert {record.read() for _ in range(100_000)} <= {below, above}
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        record.close()
