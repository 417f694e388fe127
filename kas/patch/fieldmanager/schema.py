"""Merge schemas: what structured-merge-diff knows about a type. ``builtin.py`` and ``kas.apiextensions.mergeschema`` make them.

Upstream derives them from OpenAPI (kube-openapi ``pkg/schemaconv``); the rules are the same. Lists without a list type are atomic, and so
are types and fields marked as atomic; other maps and structs merge by key. Types without a schema are *deduced* from the value: maps
merge, lists are atomic.

Built-in types have two graphs. The *structured* one also knows what Go's encoder writes or omits for unset fields, because upstream
compares Go structs: a pod's empty ``spec.containers`` is null, not absent. Custom resources are compared as they are. So is the result of
merging an applied configuration, which is no longer a struct.
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

_TEXT_BYTES = caches.ENTRY_BYTES + 2 * 128 * caches.CHARACTER_BYTES  # a key and a value of CACHED_LENGTH each
caches.register(
    "managed_field_paths", "path elements of list items, and how they sort", sum(most for _, most in remembered()) * _TEXT_BYTES,
    lambda: sum(now for now, _ in remembered()) * _TEXT_BYTES,
)  # fmt: skip

Obj = dict[str, Any]
# The conversions of one write, by their parameters: a converted object, or the error.
Answers = dict[Hashable, "Obj | ApiError"]


class Unanswered(Exception):
    """A conversion has to be awaited: ``wait`` adds its result to the answers, and the computation starts over."""

    def __init__(self, answers: Answers, key: Hashable, pending: Awaitable[list[Obj]]) -> None:
        super().__init__(key)
        self._answers, self._key, self._pending = answers, key, pending

    async def wait(self) -> None:
        """Wait for the conversion and record its result; a failure is a result, too."""
        try:
            self._answers[self._key] = (await self._pending)[0]
        except ApiError as e:
            self._answers[self._key] = e


class Schema:
    """The merge type of one kind in one version.

    ``convert(obj, api_version)`` returns (Schema, object) in another version of the kind, or None for an unknown version: entries of such
    versions are dropped, as upstream does for built-in kinds. It raises ApiError if the object cannot be converted.

    ``certain(obj)`` is a quick check: True means that the object fits, False that ``validate`` has to decide. Decoded objects of built-in
    kinds always fit.

    ``written(obj)``, for a built-in kind, returns (Schema, object) as Go writes the struct. An applier's configuration is merged into that
    object; in the configuration empty values are explicit and not omitted.
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
        """Return the same schema with another conversion."""
        return Schema(self.root, self.api_version, self.kind, convert, self.structured, self.certain, self.written)

    def fits(self, obj: Obj) -> bool:
        """Whether an object of a request fits the schema."""
        return self.certain is None or self.certain(obj) or not validate(self.root, obj, True)

    def check(self, obj: Obj) -> None:
        """Raise ApiError (500) if the object does not fit the schema."""
        found = validate(self.root, obj, True)
        if found:
            raise ApiError(500, "", mismatch_text(found))

    def at(self, obj: Obj, api_version: str, failed: str = "") -> tuple[Schema, Obj] | None:
        """Return (Schema, object) in ``api_version``; None if the version is gone. ``failed`` prefixes the message of an ApiError."""
        if api_version == self.api_version:
            return self, obj
        if self.convert is None:
            return None
        try:
            # Before an object is created, its live state is an empty object of its kind.
            return self.convert(obj or {"apiVersion": self.api_version, "kind": self.kind}, api_version)
        except ApiError as e:
            raise ApiError(500, "", f"{failed}: {e.message}" if failed else e.message) from None


def mismatch_text(errors: list[tuple[str, str]]) -> str:
    """Format the errors of ``validate`` in upstream's words."""
    texts = [f"{path}: {message}" if path else message for path, message in errors]
    return texts[0] if len(texts) == 1 else "\n".join(["errors:", *(f"  {t}" for t in texts)])


def scalar(kind: str) -> Node:
    """Return a new node of a scalar type (numeric, string, boolean or untyped), to which lists and maps may be added."""
    node = Node()
    node.scalar = SCALARS[kind]
    return node


@cache
def leaf(kind: str) -> Node:
    """Return the shared node of a pure scalar type. Four of five fields of a schema use one."""
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
    """Return the schema of a kind that has no schema of its own."""
    return Schema(DEDUCED, api_version, kind)
