"""The installed kubectls, and one of them with a server, a namespace and a home directory of its own."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from kas.testing.server import KasServer

MANIFESTS = Path(__file__).parent / "manifests"
# These run every test; the others run those marked `every_version`.
MAIN = ("1.27", "1.30", "1.33")
NONE_FOUND = "no kubectl on PATH"


def found() -> dict[str, str]:
    """Name -> program: every ``kubectl.1.NN`` on PATH and in the directory that really contains the ``kubectl`` of PATH, and that one
    itself as ``path``, unless it is a link to one of them."""
    plain = shutil.which("kubectl")
    if plain is None:
        return {}
    programs: dict[str, str] = {}
    for folder in (Path(os.path.realpath(plain)).parent, *map(Path, os.get_exec_path())):
        for path in sorted(folder.glob("kubectl.1.*")):
            match = re.fullmatch(r"kubectl\.(1\.\d+)", path.name)
            if match and os.access(path, os.X_OK):
                programs.setdefault(match.group(1), str(path))
    if os.path.realpath(plain) not in map(os.path.realpath, programs.values()):
        programs["path"] = plain
    return programs


def main_versions(programs: Iterable[str]) -> list[str]:
    """The versions that run every test; if none of the usual ones is installed, the one on PATH, or the newest."""
    return [v for v in programs if v in MAIN] or [*programs][-1:]


class Kubectl:
    """One kubectl in one namespace. Calls assert the exit code, and show the output if it differs."""

    def __init__(self, program: str, version: str, server: KasServer, home: Path) -> None:
        self.program, self.server, self.home = program, server, home
        # Its own: with tests of another module in between, or in another order, one version may be prepared twice on one server.
        self.namespace = f"k{version.replace('.', '-')}-{home.name}"
        # The process is too short to collect garbage, which is a third of its CPU time.
        self.env = {**os.environ, "KUBECONFIG": server.kubeconfig, "HOME": str(home), "LC_ALL": "C", "GOGC": "off"}
        # A file of its own when TLS trust comes from the environment: kubectl reads the kubeconfig's CA, nothing else.
        self.calls = 0
        answer = json.loads(self.out("version", "-o", "json"))
        self.minor = int(re.match(r"\d+", answer["clientVersion"]["minor"]).group())
        assert answer["serverVersion"]["minor"] == "36", answer

    def prepare(self) -> Kubectl:
        """Creates the namespace and, where no controller does, its default service account."""
        self("create", "namespace", self.namespace)
        if self("get", "serviceaccount", "default", code=None).returncode:
            self("create", "serviceaccount", "default", code=None)
        return self

    def arguments(self, *args: str) -> list[str]:
        return [self.program, "--namespace", self.namespace, *args]

    def __call__(
        self, *args: str, code: int | None = 0, stdin: str | None = None, timeout: float = 120, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess:
        """Runs ``kubectl args``; ``code`` None accepts any exit code."""
        self.calls += 1
        done = subprocess.run(
            self.arguments(*args),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
            env={**self.env, **(env or {})},
            check=False,
        )
        if code is not None and done.returncode != code:
            raise AssertionError(
                f"kubectl {' '.join(args)}: exit code {done.returncode}, not {code}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
            )
        return done

    def out(self, *args: str, **kw) -> str:
        """The standard output."""
        return self(*args, **kw).stdout

    def error(self, *args: str, code: int = 1, **kw) -> str:
        """The standard error; the exit code must be ``code``."""
        return self(*args, code=code, **kw).stderr

    def json(self, *args: str, **kw) -> dict:
        return json.loads(self.out(*args, "-o", "json", **kw))

    def get(self, kind: str, name: str) -> dict:
        return self.json("get", kind, name)

    def apply(self, *files: str, **kw) -> list[str]:
        """Applies manifest files; returns the lines of the output."""
        return self.out("apply", *(a for f in files for a in ("-f", str(MANIFESTS / f))), **kw).splitlines()

    def create(self, obj: dict) -> dict:
        return json.loads(self.out("create", "-f", "-", "-o", "json", stdin=json.dumps(obj)))

    def popen(self, *args: str) -> subprocess.Popen:
        return subprocess.Popen(self.arguments(*args), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.env)

    def until(self, condition: Callable[[], bool], seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, "it did not happen in time"
            time.sleep(0.2)


def table(text: str) -> list[list[str]]:
    """Rows of a printed table; columns are separated by two spaces or more."""
    return [re.split(r"\s{2,}", line.strip()) for line in text.splitlines() if line.strip()]


def tables(text: str) -> dict[str, list[list[str]]]:
    """The tables of ``get a,b,c`` by the resource that prefixes their names."""
    out = {}
    for block in re.split(r"\n\s*\n", text.strip()):
        rows = table(block)
        out[rows[1][0].partition("/")[0]] = rows
    return out
