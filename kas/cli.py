"""The command line: ``kas serve`` and the other commands. Imports little, because the supervisor stays in this process."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence

from kas import KUBERNETES_VERSION, __version__
from kas.meta.stdio import CONTROLS, STANDARD_OUTPUT, has_no_reader, name_standard_output, open_standard_streams
from kas.meta.suggest import did_you_mean

EXIT_USAGE = 2
FAILED = 1
UNHEARD = 128 + 13  # a shell's exit code for a program that SIGPIPE ended
COMMANDS = ("serve", "storage", "snapshot", "envtest", "version")
REFUSED = 1  # kube-apiserver's exit code for any error in its flags and files
LONGEST_FINDING = 4096  # characters: some errors repeat a flag, or a line of a file
USAGE = """usage: kas <command>

A Kubernetes API server.

  serve      serve the API; kas serve --help shows every flag
  storage    move, check and rewrite what is stored; kas storage --help
  snapshot   save what is stored to a file, and restore it; kas snapshot --help
  envtest    stand in for the programs that controller-runtime's envtest starts; kas envtest --help
  version    print the versions of kas and of the Kubernetes API it serves; kas version --help

  -h, --help
  --version
"""
VERSION_USAGE = """usage: kas version [--output json]

Prints the versions of kas, of the Kubernetes API it serves and of Python.

  -o, --output json   as an object: version, kubernetesVersion, pythonVersion
"""


def main(args: Sequence[str] | None = None) -> None:
    """Runs the command and ends the process with its exit code.

    If standard output has no reader any more, that is UNHEARD, without a message; if standard output cannot be
    written for another reason, it is FAILED, with a message.
    """
    open_standard_streams()
    name_standard_output()
    try:
        try:
            _run(args)
        finally:
            sys.stdout.flush()
    except OSError as e:
        if e.filename != STANDARD_OUTPUT:
            raise
        unheard = has_no_reader(sys.stdout)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is still buffered
        if unheard:
            sys.exit(UNHEARD)
        print(f"kas: {e.filename}: {e.strerror}", file=sys.stderr)
        sys.exit(FAILED)


def _run(args: Sequence[str] | None) -> None:
    command, *rest = list(sys.argv[1:] if args is None else args) or ["--help"]
    if command == "help" and rest:
        command, rest = rest[0], ["--help"]
    if command in ("-h", "--help", "help"):
        print(USAGE, end="")
    elif command == "version" or (command == "--version" and not rest):
        sys.exit(version(rest))
    elif command == "serve":
        sys.exit(serve(rest))
    elif command == "storage":
        from kas.storage import main as storage

        sys.exit(storage(rest))
    elif command == "snapshot":
        from kas.storage.snapshot_command import main as snapshot

        sys.exit(snapshot(rest))
    elif command == "envtest":
        from kas.envtest import main as envtest

        sys.exit(envtest(rest, serve))
    else:
        what = f"unknown command {command!r}{did_you_mean(command, COMMANDS)}"
        if command == "--version":
            what = f"--version takes no arguments, got {' '.join(rest)}"
        print(f"kas: {what}; see kas --help", file=sys.stderr)
        sys.exit(EXIT_USAGE)


def version(args: Sequence[str]) -> int:
    """``kas version``: prints the versions in a line, or as JSON. Returns the exit code."""
    given = " ".join(args).replace("=", " ", 1).split()
    if given[:1] and given[0] in ("-h", "--help"):
        print(VERSION_USAGE, end="")
    elif not given:
        print(version_text())
    elif given in (["-o", "json"], ["--output", "json"]):
        import json

        versions = {"version": __version__, "kubernetesVersion": f"v{KUBERNETES_VERSION}", "pythonVersion": sys.version.split()[0]}
        print(json.dumps(versions, indent=2))
    else:
        print(f"kas: version takes --output=json and nothing else, got {' '.join(args)}; see kas version --help", file=sys.stderr)
        return EXIT_USAGE
    return 0


def version_text() -> str:
    """The versions of kas, of the Kubernetes API and of Python in one line."""
    return f"kas {__version__}, Kubernetes v{KUBERNETES_VERSION}, Python {sys.version.split()[0]}"


def serve(args: Sequence[str]) -> int:
    """``kas serve``: serves until told to stop. Returns the exit code; prints every error in the flags at once."""
    gc.disable()  # what is loaded here stays
    from kas.config import flagset
    from kas.config.options import complete, read

    asked = flagset.parse(args).values
    if asked.get("help"):
        from kas.config.help import columns, usage

        print(usage(columns()), end="")
        return 0
    if asked.get("version") in ("true", "raw"):
        return _version(asked["version"])
    from kas.preflight import preflight
    from kas.supervisor import run

    gc.freeze()
    gc.enable()
    options, errors = read(args)
    errors += preflight(options)
    for text in (e.translate(CONTROLS) for e in errors):  # one per line, whatever was typed
        print(f"kas: {text}" if len(text) <= LONGEST_FINDING else f"kas: {text[:LONGEST_FINDING]} ...", file=sys.stderr)
    os.umask(os.umask(0) & 0o077)  # the files that it makes must be readable and writable to itself
    return REFUSED if errors else run(complete(options))


def _version(form: str) -> int:
    if form == "true":
        print(version_text())
    else:
        from kas.endpoints.documents import version_info

        print("\n".join(f"{name}: {value}" for name, value in version_info().items()))
    return 0


if __name__ == "__main__":
    main()
