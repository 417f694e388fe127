"""Servers whose own intervals and patience are shorter, where a test would do nothing but wait for them to pass."""

from __future__ import annotations

import sys

# Everything of a server's is forked by the process this is, and so has them too.
_SET = (
    "import importlib, runpy, sys\n"
    "for given in sys.argv[1].split(','):\n"
    "    name, value = given.split('=')\n"
    "    module, _, name = name.rpartition('.')\n"
    "    module = importlib.import_module(module)\n"
    "    setattr(module, name, type(getattr(module, name))(value))\n"
    "sys.argv = sys.argv[4:]\n"
    "runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)\n"
)


def sooner(*given: str) -> tuple[str, ...]:
    """A ``prefix`` of KasServer: ``sooner("kas.supervisor.LOOK_EVERY_S=0.1")``. A name that the module lacks ends the server."""
    return sys.executable, "-c", _SET, ",".join(given)
