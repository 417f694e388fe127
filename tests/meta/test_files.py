"""A file that is written completely or not at all, and one that others write."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from kas.meta import files
from kas.meta.files import read_configuration, write_whole


def test_it_replaces_the_file_with_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "key"
    write_whole(path, b"one")
    before = path.open("rb")
    write_whole(path, b"another")
    assert (path.read_bytes(), before.read()) == (b"another", b"one")
    before.close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and os.listdir(tmp_path) == ["key"]


def test_data_are_synced_before_the_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    sync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (steps.append(f"sync {os.fstat(fd).st_size}"), sync(fd)))
    monkeypatch.setattr(os, "replace", lambda a, b: (steps.append("replace"), replace(a, b)))
    write_whole(tmp_path / "key", b"seven b")
    assert steps == ["sync 7", "replace"]


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "key"
    write_whole(path, b"one")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_whole(path, b"another")
    assert path.read_bytes() == b"one"


def test_a_pipe_is_no_configuration(tmp_path: Path) -> None:
    """The read of one blocked the event loop for as long as nobody wrote to it."""
    path = str(tmp_path / "pipe")
    os.mkfifo(path)
    with pytest.raises(OSError, match="not a regular file"):
        read_configuration(path)
    with pytest.raises(OSError, match="not a regular file"):
        read_configuration("/dev/null")
    with pytest.raises(IsADirectoryError):
        read_configuration(str(tmp_path))


def test_a_configuration_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "CONFIGURATION_BYTES", 10)
    path = tmp_path / "file"
    path.write_bytes(b"x" * 10)
    assert read_configuration(str(path)) == b"x" * 10
    path.write_bytes(b"x" * 11)
    with pytest.raises(OSError, match="File too large"):
        read_configuration(str(path))
