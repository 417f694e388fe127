"""JSON patch (RFC 6902) as github.com/evanphx/json-patch v4 applies it for the API server.

Its departures from the RFC are part of the API and kept: a replace may name a missing member of an object, copying a
missing member copies null, negative indices count from the end, a path need not begin with a slash. ``apply`` never
changes what it is given: a container is copied before the first change in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import orjson

from kas._codecs import write_json
from kas.meta import gojson
from kas.meta.field import go_quote
from kas.meta.largejson import parse
from kas.meta.offload import TURN
from kas.patch import literals
from kas.patch.longlist import LONG, LongList

MAX_OPERATIONS = 10_000
# Bytes of JSON that copy operations may add; the request body's own limit.
MAX_COPY_BYTES = 3 * 1024 * 1024
COPIED_BYTES = 25  # of empty maps, in a microsecond
# Maps and lists that they may add: three megabytes of those take 250 where a text takes three.
MAX_COPIED_CONTAINERS = 100_000

Operation = dict[str, Any]
MEMBERS = frozenset({"op", "path", "from", "value"})


class Test(dict[str, Any]):
    """A test as a client wrote it: ``said`` is its value in ``literals``, which has to be the text of what is there."""

    __slots__ = ("said",)
    said: Any
    __test__ = False  # for pytest


class DecodeError(ValueError):
    """The text is no list of operations: 400."""


class TooManyOperationsError(ValueError):
    """More than MAX_OPERATIONS: 413."""


class ApplyError(ValueError):
    """An operation does not apply: 422."""


class TooMuchCopiedError(ApplyError):
    """Copies add more than they may, whatever the document is."""


class TestFailedError(ApplyError):
    """The value that an operation tests is another."""

    __test__ = False  # for pytest


CONTAINERS = (dict, list, LongList)


class _Fault(Exception):
    """Why a container refuses, before the operation adds what it was about. ``missing`` is upstream's ErrMissing."""

    def __init__(self, message: str, missing: bool = False) -> None:
        super().__init__(message)
        self.missing = missing


def decode(text: bytes | str, strict: bool = False) -> list[Operation]:
    """The operations of a patch document. Raises DecodeError and TooManyOperationsError.

    ``strict`` reads them first as the API server's own type of an operation, unless field validation is off.
    """
    try:
        patch = gojson.loads(text)
    except gojson.JSONError as e:
        raise DecodeError(f"error decoding patch: {e}" if strict else str(e)) from None
    if strict:
        why = _misfit(patch)
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
        _hear(patch, text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text)
    return [operation or {} for operation in patch]


def _hear(patch: list[Any], text: bytes) -> None:
    """Make Tests of the tests in a patch, whose text is given."""
    try:
        said = literals.read(text)
    except (ValueError, RecursionError):
        return  # what is so odd is compared by value
    for i, operation in enumerate(patch):
        if operation and operation.get("op") == "test" and operation.get("value") is not None:
            patch[i] = test = Test(operation)
            test.said = next(value for name, value in said[i].items() if name == "value")


def _misfit(patch: Any) -> str:
    """What Go says first of a value that is no ``[]jsonPatchOp`` (apiserver's handlers/patch.go); "" when it is one."""
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
    """``document`` with every operation applied in order. Raises ApplyError at the first that does not apply."""
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
    """``strconv.Atoi``."""
    if not _ATOI.match(text):
        raise _Fault(f"strconv.Atoi: parsing {go_quote(text)}: invalid syntax")
    digits = text.lstrip("+-").lstrip("0")
    value = int(digits or "0") if len(digits) <= 19 else 2**64
    value = -value if text[0] == "-" else value
    if not -(2**63) <= value < 2**63:
        raise _Fault(f"strconv.Atoi: parsing {go_quote(text)}: value out of range")
    return value


def _position(index: int, length: int) -> int:
    """``index`` as a position below ``length``; negative ones count from the end."""
    if index >= length or index < -length:
        raise _Fault(f"Unable to access invalid index: {index}: invalid index referenced")
    return index + length if index < 0 else index


