"""JSON patch (RFC 6902) as github.com/evanphx/json-patch v4 applies it for the API server.

The library's departures from the RFC are part of the API and are kept: replace may name a missing member of an object, copying a
missing member copies null, negative indices count from the end, and a path need not begin with a slash.

``apply`` never changes its arguments: a container is copied before it is first changed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import orjson

from kas._codecs import write_json
from kas.meta import gojson
from kas.meta.field import go_quote
from kas.meta.largejson import parse
from kas.meta.offload import LOOP_BUDGET
from kas.patch import literals
from kas.patch.longlist import LONG, LongList

MAX_OPERATIONS = 10_000
# Bytes of JSON that the copy operations of one patch may add; the same as the request body's limit.
MAX_COPY_BYTES = 3 * 1024 * 1024
COPIED_BYTES = 25  # bytes of empty maps that are copied in a microsecond
# Maps and lists that the copy operations of one patch may add: three megabytes of empty ones take 250 MB of memory, of strings three.
MAX_COPIED_CONTAINERS = 100_000

Operation = dict[str, Any]
MEMBERS = frozenset({"op", "path", "from", "value"})


class Test(dict[str, Any]):
    """A ``test`` operation with ``literal``, its value as read by ``literals``, which must match the text of the value in the document."""

    __slots__ = ("literal",)
    literal: Any
    __test__ = False  # not a test class of pytest


class DecodeError(ValueError):
    """The text is not a list of operations: 400."""


class TooManyOperationsError(ValueError):
    """The patch has more than MAX_OPERATIONS operations: 413."""


class ApplyError(ValueError):
    """An operation does not apply to the document: 422."""


class TooMuchCopiedError(ApplyError):
    """The copy operations of the patch add more than the limit."""


class TestFailedError(ApplyError):
    """The value at the path of a ``test`` operation differs from the expected one."""

    __test__ = False  # not a test class of pytest


CONTAINERS = (dict, list, LongList)


class _Fault(Exception):
    """The reason a container operation failed, without the name of the operation. ``missing`` is upstream's ErrMissing."""

    def __init__(self, message: str, missing: bool = False) -> None:
        super().__init__(message)
        self.missing = missing


def decode(text: bytes | str, strict: bool = False) -> list[Operation]:
    """Decode a patch document into its operations. Raises DecodeError and TooManyOperationsError.

    ``strict`` first decodes them as the API server's own operation type (jsonPatchOp), which it does unless field validation is off.
    """
    try:
        patch = gojson.loads(text)
    except gojson.JSONError as e:
        raise DecodeError(f"error decoding patch: {e}" if strict else str(e)) from None
    if strict:
        why = _type_error(patch)
        if why:
            raise DecodeError(f"error decoding patch: {why}")
    if patch is None:
        return []
    if not isinstance(patch, list):
        raise DecodeError(gojson.cannot_unmarshal(patch, "jsonpatch.Patch"))
    for operation in patch:
        if operation is not None and not isinstance(operation, dict):
            raise DecodeError(gojson.cannot_unmarshal(operation, "jsonpatch.Operation"))
    if len(patch) > MAX_OPERATIONS:
        raise TooManyOperationsError(f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(patch)}")
    if any(operation and operation.get("op") == "test" for operation in patch):
        _attach_literals(patch, text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text)
    return [operation or {} for operation in patch]


def _attach_literals(patch: list[Any], text: bytes) -> None:
    """Replace the ``test`` operations of the patch in place by Test objects; ``text`` is the text that the patch was decoded from."""
    try:
        decoded = literals.read(text)
    except (ValueError, RecursionError):
        return  # these rare texts are compared by value
    for i, operation in enumerate(patch):
        if operation and operation.get("op") == "test" and operation.get("value") is not None:
            patch[i] = test = Test(operation)
            test.literal = next(value for name, value in decoded[i].items() if name == "value")


