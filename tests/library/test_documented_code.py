"""The Python code in the documents runs unchanged."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import kas
from kas.testing import plugin
from tests import prerequisites
from tests.library.calling import Caller

ROOT = Path(__file__).parents[2]
PATIENCE_S = 240


def blocks(text: str) -> list[str]:
    return re.findall(r"(?ms)^```python\n(.*?)^```", text)


def run(directory: Path, *command: str) -> subprocess.CompletedProcess:
    """Runs a command of this Python in an empty directory, outside of the repository."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "COV"))}
    command = (sys.executable, *command)
    return subprocess.run(command, cwd=directory, env=env, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def test_every_block_is_run():
    found = {p.name: len(blocks(p.read_text())) for p in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]}
    assert {name: count for name, count in found.items() if count} == {"README.md": 1, "library.md": 2}


def test_tests_of_the_readme_and_of_the_plug_in(tmp_path):
    prerequisites.module("kubernetes")
    (example,) = re.findall(r"(?m)(?:^    .*\n)+", inspect.getdoc(plugin) + "\n")
    code = [blocks((ROOT / "README.md").read_text())[0], "import requests\n" + textwrap.dedent(example)]
    for number, text in enumerate(code):
        (tmp_path / f"test_{number}.py").write_text(text)
    done = run(tmp_path, "-m", "pytest", "-q")  # which finds the plug-in by itself
    assert done.returncode == 0 and "2 passed" in done.stdout, done.stdout + done.stderr


def test_the_library_example_runs(tmp_path):
    done = run(tmp_path, "-c", blocks((ROOT / "docs/library.md").read_text())[0])
    assert done.returncode == 0, done.stderr
    url, kubeconfig = done.stdout.split()
    assert re.fullmatch(r"https://127\.0\.0\.1:\d+", url) and tmp_path.joinpath(kubeconfig).is_file()


def test_the_guests_example_runs(tmp_path):
    names: dict[str, type] = {}
    exec(blocks((ROOT / "docs/library.md").read_text())[1], names)
    (tmp_path / "tokens").write_text("guest-token,guest,7\n")
    options = kas.Options(
        data_dir=tmp_path / "data", secure_port="auto", unsafe_no_fsync=True, workers=1, controllers=["none"],
        token_auth_file=str(tmp_path / "tokens"),
    )  # fmt: skip
    with kas.Server(options, kinds="none", authorizers=[names["Guests"]()]) as server:
        guest, maps = Caller(server, "guest-token"), "/api/v1/namespaces/default/configmaps"
        assert guest("GET", maps)[0] == 200
        code, e = guest("POST", maps, {"metadata": {"name": "a"}})
        assert code == 403 and e["message"].endswith(": guests may look")
