"""Claims of the documents and of the source archive: docs/flags.md is generated from the table."""

from __future__ import annotations

import re
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_page_of_flags_is_up_to_date():
    done = subprocess.run([sys.executable, "tools/gen_flags.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_readme_names_the_plug_ins_without_effect():
    from kas.admission.order import NO_EFFECT

    said = (ROOT / "README.md").read_text().partition("These admission plug-ins may be named")[2].partition("\n\n")[0]
    assert set(re.findall(r"\b[A-Z][a-z]+[A-Z]\w+\b", said)) == NO_EFFECT.keys()


def test_a_source_archive_has_every_kind_of_file():
    """Everything that the tests read, and nothing that a build made."""
    rules = [line.split() for line in (ROOT / "MANIFEST.in").read_text().splitlines()]
    made = ("__pycache__", "*.c", "*.so", "*.egg-info", "*.pyc")
    for directory in ("kas", "docs", "tests", "tools", "bench", "loadtests", ".ci"):
        taken = ["*.py"] * (directory == "kas")  # setuptools' own
        taken += [p for rule, *rest in rules if rule == "recursive-include" and rest[0] == directory for p in rest[1:]]
        files = [p for p in (ROOT / directory).rglob("*") if p.is_file() and not any(fnmatch(part, m) for part in p.parts for m in made)]
        assert [str(p) for p in files if not any(fnmatch(p.name, pattern) for pattern in taken)] == []


def test_documents_do_not_install_another_kas():
    """PyPI has another program of that name: kas is installed from a clone."""
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.*")):
        if path.name != "CHANGELOG.md" and path.parent.name != "__pycache__":
            assert re.findall(r"pip install \W?kas\b", path.read_text()) == [], path


def test_messages_do_not_install_another_kas():
    wrong = [str(path) for path in (ROOT / "kas").rglob("*.py") if re.search(r"pip install \W?kas\b", path.read_text())]
    assert wrong == []
