"""The files of recorded answers: in the directory that ``KAS_VECTORS`` names, else in ``data`` next to this module."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

DATA = Path(__file__).resolve().parent / "data"
DIRECTORY = Path(os.environ.get("KAS_VECTORS") or DATA)
SUFFIXES = (".jsonl", ".jsonl.gz")

Vector = dict[str, Any]


def files() -> dict[str, list[Path]]:
    """Kind -> its files, in order of their names.

    A kind is the file's name up to the first dot; in a subdirectory, with the directory's name before it: ``strategy``,
    ``security/authn``. Raises FileNotFoundError when the directory does not exist or is empty: a run without answers would test nothing.
    """
    out: dict[str, list[Path]] = {}
    for path in sorted(DIRECTORY.rglob("*")):
        if path.name.endswith(SUFFIXES) and path.is_file():
            kind = path.relative_to(DIRECTORY).with_name(path.name.split(".")[0]).as_posix()
            out.setdefault(kind, []).append(path)
    if not out:
        raise FileNotFoundError(f"no recorded answers in {DIRECTORY}")
    return out


def read(path: Path) -> list[Vector]:
    """Every line of one file."""
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as f:
        return [json.loads(line) for line in f if line.strip()]


def lines(kind: str) -> list[Vector]:
    """Every line of the files of one kind; none where ``KAS_VECTORS`` names a directory without them."""
    return [line for path in files().get(kind, ()) for line in read(path)]
