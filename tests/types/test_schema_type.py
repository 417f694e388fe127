"""Descriptors made from schemas at run time: any nesting, the walks of their objects, and that nothing keeps them alive."""

import copy
import gc

import pytest

from kas.apiextensions import celrules, customtypes, mergeschema
from kas.meta.errors import ApiError
from kas.types.scheme import (
    BUILTIN,
    DecodeError,
    apply_schema_defaults,
    decode,
    drop_nulls,
    encode_protobuf,
    prune,
    prune_value,
    schema_type,
)  # fmt: skip

TEXT = {"type": "string"}
A = {"type": "object", "properties": {"a": TEXT}}


def spec(**properties):
    return schema_type("e.W", {"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}})


def done(type, obj):
    """Returns the object after all walks, and the paths of unknown fields."""
    unknown = prune(type, obj)
    drop_nulls(type, obj)
    apply_schema_defaults(type, obj)
    return obj, unknown


def test_fields_follow_the_schema():
    type = spec(
        s={"type": "string", "format": "date", "default": "2020-01-01", "nullable": True, "enum": ["x"]},
        n={"type": "integer"}, f={"type": "number"}, b={"type": "boolean"}, any={"x-kubernetes-preserve-unknown-fields": True},
        ios={"x-kubernetes-int-or-string": True}, o={"type": "object", "properties": {"x": TEXT}, "required": ["x"]},
        l={"type": "array", "items": TEXT, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]},
        m={"type": "object", "additionalProperties": {"type": "integer"}, "x-kubernetes-map-type": "atomic"},
    )  # fmt: skip
    f = type.by_name["spec"].message.by_name
    kinds = {name: (field.card, field.type) for name, field in f.items()}
    assert kinds == {
        "s": ("single", "string"), "n": ("single", "int64"), "f": ("single", "double"), "b": ("single", "bool"), "any": ("single", "any"),
        "ios": ("single", "intOrString"), "o": ("single", "message"), "l": ("list", "string"), "m": ("map", "int64"),
    }  # fmt: skip
    assert (f["s"].format, f["s"].default, f["s"].accepts_null, f["s"].enum) == ("date", "2020-01-01", True, ["x"])
    assert (f["l"].list_type, f["l"].list_map_keys, f["m"].map_type) == ("map", ("k",), "atomic")
    assert f["o"].message.by_name["x"].required and not f["o"].required
    assert type.has_type_meta and type.embedded and not f["o"].message.embedded
    assert [field.name for field in f["o"].message.fields] == ["x"] and type.schema["type"] == "object"


def test_lists_and_maps_nest():
    inner = {"type": "array", "items": {"type": "object", "properties": {"k": {"type": "string", "default": "d"}, "v": TEXT}}}
    type = spec(
        ll={"type": "array", "items": inner},
        mm={"type": "object", "additionalProperties": {"type": "object", "additionalProperties": inner}},
    )  # fmt: skip
    items = [{"v": "1", "z": 1}, {"k": None}]
    obj, unknown = done(type, {"spec": {"ll": [copy.deepcopy(items)], "mm": {"a": {"b.c": copy.deepcopy(items)}}}})
    want = [{"v": "1", "k": "d"}, {"k": "d"}]
    assert obj == {"spec": {"ll": [want], "mm": {"a": {"b.c": want}}}}
    assert unknown == ["spec.ll[0][0].z", "spec.mm.a.b.c[0].z"]
    ll = type.by_name["spec"].message.by_name["ll"]
    assert (ll.card, ll.element.card, ll.element.element.card, ll.element.element.type) == ("list", "list", "single", "message")


def test_more_fields_than_built_in_types_have():
    names = [f"field{i}" for i in range(1000)]
    type = spec(**{name: {"type": "string", "default": name} for name in names})
    obj, unknown = done(type, {"spec": {"extra": 1}})
    assert obj == {"spec": {name: name for name in names}} and unknown == ["spec.extra"]


def test_schemas_nested_deeply():
    schema = TEXT
    for _ in range(300):
        schema = {"type": "object", "properties": {"a": schema}}
    assert schema_type("e.W", schema).by_name["a"].message.by_name["a"].type == "message"
    for _ in range(20000):
        schema = {"type": "object", "properties": {"a": schema}}
    with pytest.raises(RecursionError):
        schema_type("e.W", schema)


def test_objects_nested_deeply():
    deep = {}
    for _ in range(20000):
        deep = {"a": deep}
    loose = spec(any={"type": "object", "additionalProperties": True})
    with pytest.raises(DecodeError):
        prune(schema_type("e.W", {"additionalProperties": True}), {"b": [nested(20000)]})
    assert prune(loose, {"spec": {"any": deep}}) == ["spec.any.a.a"]  # the content of an untyped map has no fields


def nested(n):
    out = []
    for _ in range(n):
        out = [out]
    return out


@pytest.mark.parametrize(
    ("schema", "value", "left", "unknown"),
    [
        ({"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {"p": {"type": "object"}}},
         {"p": {"q": 1}, "r": {"s": 1}}, {"p": {}, "r": {"s": 1}}, ["spec.x.p.q"]),
        ({"x-kubernetes-preserve-unknown-fields": True}, {"p": [{"q": 1}]}, {"p": [{"q": 1}]}, []),
        ({"x-kubernetes-preserve-unknown-fields": True, "additionalProperties": {"type": "object", "properties": {"a": TEXT}}},
         {"k": {"a": "1", "b": 1}}, {"k": {"a": "1"}}, ["spec.x.k.b"]),
        ({"x-kubernetes-preserve-unknown-fields": True, "additionalProperties": True}, {"k": {"b": 1}, "c": 1}, {"k": {}, "c": 1},
         ["spec.x.k.b"]),
        ({"type": "array", "items": TEXT}, {"0": "x"}, {}, ["spec.x.0"]),
        (TEXT, [{"a": 1}], [{}], ["spec.x[0].a"]),
        ({"type": "object", "additionalProperties": True}, {"a": {"b": 1}, "c": 1}, {"a": {}, "c": 1}, ["spec.x.a.b"]),
        ({"type": "object", "x-kubernetes-embedded-resource": True}, {"kind": "K", "apiVersion": "v1", "metadata": {"z": 1}, "z": 1},
         {"kind": "K", "apiVersion": "v1", "metadata": {"z": 1}}, ["spec.x.z"]),
        # A list is walked by its items and an object by its properties, whatever the type says.
        ({"type": "object", "items": A}, [{"a": "1", "b": 1}], [{"a": "1"}], ["spec.x[0].b"]),
        ({**A, "items": A}, [[{"a": "1"}], {"a": "1"}], [[{}], {"a": "1"}], ["spec.x[0][0].a"]),
        ({"type": "array", "items": TEXT, "properties": {"a": A}}, {"a": {"a": "1", "b": 1}, "c": 1}, {"a": {"a": "1"}},
         ["spec.x.a.b", "spec.x.c"]),
        ({"type": "string", "additionalProperties": A}, {"k": {"a": "1", "b": 1}}, {"k": {"a": "1"}}, ["spec.x.k.b"]),
        ({"x-kubernetes-int-or-string": True, "properties": {"a": A}, "items": A}, {"a": {"a": "1"}, "b": 1}, {"a": {"a": "1"}},
         ["spec.x.b"]),
        ({"x-kubernetes-int-or-string": True, "properties": {"a": A}, "items": A}, [{"a": "1", "b": 1}], [{"a": "1"}], ["spec.x[0].b"]),
        ({"x-kubernetes-preserve-unknown-fields": True, "properties": {"p": A}, "items": {"type": "object", "properties": {"q": A}}},
         [{"q": {"b": 1}, "c": 1}], [{"q": {}, "c": 1}], ["spec.x[0].q.b"]),
        ({"type": "object", "additionalProperties": {"type": "string", "items": A}}, {"k": [{"a": "1", "b": 1}]}, {"k": [{"a": "1"}]},
         ["spec.x.k[0].b"]),
    ],
)  # fmt: skip
def test_pruning(schema, value, left, unknown):
    obj = {"apiVersion": "e/v1", "kind": "W", "metadata": {"name": "n"}, "spec": {"x": value}}
    assert prune(spec(x=schema), obj) == unknown
    assert obj["spec"]["x"] == left


@pytest.mark.parametrize("typed", [{"type": "array"}, {}])
def test_a_lists_preserve_unknown_applies_to_its_items(typed):
    """But not to their content."""
    item = {"type": "object", "properties": {"a": {"type": "object"}}}
    of_items = {**typed, "x-kubernetes-preserve-unknown-fields": True, "items": item}
    of_lists = {**typed, "x-kubernetes-preserve-unknown-fields": True, "items": {"type": "array", "items": item}}
    obj = {"spec": {"x": [{"a": {"b": 1}, "c": {"d": 1}}], "y": [[{"a": {"b": 1}, "c": 1}]]}}
    assert prune(spec(x=of_items, y=of_lists), obj) == ["spec.x[0].a.b", "spec.y[0][0].a.b"]
    assert obj == {"spec": {"x": [{"a": {}, "c": {"d": 1}}], "y": [[{"a": {}, "c": 1}]]}}


def test_a_map_without_a_type_has_defaults():
    values = {"type": "object", "properties": {"a": {"type": "string", "default": "d"}}}
    type = spec(x={"x-kubernetes-preserve-unknown-fields": True, "additionalProperties": values})
    assert done(type, {"spec": {"x": {"k": {}}}})[0] == {"spec": {"x": {"k": {"a": "d"}}}}
    assert done(type, {"spec": {"x": [1]}})[0] == {"spec": {"x": [1]}}


def test_nulls_and_defaults_follow_the_value():
    defaulted = {"type": "object", "properties": {"a": {"type": "string", "default": "d"}, "b": TEXT}}
    anything = {"x-kubernetes-preserve-unknown-fields": True, "properties": {"p": defaulted}, "items": defaulted}
    for schema in (anything, {**anything, "type": "object"}, {**anything, "type": "array"}, {**anything, "type": "string"}):
        type = spec(x=schema)
        assert done(type, {"spec": {"x": [{"b": None}, {"a": None}]}})[0] == {"spec": {"x": [{"a": "d"}, {"a": "d"}]}}
        assert done(type, {"spec": {"x": {"p": {"b": None}}}})[0] == {"spec": {"x": {"p": {"a": "d"}}}}
    of_map = spec(x={"type": "string", "additionalProperties": defaulted})
    assert done(of_map, {"spec": {"x": {"k": {"b": None}}}})[0] == {"spec": {"x": {"k": {"a": "d"}}}}


def test_embedded_objects_and_sets_follow_the_value():
    inner = {"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True}
    unique = {"type": "array", "items": TEXT, "x-kubernetes-list-type": "set"}
    type = spec(
        x={"type": "object", "properties": {"u": unique}, "items": inner}, y={"type": "array", "items": unique, "properties": {"u": unique}}
    )  # fmt: skip
    obj = {"spec": {"x": [{"metadata": {"zz": 1}}], "y": {"u": ["a", "a"]}}}
    assert customtypes.decode(type, obj) == ["spec.x[0].metadata.zz"]
    assert [e.field for e in customtypes.embedded_errors(type, obj)] == ["spec.x[0].apiVersion", "spec.x[0].kind"]
    assert [e.field for e in customtypes.list_errors(type, obj)] == ["spec.y.u[1]"]


def test_untyped_values_may_be_applied_as_lists_or_objects():
    both = {"items": A, "properties": {"a": A}}
    of_map = {"items": TEXT, "additionalProperties": {"type": "integer"}}
    ints, loose = {"x-kubernetes-int-or-string": True}, {"x-kubernetes-preserve-unknown-fields": True}
    type = spec(x={**both, **ints}, y={**both, **loose}, z={**of_map, **ints})
    merge = mergeschema.crd_schema(type, "e/v1", "W")
    merge.check({"spec": {"x": [{"a": "1"}], "y": [{"a": "1"}], "z": ["k"]}})
    merge.check({"spec": {"x": {"a": {"a": "1"}}, "y": {"a": {"a": "1"}}, "z": {"k": 1}}})
    for name, value in ("x", [{"a": 1}]), ("x", {"a": {"a": 1}}), ("y", [{"a": 1}]), ("y", {"a": {"a": 1}}), ("z", [1]), ("z", {"k": "1"}):
        with pytest.raises(ApiError):
            merge.check({"spec": {name: value}})


def test_pruning_one_value():
    field = spec(x={"type": "array", "items": {"type": "object", "properties": {"a": TEXT}}}).by_name["spec"].message.by_name["x"]
    value = [{"a": "1", "b": 1}]
    assert prune_value(field, value) == ["[0].b"] and value == [{"a": "1"}]


def test_nulls_and_defaults():
    type = spec(
        s={"type": "string", "default": "d"}, nul={"type": "string", "default": "d", "nullable": True},
        nod={"type": "string", "nullable": True}, plain=TEXT,
        o={"type": "object", "properties": {"x": {"type": "integer", "default": 1}}, "default": {}},
        m={"type": "object", "additionalProperties": TEXT}, l={"type": "array", "items": TEXT},
    )  # fmt: skip
    assert done(type, {"spec": {}})[0] == {"spec": {"s": "d", "nul": "d", "o": {"x": 1}}}
    given = {"s": None, "nul": None, "nod": None, "plain": None, "o": {"x": None}, "m": {"a": None}, "l": [None]}
    assert done(type, {"spec": given})[0] == {"spec": {"s": "d", "nul": None, "nod": None, "o": {"x": 1}, "m": {}, "l": [None]}}
    assert done(type, {"spec": None})[0] == {} and done(type, {})[0] == {}


def test_a_null_item_gets_the_default_if_items_are_not_nullable():
    one = {"type": "object", "properties": {"x": TEXT, "y": {"type": "string", "default": "z"}}, "default": {"x": "d"}}
    text = {"type": "string", "default": "d"}
    type = spec(
        l={"type": "array", "items": one}, t={"type": "array", "items": {"type": "array", "items": text}},
        n={"type": "array", "items": {**text, "nullable": True}}, m={"type": "object", "additionalProperties": text},
    )  # fmt: skip
    given = {"l": [None, {}], "t": [[None, "a"]], "n": [None]}
    wanted = {"l": [{"x": "d", "y": "z"}, {"y": "z"}], "t": [["d", "a"]], "n": [None]}
    obj = {"spec": copy.deepcopy(given)}
    apply_schema_defaults(type, obj)
    assert obj == {"spec": wanted}
    obj["spec"]["l"][0]["x"] = "other"
    assert done(type, {"spec": given})[0] == {"spec": wanted}


def test_defaults_are_not_shared():
    type = spec(l={"type": "array", "items": TEXT, "default": ["a"]})
    one, two = done(type, {"spec": {}})[0], done(type, {"spec": {}})[0]
    one["spec"]["l"].append("b")
    assert two["spec"]["l"] == ["a"] and done(type, {"spec": {}})[0]["spec"]["l"] == ["a"]


def test_objects_of_these_types_have_no_typed_form():
    type = spec(x=TEXT)
    for use in (lambda: decode(type, {}), lambda: encode_protobuf(type, {})):
        with pytest.raises(TypeError, match="made from a schema"):
            use()
    assert decode(BUILTIN.known("", "v1", "ConfigMap").type, {"data": {"a": "b"}})[0]["data"] == {"a": "b"}


def used(i):
    """A type of which everything was used."""
    rule = {"rule": f"self.size() < {i + 10}", "message": f"m{i}"}
    schema = {"type": "object", "properties": {f"p{i}": {
        "type": "array", "maxItems": 5, "default": [f"p{i}"],
        "items": {"type": "string", "maxLength": 9, "pattern": f"^p{i}$", "x-kubernetes-validations": [rule]},
    }}}  # fmt: skip
    type = schema_type(f"e.W{i}", schema)
    obj = {"apiVersion": "e/v1", "kind": f"W{i}", "metadata": {"name": "n"}}
    assert customtypes.decode(type, obj) == []
    customtypes.default(type, obj)
    assert customtypes.errors(type, obj) == ([], []) and obj[f"p{i}"] == [f"p{i}"]
    assert celrules.of_type(type) is not None
    type.derived["merge"] = mergeschema.crd_schema(type, "e/v1", f"W{i}")
    return type


def held():
    gc.collect()
    return sum(1 for o in gc.get_objects() if type(o).__name__ in ("TypeDesc", "Field", "SchemaValidator", "Node", "Program"))


def test_unused_parts_of_a_schema_are_not_built():
    """Most of what real definitions say is never used: a pod template, for example, of which objects use nearly nothing."""
    used(-1)
    wide = {f"p{i}": {"type": "object", "properties": {f"q{j}": TEXT for j in range(20)}} for i in range(50)}
    wide["p7"]["properties"]["q0"] = {"type": "string", "default": "d"}
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": wide}}}
    before = held()
    type = schema_type("e.W", schema)
    merge = mergeschema.crd_schema(type, "e/v1", "W")
    assert customtypes.bound_defaults(type, {}, b"") is None and celrules.of_type(type) is None
    assert held() - before < 10
    obj = {"spec": {"p7": {"q1": "a", "none": 1}, "p8": {"q1": "b"}, "none": 1}}
    assert done(type, obj) == ({"spec": {"p7": {"q1": "a", "q0": "d"}, "p8": {"q1": "b"}}}, ["spec.none", "spec.p7.none"])
    assert customtypes.errors(type, obj) == ([], []) and merge.fits(obj)
    # The fields of spec, twice, and of two of the fifty.
    assert held() - before < 4 * 50 + 4 * 20 + 40
    assert type.by_name["spec"].message.by_name["p9"].message.by_name["q3"].type == "string"


def test_a_thousand_types_are_freed():
    used(-1)
    before = held()
    types = [used(i) for i in range(1000)]
    assert held() > before + 3000
    del types
    assert held() == before

