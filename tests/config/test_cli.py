"""The ``kas`` command itself: its versions, and its errors for unknown words."""

from __future__ import annotations

import json
import platform

import pytest

from kas import KUBERNETES_VERSION, __version__, cli


def run(capsys, *words: str) -> tuple[int, str, str]:
    """Returns the exit code, standard output and standard error."""
    code = 0
    try:
        cli.main(words)
    except SystemExit as e:
        code = e.code or 0
    return code, *capsys.readouterr()


@pytest.mark.parametrize("words", ["version -o json", "version --output json", "version --output=json", "version -o=json"])
def test_versions_as_json(capsys, words: str) -> None:
    code, out, err = run(capsys, *words.split())
    assert (code, err) == (0, "")
    assert json.loads(out) == {
        "version": __version__, "kubernetesVersion": f"v{KUBERNETES_VERSION}", "pythonVersion": platform.python_version(),
    }  # fmt: skip


@pytest.mark.parametrize("words", ["version", "--version", "serve --version"])
def test_versions_as_text(capsys, words: str) -> None:
    line = f"kas {__version__}, Kubernetes v{KUBERNETES_VERSION}, Python {platform.python_version()}\n"
    assert run(capsys, *words.split()) == (0, line, "")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("version --output yaml", "version takes --output=json and nothing else, got --output yaml; see kas version --help"),
        ("version nonsense", "version takes --output=json and nothing else, got nonsense; see kas version --help"),
        ("--version json", "--version takes no arguments, got json; see kas --help"),
        ("help srve", "unknown command 'srve' (did you mean serve?); see kas --help"),
        ("srve", "unknown command 'srve' (did you mean serve?); see kas --help"),
    ],
)
def test_unknown_words_are_reported(capsys, words: str, says: str) -> None:
    assert run(capsys, *words.split()) == (cli.EXIT_USAGE, "", f"kas: {says}\n")


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_every_command_has_its_help(capsys, command: str) -> None:
    code, out, err = run(capsys, "help", command)
    assert (code, err) == (0, "") and f"kas {command}" in out
    assert run(capsys, command, "--help") == (0, out, "")
