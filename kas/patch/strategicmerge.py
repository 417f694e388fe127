"""Strategic merge patch: apimachinery's ``pkg/util/strategicpatch``, applying a patch to an object.

The type tables (``Field.patch_strategy``, ``patch_merge_key``) say which fields merge, by which key, and which are replaced. PatchSchema
reads them, so the rest of this module does not depend on how they are stored.

Neither the original nor the patch is changed: the same patch is applied again when a write loses a race. List items are matched through
dictionaries, so that a patch cannot take quadratic time.

Directives: ``$patch`` (replace, delete; merge in a list is refused), ``$retainKeys``, ``$deleteFromPrimitiveList/f``,
``$setElementOrder/f``.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Any

from kas.meta.field import go_float, go_quote
from kas.patch.mergepatch import without_nulls

if TYPE_CHECKING:
    from kas.types.scheme import Field, TypeDesc

Obj = dict[str, Any]
# What upstream's merge leaves of each map of the patch, by the map's id.
Left = dict[int, Obj]

PATCH = "$patch"
RETAIN_KEYS = "$retainKeys"
DELETE_FROM = "$deleteFromPrimitiveList"
SET_ORDER = "$setElementOrder"

BAD_PRIMITIVE_LIST = "invalid patch format of primitive list"
BAD_RETAIN_KEYS = "invalid patch format of retainKeys"
BAD_SET_ORDER = "invalid patch format of setElementOrder list"
LIST_OF_LISTS = "lists of lists are not supported"
TOO_DEEP = "exceeded max depth"


class StrategicMergeError(ValueError):
    """A patch that does not apply; ``code`` is the HTTP status of upstream's answer."""

    @property
    def code(self) -> int:
        """The HTTP status of upstream's answer: 400, 422 or 500."""
        message = str(self)
        if message in (BAD_PRIMITIVE_LIST, BAD_RETAIN_KEYS, BAD_SET_ORDER, TOO_DEEP):
            return 400
        return 422 if message == LIST_OF_LISTS else 500


class PatchSchema:
    """A position in a type: a struct (``type`` given), or, by ``go_kind``, a map, slice or scalar whose elements are ``type``."""

    __slots__ = ("go_kind", "type")

    def __init__(self, type: TypeDesc | None, go_kind: str = "struct") -> None:
        self.type, self.go_kind = type, go_kind

    def lookup(self, key: str) -> tuple[PatchSchema, str, str, bool]:
        """Return (schema of field ``key``, strategy without retainKeys, merge key, whether it is a pointer). Raises StrategicMergeError."""
        if self.go_kind != "struct" or self.type is None:
            raise StrategicMergeError(f"merging an object in json but data type is not struct, instead is: {self.go_kind}")
        field = self.type.by_name.get(key) or _folded(self.type, key)
        if field is None:
            name = self.type.name.rpartition(".")[2]
            raise StrategicMergeError(f"unable to find api field in struct {name} for the json field {go_quote(key)}")
        strategies = [s for s in (field.patch_strategy or "").split(",") if s != "retainKeys"]
        return _place(field), strategies[0] if strategies else "", field.patch_merge_key or "", bool(field.ptr)

    def lookup_slice(self, key: str) -> tuple[PatchSchema, str, str]:
        """As ``lookup``, but return the schema of the elements of a list field, without the pointer flag."""
        place, strategy, merge_key, pointer = self.lookup(key)
        if place.go_kind == "slice":
            place = PatchSchema(place.type, "struct" if place.type is not None else "string")
        elif not pointer:
            raise StrategicMergeError(f"expected slice or array type, but got: {self.go_kind}")
        return place, strategy, merge_key


def _folded(type: TypeDesc, key: str) -> Field | None:
    # encoding/json falls back to a case-insensitive match.
    low = key.lower()
    return next((f for name, f in type.by_name.items() if name.lower() == low), None)


_CARDS = {"list": "slice", "map": "map"}


def _place(field: Field) -> PatchSchema:
    kind = _CARDS.get(field.card)
    if kind is None:
        kind = "struct" if field.message is not None else "string"
    return PatchSchema(field.message, kind)


