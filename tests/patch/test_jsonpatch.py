"""JSON patches: operations and refusals."""

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kas.patch import jsonpatch as jp


def run(document, *operations, **kw):
    before = copy.deepcopy(document)
    try:
        return jp.apply(document, jp.decode(json.dumps(operations)), **kw)
    finally:
        assert document == before


def test_operations():
    doc = {"a": [1, 2], "b": {"c": 1}}
    assert run(doc, {"op": "add", "path": "/a/-", "value": 3}) == {"a": [1, 2, 3], "b": {"c": 1}}
    assert run(doc, {"op": "add", "path": "/a/-1", "value": 3}) == {"a": [1, 2, 3], "b": {"c": 1}}
    assert run(doc, {"op": "remove", "path": "/a/-2"}) == {"a": [2], "b": {"c": 1}}
    assert run(doc, {"op": "replace", "path": "/b/new", "value": 1}) == {"a": [1, 2], "b": {"c": 1, "new": 1}}
    assert run(doc, {"op": "move", "from": "/b/c", "path": "/a/0"}) == {"a": [1, 1, 2], "b": {}}
    assert run(doc, {"op": "replace", "path": "", "value": {"x": 1}}) == {"x": 1}


def test_a_copied_value_is_independent_of_its_source():
    got = run({"a": {"x": [1]}}, {"op": "copy", "from": "/a", "path": "/b"}, {"op": "add", "path": "/b/x/-", "value": 2})
    assert got == {"a": {"x": [1]}, "b": {"x": [1, 2]}}


def test_a_parsed_patch_can_be_applied_again():
    patch = jp.decode('[{"op":"add","path":"/m","value":{"l":[]}},{"op":"add","path":"/m/l/-","value":1}]')
    assert jp.apply({}, patch) == jp.apply({}, patch) == {"m": {"l": [1]}}


def test_numbers_are_compared_as_written():
    for want in (1, True, "1"):
        doc = {"a": want}
        for value in (1, True, 1.0, "1"):
            same = type(value) is type(want)
            try:
                run(doc, {"op": "test", "path": "/a", "value": value})
                assert same
            except jp.ApplyError as e:
                assert not same and str(e) == "testing value /a failed: test failed"


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        ({"op": "add", "path": 1}, "add operation failed to decode path: missing value"),
        ({"op": "test", "path": 1}, "test operation failed to decode path: json: cannot unmarshal number into Go value of type string"),
        ({"op": "replace"}, "replace operation failed to decode path: operation missing path field: missing value"),
        (
            {"op": "add", "path": "/a/9", "value": 1},
            "error in add for path: '/a/9': Unable to access invalid index: 9: invalid index referenced",
        ),
        ({"op": "replace", "path": "", "value": 5}, "replace operation value must be object or array: %!w(<nil>)"),
        ({"op": "replace", "path": "", "value": None}, "replace operation value must be object or array: %!w(<nil>)"),
        ({"op": "copy", "path": "/a"}, "copy operation failed to decode from: operation, missing from field: missing value"),
    ],
)
def test_messages(operation, message):
    with pytest.raises(jp.ApplyError) as e:
        run({"a": []}, operation)
    assert str(e.value) == message


def test_limits():
    with pytest.raises(jp.TooManyOperationsError) as e:
        jp.decode("[" + ",".join(['{"op":"test","path":"/a"}'] * 10_001) + "]")
    assert str(e.value) == "The allowed maximum operations in a JSON patch is 10000, got 10001"
    bomb = [{"op": "copy", "from": "/a", "path": f"/a/{i}"} for i in range(64)]
    told = r"^Unable to complete the copy, the accumulated size increase of copy is \d+, exceeding the limit 3145728$"
    with pytest.raises(jp.TooMuchCopiedError, match=told):
        run({"a": {"x": "y" * 100}}, *bomb)
    with pytest.raises(jp.TooMuchCopiedError, match="adds more than 100000 maps and lists"):
        run({"a": {}}, *bomb)
    braces = "{" * jp.MAX_COPIED_CONTAINERS
    assert run({"a": {"x": braces}}, {"op": "copy", "from": "/a", "path": "/b"})["b"] == {"x": braces}


@pytest.mark.parametrize("text", ["{}", "[1]", '"x"', "[", ""])
def test_bodies_that_are_no_patch_are_refused(text):
    with pytest.raises(jp.DecodeError):
        jp.decode(text)


part = st.sampled_from(["a", "b", "0", "1", "-", "-1", "", "x~1y", "+1"])
pointer = st.lists(part, max_size=4).map(lambda p: "".join(f"/{s}" for s in p))
scalar = st.none() | st.booleans() | st.integers(-5, 5) | st.text("ab", max_size=2)
value = st.recursive(scalar, lambda c: st.lists(c, max_size=3) | st.dictionaries(st.sampled_from("ab"), c, max_size=2), max_leaves=8)
operation = st.fixed_dictionaries(
    {"op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test", "nope"])},
    optional={"path": pointer, "from": pointer, "value": value},
)


@given(st.dictionaries(st.sampled_from(["a", "b", "x/y"]), value), st.lists(operation, max_size=6))
def test_only_patch_errors_are_raised_and_the_input_does_not_change(document, operations):
    patch_before = copy.deepcopy(operations)
    try:
        run(document, *operations)
    except jp.ApplyError as e:
        assert str(e)
    assert operations == patch_before


