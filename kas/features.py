"""``--feature-gates``: which features of Kubernetes 1.36 are on (component-base ``featuregate``).

Names, defaults and locks are upstream's. What kas does depends on few of them; all are accepted, so that flags written for
kube-apiserver work, and one that does not exist or cannot be changed is refused.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

TABLE = Path(__file__).parent / "api" / "tables" / "gates.json"
CLASSES = {"AllAlpha": "Alpha", "AllBeta": "Beta"}


@cache
def _gates() -> dict[str, tuple[bool, bool, str]]:
    return {name: (row[0], row[1], row[2]) for name, row in json.loads(TABLE.read_text()).items()}


def enabled(given: list[str]) -> frozenset[str]:
    """The gates that are on. Raises ValueError, naming the entry, for one that cannot be."""
    gates = _gates()
    wanted: dict[str, bool] = {}
    for entry in given:
        name, _, value = entry.partition("=")
        if value.lower() not in ("true", "false"):
            raise ValueError(f"--feature-gates: {entry!r}: write Name=true or Name=false")
        if name not in gates and name not in CLASSES:
            raise ValueError(f"--feature-gates: unrecognized feature gate: {name}")
        wanted[name] = value.lower() == "true"
    out = {}
    for name, (default, locked, stage) in gates.items():
        on = default
        if not locked and stage in CLASSES.values():
            on = wanted.get(f"All{stage}", default)
        if name in wanted:
            if locked and wanted[name] != default:
                raise ValueError(f"--feature-gates: cannot set feature gate {name} to {wanted[name]}, feature is locked to {default}")
            on = wanted[name]
        out[name] = on
    return frozenset(name for name, on in out.items() if on)
