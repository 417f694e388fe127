"""Runs ``kas`` as a child of the testing program: it ends, as on SIGTERM, when that program ends for any reason."""

from __future__ import annotations

import runpy
import sys
import threading

from kas.meta.fdwait import terminate_with


def main() -> None:
    """Arguments: the file descriptor of a pipe whose other end the program holds open, then the command line of ``kas``."""
    alive = int(sys.argv.pop(1))
    threading.Thread(target=terminate_with, args=(alive,), name="kas-parent", daemon=True).start()
    runpy.run_module("kas.cli", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