def apply(original: Obj, patch: Obj, type: TypeDesc) -> Obj:
    """Return ``original`` of ``type`` with the decoded patch merged in. Raises StrategicMergeError.

    The result is not checked against the type.
    """
    try:
        return _merge_map(original, patch, PatchSchema(type))
    except RecursionError:
        raise StrategicMergeError(TOO_DEEP) from None


def left_of(original: Obj, patch: Obj, type: TypeDesc) -> Obj:
    """Return what upstream's merge leaves of a patch that applies. It works on the patch in place and shows the rest in later errors."""
    left: Left = {}
    _merge_map(original, patch, PatchSchema(type), left)
    return _left(patch, left)


def _left(value: Any, left: Left) -> Any:
    if isinstance(value, dict):
        return {k: _left(v, left) for k, v in left.get(id(value), value).items()}
    return [_left(v, left) for v in value] if isinstance(value, list) else value


def _left_of_new(value: Any) -> Any:
    """Return what is left of a value that has nothing to merge with."""
    if isinstance(value, list):
        return [_left_of_new(v) for v in value]
    value = without_nulls(value)
    kept, keep = _without_directives(value)
    return kept if keep else value


def _merge_map(original: Obj, patch: Obj, schema: PatchSchema, left: Left | None = None) -> Obj:
    if PATCH in patch:
        if left is not None:
            left[id(patch)] = {k: v for k, v in patch.items() if k != PATCH or v != "replace"}
        return _patch_directive(patch)
    given = patch
    out, patch = dict(original), dict(patch)
    _retain_keys(out, patch)
    _set_element_orders(out, patch, schema, left)
    if left is not None:
        left[id(given)] = {k: _left_of_new(v) if k not in out or type(out[k]) is not type(v) else v for k, v in patch.items()}
    for key, value in patch.items():
        deletes = key.startswith(DELETE_FROM)
        if deletes:
            key = _field_of(key, DELETE_FROM, BAD_PRIMITIVE_LIST)
        if value is None:
            out.pop(key, None)
            continue
        current: Any = out.get(key)
        if key not in out or type(current) is not type(value):
            if not deletes:
                value, keep = _without_directives(without_nulls(value))
                if keep:
                    out[key] = value
                else:
                    out.pop(key, None)
        elif isinstance(value, dict):
            place, strategy, _, _ = schema.lookup(key)
            out[key] = value if strategy == "replace" else _merge_map(current, value, place, left)
        elif isinstance(value, list):
            place, strategy, merge_key = schema.lookup_slice(key)
            if strategy == "merge" or deletes:
                out[key] = _merge_list(current, value, place, merge_key, deletes, left)
            else:
                out[key] = value
        else:
            out[key] = value
    return out


def _patch_directive(patch: Obj) -> Obj:
    directive = patch[PATCH]
    if directive == "replace":
        return {k: v for k, v in patch.items() if k != PATCH}
    if directive == "delete":
        return {}
    raise _bad_directive(directive, patch)


def _bad_directive(directive: Any, patch: Obj) -> StrategicMergeError:
    return StrategicMergeError(f"unknown patch type: {_string(directive)} in map: {go_text(patch)}")


def _retain_keys(out: Obj, patch: Obj) -> None:
    if RETAIN_KEYS not in patch:
        return
    listed = patch.pop(RETAIN_KEYS)
    if not isinstance(listed, list):
        raise StrategicMergeError(BAD_RETAIN_KEYS)
    keep = {k for k in listed if isinstance(k, str)}
    for key, value in patch.items():
        if value is not None and key not in keep and not key.startswith((DELETE_FROM, SET_ORDER)):
            raise StrategicMergeError(BAD_RETAIN_KEYS)
    for key in out.keys() - keep:
        del out[key]


def _field_of(key: str, prefix: str, complaint: str) -> str:
    head, slash, name = key.partition("/")
    if not slash or head != prefix:
        raise StrategicMergeError(complaint)
    return name


