"""Writes gates.json: every feature gate with its default, whether it is locked, and its stage. Run by tables.py."""

from __future__ import annotations

import json
from pathlib import Path


def main(facts: Path, out: Path) -> None:
    """Write the table ``out`` from a directory with feature-gates.json."""
    gates = json.loads((facts / "feature-gates.json").read_text())["gates"]
    rows = {g["name"]: [g["default"], g["locked"], g["stage"]] for g in gates}
    out.write_text("{\n" + ",\n".join(f"{json.dumps(n)}: {json.dumps(rows[n])}" for n in sorted(rows)) + "\n}\n")
