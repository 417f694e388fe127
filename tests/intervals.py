"""Starts servers with shorter intervals and timeouts, where a test would only wait for them to pass."""

from __future__ import annotations

import sys

# All processes of a server are forked by this one, so they have the values, too.
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


def shorter_intervals(*given: str) -> tuple[str, ...]:
    """A ``prefix`` for KasServer: ``shorter_intervals("kas.supervisor.LOOK_EVERY_S=0.1")``. An unknown name ends the server."""
    return sys.executable, "-c", _SET, ",".join(given)
