"""Fields whose feature gates are off: dropped from what is written, unless the stored object uses them.

Upstream has a ``dropDisabledFields`` for each kind; here the table of gated fields (``features.gated_fields``) says which paths of a
kind have which gates. A gate is in use when any of its fields is in the stored object: then all of them stay. For those of the spec
it has to be in the stored spec, for those of the status in either. A path that ends in "!x" leads to a field only where that is
something else than x.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kas.checks import any_there
from kas.config import features

Obj = dict[str, Any]
Paths = list[tuple[str, ...]]
Rows = tuple[tuple[str, str, Any], ...]
# What upstream takes away, too, when nothing else is in it.
_WITH_CONTENT = frozenset({"lifecycle", "volumeStatus"})
# Gates whose fields go although the stored object uses them: kubelets say anew what is so.
_NEVER_KEPT = frozenset({"ResourceHealthStatus"})


class GatedFields:
    """What a kind's objects lose while gates are off."""

    def __init__(self, group: str, version: str, kind: str) -> None:
        self._rows = features.gated_fields().get(f"{group}/{version}/{kind}", ())
        self._gates: frozenset[str] | None = None
        self._spec: list[tuple[Paths, Paths]] = []  # of each gate: what goes, and what keeps it where it is stored
        self._status: list[tuple[Paths, Paths]] = []
        self._look: tuple[Rows, Rows] = (), ()  # beside the status, and in it

    def _read_gates(self) -> None:
        self._gates = features.DEFAULT.on
        off: dict[bool, dict[str, Paths]] = {False: {}, True: {}}
        for path, names in self._rows:
            closed = [name for name in names if not features.DEFAULT.enabled(name)]
            if closed:
                off[path[0] == "status"].setdefault(closed[0], []).append(tuple(path))
        self._spec = [(paths, paths) for paths in off[False].values()]
        # What a spec asked for while the gate was on may still be told in the status.
        self._status = [(paths, [] if gate in _NEVER_KEPT else paths + off[False].get(gate, [])) for gate, paths in off[True].items()]
        spec, status = ([path for paths, _ in part for path in paths] for part in (self._spec, self._status))
        self._look = _tree(spec), _tree(status)

    def drop(self, obj: Obj, old: Obj | None, status: bool = False) -> None:
        """Take disabled fields out of ``obj``: of its status for a write of that, else of everything beside it.

        What is nested and changes is replaced, so that ``old`` may share it.
        """
        if self._gates is not features.DEFAULT.on:
            self._read_gates()
        look = self._look[status]
        if not look or not any_there(obj, look):
            return  # as nearly always
        for paths, keeping in self._status if status else self._spec:
            found = [path for path in paths if _has(obj, path, 0)]
            if found and (old is None or not any(_has(old, path, 0) for path in keeping)):
                for path in found:
                    obj[path[0]] = _without(obj[path[0]], path, 1)


def _tree(paths: Paths) -> Rows:
    """All paths as one tree, so that a walk goes into nothing twice: rows as ``any_there`` has them."""
    below: dict[tuple[str, str], Paths] = {}
    for path in paths:
        if path and path[-1][0] == "!":
            path = path[:-1]  # whatever it is
        kind = "" if len(path) == 1 else path[1] if path[1] in ("[]", "{}") else "."
        below.setdefault((path[0], kind), []).append(path[1:] if kind in ("", ".") else path[2:])
    return tuple((name, kind, _tree(rest) if kind else ()) for (name, kind), rest in below.items())


def _has(node: Any, path: tuple[str, ...], at: int) -> bool:
    end = len(path)
    while at < end:
        step = path[at]
        at += 1
        if step == "[]" or step == "{}":
            items: Iterable[Any] = node if step == "[]" else node.values()
            return any(item is not None and _has(item, path, at) for item in items)
        if step[0] == "!":
            return bool(node != step[1:])
        node = node.get(step)
        if node is None:
            return False
    return True


def _without(node: Any, path: tuple[str, ...], at: int) -> Any:
    """``node`` without what ``path`` leads to from step ``at`` on; itself when it has nothing of the kind."""
    if node is None or not _has(node, path, at):
        return node
    step = path[at]
    if step == "[]":
        return [_without(item, path, at + 1) for item in node]
    if step == "{}":
        return {key: _without(item, path, at + 1) for key, item in node.items()}
    out = dict(node)
    if at + 1 == len(path) or path[at + 1][0] == "!":
        del out[step]
    else:
        out[step] = _without(node[step], path, at + 1)
        if not out[step] and step in _WITH_CONTENT:
            del out[step]
    return out
