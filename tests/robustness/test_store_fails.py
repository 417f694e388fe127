"""A failing disk is reported as such, and not as a full one: nothing of the write is kept, reads continue, and health says why."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from kas.endpoints import translate
from kas.store import Failed, open_store
from kas.store._engine import Env
from kas.store.lmdb import ballast
from tests.robustness.shims import SlowDisk

WRITES = """
import sys
from kas.store import Op, StoreError, build_record, open_store

store = open_store(sys.argv[1])
store.start()
for line in sys.stdin:
    key = "/registry/a/" + line.strip()
    try:
        store.commit_now(Op(key, build_record(b"{}", b"")))
    except StoreError as e:
        said = f"{type(e).__name__}: {e}"
    else:
        said = "written"
    print(f"{said}|{store.lost()}|{store.full()}|{store.count('/registry/a/')}", flush=True)
store.close()
"""


def test_a_failing_disk_is_not_reported_as_full(tmp_path: Path) -> None:
    disk = SlowDisk()
    command = [sys.executable, "-c", WRITES, str(tmp_path / "store")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=disk.before) as process:
        assert process.stdin is not None and process.stdout is not None
        disk.watch()

        def write(name: str) -> str:
            process.stdin.write(name + "\n")  # type: ignore[union-attr]
            process.stdin.flush()  # type: ignore[union-attr]
            return process.stdout.readline().strip()  # type: ignore[union-attr]

        assert write("a") == "written|||1"
        disk.error = errno.EIO
        assert write("b") == "Failed: writing: Input/output error|writing: Input/output error||1"
        disk.error = 0
        assert write("c") == "written|||2", "what the disk takes again is no failure any more"
        process.stdin.close()
        assert process.wait(30) == 0
    disk.close()
    store = open_store(str(tmp_path / "store"))
    assert [r.key for r in store.range("/registry/a/").records] == ["/registry/a/a", "/registry/a/c"]
    store.close()


def test_answers_name_the_disks_error() -> None:
    error = translate(Failed("writing: Input/output error"))
    assert error is not None and (error.code, error.reason) == (500, "InternalError")
    assert error.message == "Internal error occurred: writing: Input/output error"


@pytest.mark.parametrize(
    ("of", "no_room"), [(errno.ENOSPC, True), (errno.EDQUOT, True), (errno.EFBIG, True), (errno.EIO, False), (0, False)]
)
def test_a_partial_write_is_reported_as_a_full_disk(of: int, no_room: bool, tmp_path: Path) -> None:
    """LMDB reports EIO for both."""

    class OneThatRefuses:
        def end(self) -> int:
            return 0

        def put_ahead(self, fd: int, step: int) -> int:
            assert step == ballast.PAGE
            if of:
                raise OSError(of, "refused")
            return step

    (tmp_path / "data.mdb").write_bytes(b"")
    env: Env = OneThatRefuses()  # type: ignore[assignment]
    assert ballast.no_room(env, str(tmp_path / "data.mdb")) is no_room