def _type_error(patch: Any) -> str:
    """Return Go's first error about a value that is not a ``[]jsonPatchOp`` (apiserver's handlers/patch.go), "" if it is one."""
    if patch is not None and not isinstance(patch, list):
        return gojson.cannot_unmarshal(patch, "[]handlers.jsonPatchOp")
    for operation in patch or ():
        if operation is None:
            continue
        if not isinstance(operation, dict):
            return gojson.cannot_unmarshal(operation, "handlers.jsonPatchOp")
        for name, value in operation.items():
            if name in MEMBERS and name != "value" and value is not None and not isinstance(value, str):
                return f"json: cannot unmarshal {gojson.go_type(value)} into Go struct field jsonPatchOp.{name} of type string"
    return ""


def apply(document: Any, patch: list[Operation], max_copy_bytes: int = MAX_COPY_BYTES) -> Any:
    """Return ``document`` with every operation applied in order. Raises ApplyError for the first one that does not apply."""
    run = _Run(document, max_copy_bytes)
    for operation in patch:
        kind = operation.get("op")
        function = _OPERATIONS.get(kind) if isinstance(kind, str) else None
        if function is None:
            raise ApplyError(f"Unexpected kind: {kind if isinstance(kind, str) else 'unknown'}")
        try:
            function(run, operation)
        except RecursionError:
            raise ApplyError("exceeded max depth") from None
    return run.result()


_ATOI = re.compile(r"[+-]?[0-9]+\Z", re.ASCII)


def _index(text: str) -> int:
    """Parse an index as ``strconv.Atoi`` does."""
    if not _ATOI.match(text):
        raise _Fault(f"strconv.Atoi: parsing {go_quote(text)}: invalid syntax")
    digits = text.lstrip("+-").lstrip("0")
    value = int(digits or "0") if len(digits) <= 19 else 2**64
    value = -value if text[0] == "-" else value
    if not -(2**63) <= value < 2**63:
        raise _Fault(f"strconv.Atoi: parsing {go_quote(text)}: value out of range")
    return value


def _position(index: int, length: int) -> int:
    """Return ``index`` as a position below ``length``; negative indices count from the end."""
    if index >= length or index < -length:
        raise _Fault(f"Unable to access invalid index: {index}: invalid index referenced")
    return index + length if index < 0 else index


def _unescape(part: str) -> str:
    return part.replace("~1", "/").replace("~0", "~")  # in this order (RFC 6901, 4): "~01" is "~1"


class _Run:
    """One application of a patch: the current document, the containers already copied, and the cost of copy operations so far."""

    def __init__(self, document: Any, max_copy_bytes: int) -> None:
        self.root = document
        self.owned: dict[int, Any] = {}
        self.max_copy_bytes, self.copied, self.copied_containers = max_copy_bytes, 0, 0
        self.has_patch_values = False  # whether a value of the patch may be in the document

    def own(self, value: Any) -> Any:
        """Return a container that may be changed: ``value`` itself if this run made it, else a copy."""
        if id(value) in self.owned:
            return value
        if isinstance(value, dict):
            copy: Any = dict(value)
        else:
            copy = list(value) if len(value) <= LONG else LongList(value)
        # Keep a reference, so that the id is not reused.
        self.owned[id(copy)] = copy
        return copy

    def count(self, value: Any, text: bytes) -> None:
        """Count the maps and lists of a copied value, whose JSON is ``text``. Raises TooMuchCopiedError."""
        found = text.count(b"{") + text.count(b"[")
        if self.copied_containers + found > MAX_COPIED_CONTAINERS:
            found = _containers(value)  # some of the brackets are inside strings
        self.copied_containers += found
        if self.copied_containers > MAX_COPIED_CONTAINERS:
            raise TooMuchCopiedError(f"Unable to complete the copy, which adds more than {MAX_COPIED_CONTAINERS} maps and lists")

    def find(self, path: str) -> tuple[Any, str]:
        """Return the container of the last part of ``path``, safe to change, and that part; (None, "") if the path has no container."""
        parts = path.split("/")
        if len(parts) < 2:
            return None, ""
        # First check that the path exists: a failing lookup must not copy.
        value = self.root
        for part in parts[1:-1]:
            try:
                value = _get(value, _unescape(part))
            except _Fault:
                return None, ""
            if not isinstance(value, CONTAINERS):
                return None, ""
        if not isinstance(value, CONTAINERS):
            return None, ""
        container = self.root = self.own(self.root)
        for part in parts[1:-1]:
            key = _unescape(part)
            at = key if isinstance(container, dict) else _position(_index(key), len(container))
            container[at] = self.own(container[at])
            container = container[at]
        return container, _unescape(parts[-1])

    def result(self) -> Any:
        """Return the document with every LongList turned back into a list. LongLists only occur in containers that this run copied."""
        whole = {key: list(long) for key, long in self.owned.items() if isinstance(long, LongList)}
        if not whole:
            return self.root
        for container in [c for c in self.owned.values() if isinstance(c, (dict, list))] + list(whole.values()):
            for at, value in list(container.items() if isinstance(container, dict) else enumerate(container)):
                if isinstance(value, LongList):
                    container[at] = whole[id(value)]
        return whole.get(id(self.root), self.root)


