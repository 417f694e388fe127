"""The base environment of every expression: the libraries that Kubernetes 1.36 enables for new expressions."""

from __future__ import annotations

from kas.cel.environment import Environment, Function, Variable
from kas.cel.library import lists, objects, standard, texts
from kas.cel.types import type_of
from kas.cel.values import TypeValue


def _functions() -> dict[str, Function]:
    out: dict[str, Function] = {}
    for library in (standard, texts, lists, objects):
        for name, f in library.LIB.functions.items():
            if name in out:
                raise ValueError(f"two libraries declare {name}")
            out[name] = f
    return out


def _types() -> dict[str, Variable]:
    """Return the names that denote types; of the libraries' types two have one."""
    out = {name: Variable(name, standard.type_declared(name), TypeValue(t)) for name, t in standard.TYPES.items()}
    return out | {t.name: Variable(t.name, type_of(t), TypeValue(t)) for t in (objects.IP_TYPE, objects.CIDR_TYPE)}


BASE = Environment(_types(), _functions())
