"""Merge schemas: what structured-merge-diff knows of a type; ``builtin.py`` and ``crd.py`` make them.

Upstream reads OpenAPI (kube-openapi ``pkg/schemaconv``); the rules are the same. Lists without a list type and types or
fields marked so are atomic; other maps and structs merge by key; types without a schema are *deduced* from the value:
maps merge, lists are atomic.

Two graphs exist for built-in types. The *structured* one also knows what Go's encoder writes or omits for unset fields,
because upstream compares Go structs: a pod's empty ``spec.containers`` is null, not absent. Custom resources are compared
as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kas.meta.field import go_quote
from kas.observe import caches
from kas.patch._fieldsets import SCALARS, Node, install_quote, remembered, validate

install_quote(go_quote)

_TEXT_BYTES = caches.ENTRY_BYTES + 2 * 128 * caches.CHARACTER_BYTES  # a key and a value of CACHED_LENGTH
caches.register(
    "managed_field_paths", "path elements of list items, and how they sort", sum(most for _, most in remembered()) * _TEXT_BYTES,
    lambda: sum(now for now, _ in remembered()) * _TEXT_BYTES,
)  # fmt: skip

Obj = dict[str, Any]


class Schema:
    """The merge type of one kind in one version.

    ``convert(obj, api_version)`` gives (Schema, object) in another version of the kind, or None when that version is not
    served any more: entries of such versions are dropped, as upstream does.
    """

    __slots__ = ("api_version", "convert", "kind", "root", "structured")

    def __init__(
        self,
        root: Node,
        api_version: str,
        kind: str,
        convert: Callable[[Obj, str], tuple[Schema, Obj] | None] | None = None,
        structured: bool = False,
    ) -> None:
        self.root, self.api_version, self.kind, self.convert, self.structured = root, api_version, kind, convert, structured

    def __repr__(self) -> str:
        return f"Schema({self.api_version}, Kind={self.kind})"

    def fits(self, obj: Obj) -> bool:
        """Whether an object is of the schema's type."""
        return not validate(self.root, obj, True)

    def at(self, obj: Obj, api_version: str) -> tuple[Schema, Obj] | None:
        """The object in ``api_version`` and that version's schema; None when the version is gone."""
        if api_version == self.api_version:
            return self, obj
        return None if self.convert is None else self.convert(obj, api_version)


def scalar(kind: str) -> Node:
    """A node of scalars alone: numeric, string, boolean or untyped."""
    node = Node()
    node.scalar = SCALARS[kind]
    return node


def _untyped() -> tuple[Node, Node]:
    # The types upstream calls __untyped_atomic_ and __untyped_deduced_.
    atomic, deduced = scalar("untyped"), scalar("untyped")
    atomic.set_list(atomic, True)
    atomic.set_map(True, atomic)
    deduced.set_list(atomic, True)
    deduced.set_map(False, deduced, True)
    return atomic, deduced


ATOMIC, DEDUCED = _untyped()


def deduced_schema(api_version: str, kind: str) -> Schema:
    """For kinds without any schema."""
    return Schema(DEDUCED, api_version, kind)