def _unescape(part: str) -> str:
    return part.replace("~1", "/").replace("~0", "~")  # in this order (RFC 6901, 4): "~01" is "~1"


class _Run:
    """One application: the document so far, which containers are ours to change, and what copies have cost."""

    def __init__(self, document: Any, max_copy_bytes: int) -> None:
        self.root = document
        self.owned: dict[int, Any] = {}
        self.max_copy_bytes, self.copied, self.copied_containers = max_copy_bytes, 0, 0
        self.given = False  # whether a value of the patch is in the document, as it was written there

    def own(self, value: Any) -> Any:
        """A container that may be changed: ``value`` itself when it is ours already, else a copy."""
        if id(value) in self.owned:
            return value
        if isinstance(value, dict):
            copy: Any = dict(value)
        else:
            copy = list(value) if len(value) <= LONG else LongList(value)
        # Kept alive here, so that its id stays its own.
        self.owned[id(copy)] = copy
        return copy

    def count(self, value: Any, text: bytes) -> None:
        """What is copied now, and its text. Raises TooMuchCopiedError."""
        found = text.count(b"{") + text.count(b"[")
        if self.copied_containers + found > MAX_COPIED_CONTAINERS:
            found = _containers(value)  # some of those stand in texts
        self.copied_containers += found
        if self.copied_containers > MAX_COPIED_CONTAINERS:
            raise TooMuchCopiedError(f"Unable to complete the copy, which adds more than {MAX_COPIED_CONTAINERS} maps and lists")

    def find(self, path: str) -> tuple[Any, str]:
        """The container that holds the last part of ``path``, ours to change, and that part; (None, "") when there is none."""
        parts = path.split("/")
        if len(parts) < 2:
            return None, ""
        # First look whether the way is there at all: a failing lookup must not copy.
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
        """The document of dicts and lists only: what was taken apart is in containers of ours, and so is what holds it."""
        whole = {key: list(long) for key, long in self.owned.items() if isinstance(long, LongList)}
        if not whole:
            return self.root
        for container in [c for c in self.owned.values() if isinstance(c, (dict, list))] + list(whole.values()):
            for at, value in list(container.items() if isinstance(container, dict) else enumerate(container)):
                if isinstance(value, LongList):
                    container[at] = whole[id(value)]
        return whole.get(id(self.root), self.root)


def _get(container: Any, key: str) -> Any:
    """A member; absent ones of an object are null, as upstream's nil node."""
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
    run.given = True
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
    run.given = True
    if path == "":
        if not isinstance(value, (dict, list)):
            # The text has a place for an error that upstream does not have there.
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
    """How many maps and lists a value has, itself among them."""
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
    # A copy of its own: the original may be changed later and the two must not be one.
    copy = value
    if isinstance(value, CONTAINERS):
        text = orjson.dumps(value, default=list)  # list: of a LongList
        TURN.spend(len(text) // COPIED_BYTES)  # a few of these double what is there again and again
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
    if not _tells(run, operation, have):
        raise TestFailedError(f"testing value {path} failed: test failed")


def _tells(run: _Run, operation: Operation, have: Any) -> bool:
    """Whether a test passes: by its text, unless it has none or what is there may be of the patch, too, whose texts are gone by then."""
    if isinstance(operation, Test):
        if literals.says(operation.said, have):
            return True
        if not run.given:
            return False
    return equal(have, operation.get("value"))


def equal(a: Any, b: Any) -> bool:
    """Equality of JSON values by the text that Go writes: 1 and 1.0 are one, true is another."""
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(equal(v, b[k]) for k, v in a.items())
    if isinstance(a, (list, LongList)):
        return isinstance(b, (list, LongList)) and len(a) == len(b) and all(map(equal, a, b))
    return a == b and (type(a) is type(b) or not (isinstance(a, bool) or isinstance(b, bool)))


_OPERATIONS: dict[str, Callable[[_Run, Operation], None]] = {
    "add": _apply_add, "remove": _apply_remove, "replace": _apply_replace, "move": _apply_move, "copy": _apply_copy, "test": _apply_test,
}  # fmt: skip
