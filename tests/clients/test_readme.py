"""The session in the README, run as it is printed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from kas.testing.server import KasServer
from tests import prerequisites
from tests.clients.kubectl import NONE_FOUND, Kubectl, found

ROOT = Path(__file__).parents[2]


def session() -> list[tuple[str, str]]:
    """The commands of the README's session with the output that it shows."""
    text = (ROOT / "README.md").read_text()
    block = text.split("## A session", 1)[1].split("```console\n", 1)[1].split("```", 1)[0]
    return [(command, shown.strip("\n")) for command, _, shown in (part.partition("\n") for part in re.split(r"(?m)^\$ ", block)[1:])]


def plain(text: str) -> list[str]:
    """The lines, with ages replaced and columns separated alike. Earlier kubectls print no namespace of a deleted object."""
    lines = [re.sub(r"\b\d+m?s\b", "0s", line) for line in text.strip().splitlines()]
    return [re.sub(r" deleted from \S+ namespace$", " deleted", re.sub(r" +", " ", line).strip()) for line in lines]


def test_the_session_of_the_readme(tmp_path, monkeypatch) -> None:
    programs = found()
    if not programs:
        prerequisites.give_up(NONE_FOUND)
    (serve, ready), (export, _), *commands = session()
    assert serve == "kas serve" and ready.startswith("kas ready on https://127.0.0.1:6443 in ") and export.startswith("export KUBECONFIG=")
    monkeypatch.chdir(ROOT)
    with KasServer(tmp_path / "kas-data", "--unsafe-no-fsync", workers=2) as server:
        assert export.split()[1] == f"KUBECONFIG=kas-data/{Path(server.kubeconfig).name}"
        k = Kubectl(programs.get("1.33") or programs["path"], "", server, tmp_path)
        k.arguments = lambda *args: [k.program, *args]  # type: ignore[method-assign]
        k.until(lambda: k("get", "configmap", "kube-root-ca.crt", code=None).returncode == 0)
        for command, shown in commands:
            program, *args = shlex.split(command)
            assert program == "kubectl"
            done = k(*args, code=None)
            assert plain(done.stdout + done.stderr) == plain(shown), command


@pytest.mark.parametrize("file", ["README.md", "CONTRIBUTING.md", *sorted(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md"))])
def test_links_in_documents_lead_to_files(file: str) -> None:
    """Links and paths in the text, as far as they are in this repository."""
    text = (ROOT / file).read_text()
    links = [link for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text) if "://" not in link]
    assert [link for link in links if not (ROOT / file).parent.joinpath(link).exists()] == []
    named = re.findall(r"`((?:kas|tests|bench|docs|tools|loadtests)/[\w./-]+\.(?:py|pyx|pxi|pxd|md|txt|json|yaml|proto))\b", text)
    assert sorted({path for path in named if not (ROOT / path).exists()}) == []
