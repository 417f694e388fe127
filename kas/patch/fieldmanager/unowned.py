"""Applying a configuration regardless of field ownership, as mutating policies do (apiserver ``policy/mutating/patch/smd.go``)."""

from __future__ import annotations

from typing import Any

from kas.patch._fieldsets import Mismatch, Node, merge, validate
from kas.patch.fieldmanager.schema import Schema

Obj = dict[str, Any]


class UnfitError(Exception):
    """A configuration that cannot be applied; ``str`` is upstream's text."""


def apply_unowned(schema: Schema, live: Obj, config: Obj, said: Obj | None = None) -> Obj:
    """Return ``live`` with ``config`` merged into it; the result shares subtrees with both.

    ``said`` is the configuration with values that JSON does not have, each with a ``go_type`` and a text that is its Go source; they fit
    untyped fields. Raises UnfitError if an object does not fit the schema or if the configuration would replace an atomic value.
    """
    root = schema.root
    _fit(validate(root, config if said is None else said), "failed to convert patch object to typed object")
    whole = _atomic(root, config, "")
    if whole:
        raise UnfitError(f"invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {', '.join(sorted(set(whole)))}")
    _fit(validate(root, live, allow_duplicates=True), "failed to convert original object to typed object")
    try:
        return merge(root, live, config)
    except Mismatch as e:
        raise UnfitError(f"failed to merge patch: {_shown(e.errors)}") from None


def _fit(found: list[tuple[str, str]], what: str) -> None:
    if found:
        raise UnfitError(f"{what}: {_shown(found)}")


def _shown(found: list[tuple[str, str]]) -> str:
    texts = [f"{path}: {message}" if path else message for path, message in found]
    return texts[0] if len(texts) == 1 else "\n".join(["errors:", *(f"  {t}" for t in texts)])


def _atomic(node: Node | None, value: Any, path: str) -> list[str]:
    """Return the paths of atomic lists, maps and structs in the value."""
    if node is None or node.deduced:
        return []
    out: list[str] = []
    if isinstance(value, dict) and node.is_map:
        if node.map_atomic:
            out.append(path)
        for key, inner in value.items():
            field = node.fields.get(key)
            if field is not None:  # upstream does not look into undeclared map keys
                out += _atomic(field.node, inner, f"{path}.{key}")
    elif isinstance(value, list) and node.is_list:
        if node.list_atomic:
            out.append(path)
        for i, inner in enumerate(value):
            out += _atomic(node.item, inner, f"{path}[{i}]")
    return out