def test_deep_documents_do_not_crash():
    deep = "[" * 900 + "]" * 900
    patch = jp.decode(f'[{{"op":"add","path":"/a","value":{deep}}},{{"op":"test","path":"/a","value":{deep}}}]')
    try:
        jp.apply({}, patch)
    except jp.ApplyError as e:
        assert str(e) == "exceeded max depth"


def test_the_size_of_a_copy_is_counted_as_go_writes_it() -> None:
    # {"a":"\u003c\u0026\u003e\u2028"}: six bytes for each character
    patch = [{"op": "copy", "from": "/x", "path": "/y"}]
    document = {"x": {"a": "<&>\u2028"}}
    assert jp.apply(document, patch, 32)["y"] == document["x"]
    with pytest.raises(jp.ApplyError) as e:
        jp.apply(document, patch, 31)
    assert str(e.value) == "Unable to complete the copy, the accumulated size increase of copy is 32, exceeding the limit 31"


@pytest.mark.parametrize(("have", "said", "passes"), [
    (1, "1", True), (1, "1.0", False), (1, "1e0", False), (1.0, "1", True), (1.0, "1.0", False), (1.5, "1.5", True),
    (1.5, "1.50", False), (1.5, "15e-1", False), (0, "-0", False), (-0.0, "-0", True), (1e-7, "1e-7", True),
    (1e-7, "1e-07", False), (1e20, "100000000000000000000", True), (1e21, "1e+21", True), (1e21, "1e21", False),
    ("<", '"<"', False), ("<", r'"\u003c"', True), ("&", r'"\u0026"', True), ("<", r'"\u003C"', False), ("é", '"é"', True),
    ("é", r'"\u00e9"', False), ("/", '"/"', True), ("/", r'"\/"', False), ("\n", r'"\n"', True), ("\n", r'"\u000a"', False),
    ('\\"', r'"\\\""', True), ("\u2028", '"\u2028"', False), ("\u2028", r'"\u2028"', True), (True, "true", True),
    (True, "1", False), (None, "null", True), ({"é": [1, {"a\\": "<"}]}, r'{ "\u00e9" : [ 1 , {"a\\": "\u003c"} ] }', True),
    ({"é": [1, {"a": "<"}]}, r'{"é":[1,{"a":"<"}]}', False), ({"a": 1}, '{"a":1,"b":null}', False), ([1], "[1,2]", False),
    ([], "{}", False), ({}, "[]", False), ("x", "1", False), ([1, 2], "[ 1,2]", True),
])  # fmt: skip
def test_a_test_compares_the_text_of_the_patch_with_gos_encoding(have, said, passes) -> None:
    patch = jp.decode(f'[{{"op":"test","path":"/a","value":{said}}}]')
    if passes:
        assert jp.apply({"a": have}, patch) == {"a": have}
    else:
        with pytest.raises(jp.TestFailedError, match="testing value /a failed: test failed"):
            jp.apply({"a": have}, patch)


def test_a_long_patch_compares_numbers_by_value() -> None:
    value = [1.5, 1, 2.0, 0] + ["<"] * 20_000
    for text in ("1.50,1,2,-0", "1.5,1.0,2.0,0"):
        patch = jp.decode('[{"op":"test","path":"/a","value":[%s,%s]}]' % (text, ",".join([r'"\u003c"'] * 20_000)))  # noqa: UP031
        assert jp.apply({"a": value}, patch) == {"a": value}


def test_a_test_sees_the_value_that_the_patch_put_there() -> None:
    tests = '{"op":"test","path":"/a","value":"<"},{"op":"test","path":"","value":{"a":"<"}}'
    patch = jp.decode(f'[{{"op":"add","path":"/a","value":"<"}},{tests}]')
    assert jp.apply({}, patch) == {"a": "<"}


def test_values_that_the_patch_did_not_write_are_compared_as_go_writes_them() -> None:
    test = {"op": "test", "path": "/a", "value": 1.0}
    assert jp.apply({"a": 1}, [test]) == {"a": 1}
    with pytest.raises(jp.TestFailedError):
        jp.apply({"a": True}, [test])


@pytest.mark.parametrize("index", ["-99999999999999999999", "99999999999999999999", "-9223372036854775809"])
def test_an_index_beyond_64_bits_is_out_of_range(index) -> None:
    with pytest.raises(jp.ApplyError) as e:
        run({"a": [1]}, {"op": "add", "path": f"/a/{index}", "value": 1})
    why = f"value was not a proper array index: '{index}': strconv.Atoi: parsing \"{index}\": value out of range"
    assert str(e.value) == f"error in add for path: '/a/{index}': {why}"


def test_a_copy_costs_the_length_of_gos_encoding() -> None:
    """Floats have more digits there, and HTML characters are escaped."""
    with pytest.raises(jp.ApplyError, match="copy is 32, exceeding the limit 31"):
        run({"a": [1e20, "<"]}, {"op": "copy", "from": "/a", "path": "/b"}, max_copy_bytes=31)


def test_values_nested_deeper_than_orjson_supports_are_copied():
    value = 1
    for _ in range(400):
        value = {"a": [value]} if isinstance(value, int) else {"a": value}
    copied = run({"m": value}, {"op": "copy", "from": "/m", "path": "/n"}, {"op": "add", "path": "/n/b", "value": 1})
    assert copied == {"m": value, "n": {**value, "b": 1}}