def _set_element_orders(out: Obj, patch: Obj, schema: PatchSchema, left: Left | None) -> None:
    """Merge every list that has a $setElementOrder directive, and remove the list and the directive from ``patch``."""
    for directive in [k for k in patch if k.startswith(SET_ORDER)]:
        order = patch.pop(directive)
        _check_list(order)
        key = _field_of(directive, SET_ORDER, BAD_SET_ORDER)
        current: Any = out.get(key)
        new = patch.get(key)
        for given, where in ((current, out), (new, patch)):
            if key in where:
                _check_list(given)
        place, strategy, merge_key = schema.lookup_slice(key)
        _check_order(new or [], order, merge_key)
        if new is None and current is None:
            continue
        if new is None:
            merged = current
        elif current is None:
            merged = _without_directives(new)[0]
        elif strategy == "merge":
            merged = _merge_list(current, new, place, merge_key, False, left)
        else:
            merged = new
        keys = _named(merged, order, merge_key) if merge_key else _keys(merged, "")
        of_maps = _element_type(current or [], new or []) is dict
        server_order = _keys(current or [], merge_key, of_maps)
        if merge_key and strategy == "merge" and new is not None:
            server_order = _keys_left_in_place(server_order, new, merge_key)
        out[key] = _arrange(merged, keys, _keys(order, merge_key, of_maps), server_order)
        patch.pop(key, None)


def _keys_left_in_place(keys: list[Hashable], patch: list[Obj], merge_key: str) -> list[Hashable]:
    """Return the server's order as upstream sees it after merging ``patch``; ``keys`` is the order before.

    Upstream deletes by moving the remaining items forward in the same array, from which it later reads the order; added items take the
    places freed at its end. So when one patch both deletes and adds, the added items sort behind those that only the server has.
    """
    gone = dict.fromkeys(_key(e[merge_key]) for e in patch if e.get(PATCH) == "delete")
    kept = [k for k in keys if k not in gone]
    if len(kept) == len(keys):
        return keys
    left = list(keys)
    at: dict[Hashable, list[int]] = {k: [] for k in gone}
    for i, k in enumerate(keys):
        if k in gone:
            at[k].append(i)
    alive, last, length = [True] * len(keys), len(keys) - 1, len(keys)
    for i in (i for k in gone for i in at[k]):
        length -= 1
        left[length] = keys[last]  # the array keeps its former last item in the freed place
        alive[i] = False
        while last >= 0 and not alive[last]:
            last -= 1
    replaced = any(e.get(PATCH) == "replace" for e in patch)
    added = () if replaced else (_key(e[merge_key]) for e in patch if PATCH not in e)
    here = set(kept)
    filled = kept + [k for k in dict.fromkeys(added) if k not in here]
    return (filled + left[len(filled) :])[: len(keys)]


def _check_order(patch: list, order: list, merge_key: str) -> None:
    """Check that the patch's elements occur in ``order`` in the same sequence; an empty order allows any."""
    if not patch or not order:
        return
    items = _split_deleted(patch)[0] if merge_key else patch
    at = i = 0
    while at < len(items) and i < len(order):
        item, wanted = items[at], order[i]
        if isinstance(item, dict) and PATCH in item:
            at += 1
            continue
        if merge_key:
            _check_map(item)
            _check_map(wanted)
            same = _key(_merge_value(item, merge_key)) == _key(_merge_value(wanted, merge_key))
        else:
            same = _key(item) == _key(wanted)
        at += same
        i += 1
    if at < len(items):
        raise StrategicMergeError(f"The order in patch list:\n{go_text(patch)}\n doesn't match {SET_ORDER} list:\n{go_text(order)}\n")


def _named(items: list, order: list, merge_key: str) -> list[Hashable]:
    """Return the items' merge keys. Upstream searches ``order`` from its beginning: a non-map before the match is an error."""
    bad = next((i for i, v in enumerate(order) if not isinstance(v, dict)), len(order))
    before = {_key(v[merge_key]) for v in order[:bad] if merge_key in v}
    keys = []
    for item in items:
        _check_map(item)
        keys.append(_key(_merge_value(item, merge_key)))
        if bad < len(order) and keys[-1] not in before:
            raise StrategicMergeError(f"value for key {bad} is not a map")
    return keys


