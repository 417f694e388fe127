"""Conflicts of an apply and the 409 that reports them (managedfields ``internal/conflict.go``)."""

from __future__ import annotations

from kas.meta.errors import MAX_CAUSES, MAX_PRINTED, ApiError, apply_conflict, shortened
from kas.meta.field import go_quote
from kas.patch._fieldsets import element_text, paths
from kas.patch.fieldmanager.entries import Ident, ident_text

Conflict = tuple[Ident, list[str]]


class Conflicts(Exception):
    """Fields that an applier wants to change and other managers own, as (manager, path) pairs."""

    def __init__(self, found: list[Conflict]) -> None:
        super().__init__(found)
        self.found = found


def conflicts_of(sets: dict[Ident, dict]) -> Conflicts:
    """Return every path of each manager's set as Conflicts, sorted by the managers' identifier texts."""
    return Conflicts([(ident, path) for ident in sorted(sets, key=ident_text) for path in paths(sets[ident])])


def path_text(path: list[str], decoded: bool = True) -> str:
    """Return the path as fieldpath prints it: ``.spec.ports[port=80]``. ``decoded``: its numbers were read from stored managedFields."""
    return "".join(element_text(e, decoded) for e in path)


def _manager_text(ident: Ident) -> str:
    manager, operation, api_version, subresource = ident
    text = go_quote(manager)
    if subresource:
        text += f" with subresource {go_quote(subresource)}"
    return f"{text} using {api_version}" if operation == "Update" else text


def conflict_error(conflicts: list[Conflict], decoded: bool) -> ApiError:
    """Return a 409 with one cause per field; the message groups the fields by manager. ``decoded`` as in ``path_text``.

    The size is bounded as for an Invalid: every path below one long key repeats that key.
    """
    shown: list[tuple[Ident, str]] = []
    size = 0
    for ident, path in conflicts:
        if len(shown) >= MAX_CAUSES or size >= MAX_PRINTED:
            break
        text = path_text(path, decoded)
        size += len(text)
        shown.append((ident, shortened(text)))
    causes = [{"reason": "FieldManagerConflict", "message": f"conflict with {_manager_text(i)}", "field": text} for i, text in shown]
    if len(conflicts) == 1:
        ident, text = shown[0]
        return apply_conflict(f"Apply failed with 1 conflict: conflict with {_manager_text(ident)}: {text}", causes)
    by_manager: dict[Ident, list[str]] = {}
    for ident, text in shown:
        by_manager.setdefault(ident, []).append(text)
    lines = []
    for ident in sorted(by_manager, key=ident_text):
        lines.append(f"conflicts with {_manager_text(ident)}:")
        lines += [f"- {text}" for text in by_manager[ident]]
    if len(shown) < len(conflicts):
        lines.append(f"and {len(conflicts) - len(shown)} more")
    return apply_conflict(f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(lines), causes)
