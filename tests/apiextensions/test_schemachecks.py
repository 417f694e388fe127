"""The check of a schema never passes what validator and list types refuse, and passes what nearly all valid objects are."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kas.apiextensions import listtypes, schemachecks
from kas.apiextensions.customtypes import check, decode, default, schema_errors
from kas.apiextensions.schemachecks import schema_check
from kas.apiextensions.schemavalues import SchemaValidator
from kas.types.scheme import apply_schema_defaults, drop_nulls, prune, schema_type
from tests.checks.mutations import changed, each_place
from tests.vectors.files import lines


def refused(type: Any, obj: Any) -> list[Any]:
    return [*schema_errors(type, obj), *listtypes.errors(type, obj)]


def recorded() -> list[tuple[str, Any, Any]]:
    """(id, type, defaulted object) of each recorded creation."""
    out = []
    for vector in lines("crdschema"):
        if "object" not in vector["in"] or "oldObject" in vector["in"]:
            continue
        type, obj = schema_type("com.example.v1.Thing", vector["in"]["schema"]), copy.deepcopy(vector["in"]["object"])
        prune(type, obj)
        drop_nulls(type, obj)
        apply_schema_defaults(type, obj)
        out.append((vector["id"], type, obj))
    return out


def real() -> list[tuple[str, Any, Any]]:
    """(path, type, defaulted object) of the objects of well-known projects."""
    out = []
    for vector in lines("crds-real"):
        crd = vector["crd"]["spec"]
        schemas = {v["name"]: (v.get("schema") or {}).get("openAPIV3Schema") for v in crd["versions"]}
        types: dict[str, Any] = {}
        for sample in vector["samples"]:
            version = sample["in"]["apiVersion"].rpartition("/")[2]
            if schemas.get(version) is None or sample["out"]["status"] != 201:
                continue
            if version not in types:
                types[version] = schema_type(f"{version}.{crd['names']['kind']}", schemas[version])
            obj = copy.deepcopy(sample["in"])
            decode(types[version], obj)
            default(types[version], obj)
            out.append((sample["path"], types[version], obj))
    return out


def test_recorded_objects_one_thing_wrong():
    passed = valid = 0
    for name, type, obj in recorded():
        valid += not refused(type, obj)
        passed += check(type).passes(obj)
        for what in (None, *each_place(obj)):
            if check(type).passes(obj):
                assert not refused(type, obj), (name, what)
    assert valid > 50 and passed > 0.9 * valid, (passed, valid)


def test_real_objects_pass():
    samples = real()
    assert len(samples) > 100
    assert not [path for path, type, obj in samples if not check(type).passes(obj) and not refused(type, obj)]


@pytest.fixture(scope="module")
def real_samples() -> list[tuple[str, Any, Any]]:
    return sorted(real(), key=lambda sample: len(str(sample[2])))


@settings(max_examples=600)
@given(st.data())
def test_real_objects_gone_wrong(real_samples, data):
    _, type, obj = real_samples[data.draw(st.integers(0, len(real_samples) - 1))]
    wrong = data.draw(changed(obj))
    if isinstance(wrong, dict) and check(type).passes(wrong):
        assert not refused(type, wrong)


# -- schemas that hypothesis makes

TEXT = st.sampled_from(["", "a", "b", "ab", "1", "é", "2024-01-02", "10.0.0.1"])
NUMBER = st.one_of(st.integers(-3, 3), st.sampled_from([0.5, -1.5, 2.0, 1e300, 1 << 31, 1 << 53, 1 << 63, -(1 << 70)]))
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBER, TEXT),
    lambda below: st.one_of(st.lists(below, max_size=3), st.dictionaries(st.sampled_from("abc"), below, max_size=3)),
    max_leaves=8,
)
LIMITS = {"minimum": NUMBER, "maximum": NUMBER, "exclusiveMinimum": st.booleans(), "exclusiveMaximum": st.booleans()}
STEP = {"multipleOf": st.sampled_from([1, 2, 3, 0.5, 2.0])}
SIZE = st.integers(0, 3)
VALUE_RULES: dict[str, st.SearchStrategy[Any]] = {
    **LIMITS, **STEP, "minLength": SIZE, "maxLength": SIZE, "pattern": st.sampled_from(["^a", "b$", "^[0-9]+$", "(?=a)"]),
    "format": st.sampled_from(["date", "ipv4", "int32", "int64", "float", "double", "uuid", "bogus"]), "minItems": SIZE, "maxItems": SIZE,
    "minProperties": SIZE, "maxProperties": SIZE, "required": st.lists(st.sampled_from("abc"), max_size=2),
    "enum": st.one_of(st.lists(TEXT, min_size=1, max_size=3), st.lists(VALUES, min_size=1, max_size=3)),
}  # fmt: skip


def some(rules: dict[str, Any], most: int = 3) -> st.SearchStrategy[dict[str, Any]]:
    names = st.lists(st.sampled_from(sorted(rules)), max_size=most, unique=True)
    return names.flatmap(lambda chosen: st.fixed_dictionaries({name: rules[name] for name in chosen}))


JUNCTOR_PARTS = st.recursive(
    some(VALUE_RULES),
    lambda below: st.one_of(
        some({**VALUE_RULES, "properties": st.dictionaries(st.sampled_from("abc"), below, max_size=2), "items": below}),
        some({"not": below, "anyOf": st.lists(below, min_size=1, max_size=2), "oneOf": st.lists(below, min_size=1, max_size=2)}),
    ),
    max_leaves=4,
)
JUNCTORS = {
    "not": JUNCTOR_PARTS, **dict.fromkeys(("allOf", "anyOf", "oneOf"), st.lists(JUNCTOR_PARTS, min_size=1, max_size=3)),
}  # fmt: skip


def structural(below: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    names = st.sampled_from("abc")

    def of(kind: str, **fixed: Any) -> st.SearchStrategy[Any]:
        return st.tuples(st.fixed_dictionaries(fixed), some({**VALUE_RULES, **JUNCTORS, "nullable": st.booleans()})).map(
            lambda parts: {**parts[1], **parts[0], "type": kind}
        )

    scalars = st.sampled_from([{"type": "string"}, {"type": "integer"}, {"type": "boolean"}, {"x-kubernetes-int-or-string": True}])
    keyed = st.fixed_dictionaries({"type": st.just("object"), "properties": st.dictionaries(names, scalars, max_size=3)})
    return st.one_of(
        *(of(kind) for kind in ("string", "integer", "number", "boolean")),
        some({**VALUE_RULES, **JUNCTORS}).map(lambda rules: {**rules, "x-kubernetes-int-or-string": True}),
        some(JUNCTORS).map(lambda rules: {**rules, "x-kubernetes-preserve-unknown-fields": True}),
        of("object", properties=st.dictionaries(names, below, max_size=3)), of("object", additionalProperties=below),
        of("array", items=below),
        of("array", items=scalars, **{"x-kubernetes-list-type": st.just("set")}),
        of("array", items=keyed, **{
            "x-kubernetes-list-type": st.just("map"), "x-kubernetes-list-map-keys": st.lists(names, min_size=1, max_size=2, unique=True),
        }),
    )  # fmt: skip


SCHEMAS = st.recursive(structural(st.just({"type": "string"})), structural, max_leaves=4)


@settings(max_examples=1500)
@given(SCHEMAS, VALUES)
def test_made_up_schemas(schema, value):
    whole = {"type": "object", "properties": {"x": schema}}
    obj = {"x": value}
    answer, errors = schema_check(whole).answer(obj), SchemaValidator(whole).errors(obj)
    if answer == 1:
        assert not errors and not listtypes.errors(schema_type("com.example.v1.Thing", whole), obj), (schema, value)
    if answer == -1:
        assert errors, ("a refusal is certain too: oneOf and not build on it", schema, value)


@pytest.mark.parametrize(
    ("schema", "passing", "refused"),
    [
        ({"type": "string", "pattern": "^a+$", "maxLength": 3}, ["a", "aaa"], ["b", "aaaa", 1, None]),
        ({"type": "string", "nullable": True}, ["a", None], [1]),
        ({"type": "integer", "minimum": 1, "maximum": 3, "exclusiveMaximum": True}, [1, 2], [0, 3, "1", True]),
        ({"type": "integer", "multipleOf": 2}, [2, -4], [1]),
        ({"type": "number", "minimum": 0.5}, [0.5, 1], [0.25]),
        ({"type": "string", "format": "date"}, ["2024-01-02"], ["2024-13-02"]),
        ({"x-kubernetes-int-or-string": True}, [1, "50%"], [True, {}]),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, [{}, {"a": 1}], [{"a": "1"}]),
        ({"type": "object", "properties": {"a": {}}, "required": ["a"]}, [{"a": 1, "b": 2}], [{}, {"b": 2}]),
        ({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}, [[], ["a", "b"]], [["a", "a"]]),
        (
            {
                "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a", "b"],
                "items": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}},
            },
            [[{"a": "x", "b": 1}, {"a": "x", "b": 2}]], [[{"a": "x", "b": 1}, {"a": "x", "b": 1}], [{"a": "x"}, {"a": "x"}]],
        ),
        ({"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, [{"a": 1}, {"b": 1}], [{}, {"a": 1, "b": 1}]),
        ({"type": "object", "not": {"required": ["a"]}}, [{}, {"b": 1}], [{"a": 1}]),
        ({"type": "object", "x-kubernetes-preserve-unknown-fields": True}, [{"a": [{"b": None}]}], [[]]),
        ({"type": "integer", "enum": [1, 2]}, [1], [3]),
    ],
)  # fmt: skip
def test_what_common_schemas_say_passes(schema, passing, refused):
    made = schema_check(schema)
    assert all(map(made.passes, passing)) and not any(map(made.passes, refused))


def test_schemas_deeper_than_the_limit_are_for_the_validator():
    schema: dict[str, Any] = {"type": "string"}
    value: Any = "a"
    for _ in range(100):
        schema, value = {"type": "object", "properties": {"a": schema}}, {"a": value}
    assert not schema_check(schema).passes(value) and schema_check(schema).passes({"a": {}})


def test_fields_that_say_no_more_than_a_type_have_one_check():
    properties = {name: {"type": "string"} for name in ("a", "b", "c", "d")}
    properties["c"]["default"], properties["d"]["maxLength"] = "x", 1
    whole = schema_check({"type": "object", "properties": properties})
    assert whole.passes({"a": "x", "b": "y", "c": "z", "d": "1"})
    assert not any(whole.passes({name: value}) for name, value in (("a", 1), ("b", None), ("c", []), ("d", "12")))
    made = [schemachecks._below(schema, 1, True) for schema in properties.values()]
    assert made[0] is made[1] is made[2] and made[3] is not made[0]
    nullable = schemachecks._below({"type": "string", "nullable": True}, 1, True)
    assert nullable.passes(None) and not made[0].passes(None)


def test_a_set_of_whatever_items_has_none_twice():
    """A schema without items, as upstream's table of list types has it."""
    type_ = schema_type("", {"type": "object", "properties": {"l": {"type": "array", "x-kubernetes-list-type": "set"}}})
    assert not check(type_).passes({"l": ["a", "a"]}) and refused(type_, {"l": ["a", "a"]})
    assert not refused(type_, {"l": ["a", "b"]})
