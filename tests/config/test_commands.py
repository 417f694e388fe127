"""Commands in the documents exist: targets of make, programs, their flags, the variables that they read."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from kas.config.flags import BY_NAME

ROOT = Path(__file__).parents[2]
DOCUMENTS = [
    "README.md", "CONTRIBUTING.md", "tools/facts/README.md", "tests/vectors/data/README.md",
    *sorted(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md")),
]  # fmt: skip
PROGRAMS = [f"{room}/{p.name}" for room in ("bench", "loadtests", "tools") for p in sorted((ROOT / room).glob("*.py"))]
VARIABLE = re.compile(r"\bKAS_[A-Z_]+\b")


def typed(file: str) -> list[str]:
    """Returns the commands in a document's blocks and code spans, or in the usage of a program's docstring."""
    text = (ROOT / file).read_text()
    if file.endswith(".py"):
        lines = re.findall(r"(?m)^    (\S.*)$", text.split('"""')[1]) if text.startswith('"""') else []
    else:
        blocks = re.findall(r"(?ms)^ *```(sh|console)\n(.*?)^ *```", text)
        joined = [(kind, line) for kind, block in blocks for line in re.sub(r"\\\n\s*", "", block).splitlines()]
        lines = [line for kind, line in joined if kind == "sh" or line.startswith("$ ")]
        lines += [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", re.sub(r"(?ms)^ *```.*?^ *```", "", text))]
    plain = (re.sub(r"\s+#.*|[\[\]]", "", line.strip().removeprefix("$ ")) for line in lines)
    return [part.strip() for line in plain for part in re.split(r"&&|;|\|", line) if part.strip()]


def words(command: str) -> tuple[list[str], set[str]]:
    """Returns the words of a command, and its flags by name; variables and sudo in front of it are left out."""
    found = shlex.split(command.replace("…", ""))
    while found and (re.match(r"[A-Z_]+=", found[0]) or found[0] == "sudo"):
        found.pop(0)
    flags = {w.split("=")[0] for w in found[: found.index("--") if "--" in found else None] if w.startswith("--")}
    return found, flags


@cache
def told(*command: str) -> frozenset[str]:
    """Returns the flags that a program documents."""
    done = subprocess.run([sys.executable, *command, "--help"], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return frozenset(re.findall(r"--[a-z][\w-]*", done.stdout))


@cache
def targets() -> frozenset[str]:
    return frozenset(re.findall(r"(?m)^([a-z]+):", (ROOT / "Makefile").read_text()))


def unknown(command: str) -> list[str]:
    """Returns the words of a command that do not exist."""
    if not re.match(r"(?:[A-Z_]+=\S+ |sudo )*(?:make|kas|python3?|\.venv/bin/python) [\w./-]", command):
        return []
    (program, *rest), flags = words(command)
    if program == "make":
        settings = {w.split("=")[0] for w in rest if re.match(r"[A-Z_]+=", w)}
        wanted = {w for w in rest if re.fullmatch(r"[a-z]+", w)}
        return sorted(wanted - targets()) + sorted(s for s in settings if f"$({s})" not in (ROOT / "Makefile").read_text())
    if program == "kas":
        if rest[0] == "serve":
            return sorted(flags - {f"--{name}" for name in BY_NAME} - {"--help"})
        called = rest[: 2 if rest[0] in ("storage", "snapshot") else 1]
        return sorted(flags - told("-m", "kas", *called) - {"--help"}) if all(re.fullmatch("[a-z]+", w) for w in called) else []
    if rest[0] == "-m" or not rest[0].endswith(".py"):
        return []
    if rest[0] == "setup.py":
        return sorted(flags - told(*rest[:2]))
    if not (ROOT / rest[0]).exists():
        return [rest[0]]
    return sorted(flags - told(rest[0])) if flags else []


# Programs without a usage in their docstring are skipped, and so are modules of benchmarks.
@pytest.mark.parametrize("file", [*DOCUMENTS, *PROGRAMS])
def test_documented_commands_exist(file: str) -> None:
    assert {command: missing for command in typed(file) if (missing := unknown(command))} == {}


def test_unknown_commands_are_found() -> None:
    assert unknown("make tset") == ["tset"] and unknown('make test ARG="-x"') == ["ARG"] and unknown('make test ARGS="-x"') == []
    assert unknown("kas serve --secure-prt 1") == ["--secure-prt"] and unknown("kas storage copy --form lmdb:x --to y") == ["--form"]
    assert unknown(".venv/bin/python bench/nothing.py") == ["bench/nothing.py"]
    assert unknown(".venv/bin/python bench/start.py --round 3 --workers 1") == ["--round"]


@pytest.mark.parametrize("file", [*DOCUMENTS, "CHANGELOG.md", "Makefile"])
def test_documented_variables_are_read(file: str) -> None:
    files = [p for room in ("kas", "tests", "bench", "loadtests") for p in (ROOT / room).rglob("*.py")]
    files += [ROOT / ".ci/run", ROOT / "setup.py", ROOT / "docs/deploy/kas.service"]
    code = "".join(p.read_text() for p in files)
    assert sorted(set(VARIABLE.findall((ROOT / file).read_text())) - set(VARIABLE.findall(code))) == []
