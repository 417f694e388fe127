"""The tables in the repository are byte for byte those that the generators make from the facts in the repository."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Data that no generator makes: third-party files, and assets of the server's pages.
BY_HAND = ("static",)


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A directory with every table, generated from the sources in the repository alone."""
    into = tmp_path_factory.mktemp("tables")
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "tables.py"), "--into", str(into)], capture_output=True, text=True, check=False, cwd=into
    )
    assert done.returncode == 0, done.stderr
    return into


def data_files(root: Path) -> set[str]:
    found = (p.relative_to(root) for p in (root / "kas").rglob("*") if p.suffix in (".json", ".jsonl", ".gz"))
    return {p.as_posix() for p in found if not set(p.parts) & set(BY_HAND)}


def test_every_table_is_generated(made):
    assert data_files(made) == data_files(ROOT)


def test_tables_have_the_same_bytes(made):
    tables = sorted(data_files(made))
    assert tables
    for table in tables:
        new, old = (made / table).read_bytes(), (ROOT / table).read_bytes()
        if table.endswith(".gz"):
            assert gzip.decompress(new) == gzip.decompress(old), table
            if "ng" in zlib.ZLIB_RUNTIME_VERSION:
                continue  # another implementation compresses the same text to other bytes
        assert new == old, table


def test_facts_are_of_one_version():
    later = {"gonames.json": "1.36.4"}  # read from Go's sources, which are of that version
    for path in sorted((ROOT / "tools" / "facts").glob("*.json")):
        facts = json.loads(path.read_text())
        assert isinstance(facts, list) or facts["kubernetesVersion"] == later.get(path.name, "1.36.2"), path
        assert path.name in (ROOT / "tools" / "facts" / "README.md").read_text(), path