def _merge_list(original: list, patch: list, schema: PatchSchema, merge_key: str, deletes: bool, left: Left | None) -> list:
    if not original and not patch:
        return original
    if _element_type(original, patch) is dict:
        if not merge_key:
            raise StrategicMergeError(f"cannot merge lists without merge key for {schema.go_kind}")
        original, patch = _special_elements(original, patch, merge_key)
        merged = _merge_elements(original, patch, merge_key, schema, left)
        return _arrange(merged, _keys(merged, merge_key), _keys(patch, merge_key), _keys(original, merge_key))
    if deletes:
        gone = set(_keys(patch, ""))
        return [v for v in original if _key(v) not in gone]
    merged = list({_key(v): v for v in (*original, *patch)}.values())
    # Scalars in a list that has a merge key are refused here.
    return _arrange(merged, _keys(merged, merge_key), _keys(patch, merge_key), _keys(original, merge_key))


def _special_elements(original: list[Obj], patch: list[Obj], merge_key: str) -> tuple[list[Obj], list[Obj]]:
    """Carry out the elements that have a $patch directive. Returns (remaining original, patch without those elements)."""
    plain, replace, gone = [], False, set()
    for element in patch:
        directive = element.get(PATCH)
        if PATCH not in element:
            plain.append(element)
        elif directive == "delete":
            gone.add(_key(_merge_value(element, merge_key)))
        elif directive == "replace":
            replace = True
        elif directive == "merge":
            raise StrategicMergeError("merging lists cannot yet be specified in the patch")
        else:
            raise _bad_directive(directive, element)
    if replace:
        return plain, []
    if gone:
        original = [v for v in original if merge_key not in v or _key(v[merge_key]) not in gone]
    return original, plain


def _merge_elements(original: list[Obj], patch: list[Obj], merge_key: str, schema: PatchSchema, left: Left | None) -> list[Obj]:
    out = list(original)
    where: dict[Hashable, int] = {}
    for i, element in enumerate(out):
        if merge_key in element:
            where.setdefault(_key(element[merge_key]), i)
    for element in patch:
        value = _key(_merge_value(element, merge_key))
        at = where.get(value)
        if at is None:
            where[value] = len(out)
            out.append(element)
        else:
            out[at] = _merge_map(out[at], element, schema, left)
    return out


def _keys(items: list, merge_key: str, of_maps: bool = False) -> list[Hashable]:
    """Return the identity of each item: its merge key, or the scalar itself."""
    if not merge_key and not of_maps:
        return [_key(v) for v in items]
    for item in items:
        _check_map(item)
    return [_key(_merge_value(v, merge_key)) for v in items]


def _arrange(items: list, keys: list[Hashable], order: list[Hashable], server_order: list[Hashable]) -> list:
    """Arrange ``items``: those in ``order`` in its sequence, the others in the server's order, interleaved where that order decides.

    Upstream's partition, normalizeElementOrder and mergeSortedSlice. Elements marked for deletion go to the end of their part.
    """
    wanted, server = _positions(order), _positions(server_order)
    right = _placed([i for i, k in enumerate(keys) if k in wanted], items, keys, wanted)
    if len(right) == len(items):
        return [items[i] for i in right]
    left = _placed([i for i, k in enumerate(keys) if k not in wanted], items, keys, server)
    out: list = []
    i = j = 0
    while i < len(left) and j < len(right):
        li, ri = server.get(keys[left[i]]), server.get(keys[right[j]])
        if li is not None and ri is not None and li < ri:
            out.append(items[left[i]])
            i += 1
        else:
            out.append(items[right[j]])
            j += 1
    return out + [items[at] for at in (*right[j:], *left[i:])]


