"""Set operations and FieldsV1 texts, as properties."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kas.patch._fieldsets import (
    Field,
    Mismatch,
    Node,
    canonical,
    difference,
    element_order,
    element_text,
    has,
    intersection,
    paths,
    recursive_difference,
    to_set,
    union,
)

ELEMENTS = ["f:a", "f:b", "f:c", 'k:{"name":"x"}', 'k:{"name":"y"}', 'v:"x"', "v:1", "v:2", "v:10", "i:0"]


def from_paths(found) -> dict:
    out: dict = {}
    for path in found:
        below: dict = {}
        for e in reversed(path):
            below = {e: below}
        out = union(out, below)
    return out


path_sets = st.sets(st.lists(st.sampled_from(ELEMENTS), min_size=1, max_size=4).map(tuple), max_size=8)


def members(s: dict) -> set:
    return {tuple(p) for p in paths(s)}


@given(path_sets)
def test_a_set_has_the_paths_it_was_made_of(a) -> None:
    s = from_paths(a)
    assert members(s) == a
    assert all(has(s, list(p)) for p in a)


@given(path_sets, path_sets)
def test_operations_are_those_of_sets_of_paths(a, b) -> None:
    sa, sb = from_paths(a), from_paths(b)
    assert members(union(sa, sb)) == a | b
    assert members(intersection(sa, sb)) == a & b
    assert members(difference(sa, sb)) == a - b
    below = {p for p in a if any(p[: len(q)] == q for q in b)}
    assert members(recursive_difference(sa, sb)) == a - below


@given(path_sets, path_sets)
def test_equal_sets_are_equal_dicts_in_one_order(a, b) -> None:
    left = union(from_paths(sorted(a)), from_paths(sorted(b)))
    right = from_paths(sorted(a | b, reverse=True))
    assert left == right
    assert str(left) == str(right)


@given(path_sets)
def test_canonical_keeps_canonical_fields(a) -> None:
    s = from_paths(a)
    assert canonical(s) == s
    assert str(canonical(s)) == str(s)


@given(path_sets, path_sets)
def test_operations_change_neither_argument(a, b) -> None:
    sa, sb = from_paths(a), from_paths(b)
    texts = str(sa), str(sb)
    for operation in (union, intersection, difference, recursive_difference):
        operation(sa, sb)
    assert (str(sa), str(sb)) == texts


def test_order_of_elements_is_by_kind_then_value() -> None:
    shuffled = ["i:2", 'v:"a"', "v:true", "v:10", "v:9", 'k:{"port":443}', 'k:{"port":80}', 'k:{"name":"z"}', "f:b", "f:a", "."]
    want = [".", "f:a", "f:b", 'k:{"name":"z"}', 'k:{"port":80}', 'k:{"port":443}', "v:9", "v:10", 'v:"a"', "v:true", "i:2"]
    assert sorted(shuffled, key=element_order) == want


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("f:spec", ".spec"),
        ('k:{"name":"x","port":80}', '[name="x",port=80]'),
        ('v:"x"', '[="x"]'),
        ("v:1.5", "[=1.5]"),
        ("v:1000000.5", "[=1.0000005e+06]"),
        ("v:1e-05", "[=1e-05]"),
        ("v:1000000", "[=1000000]"),
        ("v:true", "[=true]"),
        ("i:3", "[3]"),
    ],
)
def test_elements_print_as_upstream(text, printed) -> None:
    assert element_text(text) == printed


def test_numbers_of_stored_fields_print_as_float64() -> None:
    assert element_text('k:{"id":1000000,"port":80}', decoded=True) == "[id=1e+06,port=80]"


def test_canonical_rewrites_texts_and_drops_unknown_kinds() -> None:
    fields = {"f:b": {}, "f:a": {".": {}}, "x:new": {"f:z": {}}, 'k:{ "b": 1, "a": "<" }': {"v:1.0": {}}}
    assert str(canonical(fields)) == str({"f:a": {}, "f:b": {}, 'k:{"a":"\\u003c","b":1}': {"v:1": {}}})


@pytest.mark.parametrize(
    ("key", "read"),
    [
        ('v:"a" {"more":1}', 'v:"a"'), ('k:{"uid":"a"}]', 'k:{"uid":"a"}'), ("v: 1 2", "v:1"), ("v:1 x", "v:1"), ("k:null", "k:{}"),
    ],
)
def test_text_after_the_value_of_an_element_is_ignored(key, read) -> None:
    assert canonical({"f:a": {key: {}}}) == {"f:a": {read: {}}}


@pytest.mark.parametrize(("key", "read"), [
    ("v:1e3", "v:1000"), ("v:-0", "v:-0"), ("v:1e-7", "v:1e-07"), ("v:1.25e-8", "v:1.25e-08"), ("v:0.000001", "v:0.000001"),
    ("v:1e20", "v:100000000000000000000"), ("v:1e21", "v:1e+21"), ("v:9223372036854775809", "v:9223372036854776000"),
    ("v:9007199254740993", "v:9007199254740992"), ('k:{"id":9007199254740993}', 'k:{"id":9007199254740992}'),
    ('v:"\\ud800"', 'v:"\ufffd"'), ('k:{"\\ud800":"x\\udc00y"}', 'k:{"\ufffd":"x\ufffdy"}'), ('v:"\\ud83d\\ude00"', 'v:"\U0001f600"'),
    ("i:+1", "i:1"), ("i:01", "i:1"), ("i:-1", "i:-1"), ("i:9223372036854775807", "i:9223372036854775807"),
])  # fmt: skip
def test_elements_from_a_client_are_rewritten(key, read) -> None:
    """All numbers are float64, and a lone surrogate is no text."""
    assert canonical({"f:a": {key: {}}}) == {"f:a": {read: {}}}


@pytest.mark.parametrize("key", [
    "f", "spec", "k:", "k:[1]", "v:", "v:{", "v:NaN", "v:NaN 1", "k:[1] {}", "v:" + "[" * 100_000,
    "v:01", "v:1.", "v:1e", "v:1-2", "v:1.5.5", "v:+1", "v:.5", "v:1e400", "v:[01]", "v:[1e400]", "\u00e9", "\u00e9:a", "",
    "i:", "i:x", "i:1_0", "i: 1", "i:\u0663", "i:1.0", "i:9223372036854775808", "i:" + "1" * 5000,
])  # fmt: skip
def test_malformed_elements_are_refused(key) -> None:
    with pytest.raises(ValueError, match="parsing key as path element"):
        canonical({"f:a": {key: {}}})


def test_values_of_fields_must_be_objects() -> None:
    with pytest.raises(ValueError, match=r"expect \{ or n"):
        canonical({"f:a": 1})


json_keys = st.text(max_size=8)


@given(st.recursive(st.just({}), lambda inner: st.dictionaries(json_keys, inner, max_size=4), max_leaves=20))
def test_canonical_is_stable_or_refuses(fields) -> None:
    try:
        once = canonical(fields)
    except ValueError:
        return
    assert str(canonical(once)) == str(once)


def keyed(names: list[str], defaults: dict[str, str]) -> Node:
    item, text = Node(), Node()
    text.scalar = 1
    item.set_fields({name: Field(name, text, default=defaults.get(name)) for name in [*names, "other"]})
    item.set_map(False)
    items, out = Node(), Node()
    items.set_list(item, False, names)
    out.set_fields({"l": Field("l", items)})
    out.set_map(False)
    return out


def test_an_item_with_many_keys_is_named_by_those_it_has() -> None:
    """Whether it sets them or has them by default; in the order of their names, as with few keys."""
    few, many = ["a", "b", "c"], [*"abc", *(f"k{i}" for i in range(50))]
    item = {"c": "3", "a": "1", "other": "x"}
    for defaults in ({}, {"b": "2"}, {"k7": "7"}):
        (key,) = to_set(keyed(many, defaults), {"l": [item]})["f:l"]
        said = {"a": "1", "c": "3"} | defaults
        assert key == "k:{" + ",".join(f'"{name}":"{said[name]}"' for name in sorted(said)) + "}"
        if not defaults.get("k7"):
            assert [key] == list(to_set(keyed(few, defaults), {"l": [item]})["f:l"])
    with pytest.raises(Mismatch, match="omits all key fields"):
        to_set(keyed(many, {}), {"l": [{"other": "x"}]})
