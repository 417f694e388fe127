"""Validation of values against schemas: messages of kube-openapi, formats, ranges, ratcheting."""

import pytest

from kas.apiextensions import schemavalues
from kas.apiextensions.schemavalues import LOOK_STEPS, MAX_STEPS, QUICK_FROM, Run, SchemaValidator


def messages(schema, value, **more):
    return sorted(map(str, SchemaValidator(schema).errors(value, **more)))


def spec(**properties):
    return {"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}}


@pytest.mark.parametrize(
    ("schema", "value", "errors"),
    [
        ({"type": "string", "format": "date"}, 5, ['spec.x: Invalid value: "int64": spec.x in body must be of type date: "int64"']),
        ({"type": "string", "format": "date"}, "5", ['spec.x: Invalid value: "5": spec.x in body must be of type date: "5"']),
        ({"type": "string", "format": "bogus"}, "5", []),
        ({"type": "string", "format": "bogus"}, 5, ['spec.x: Invalid value: "integer": spec.x in body must be of type string: "integer"']),
        ({"type": "string", "pattern": r"^\pL+\z"}, "5", ["spec.x: Invalid value: \"5\": spec.x in body should match '^\\pL+\\z'"]),
        ({"type": "integer", "format": "int64"}, float(1 << 63), [
            '<nil>: Invalid value: "": Checked value must be of type integer with format int64 in spec.x',
            'spec.x: Invalid value: "float64": spec.x in body must be of type int64: "float64"',
        ]),
        ({"type": "integer", "format": "int64"}, -float(1 << 63), [
            '<nil>: Invalid value: "": Checked value must be of type integer with format int64 in spec.x',
            'spec.x: Invalid value: "float64": spec.x in body must be of type int64: "float64"',
        ]),
        ({"type": "integer"}, -(1 << 63), []),
        ({"type": "integer"}, 2.5, [
            '<nil>: Invalid value: "": Checked value must be of type integer (default format) in spec.x',
            'spec.x: Invalid value: "number": spec.x in body must be of type integer: "number"',
        ]),
        ({"type": "integer", "minimum": 2}, 3.0, []),
        ({"type": "number", "maximum": 1.5}, 2, ["spec.x: Invalid value: 2: spec.x in body should be less than or equal to 1"]),
        ({"type": "number", "maximum": 1e6}, 2e6, ["spec.x: Invalid value: 2e+06: spec.x in body should be less than or equal to 1e+06"]),
        ({"type": "integer", "multipleOf": 0}, 3,
         ["spec.x: Invalid value: 0: factor MultipleOf declared for spec.x must be positive: 0"]),
        ({"type": "number", "multipleOf": 0.1}, 0.3, []),
        ({"type": "number", "multipleOf": 0.1}, 0.25, ["spec.x: Invalid value: 0.25: spec.x in body should be a multiple of 0.1"]),
        ({"type": "number", "format": "float"}, 1e39,
         ['<nil>: Invalid value: "": Checked value must be of type number with format float in spec.x']),
        ({"type": "string", "nullable": True, "enum": ["x", None]}, None,
         ['spec.x: Unsupported value: null: supported values: "x", "null"']),
        ({"type": "integer", "enum": [1, 2]}, 4, ['spec.x: Unsupported value: 4: supported values: "1", "2"']),
        ({"x-kubernetes-int-or-string": True}, 1.5,
         ['spec.x: Invalid value: "number": spec.x in body must be of type integer,string: "number"']),
        ({"type": "array", "items": {"type": "array", "items": {"type": "integer", "maximum": 3}}}, [[1], [2, 9]],
         ["spec.x[1][1]: Invalid value: 9: spec.x[1][1] in body should be less than or equal to 3"]),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, {"a.b/c": "x"},
         ['spec.x.a.b/c: Invalid value: "string": spec.x.a.b/c in body must be of type integer: "string"']),
        ({"type": "integer", "oneOf": [{"minimum": 5}, {"multipleOf": 3}]}, 6,
         ['<nil>: Invalid value: "": "spec.x" must validate one and only one schema (oneOf). Found 2 valid alternatives']),
        ({"type": "integer", "anyOf": [{"minimum": 5}, {"multipleOf": 3}]}, 1, [
            '<nil>: Invalid value: "": "spec.x" must validate at least one schema (anyOf)',
            "spec.x: Invalid value: 1: spec.x in body should be greater than or equal to 5",
        ]),
        ({"type": "integer", "not": {"minimum": 5}}, 6, ['<nil>: Invalid value: "": "spec.x" must not validate the schema (not)']),
    ],
)  # fmt: skip
def test_messages(schema, value, errors):
    assert messages(spec(x=schema), {"spec": {"x": value}}) == errors