def _placed(part: list[int], items: list, keys: list[Hashable], index: dict[Hashable, int]) -> list[int]:
    """Sort ``part``, a list of item positions, by ``index``; items marked for deletion go last.

    Upstream's comparison with an item that is not in ``index`` always yields "less", so its insertion sort, used for up to 20 items,
    reverses such items. In longer lists they keep their order, at the end.
    """
    gone = [i for i in part if isinstance(items[i], dict) and items[i].get(PATCH) == "delete"]
    if gone:
        marked = set(gone)
        part = [i for i in part if i not in marked]
    last = len(index)
    if len(part) > 20 or all(keys[i] in index for i in part):
        return sorted(part, key=lambda i: index.get(keys[i], last)) + gone
    out: list[int] = []
    for i in part:
        rank, at = index.get(keys[i]), len(out)
        while at:
            other = index.get(keys[out[at - 1]])
            if rank is not None and other is not None and rank >= other:
                break
            at -= 1
        out.insert(at, i)
    return out + gone


def _positions(keys: list[Hashable]) -> dict[Hashable, int]:
    """Return the first position of each key."""
    return {key: len(keys) - 1 - i for i, key in enumerate(reversed(keys))}


def _key(value: Any) -> Hashable:
    """Return ``value`` as a hashable key that distinguishes what Go does: 1, 1.0 and true are different."""
    if isinstance(value, str):
        return value
    if isinstance(value, (dict, list)):
        return (type(value), go_text(value))
    return (type(value), value)


def _merge_value(element: Obj, merge_key: str) -> Any:
    if merge_key not in element:
        raise StrategicMergeError(f"map: {go_text(element)} does not contain declared merge key: {merge_key}")
    return element[merge_key]


def _split_deleted(items: Iterable[Any]) -> tuple[list, list]:
    keep: list[Any] = []
    gone: list[Any] = []
    for item in items:
        _check_map(item)
        (gone if item.get(PATCH) == "delete" else keep).append(item)
    return keep, gone


def _element_type(*lists: list) -> type:
    found: type | None = None
    for items in lists:
        for value in items:
            if found is None:
                found = type(value)
                if found is list:
                    raise StrategicMergeError(LIST_OF_LISTS)
            elif type(value) is not found:
                raise StrategicMergeError(f"list element types are not identical: {go_text(list(lists))}")
    if found is None:
        raise StrategicMergeError("no elements in any of the given slices")
    return found


def _check_map(value: Any) -> None:
    if not isinstance(value, dict):
        raise StrategicMergeError(f"expected a map[string]interface {{}}, but received a {_go_type(value)}")


def _check_list(value: Any) -> None:
    if not isinstance(value, list):
        raise StrategicMergeError(f"expected a []interface {{}}, but received a {_go_type(value)}")


def _without_directives(value: Any) -> tuple[Any, bool]:
    """Return (``value`` without the maps that have a $patch directive, whether to keep the value at all)."""
    if isinstance(value, dict):
        if PATCH in value:
            return None, False
        pairs = ((k, _without_directives(v)) for k, v in value.items())
        return {k: v for k, (v, keep) in pairs if keep}, True
    if isinstance(value, list):
        return [v for v, keep in map(_without_directives, value) if keep], True
    return value, True


def _go_type(value: Any) -> str:
    if value is None:
        return "%!s(<nil>)"
    if isinstance(value, bool):
        return "bool"
    return {str: "string", int: "int64", float: "float64", list: "[]interface {}", dict: "map[string]interface {}"}[type(value)]


def go_text(value: Any) -> str:
    """Format a decoded JSON value as ``fmt``'s %v does."""
    if value is None:
        return "<nil>"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return f"map[{' '.join(f'{k}:{go_text(value[k])}' for k in sorted(value))}]"
    if isinstance(value, list):
        return f"[{' '.join(map(go_text, value))}]"
    return go_float(value) if isinstance(value, float) else str(value)


def _string(value: Any) -> str:
    """Format a decoded JSON value as ``fmt``'s %s does, which marks non-strings as a misuse."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return f"map[{' '.join(f'{k}:{_string(value[k])}' for k in sorted(value))}]"
    if isinstance(value, list):
        return f"[{' '.join(map(_string, value))}]"
    return "%!s(<nil>)" if value is None else f"%!s({_go_type(value)}={go_text(value)})"
