"""Rules of the source that are cheap to check: imports go one way, lint is clean, nothing speaks of a machine."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
KAS = ROOT / "kas"

# A module may import from its own layer and from every layer to the right of it.
LAYERS = [
    ("cli", "testing"), ("server", "supervisor"), ("controllers",), ("filters",), ("director",), ("endpoints",), ("edge",),
    ("apiextensions", "aggregator"), ("admission",), ("registry",), ("auth",), ("store",),
    ("webhook_client",), ("kubeconfig",), ("http_client",), ("runtime_config",), ("api",),
]  # fmt: skip
ANYWHERE = ("observe", "options")
RANK = {name: i for i, layer in enumerate(LAYERS) for name in layer}
# Composition and its helpers look down through these seams on purpose.
ALLOWED = {
    ("director", "endpoints"),  # renders "404 page not found"
    ("endpoints", "director"),  # documents install themselves on a director
    ("edge", "endpoints"),
}


def modules():
    return sorted(p for p in KAS.rglob("*.py"))


def imported(path: Path) -> list[tuple[str, int]]:
    out = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            out += [(a.name, node.lineno) for a in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            out += [(f"{node.module}.{a.name}" if node.module == "kas" else node.module, node.lineno) for a in node.names]
    return out


def test_imports_point_down():
    wrong = []
    for path in modules():
        own = path.relative_to(KAS).parts[0].removesuffix(".py")
        if own not in RANK:
            continue
        for name, line in imported(path):
            parts = name.split(".")
            if parts[0] != "kas" or len(parts) < 2 or parts[1] not in RANK:
                continue
            if RANK[parts[1]] < RANK[own] and (own, parts[1]) not in ALLOWED:
                wrong.append(f"{path.relative_to(ROOT)}:{line} imports {name}")
    assert not wrong, "\n".join(wrong)


def test_plugins_and_filters_do_not_know_one_another():
    wrong = []
    for folder, may in ((KAS / "admission" / "plugins", set()), (KAS / "filters", {"chain", "authorization"})):
        prefix = "kas." + ".".join(folder.relative_to(KAS).parts) + "."
        names = {p.stem for p in folder.glob("*.py")}
        for path in folder.glob("*.py"):
            for name, line in imported(path):
                other = name.removeprefix(prefix).split(".")[0] if name.startswith(prefix) else ""
                if other in names and other != path.stem and other not in may and not other.startswith("_"):
                    wrong.append(f"{path.relative_to(ROOT)}:{line} imports {name}")
    assert not wrong, "\n".join(wrong)


def test_store_parses_no_object():
    for path in (KAS / "store").glob("*.py"):
        assert not any(name.split(".")[0] in ("orjson", "json", "msgspec") for name, _ in imported(path)), path


def test_ruff_is_clean():
    ruff = Path(sys.executable).with_name("ruff")
    if not ruff.exists():
        pytest.skip("ruff is not installed (pip install -e .[test])")
    done = subprocess.run([str(ruff), "check", "."], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]


def test_every_compiled_part_is_packaged():
    manifest = (ROOT / "MANIFEST.in").read_text()
    assert "*.pxi" in manifest and "*.pyx" in manifest and "*.pxd" in manifest
    data = (ROOT / "pyproject.toml").read_text()
    for folder in {p.parent.name for p in KAS.rglob("*.pxi")}:
        assert f'"{folder}/*.pxi"' in data, folder