def _get(container: Any, key: str) -> Any:
    """Return a member; absent members of an object are null, as upstream's nil node."""
    if isinstance(container, dict):
        return container.get(key)
    return container[_position(_index(key), len(container))]


def _set(container: Any, key: str, value: Any) -> None:
    if isinstance(container, dict):
        container[key] = value
    else:
        container[_position(_index(key), len(container))] = value


def _add(container: Any, key: str, value: Any) -> None:
    if isinstance(container, dict):
        container[key] = value
    elif key == "-":
        container.append(value)
    else:
        try:
            index = _index(key)
        except _Fault as e:
            raise _Fault(f"value was not a proper array index: '{key}': {e}") from None
        container.insert(_position(index, len(container) + 1), value)


def _remove(container: Any, key: str) -> None:
    if isinstance(container, dict):
        if key not in container:
            raise _Fault(f"Unable to remove nonexistent key: {key}: missing value", missing=True)
        del container[key]
    else:
        del container[_position(_index(key), len(container))]


def _pointer(operation: Operation, name: str) -> str:
    value = operation.get(name)
    if value is None:
        raise _Fault("operation missing path field: missing value" if name == "path" else "operation, missing from field: missing value")
    if not isinstance(value, str):
        raise _Fault(gojson.cannot_unmarshal(value, "string"))
    return value


def _path_or_missing(operation: Operation, name: str) -> str:
    try:
        return _pointer(operation, "path")
    except _Fault:
        raise ApplyError(f"{name} operation failed to decode path: missing value") from None


def _pointer_of(operation: Operation, name: str, field: str) -> str:
    try:
        return _pointer(operation, field)
    except _Fault as e:
        raise ApplyError(f"{name} operation failed to decode {field}: {e}") from None


def _apply_add(run: _Run, operation: Operation) -> None:
    path = _path_or_missing(operation, "add")
    container, key = run.find(path)
    if container is None:
        raise ApplyError(f'add operation does not apply: doc is missing path: "{path}": missing value')
    run.has_patch_values = True
    try:
        _add(container, key, operation.get("value"))
    except _Fault as e:
        raise ApplyError(f"error in add for path: '{path}': {e}") from None


def _apply_remove(run: _Run, operation: Operation) -> None:
    path = _path_or_missing(operation, "remove")
    container, key = run.find(path)
    if container is None:
        raise ApplyError(f'remove operation does not apply: doc is missing path: "{path}": missing value')
    try:
        _remove(container, key)
    except _Fault as e:
        raise ApplyError(f"error in remove for path: '{path}': {e}") from None


def _apply_replace(run: _Run, operation: Operation) -> None:
    path = _pointer_of(operation, "replace", "path")
    value = operation.get("value")
    run.has_patch_values = True
    if path == "":
        if not isinstance(value, (dict, list)):
            # Upstream formats a nil error into this message.
            raise ApplyError("replace operation value must be object or array: %!w(<nil>)")
        run.root = value
        return
    container, key = run.find(path)
    if container is None:
        raise ApplyError(f"replace operation does not apply: doc is missing path: {path}: missing value")
    try:
        _get(container, key)
    except _Fault:
        raise ApplyError(f"replace operation does not apply: doc is missing key: {path}: missing value") from None
    _set(container, key, value)


