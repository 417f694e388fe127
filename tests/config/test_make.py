"""The first step of ``make build``: an environment with pip, and a supported Python."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# A fake Python: records its arguments, and creates an environment with programs that do nothing.
PYTHON = """#!/bin/sh
echo "$*" >> asked
case "$*" in
  *sys.version_info*) exec {real} -c "import sys; sys.version_info = {version}
$2" ;;
  "-m venv .venv")
    mkdir -p .venv/bin
    for name in python pip; do printf '#!/bin/sh\\n' > .venv/bin/$name; chmod 755 .venv/bin/$name; done ;;
esac
"""


@pytest.fixture
def make(tmp_path):
    if not shutil.which("make"):
        pytest.skip("no make")
    for name in ("Makefile", "setup.py", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "kas").mkdir()

    def run(version: tuple[int, int]) -> tuple[subprocess.CompletedProcess, list[str]]:
        """Returns the output, and whether an environment was created."""
        python = tmp_path / "fake"
        python.write_text(PYTHON.format(real=sys.executable, version=version))
        python.chmod(python.stat().st_mode | stat.S_IXUSR)
        (tmp_path / "asked").write_text("")
        env = {k: v for k, v in os.environ.items() if not k.startswith("MAKE")}
        done = subprocess.run(["make", "build", "PYTHON=./fake"], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        return done, [line for line in (tmp_path / "asked").read_text().splitlines() if line.startswith("-m")]

    return run


def test_an_environment_without_pip_is_created_again(make, tmp_path):
    """As Debian's python3 leaves it where python3-venv is missing."""
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/python").write_text("#!/bin/sh\necho No module named pip\nexit 1\n")
    (tmp_path / ".venv/bin/python").chmod(0o755)
    done, asked = make((3, 11))
    assert (done.returncode, asked) == (0, ["-m venv .venv"]), done.stderr
    (tmp_path / ".venv/.kas-installed").unlink()
    done, asked = make((3, 11))
    assert (done.returncode, asked) == (0, []), done.stderr


def test_an_older_python_is_refused_at_once(make, tmp_path):
    done, asked = make((3, 10))
    assert done.returncode != 0 and asked == [] and not (tmp_path / ".venv").exists()
    assert "kas needs Python 3.11 or later, and this is 3.10: make PYTHON=python3.13, say\n" in done.stderr