def test_an_invalid_default_is_reported_at_its_own_path():
    want = ['a.default: Invalid value: "string":  in body must be of type integer: "string"']
    assert messages({"type": "integer"}, "x", path="a.default") == want
    assert messages({"type": "object", "required": ["b"]}, {}, path="a.default") == ["a.default.b: Required value"]


@pytest.mark.parametrize(
    ("size", "message"),
    [
        ({"maxProperties": 1}, "spec.x: Too many: 2: must have at most 1 item"),
        ({"minProperties": 3}, "spec.x: Invalid value: 2: spec.x in body should have at least 3 properties"),
    ],
)
def test_members_of_a_map_of_the_wrong_size_are_validated(size, message):
    schema = {"type": "object", "additionalProperties": {"type": "string"}, **size}
    wrong = 'spec.x.a: Invalid value: "integer": spec.x.a in body must be of type string: "integer"'
    assert messages(spec(x=schema), {"spec": {"x": {"a": 1, "b": "x"}}}) == [wrong, message]


def test_errors_of_unchanged_values_are_not_reported():
    schema = spec(
        a={"type": "string", "maxLength": 4}, l={"type": "array", "items": {"type": "string", "maxLength": 2}},
        lm={
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "string", "maxLength": 1}}},
        },
    )  # fmt: skip
    old = {"spec": {"a": "too long", "l": ["aaaa", "b"], "lm": [{"k": "x", "v": "bad"}, {"k": "y", "v": "o"}]}}
    assert messages(schema, old, old=old) == []
    assert messages(schema, {"spec": old["spec"] | {"n": 1}}, old=old) == []
    assert messages(schema, {"spec": old["spec"] | {"a": "longer yet"}}, old=old) == ["spec.a: Too long: may not be more than 4 bytes"]
    # Items of an atomic list have no identity, those of a map list have their keys.
    assert messages(schema, {"spec": old["spec"] | {"l": ["aaaa", "c"]}}, old=old) == ["spec.l[0]: Too long: may not be more than 2 bytes"]
    moved = [{"k": "z", "v": "bad"}, {"k": "x", "v": "bad"}]
    assert messages(schema, {"spec": old["spec"] | {"lm": moved}}, old=old) == ["spec.lm[0].v: Too long: may not be more than 1 byte"]


def test_errors_of_the_object_itself_are_reported_though_it_is_unchanged():
    version = {"type": "string", "pattern": "^g/v1$"}
    inner = {"type": "object", "properties": {"apiVersion": version, "kind": version}}
    schema = SchemaValidator({"type": "object", "properties": {**inner["properties"], "i": {"type": "integer"}, "in": inner}})
    old = {"apiVersion": "g/v2", "kind": "g/v1", "in": {"apiVersion": "g/v2", "kind": "k"}}
    new = {**old, "i": 1}
    assert [(e.field, e.detail) for e in schema.errors(new, old)] == [("apiVersion", "apiVersion in body should match '^g/v1$'")]
    # Except for what is unchanged as a whole.
    assert schema.errors(dict(old), old) == []


@pytest.mark.parametrize(("junctor", "says"), [
    ("allOf", 'Invalid value: "": "spec" must validate all the schemas (allOf). None validated'),
    ("anyOf", 'Invalid value: "": "spec" must validate at least one schema (anyOf)'),
    ("oneOf", 'Invalid value: "": "spec" must validate one and only one schema (oneOf). Found none valid'),
])  # fmt: skip
def test_alternatives_ignore_the_old_value(junctor, says):
    text = {"type": "string"}
    schema = {"type": "object", "properties": {"spec": {
        "type": "object", "properties": {"a": text, "b": text}, junctor: [{"properties": {"a": {"maxLength": 3}}}],
    }}}  # fmt: skip
    old = {"spec": {"a": "long", "b": "x"}}
    found = messages(schema, {"spec": {"a": "long", "b": "y"}}, old=old)
    assert sorted(found) == sorted([f"<nil>: {says}", "spec.a: Too long: may not be more than 3 bytes"])
    assert messages(schema, {"spec": {"b": "x", "a": "long"}}, old=old) == []
    negated = {"type": "object", "properties": {"spec": {
        "type": "object", "properties": {"a": text, "b": text}, "not": {"properties": {"a": {"maxLength": 3}}},
    }}}  # fmt: skip
    assert messages(negated, {"spec": {"a": "long", "b": "y"}}, old=old) == []


