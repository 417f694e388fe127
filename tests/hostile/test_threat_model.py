"""docs/threat-model.md names the tests that cover each class of attacks; these tests must exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
CLASSES = 16


def guards() -> dict[str, list[tuple[str, str]]]:
    """Attack class -> (file, test) of each test that covers it; a name without a file belongs to the file before it."""
    text = (ROOT / "docs/threat-model.md").read_text()
    section = text.partition("## The sixteen attack classes\n")[2].partition("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| ")][2:]
    out: dict[str, list[tuple[str, str]]] = {}
    for name, rule, tests in rows:
        assert rule.strip()
        file, found = "", out.setdefault(name.strip(), [])
        for guard in re.findall(r"`([^`]+)`", tests):
            path, _, test = guard.rpartition("::")
            file = path or file
            found.append((file, test))
    return out


def test_every_class_names_existing_tests():
    found = guards()
    assert len(found) == CLASSES and all(found.values())
    for file in {file for tests in found.values() for file, _ in tests}:
        tree = ast.parse((ROOT / file).read_text())
        have = {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)}
        missing = {test for tests in found.values() for at, test in tests if at == file} - have
        assert not missing, f"{file}: {missing}"
