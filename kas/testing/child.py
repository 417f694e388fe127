"""Runs ``kas`` as the child of a program that tests with it: it ends, as by SIGTERM, when that program does, however that ends."""

from __future__ import annotations

import runpy
import sys
import threading

from kas.meta.fdwait import terminate_with


def main() -> None:
    """The arguments: the end of a pipe whose other end the program holds open, and the command line of ``kas``."""
    alive = int(sys.argv.pop(1))
    threading.Thread(target=terminate_with, args=(alive,), name="kas-parent", daemon=True).start()
    runpy.run_module("kas.cli", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
