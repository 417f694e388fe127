"""Drops fields whose feature gates are off from written objects, unless the stored object uses them.

Upstream has a ``dropDisabledFields`` for each kind; here the table of gated fields (``features.gated_fields``) lists the
paths of each kind and their gates. A gate is in use if any of its fields is set in the stored object: then all of them are
kept; a few gates are looked at field by field. For spec fields, it must be set in the stored spec; for status fields, in
either. A path that ends in "!x" denotes a field only where its value is not x.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kas.checks import any_there
from kas.config import features

Obj = dict[str, Any]
Paths = list[tuple[str, ...]]
Rows = tuple[tuple[str, str, Any], ...]
# Parents that upstream removes, too, if nothing else is left in them.
_WITH_CONTENT = frozenset({"lifecycle", "volumeStatus"})
# Gates whose fields are dropped although the stored object uses them: kubelets report them anew.
_NEVER_KEPT = frozenset({"ResourceHealthStatus"})
# Gates each field of which is kept only if the stored object has that field.
_FIELD_BY_FIELD = frozenset({"CoordinatedLeaderElection", "WorkloadAwarePreemption"})


class GatedFields:
    """The fields to drop from objects of one kind."""

    def __init__(self, group: str, version: str, kind: str) -> None:
        self._rows = features.gated_fields().get(f"{group}/{version}/{kind}", ())
        self._gates: frozenset[str] | None = None
        self._spec: list[tuple[Paths, Paths]] = []  # for each gate: the paths to drop, and those that keep them if stored
        self._status: list[tuple[Paths, Paths]] = []
        self._look: tuple[Rows, Rows] = (), ()  # outside of the status, and in it

    def _read_gates(self) -> None:
        self._gates = features.DEFAULT.on
        off: dict[bool, dict[str, Paths]] = {False: {}, True: {}}
        for path, names in self._rows:
            closed = [name for name in names if not features.DEFAULT.enabled(name)]
            if closed:
                group = ".".join(path) if closed[0] in _FIELD_BY_FIELD else closed[0]
                off[path[0] == "status"].setdefault(group, []).append(tuple(path))
        self._spec = [(paths, paths) for paths in off[False].values()]
        # The status may still report fields that the spec set while the gate was on.
        self._status = [(paths, [] if gate in _NEVER_KEPT else paths + off[False].get(gate, [])) for gate, paths in off[True].items()]
        spec, status = ([path for paths, _ in part for path in paths] for part in (self._spec, self._status))
        self._look = _tree(spec), _tree(status)

    def drop(self, obj: Obj, old: Obj | None, status: bool = False) -> None:
        """Removes disabled fields from ``obj``: from its status if ``status`` is set, otherwise from everything else.

        Nested parts that change are replaced, so ``old`` may share them.
        """
        if self._gates is not features.DEFAULT.on:
            self._read_gates()
        look = self._look[status]
        if not look or not any_there(obj, look):
            return  # the usual case
        for paths, keeping in self._status if status else self._spec:
            found = [path for path in paths if _has(obj, path, 0)]
            if found and (old is None or not any(_has(old, path, 0) for path in keeping)):
                for path in found:
                    obj[path[0]] = _without(obj[path[0]], path, 1)


NOTHING_GATED = GatedFields("", "", "")


def _tree(paths: Paths) -> Rows:
    """Merges all paths into a tree, so that nothing is visited twice: rows as ``any_there`` takes them."""
    below: dict[tuple[str, str], Paths] = {}
    for path in paths:
        if path and path[-1][0] == "!":
            path = path[:-1]  # whatever its value
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
    """Returns ``node`` without the field at ``path`` from step ``at``; ``node`` itself if the field is absent."""
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
