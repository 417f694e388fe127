"""Merge schemas: what structured-merge-diff knows of a type; ``builtin.py`` and ``crd.py`` make them.

Upstream reads OpenAPI (kube-openapi ``pkg/schemaconv``); the rules are the same. Lists without a list type and types or
fields marked so are atomic; other maps and structs merge by key; types without a schema are *deduced* from the value:
maps merge, lists are atomic.

Two graphs exist for built-in types. The *structured* one also knows what Go's encoder writes or omits for unset fields,
because upstream compares Go structs: a pod's empty ``spec.containers`` is null, not absent. Custom resources are compared
as they are, and so is what an applier's configuration was merged into, which is no struct any more.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from functools import cache
from typing import Any

from kas.meta.errors import ApiError
from kas.meta.field import go_float, go_quote
from kas.observe import caches
from kas.patch._fieldsets import SCALARS, Node, install_texts, remembered, validate

install_texts(go_quote, go_float)

_TEXT_BYTES = caches.ENTRY_BYTES + 2 * 128 * caches.CHARACTER_BYTES  # a key and a value of CACHED_LENGTH
caches.register(
    "managed_field_paths", "path elements of list items, and how they sort", sum(most for _, most in remembered()) * _TEXT_BYTES,
    lambda: sum(now for now, _ in remembered()) * _TEXT_BYTES,
)  # fmt: skip

Obj = dict[str, Any]
# What a write has had converted, by what was asked for: an object, or why there is none.
Answers = dict[Hashable, "Obj | ApiError"]


class Unanswered(Exception):
    """A conversion has to be waited for: ``wait`` puts its outcome among the answers, and what was being worked out begins anew."""

    def __init__(self, answers: Answers, key: Hashable, pending: Awaitable[list[Obj]]) -> None:
        super().__init__(key)
        self._answers, self._key, self._pending = answers, key, pending

    async def wait(self) -> None:
        """Wait for the conversion; its failure is an answer, too."""
        try:
            self._answers[self._key] = (await self._pending)[0]
        except ApiError as e:
            self._answers[self._key] = e


class Schema:
    """The merge type of one kind in one version.

    ``convert(obj, api_version)`` gives (Schema, object) in another version of the kind, or None for a version nobody knows any more:
    entries of such versions are dropped, as upstream does for built-in kinds. It raises ApiError for what does not convert.
    ``certain(obj)`` says of an object that it certainly fits, where that is soon told; of built-in kinds all do, once they are
    decoded.
    ``written(obj)`` gives of a built-in kind (Schema, object) as Go writes the struct: what is merged with the configuration of an
    applier, whose empty values are said and not left out.
    """

    __slots__ = ("api_version", "certain", "convert", "kind", "root", "structured", "written")

    def __init__(
        self,
        root: Node,
        api_version: str,
        kind: str,
        convert: Callable[[Obj, str], tuple[Schema, Obj] | None] | None = None,
        structured: bool = False,
        certain: Callable[[Obj], bool] | None = None,
        written: Callable[[Obj], tuple[Schema, Obj]] | None = None,
    ) -> None:
        self.root, self.api_version, self.kind, self.convert, self.structured = root, api_version, kind, convert, structured
        self.certain, self.written = certain, written

    def __repr__(self) -> str:
        return f"Schema({self.api_version}, Kind={self.kind})"

    def converting(self, convert: Callable[[Obj, str], tuple[Schema, Obj] | None]) -> Schema:
        """The same type, converted in another way."""
        return Schema(self.root, self.api_version, self.kind, convert, self.structured, self.certain, self.written)

    def fits(self, obj: Obj) -> bool:
        """Whether an object of a request is of the schema's type."""
        return self.certain is None or self.certain(obj) or not validate(self.root, obj, True)

    def check(self, obj: Obj) -> None:
        """Raises ApiError (500) for an object that is not of the schema's type."""
        found = validate(self.root, obj, True)
        if found:
            raise ApiError(500, "", mismatch_text(found))

    def at(self, obj: Obj, api_version: str, failed: str = "") -> tuple[Schema, Obj] | None:
        """The object in ``api_version`` and that version's schema; None when the version is gone. ``failed`` comes before what an
        ApiError says."""
        if api_version == self.api_version:
            return self, obj
        if self.convert is None:
            return None
        try:
            # Before an object is created there is an empty one of its kind.
            return self.convert(obj or {"apiVersion": self.api_version, "kind": self.kind}, api_version)
        except ApiError as e:
            raise ApiError(500, "", f"{failed}: {e.message}" if failed else e.message) from None


def mismatch_text(errors: list[tuple[str, str]]) -> str:
    """What ``validate`` found, in upstream's words."""
    texts = [f"{path}: {message}" if path else message for path, message in errors]
    return texts[0] if len(texts) == 1 else "\n".join(["errors:", *(f"  {t}" for t in texts)])


def scalar(kind: str) -> Node:
    """A node of scalars, numeric, string, boolean or untyped, that may be given lists and maps, too."""
    node = Node()
    node.scalar = SCALARS[kind]
    return node


@cache
def leaf(kind: str) -> Node:
    """The node of scalars alone. All such fields share it: of a schema's nodes they are four of five."""
    return scalar(kind)


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
