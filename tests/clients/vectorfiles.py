"""Where the recorded answers of the real server lie: ``KAS_VECTORS``, or ``../shared/vectors`` beside the checkout."""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path
from types import ModuleType

DIRECTORY = Path(os.environ.get("KAS_VECTORS") or Path(__file__).resolve().parents[3] / "shared" / "vectors")


def lines(name: str) -> list[dict]:
    """Every line of one file, or none when the file is not there."""
    path = DIRECTORY / name
    if not path.is_file():
        return []
    with path.open(encoding="utf-8") as f:
        return [json.loads(line) for line in f if line.strip()]


def replayer() -> ModuleType | None:
    """The comparison that comes with the recorded conversations (``run/http_diff.py``), or None when it is not there."""
    folder = DIRECTORY / "run"
    if not (folder / "http_diff.py").is_file():
        return None
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # the directory is only read
    sys.path.insert(0, str(folder))
    try:
        return importlib.import_module("http_diff")
    finally:
        sys.path.remove(str(folder))
        sys.dont_write_bytecode = writes
