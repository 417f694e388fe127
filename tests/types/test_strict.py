"""Findings of strict decoding: the compiled scan compared with a simple one in Python."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kas.patch.strict import json_patch_errors
from kas.types.scheme import DecodeError, Pairs, TypeDesc, builtin_kind, duplicate_fields, read_pairs, strict_fields
from kas.types.strict import duplicates, read_json

CONFIG_MAP = builtin_kind("", "v1", "ConfigMap").type
POD = builtin_kind("", "v1", "Pod").type
CRD = builtin_kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition").type


class Plain:
    """Finds the same by walking over pairs."""

    def __init__(self) -> None:
        self.found: dict[tuple[str, str], None] = {}

    def keys(self, value: Pairs, path: str) -> list[tuple[str, Any, str, bool]]:
        out, seen = [], set()
        for key, item in value:
            out.append((key, item, f"{path}.{key}" if path else key, key in seen))
            seen.add(key)
        return out

    def untyped(self, value: Any, path: str) -> None:
        if isinstance(value, Pairs):
            for _, item, here, again in self.keys(value, path):
                if again:
                    self.found["duplicate", here] = None
                self.untyped(item, here)
        elif isinstance(value, list):
            for i, item in enumerate(value):
                self.untyped(item, f"{path}[{i}]")

    def struct(self, type: TypeDesc, value: Any, path: str) -> None:
        if not isinstance(value, Pairs):
            return
        for key, item, here, again in self.keys(value, path):
            field = type.by_name.get(key)
            if field is None:
                self.found["unknown", here] = None
                continue
            if again:
                self.found["duplicate", here] = None
            inner = field.message if field.message is not None and field.message.custom_json is None else None
            if field.card == "single" and inner is not None:
                self.struct(inner, item, here)
            elif field.card == "list" and isinstance(item, list) and not isinstance(item, Pairs) and inner is not None:
                for i, one in enumerate(item):
                    self.struct(inner, one, f"{here}[{i}]")
            elif field.card == "map" and isinstance(item, Pairs):
                for _, one, there, twice in self.keys(item, here):
                    if twice:
                        self.found["duplicate", there] = None
                    if inner is not None:
                        self.struct(inner, one, there)


NAMES = ("data", "metadata", "labels", "name", "spec", "containers", "env", "value", "versions", "schema", "openAPIV3Schema", "properties",
         "items", "default", "not", "x", "d\u00e4", "finalizers", "a/b", "\ufffd")  # fmt: skip
TREES = st.recursive(
    st.none() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=3),
    lambda c: st.lists(c, max_size=4) | st.lists(st.tuples(st.sampled_from(NAMES), c), min_size=1, max_size=5).map(Pairs), max_leaves=40,
)  # fmt: skip


TWICE = Pairs([("x", ""), ("x", "")])


def text(node: Any, escaped: bool) -> str:
    """Returns JSON; with ``escaped`` one letter of each key is written as an escape."""
    if isinstance(node, Pairs):
        names = ((f'"\\u{ord(k[0]):04x}{json.dumps(k[1:])[1:]}' if escaped else json.dumps(k, ensure_ascii=False), v) for k, v in node)
        return "{" + ", ".join(f"{name}:{text(v, escaped)}" for name, v in names) + "}"
    return "[" + ",".join(text(one, escaped) for one in node) + "]" if isinstance(node, list) else json.dumps(node)


@given(TREES, st.booleans(), st.sampled_from([None, CONFIG_MAP, POD, CRD]))
@example(Pairs([("data", TWICE), ("x", TWICE), ("x", 1), ("metadata", 1), ("metadata", 2)]), True, CONFIG_MAP)
@example(Pairs([("spec", Pairs([("containers", [TWICE, Pairs([("name", ""), *TWICE, ("name", "")])])]))]), False, POD)
def test_the_scan_agrees_with_the_simple_one(tree: Any, escaped: bool, type: TypeDesc | None) -> None:
    plain = Plain()
    if type is None:
        plain.untyped(tree, "")
    else:
        plain.struct(type, tree, "")
    raw = text(tree, escaped).encode()
    assert strict_fields(raw, type) == [f"{what} field {json.dumps(path, ensure_ascii=False)}" for what, path in plain.found][:100]
    if type is None:
        assert duplicate_fields(raw) == [path for _, path in plain.found][:100]


@given(TREES, st.booleans())
def test_pairs_are_those_of_the_document(tree: Any, escaped: bool) -> None:
    assert read_pairs(text(tree, escaped).encode()) == tree


@pytest.mark.parametrize("raw, value", [
    (b" [1, -0, -7, 1e2] ", [1, 0, -7, 100.0]), (b"[12345678901234567890]", [12345678901234567890]),
    (b"[1234567890123456789012345]", [1234567890123456789012345.0]),
    (b'"\xff\\ud800\\n"', "\ufffd\ufffd\n"), (b"[true,false,null,[],{}]", [True, False, None, [], Pairs()]),
])  # fmt: skip
def test_values_of_pairs(raw: bytes, value: Any) -> None:
    assert read_pairs(raw) == value


@pytest.mark.parametrize("raw", [b"", b"{", b"[1", b'{"a"', b'{"a":', b"tru", b'"a', b'"\\', b"[1]]", b"{\"a\" 1}", b"\0"])
def test_invalid_json_has_no_pairs(raw: bytes) -> None:
    with pytest.raises(DecodeError):
        read_pairs(raw)


def test_too_deep_json_has_no_pairs() -> None:
    with pytest.raises(RecursionError):
        read_pairs(b"[" * 5000 + b"]" * 5000)


def test_findings_are_in_document_order() -> None:
    raw = b'{"data":{"a":"1","a":"2"},"bogus":1,"bogus":2,"metadata":{"name":"a","name":"b"}}'
    assert strict_fields(raw, CONFIG_MAP) == ['duplicate field "data.a"', 'unknown field "bogus"', 'duplicate field "metadata.name"']
    assert strict_fields(raw, None) == ['duplicate field "data.a"', 'duplicate field "bogus"', 'duplicate field "metadata.name"']


def test_duplicate_fields() -> None:
    assert duplicate_fields(b'{"a":1,"b":{"a":1},"c":[{"a":1,"a":2}],"a":3,"a":4}') == ["c[0].a", "a"]
    assert duplicate_fields(b'{"k:{\\"a\\":1}":1,"k:{\\"a\\":1}":2}') == ['k:{"a":1}']
    assert duplicate_fields(b'{"a":1,"\\u0061":2}') == ["a"]
    assert duplicate_fields(b'{"\xff":1,"\xfe":2}') == ["\ufffd"]


def test_names_with_a_leading_quote_are_quoted_as_others() -> None:
    assert duplicates(b'{"\\"":1,"a":[{"\\"x":1,"\\"x":2}],"\\"":2}') == [r'duplicate field "a[0].\"x"', r'duplicate field "\""']


def test_at_most_a_hundred_are_reported() -> None:
    raw = b"{" + b",".join(b'"u%d":{"a":1,"a":2}' % i for i in range(300)) + b"}"
    assert strict_fields(raw, CONFIG_MAP) == [f'unknown field "u{i}"' for i in range(100)]
    assert duplicate_fields(raw) == [f"u{i}.a" for i in range(100)]


@pytest.mark.parametrize("deep", [31, 32, 63, 64, 65, 3000, 9998])
def test_keys_are_found_at_any_depth(deep: int) -> None:
    assert duplicate_fields(b"[" * deep + b'{"a":1,"a":2}' + b"]" * deep) == ["[0]" * deep + ".a"]


def test_operations_of_a_json_patch() -> None:
    raw = b'[{"op":"add","path":"/a","value":{"b":1,"b":[{"c":1,"c":2}]},"x":{"y":1,"y":2}},null,{"op":"a","\\u006fp":"b","x":1,"x":2}]'
    assert json_patch_errors(raw) == [
        'json patch duplicate field "[0].value.b"', 'json patch duplicate field "[0].value.b[0].c"', 'json patch unknown field "[0].x"',
        'json patch duplicate field "[2].op"', 'json patch unknown field "[2].x"',
    ]  # fmt: skip


@pytest.mark.parametrize("text, value", [
    (b'{"a":[1,{"b":null}]}\n', {"a": [1, {"b": None}]}), (b'{"a":1,"a":2}', None), (b'{"a":1.5}', None), (b'{"a":', None), (b"a: b", None),
    (b"{a: b}", None), (b"[1]", None), (b"", None),
])  # fmt: skip
def test_json_that_must_be_read_as_yaml(text: bytes, value: Any) -> None:
    assert read_json(text) == value
