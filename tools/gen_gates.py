"""Writes kas/api/tables/gates.json: every feature gate with its default and whether it is locked.

usage: python tools/gen_gates.py FACTS_DIRECTORY
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

OUT = Path(__file__).parents[1] / "kas" / "api" / "tables" / "gates.json"


def main(facts: Path) -> None:
    gates = json.loads((facts / "feature-gates.json").read_text())["gates"]
    rows = {g["name"]: [g["default"], g["locked"], g["stage"]] for g in gates}
    OUT.write_text("{\n" + ",\n".join(f"{json.dumps(n)}: {json.dumps(rows[n])}" for n in sorted(rows)) + "\n}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
