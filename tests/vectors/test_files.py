"""The files of recorded answers: where they are found, which are run and which are skipped."""

from __future__ import annotations

import gzip
import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from tests.vectors import conftest, files
from tests.vectors.files import DATA

RIGHT = {"id": "quantity/more/1", "in": {"json": '"1"'}, "out": {"error": None, "string": "1"}}
WRONG = {"id": "quantity/more/2", "in": {"json": '"1"'}, "out": {"error": None, "string": "2"}}


def run(directory: Path, **env: str) -> subprocess.CompletedProcess:
    """A run of the vectors of another directory."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", str(Path(__file__).with_name("test_vectors.py")), "-rs"],
        env={**{k: v for k, v in os.environ.items() if k not in ("CI", "KAS_VECTOR_KIND")}, "KAS_VECTORS": str(directory), **env},
        capture_output=True,
        text=True,
        check=False,
        cwd=DATA.parents[2],
    )


def test_every_file_is_described_and_compressed_alike():
    described = (DATA / "README.md").read_text()
    for path in DATA.rglob("*.jsonl*"):
        assert path.name.endswith(".jsonl.gz"), f"{path} is not compressed"
        assert path.name.removesuffix(".jsonl.gz") in described, path
        magic, method, flags, mtime = struct.unpack("<HBBI", path.read_bytes()[:8])
        assert (magic, method, flags, mtime) == (0x8B1F, 8, 0, 0), f"{path} holds a name or a time"


def test_every_kind_is_checked_by_a_module_or_test():
    kinds = {path.relative_to(DATA).as_posix().partition(".")[0] for path in DATA.rglob("*.jsonl*")}
    assert [kind for kind in sorted(kinds) if kind not in conftest.ELSEWHERE and not conftest.script(kind).exists()] == []
    named = {word for text in conftest.ELSEWHERE.values() for word in text.split() if word.startswith("tests/")}
    assert [word for word in sorted(named) if not (DATA.parents[2] / word).exists()] == []


def test_ids_are_unique():
    ids = [v["id"] for paths in files.files().values() for path in paths for v in files.read(path)]
    assert len(ids) == len(set(ids))


def test_a_new_file_of_a_known_kind_needs_no_code(tmp_path):
    (tmp_path / "quantity.jsonl").write_text(json.dumps(RIGHT) + "\n\n")
    (tmp_path / "quantity.more.jsonl.gz").write_bytes(gzip.compress(json.dumps(WRONG).encode()))
    done = run(tmp_path)
    assert done.returncode == 1, done.stdout
    assert "1 of 2 pass" in done.stdout and "quantity/more/2" in done.stdout


def test_a_file_of_an_unknown_kind_is_named_and_skipped(tmp_path):
    (tmp_path / "security").mkdir()
    for name in ("quantity.jsonl", "weather.jsonl", "security/doors.jsonl"):
        (tmp_path / name).write_text(json.dumps(RIGHT))
    done = run(tmp_path)
    assert done.returncode == 0, done.stdout
    assert "1 of 1 pass" in done.stdout
    for kind in ("weather", "security/doors"):
        assert any(line.split(maxsplit=1) == [kind, "unknown kind, passed over"] for line in done.stdout.splitlines()), done.stdout


@pytest.mark.parametrize("there", [False, True])
def test_a_directory_without_answers_is_an_error(tmp_path, there):
    done = run(tmp_path if there else tmp_path / "nowhere")
    assert done.returncode not in (0, 5)
    assert "no recorded answers in" in done.stdout


def test_a_run_without_known_kinds_fails_in_ci_only(tmp_path):
    (tmp_path / "weather.jsonl").write_text(json.dumps(RIGHT))
    here, ci = run(tmp_path), run(tmp_path, CI="true")
    assert here.returncode == 0 and "1 skipped" in here.stdout and "no answers of a known kind" in here.stdout
    assert ci.returncode == 1 and "no answers of a known kind" in ci.stdout