def test_reordered_items_of_a_map_list_are_unchanged():
    item = {"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "integer"}}}
    items = {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": item, "maxItems": 1}
    plain = {"type": "array", "items": item, "maxItems": 1}
    a, b = {"k": "a", "v": 1}, {"k": "b", "v": 2}
    many = ["spec.l: Too many: 2: must have at most 1 item"]
    assert messages(spec(l=items), {"spec": {"l": [b, a]}}, old={"spec": {"l": [a, b]}}) == []
    assert messages(spec(l=items), {"spec": {"l": [b, {"k": "a", "v": 3}]}}, old={"spec": {"l": [a, b]}}) == many
    assert messages(spec(l=items), {"spec": {"l": [b, {"k": "c", "v": 1}]}}, old={"spec": {"l": [a, b]}}) == many
    assert messages(spec(l=plain), {"spec": {"l": [b, a]}}, old={"spec": {"l": [a, b]}}) == many
    assert messages(spec(l=plain), {"spec": {"l": [a, b]}}, old={"spec": {"l": [a, b]}}) == []


@pytest.mark.parametrize("one", [{"v": 1}, {"k": None, "v": 1}, {"k": ["a"], "v": 1}])
def test_an_item_without_a_key_has_no_old_value(one):
    """So neither it nor its list is unchanged."""
    item = {"type": "object", "properties": {"k": {}, "v": {"type": "integer", "maximum": 0}}}
    items = {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": item, "maxItems": 0}
    value = {"spec": {"l": [one]}}
    wrong = [
        "spec.l: Too many: 1: must have at most 0 items",
        "spec.l[0].v: Invalid value: 1: spec.l[0].v in body should be less than or equal to 0",
    ]
    assert messages(spec(l=items), value, old=value) == wrong
    keyed = {"spec": {"l": [{"k": "a", "v": 1}]}}
    assert messages(spec(l=items), keyed, old=keyed) == []


def test_members_unknown_to_the_schema_are_ignored():
    inner = {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "required": ["r"], "properties": {"a": {"type": "string"}}}
    for value, errors in (({"a": "x"}, []), ({"a": "x", "b": 1}, ["spec.o.r: Required value"])):
        old = {"spec": {"o": value}}
        assert messages(spec(o=inner), old, old=old) == errors


@pytest.mark.parametrize(
    ("value", "options", "fits"),
    [
        (1, [1], True), (1.0, [1], True), (1.5, [1], True), (1, [1.0], True), (1, [1.5], False), (True, [1], False), (1, [True], False),
        ("1", [1], False), ({"a": 1, "b": [2]}, [{"b": [2], "a": 1}], True), ({"a": 1}, [{"a": 1.0}], False), ([1], [[1]], True),
        ("a", ["b", "a"], True), (False, [False], True),
    ],
)  # fmt: skip
def test_an_enum_compares_by_value(value, options, fits):
    assert (SchemaValidator({"enum": options}).errors(value) == []) is fits


def test_alternatives_times_items_are_bounded(monkeypatch):
    """Where no compiled check helps."""
    monkeypatch.setattr(schemavalues, "QUICK_S", 0)
    schema = {"type": "array", "items": {"allOf": [{"required": ["a"]}] * 3000}}
    run = Run("spec", 100_000)
    errors = SchemaValidator(schema).errors_within(run, [{"a": 1}] * 3000)
    assert list(map(str, errors)) == ["spec: Forbidden: takes too many steps to be checked against its schema"]
    assert SchemaValidator(schema).errors_within(Run("spec", 100_000), [{"a": 1}] * 10) == []


def test_validation_ends_when_the_client_has_disconnected(monkeypatch):
    """The client of a large object has left."""
    schema, run = {"type": "array", "items": {"required": ["a"]}}, Run("spec", MAX_STEPS)
    monkeypatch.setattr(schemavalues, "abandoned", lambda: run.left < MAX_STEPS - 2 * LOOK_STEPS)
    assert len(SchemaValidator(schema).errors_within(run, [{"a": 1}] * (5 * LOOK_STEPS))) == 1
    assert MAX_STEPS - 5 * LOOK_STEPS < run.left < MAX_STEPS - 2 * LOOK_STEPS


def test_required_fields_of_many_items_are_bounded():
    names = [f"r{i}" for i in range(3000)]
    schema = {"type": "array", "items": {"required": names}}
    assert len(SchemaValidator(schema).errors_within(Run("spec", 100_000), [dict.fromkeys(names, 1)] * 3000)) == 1


def test_alternatives_read_only_the_members_they_name(monkeypatch):
    """If each of many alternatives names one of as many members, not all are read for each."""
    visited: list[str] = []
    below = SchemaValidator.below
    monkeypatch.setattr(SchemaValidator, "below", lambda self, key: visited.append(key) or below(self, key))
    names = [f"k{i}" for i in range(50)]
    each = [{"properties": {name: {"minLength": 2}}} for name in names]
    assert SchemaValidator({"type": "object", "allOf": each}).errors(dict.fromkeys(names, "xx")) == []
    assert len(visited) == len(names)
    short = SchemaValidator({"type": "object", "anyOf": each}).errors(dict.fromkeys(names, "x"))
    assert [e.detail for e in short][1:] == ["k0 in body should be at least 2 chars long"]
    assert len(visited) == 2 * len(names)


def alternatives(n: int) -> dict:
    return {"type": "array", "items": {"type": "integer", "anyOf": [{"minimum": 1000 + i} for i in range(n)]}}


def spent(schema: dict, value: list) -> tuple[list[str], int]:
    """Returns the errors' paths and the number of steps."""
    run = Run("spec", MAX_STEPS)
    return [e.detail for e in SchemaValidator(schema).errors_within(run, value)], MAX_STEPS - run.left


def test_only_failing_values_under_many_alternatives_are_examined():
    """Of twenty thousand numbers, one fails 300 alternatives: finding it took millions of steps, which was too many."""
    few, many = (spent(alternatives(300), [*[1200] * n, 1]) for n in (20, 20_000))
    assert len(few[0]) == 2 and few[0][1].endswith("should be greater than or equal to 1000")
    assert [text.replace("20000", "20") for text in many[0]] == few[0]
    assert few[1] < many[1] < QUICK_FROM + 25_000


def test_errors_that_are_not_reported_are_not_searched_for():
    few, many = (spent(alternatives(300), [1] * n)[1] for n in (5_000, 20_000))
    assert few == many < MAX_STEPS / 4


def test_the_first_matching_alternative_is_enough():
    assert [spent(alternatives(300)["items"], value) for value in (1000, 999, 5000)][0::2] == [([], 2), ([], 2)]


def test_no_more_errors_are_kept_than_may_be_reported(monkeypatch):
    """The others count all the same: an invalid value stays invalid, in alternatives too."""
    monkeypatch.setattr(schemavalues, "MAX_ERRORS", 20)
    texts, names = {"type": "array", "items": {"type": "string"}}, [f"r{i}" for i in range(15)]
    assert len(SchemaValidator(texts).errors([1] * 100)) == 20
    assert len(SchemaValidator({"type": "array", "items": texts}).errors([[1] * 15, [1] * 15])) == 20
    made: list[str] = []
    required = schemavalues.field.required
    monkeypatch.setattr(schemavalues.field, "required", lambda path: made.append(path) or required(path))
    needy = {"type": "array", "items": {"required": names}}
    assert len(SchemaValidator(needy).errors([{}] * 100)) == 20
    assert len(made) == 21  # all of two items, except what exceeds the bound in the second, and nothing of the others
    both = {"anyOf": [needy, {"maxItems": 3}]}
    assert not SchemaValidator(both).errors([{}] * 3) and SchemaValidator(both).errors([{}] * 100)


def test_deep_values_equal_no_option_and_are_compared_at_every_level():
    deep, other, equal = 1, 2, 1
    for _ in range(2000):
        deep, other, equal = {"a": [deep]}, {"a": [other]}, {"a": [equal]}
    validator = SchemaValidator({"type": "array", "x-kubernetes-preserve-unknown-fields": True, "enum": [[{"a": 1}]]})
    assert not validator.enum.has([deep]) and validator.enum.has([{"a": 1}])
    assert validator.unchanged([deep], [equal]) and not validator.unchanged([deep], [other])