def _apply_move(run: _Run, operation: Operation) -> None:
    source = _pointer_of(operation, "move", "from")
    container, key = run.find(source)
    if container is None:
        raise ApplyError(f"move operation does not apply: doc is missing from path: {source}: missing value")
    try:
        value = _get(container, key)
        _remove(container, key)
    except _Fault as e:
        raise ApplyError(f"error in move for path: '{key}': {e}") from None
    path = _pointer_of(operation, "move", "path")
    container, key = run.find(path)
    if container is None:
        raise ApplyError(f"move operation does not apply: doc is missing destination path: {path}: missing value")
    try:
        _add(container, key, value)
    except _Fault as e:
        raise ApplyError(f"error in move for path: '{path}': {e}") from None


def _containers(value: Any) -> int:
    """Count the maps and lists in a value, including itself."""
    found, left = 0, [value]
    while left:
        one = left.pop()
        if isinstance(one, CONTAINERS):
            found += 1
            left.extend(one.values() if isinstance(one, dict) else one)
    return found


def _apply_copy(run: _Run, operation: Operation) -> None:
    source = _pointer_of(operation, "copy", "from")
    container, key = run.find(source)
    if container is None:
        raise ApplyError(f"copy operation does not apply: doc is missing from path: {source}: missing value")
    try:
        value = _get(container, key)
    except _Fault as e:
        raise ApplyError(f"error in copy for from: '{source}': {e}") from None
    path = _path_or_missing(operation, "copy")
    container, key = run.find(path)
    if container is None:
        raise ApplyError(f"copy operation does not apply: doc is missing destination path: {path}: missing value")
    # Copy deeply: later operations may change the original, and the two must stay independent.
    copy = value
    if isinstance(value, CONTAINERS):
        try:
            text = orjson.dumps(value, default=list)  # default: for a LongList
        except TypeError:  # nested deeper than orjson supports
            text = json.dumps(value, default=list).encode()
        LOOP_BUDGET.spend(len(text) // COPIED_BYTES)  # a few copy operations can double the document repeatedly
        run.count(value, text)
        copy = parse(text)
    size = len(write_json(copy)) if value is not None else 0
    run.copied += size
    if run.copied > run.max_copy_bytes:
        raise TooMuchCopiedError(
            f"Unable to complete the copy, the accumulated size increase of copy is {run.copied}, exceeding the limit {run.max_copy_bytes}"
        )
    try:
        _add(container, key, copy)
    except _Fault as e:
        raise ApplyError(f"error while adding value during copy: {e}") from None


def _apply_test(run: _Run, operation: Operation) -> None:
    path = _pointer_of(operation, "test", "path")
    if path == "":
        have = run.root
    else:
        container, key = run.find(path)
        if container is None:
            raise ApplyError(f"test operation does not apply: is missing path: {path}: missing value")
        try:
            have = _get(container, key)
        except _Fault as e:
            raise ApplyError(f"error in test for path: '{path}': {e}") from None
    if not _test_passes(run, operation, have):
        raise TestFailedError(f"testing value {path} failed: test failed")


def _test_passes(run: _Run, operation: Operation, have: Any) -> bool:
    """Whether a ``test`` operation passes.

    Values are compared by their text. They are compared by value if the operation has no text, or if the value in the document may come
    from the patch, whose original text is no longer known.
    """
    if isinstance(operation, Test):
        if literals.says(operation.literal, have):
            return True
        if not run.has_patch_values:
            return False
    return equal(have, operation.get("value"))


def equal(a: Any, b: Any) -> bool:
    """Compare JSON values as Go's output would: 1 equals 1.0 but not true."""
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(equal(v, b[k]) for k, v in a.items())
    if isinstance(a, (list, LongList)):
        return isinstance(b, (list, LongList)) and len(a) == len(b) and all(map(equal, a, b))
    return a == b and (type(a) is type(b) or not (isinstance(a, bool) or isinstance(b, bool)))


_OPERATIONS: dict[str, Callable[[_Run, Operation], None]] = {
    "add": _apply_add, "remove": _apply_remove, "replace": _apply_replace, "move": _apply_move, "copy": _apply_copy, "test": _apply_test,
}  # fmt: skip
