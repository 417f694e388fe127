"""Validation rules applied to objects: field paths of errors, ratcheting, and the cost of messages."""

from __future__ import annotations

import pytest

from kas.apiextensions import celrules
from kas.cel import values
from kas.types.scheme import schema_type

TEXT = {"type": "string"}
UNTYPED = "rule compiler initialization error: failed to convert to declType for CEL validation rules"


def errors(rule: dict, obj: dict, old: object = celrules.ABSENT, budget: int = celrules.BUDGET) -> list[str]:
    """Returns the errors of a rule on ``spec``, whose ``m`` is a map and ``a`` a string."""
    properties = {"a": TEXT, "m": {"type": "object", "additionalProperties": TEXT}}
    spec = {"type": "object", "properties": properties, "x-kubernetes-validations": [rule]}
    type_ = schema_type("", {"type": "object", "properties": {"spec": spec}})
    return [str(e) for e in celrules.errors(type_, obj, old, budget)[0]]


@pytest.mark.parametrize(("path", "shown"), [(".a", "spec.a"), (".m.k", "spec.m[k]"), ("['m']['k']", "spec.m[k]")])
def test_an_error_has_the_field_path_of_its_rule(path, shown):
    assert errors({"rule": "false", "message": "no", "fieldPath": path}, {"spec": {}}) == [f"{shown}: Invalid value: no"]


def test_the_path_of_an_entry_follows_a_dot():
    rule = {"rule": "false", "message": "no", "fieldPath": ".k"}
    labels = {"type": "object", "additionalProperties": TEXT, "x-kubernetes-validations": [rule]}
    found, _ = celrules.errors(schema_type("", {"type": "object", "properties": {"m": labels}}), {"m": {}})
    assert [str(e) for e in found] == ["m.[k]: Invalid value: no"]


def test_a_too_costly_message_is_reported():
    """It may cost as much as one call."""
    text = "self.m.map(k, self.m.map(l, k + l)).size() > 0 ? 'x' : 'y'"
    found = errors({"rule": "false", "messageExpression": text}, {"spec": {"m": {str(i): "" for i in range(900)}}})
    why = "no further validation rules will be run due to call cost exceeds limit for messageExpression"
    assert found == [f'spec: Invalid value: "object": {why}: "{text}"']


def test_a_rule_on_the_api_version_is_not_ratcheted():
    ruled = TEXT | {"x-kubernetes-validations": [{"rule": "self == 'other'"}]}
    schema = {"type": "object", "properties": {"apiVersion": ruled, "a": ruled}}
    obj = {"apiVersion": "v1", "a": "v1"}
    found, warnings = celrules.errors(schema_type("", schema), obj, obj)
    assert [e.field for e in found] == ["apiVersion"] and len(warnings) == 1


def test_reordering_items_of_a_map_list_is_not_a_change():
    item = {"type": "object", "properties": {"k": TEXT}}
    items = {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": item}
    rule = {"x-kubernetes-validations": [{"rule": "self.size() < 2"}]}
    a, b = {"k": "a"}, {"k": "b"}
    for more, soft in ((items, True), ({"type": "array", "items": item}, False)):
        schema = {"type": "object", "properties": {"l": more | rule}}
        found, warnings = celrules.errors(schema_type("", schema), {"l": [b, a]}, {"l": [a, b]})
        assert (len(found), len(warnings)) == ((0, 1) if soft else (1, 0))


def test_unusable_rules_of_items_are_not_compiled():
    """Of a definition that used to be a list's: reported where there are items, and ratcheted when nothing changed."""
    item = {"type": "object", "properties": {"n": TEXT | {"x-kubernetes-validations": [{"rule": "self == 'x'"}]}}}
    for rules, told in (([], []), ([{"rule": "has(self.n)"}, {"rule": "true"}], [("l[0]", UNTYPED)])):
        items = item | {"x-kubernetes-validations": rules}
        type_ = schema_type("", {"type": "object", "properties": {"l": {"type": "object", "items": items}}})
        obj = {"l": [{"n": "x"}]}
        found, warnings = celrules.errors(type_, obj, obj)
        assert [(e.field, e.detail) for e in found] == told and not warnings
        assert celrules.errors(type_, {"l": {}})[0] == []


ANYS = {"type": "array", "items": {"x-kubernetes-preserve-unknown-fields": True}}
NO_LIST = {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "foo"}
FALSE = {"x-kubernetes-validations": [{"rule": "false"}]}


@pytest.mark.parametrize(("schema", "default", "told"), [
    (ANYS | FALSE, [], {"d": UNTYPED}),
    ({"type": "object", "additionalProperties": ANYS["items"]} | FALSE, {"a": 1}, {"d": UNTYPED}),
    ({"type": "array", "items": ANYS | FALSE} | FALSE, [[1], []], {"d": UNTYPED, "d[0]": UNTYPED, "d[1]": UNTYPED}),
    ({"type": "array", "items": ANYS | FALSE}, [], {}),
    ({"type": "object", "properties": {"a": ANYS | FALSE}} | FALSE, {"a": []}, {"d": "failed rule: false"}),
    (NO_LIST | {"x-kubernetes-validations": [{"rule": "true"}, {"rule": "self.size() > 0"}]}, ["a"],
     {"d": "invalid x-kubernetes-list-type, expected 'map', 'set' or 'atomic' but got foo evaluating rule: self.size() > 0"}),
])  # fmt: skip
def test_rules_of_defaults_that_expressions_cannot_see(schema, default, told):
    """They are reported where the default is, and skipped below one with a type."""
    holder = schema_type("", {"type": "object", "properties": {"d": schema}})
    found, _ = celrules.default_errors(holder.by_name["d"], default, celrules.BUDGET, "d")
    assert {e.field: e.detail for e in found} == told


OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
SAME = {"x-kubernetes-validations": [{"rule": "self == oldSelf"}]}


@pytest.mark.parametrize(("old", "new", "same"), [
    ({"a": "x", "u": 1}, {"a": "x", "u": 1}, True),
    ({"a": "x", "u": 1}, {"a": "x", "u": 2}, False),
    ({"a": "x", "u": 1}, {"a": "x", "u": 1.0}, False),
    ({"a": "x", "u": [{"b": 1}]}, {"a": "x", "u": [{"b": 2}]}, False),
    ({"a": "x", "u": 1}, {"a": "y", "u": 1}, False),
    ({"a": "x"}, {"a": "x", "u": 1}, False),
    # Members that the old one lacks are ignored if there are equally many.
    ({"a": "x", "u": 1}, {"a": "x", "v": 2}, True),
    # A null is absent, but counts.
    ({"a": "x", "n": None}, {"a": "x", "n": None}, True),
    ({"a": "x", "n": None}, {"a": "x"}, False),
    ({"a": "x", "n": "y"}, {"a": "x", "n": None}, False),
    ({"a": "x", "n": None}, {"a": "x", "n": "y"}, False),
    ({"a": "x", "a-b": None}, {"a": "x", "a-b": "y"}, False),
    ({"a": "x", "a-b": None}, {"a": "x", "n": None}, True),
])  # fmt: skip
def test_objects_are_compared_with_their_unknown_fields(old, new, same):
    known = {"properties": {"a": TEXT, "n": TEXT | {"nullable": True}, "a-b": TEXT | {"nullable": True}}}
    type_ = schema_type("", {"type": "object", "properties": {"o": OPEN | known | SAME}})
    assert (celrules.errors(type_, {"o": new}, {"o": old})[0] == []) is same


def test_an_object_of_unknown_fields_is_compared_by_them():
    type_ = schema_type("", {"type": "object", "properties": {"o": OPEN | SAME}})
    assert celrules.errors(type_, {"o": {"u": 1}}, {"o": {"u": 1}})[0] == []
    assert celrules.errors(type_, {"o": {"u": 2}}, {"o": {"u": 1}})[0] != []


def test_a_null_field_is_absent():
    rules = [{"rule": "!has(self.n) && self.?n.orValue('none') == 'none'"}, {"rule": "self.n == 'x'"}]
    inner = {"type": "object", "properties": {"n": TEXT | {"nullable": True}}, "x-kubernetes-validations": rules}
    found, _ = celrules.errors(schema_type("", {"type": "object", "properties": {"o": inner}}), {"o": {"n": None}})
    assert [str(e) for e in found] == ["o: Invalid value: \"object\": no such key: n evaluating rule: self.n == 'x'"]


def test_an_embedded_object_is_compared_with_all_of_its_metadata():
    type_ = schema_type("", {"type": "object", "properties": {"e": OPEN | {"x-kubernetes-embedded-resource": True} | SAME}})

    def pod(label: str) -> dict:
        return {"e": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "labels": {"l": label}}}}

    assert celrules.errors(type_, pod("x"), pod("x"))[0] == []
    assert celrules.errors(type_, pod("y"), pod("x"))[0] != []


@pytest.mark.parametrize("rule", [
    # A list that is compared with such a list, or added to it, may have a member twice.
    "self.s == ['a', 'a'] && ['a', 'a'] != self.s && self.s != ['a', 'c']",
    "self.s + ['c', 'c'] == ['a', 'b', 'c'] && (self.s + ['c', 'c']).size() == 3",
    "self.m == [self.m[0], self.m[0]] && self.m == [self.m[1], self.m[0]] && self.m != [self.m[0]]",
    "(self.m + [self.o, self.o]).size() == 4 && (self.m + [self.p])[0].v == 'z' && (self.m + [self.p]).size() == 2",
])  # fmt: skip
def test_lists_of_sets_and_maps(rule):
    item = {"type": "object", "properties": {"k": TEXT, "v": TEXT}}
    lists = {"s": {"type": "array", "x-kubernetes-list-type": "set", "items": TEXT},
             "m": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": item}}  # fmt: skip
    type_ = schema_type("", {"type": "object", "properties": lists | {"o": item, "p": item}, "x-kubernetes-validations": [{"rule": rule}]})
    a, b = ({"k": k, "v": "x"} for k in "ab")
    obj = {"s": ["a", "b"], "m": [a, b], "o": {"k": "c", "v": "x"}, "p": {"k": "a", "v": "z"}}
    assert [str(e) for e in celrules.errors(type_, obj)[0]] == []


_DAY = TEXT | {"format": "date"}


def _keyed(key: str, schema: dict) -> dict:
    item = {"type": "object", "properties": {key: schema, "v": TEXT}}
    return {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key], "items": item}


@pytest.mark.parametrize(("items", "obj", "rule", "why"), [
    # Invalid members of a set of numbers, numbers with a fraction that is not written, and dates of a set are never
    # found in it; added ones occur again.
    ({"type": "integer"}, [1, "x"], "self.l != self.l && (self.l + self.l).size() == 3", None),
    ({"type": "integer"}, [None], "self.l != self.l", None),
    ({"type": "number"}, [1], "self.l != self.l && (self.l + self.l).size() == 2 && self.l + self.l == self.l + [1.0]", None),
    ({"type": "number"}, [1.5, 2.5], "self.l == [2.5, 1.5] && self.l + self.l == self.l", None),
    (_DAY, ["2020-01-01"], "self.l != self.l && (self.l + self.l).size() == 2", None),
    (_DAY, ["soon"], "self.l != self.l && (self.l + self.l).size() == 2", None),
    # An item is found by a key of another type, and cannot be compared then.
    (_keyed("k", {"type": "integer"}), [{"k": 3.5}, {"k": 1}], "self.l == self.l", "invalid data, expected int, got float64"),
    (_keyed("k", {"type": "integer"}), [{"k": 3.5}], "(self.l + self.l).size() == 1", None),
    (_keyed("k", _DAY), ["x", None], "self.l != self.l && (self.l + self.l).size() == 4", None),
])  # fmt: skip
def test_lists_of_sets_and_maps_with_invalid_members(items, obj, rule, why):
    of_type = items if items["type"] == "array" else {"type": "array", "x-kubernetes-list-type": "set", "items": items}
    type_ = schema_type("", {"type": "object", "properties": {"l": of_type}, "x-kubernetes-validations": [{"rule": rule}]})
    found = [e.detail for e in celrules.errors(type_, {"l": obj})[0]]
    assert found == ([f"{why} evaluating rule: {rule}"] if why else [])


def test_large_sets_are_compared_in_linear_time(monkeypatch):
    """Comparing each with each would take hours for what fits into a request."""
    compared = []
    monkeypatch.setattr(values, "_equal", lambda a, b, left, real=values._equal: compared.append(1) or real(a, b, left))
    rules = [{"rule": "self == oldSelf && self + oldSelf == self"}]
    many = {"type": "array", "x-kubernetes-list-type": "set", "items": TEXT, "x-kubernetes-validations": rules}
    type_ = schema_type("", {"type": "object", "properties": {"s": many}})
    new = [str(i) for i in range(2000)]
    assert celrules.errors(type_, {"s": new}, {"s": new[::-1]})[0] == [] and len(compared) < 10


@pytest.mark.parametrize("rule", [
    "has(self.o) && has(self.l[0].o) && has(self.any) && has(self.open) && !has(self.none)", "self.?o.hasValue()", "self == self",
    "self.l[0].o == self.l[1].o && self.many[0] == self.many[1] && self.many[1] != self.many[2] && self.any == self.any",
    "self.l.exists(x, has(x.o)) && self.l.indexOf(self.l[1]) == 0",
])  # fmt: skip
def test_an_object_without_properties_is_present_and_compared(rule):
    """The empty arm of a union: ``emptyDir: {}`` beside arms with properties."""
    bare, any_ = {"type": "object"}, {"type": "object", "additionalProperties": True}
    properties = {"o": bare, "none": bare, "any": any_, "many": {"type": "array", "items": any_}, "open": OPEN,
                  "l": {"type": "array", "items": {"type": "object", "properties": {"o": bare}}}}  # fmt: skip
    type_ = schema_type("", {"type": "object", "properties": properties, "x-kubernetes-validations": [{"rule": rule}]})
    obj = {"o": {}, "any": {"a": 1}, "many": [{"a": 1}, {"a": 1}, {"a": 2}], "open": {}, "l": [{"o": {}}, {"o": {}}]}
    assert celrules.errors(type_, obj)[0] == []


_MAP = "invalid data, expected a map for the provided schema with type=object"
_ARRAY = "invalid data, expected an array for the provided schema with type=array"
_NEITHER = "invalid data, expected XIntOrString value to be either a string or integer"
_NULL = "invalid data, got null for schema with nullable=false"


@pytest.mark.parametrize(("rule", "why"), [
    ("has(self.o)", _MAP), ("self.o == self.o", _MAP), ("self == self", _MAP), ("self.?o.hasValue()", _MAP), ("has(self.m)", _MAP),
    ("has(self.l)", _ARRAY), ("has(self.s)", _ARRAY), ("has(self.ios)", _NEITHER), ("self.nulls[0] == 'x'", _NULL),
    ("self.nulls.exists(x, x == 'z')", _NULL), ("'z' in self.nulls", _NULL), ("'y' in self.nulls && self.nulls.exists(x, x == 'y')", None),
    ("self.i == 1", "invalid data, expected int, got float64"), ("has(self.i)", "invalid data, expected int, got float64"),
    ("self.t == 't'", "invalid data, expected string, got int64"), ("self.n > 1.0", "invalid data, expected float, got bool"),
    ("self.b", "invalid data, expected bool, got string"), ("self.b || true", None),
    ("self.d > duration('1s')", "Invalid duration soon: unable to parse soon as duration"),
    ("has(self.day)", 'Invalid date formatted string 2024-02-30: parsing time "2024-02-30": day out of range'),
    ("has(self.date)", 'Invalid date formatted string soon: parsing time "soon" as "2006-01-02": cannot parse "soon" as "2006"'),
    ("has(self.at)",
     'Invalid date-time formatted string soon: parsing time "soon" as "2006-01-02T15:04:05": cannot parse "soon" as "2006"'),
    ("has(self.bytes)", "Invalid byte formatted string YQ: illegal base64 data at input byte 0"),
    ("self.plus == b''", "Invalid byte formatted string +/+/: illegal base64 data at input byte 0"),  # whose digits are not those of URLs
    ("self.local.getFullYear() == 2024 && self.never == timestamp(0)", None),
    ("self.nulls.size() == 2 && self.nullable[0] == self.nullable[0] && type(self.nullable[0]) == null_type", None),
])  # fmt: skip
def test_values_that_violate_their_schema_are_not_evaluated(rule, why):
    """Values stored under another schema are accepted while they are unchanged, and rules beside them run."""
    properties = {
        "o": {"type": "object", "properties": {"a": TEXT}}, "m": {"type": "object", "additionalProperties": TEXT},
        "l": {"type": "array", "items": TEXT}, "s": {"type": "array", "items": TEXT, "x-kubernetes-list-type": "set"},
        "ios": {"x-kubernetes-int-or-string": True}, "nulls": {"type": "array", "items": TEXT}, "i": {"type": "integer"}, "t": TEXT,
        "n": {"type": "number"}, "b": {"type": "boolean"}, "d": TEXT | {"format": "duration"}, "day": TEXT | {"format": "date"},
        "nullable": {"type": "array", "items": TEXT | {"nullable": True}}, "date": TEXT | {"format": "date"},
        "at": TEXT | {"format": "date-time"}, "local": TEXT | {"format": "date-time"}, "never": TEXT | {"format": "date-time"},
        "bytes": TEXT | {"format": "byte"}, "plus": TEXT | {"format": "byte"},
    }  # fmt: skip
    type_ = schema_type("", {"type": "object", "properties": properties, "x-kubernetes-validations": [{"rule": rule}]})
    obj = {"o": [], "m": [], "l": {}, "s": {}, "ios": True, "nulls": [None, "y"], "i": 1.0, "t": 1, "n": True, "b": "b", "d": "soon",
           "day": "2024-02-30", "nullable": [None], "date": "soon", "at": "soon", "local": "2024-01-02T03:04:05", "never": "",
           "bytes": "YQ", "plus": "+/+/"}  # fmt: skip
    found, _ = celrules.errors(type_, obj)
    assert [str(e) for e in found] == ([f'<nil>: Invalid value: "object": {why} evaluating rule: {rule}'] if why else [])


def test_rules_end_when_the_client_has_disconnected(monkeypatch):
    """The limit for one object is seconds of a thread; the client disconnects after the second rule."""
    asked: list[int] = []
    monkeypatch.setattr(celrules, "abandoned", lambda: len(asked) == 2 or asked.append(1))
    rules = [{"rule": f"self.n > {i}"} for i in range(5)]
    spec = {"type": "object", "properties": {"n": {"type": "integer"}}, "x-kubernetes-validations": rules}
    found, _ = celrules.errors(schema_type("", {"type": "object", "properties": {"spec": spec}}), {"spec": {"n": 0}})
    assert len(found) == 2


@pytest.mark.parametrize("message", ["self.nope", "1", "'a' +", "   "])
def test_a_message_that_does_not_compile_also_disables_the_field_path(message):
    """Upstream evaluates the path after the message, and then stops."""
    rule = {"rule": "self.a == 'x'", "messageExpression": message, "fieldPath": ".a"}
    assert errors(rule, {"spec": {"a": "y"}}) == ["spec: Invalid value: failed rule: self.a == 'x'"]


def test_a_message_sees_old_self_where_a_rule_does():
    said = {"rule": "self.a == 'x'", "messageExpression": "'was ' + oldSelf.a"}
    other = {"rule": "self.a != oldSelf.a"}
    for rules, why in (([said], "failed rule: self.a == 'x'"), ([said, other], "was z")):
        spec = {"type": "object", "properties": {"a": TEXT}, "x-kubernetes-validations": rules}
        type_ = schema_type("", {"type": "object", "properties": {"spec": spec}})
        found, _ = celrules.errors(type_, {"spec": {"a": "y"}}, {"spec": {"a": "z"}}, ratchet=False)
        assert [str(e) for e in found] == [f"spec: Invalid value: {why}"]


@pytest.mark.parametrize(("rule", "why"), [
    # Maps and objects of a custom resource have string keys, and others are not looked up.
    ("dyn(1) in self.m", "no such overload"), ("dyn(true) in dyn(self.spec)", "no such overload"),
    ("dyn(self.m)[1] == 'a'", "no such overload"),
    ("self.m[self.ios] == 'a'", "no such overload"), ("dyn(self.m)[?1.0].hasValue()", "no such overload"),
    ("[self.m].all(m, dyn(1) in m)", "no such overload"), ("self.m[?dyn('x')].hasValue() || dyn('x') in self.m", None),
    ("dyn(1) in {'a': 1} || dyn(1) in dyn({'a': 1})", None), ("self.m['x'] == 'a'", "no such key: x"),
    ("{'a': 1}[self.ios] == 1", "no such key: 5"),
])  # fmt: skip
def test_maps_have_string_keys(rule, why):
    properties = {"m": {"type": "object", "additionalProperties": TEXT}, "ios": {"x-kubernetes-int-or-string": True},
                  "spec": {"type": "object", "properties": {"a": TEXT}}}  # fmt: skip
    type_ = schema_type("", {"type": "object", "properties": properties, "x-kubernetes-validations": [{"rule": rule}]})
    (found,), _ = celrules.errors(type_, {"m": {"k": "v"}, "ios": 5, "spec": {"a": "b"}})
    assert (why or "failed rule") in str(found)


def test_a_map_list_whose_key_is_escaped_in_expressions():
    """Upstream looks up ``a-b`` under its escaped name, and does not find it: items that differ only in it are equal."""
    item = {"type": "object", "properties": {"k": TEXT, "a-b": TEXT}}
    keyed = {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k", "a-b"], "items": item}
    rule = {"x-kubernetes-validations": [{"rule": "self == oldSelf"}]}
    items = [{"k": "x", "a-b": "1"}, {"k": "x", "a-b": "2"}]
    type_ = schema_type("", {"type": "object", "properties": {"l": keyed | rule}})
    assert celrules.errors(type_, {"l": items}, {"l": items}, ratchet=False)[0]
    assert not celrules.errors(type_, {"l": items[:1]}, {"l": items[:1]}, ratchet=False)[0]


@pytest.mark.parametrize(("key", "known"), [("k!", True), ("@type", True), ("k.", False)])
def test_a_key_without_an_expression_name_distinguishes_items(key, known):
    """As it does upstream, unlike one whose name is escaped."""
    item = {"type": "object", "properties": {"k": TEXT, key: TEXT, "v": TEXT}}
    keyed = {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k", key], "items": item}
    one, two = {"k": "x", key: "1", "v": "a"}, {"k": "x", key: "2", "v": "b"}
    for rule, same in (("self == oldSelf", known), ("size(self + oldSelf) == 2", known), ("size(self + oldSelf) == 3", False)):
        type_ = schema_type("", {"type": "object", "properties": {"l": keyed | {"x-kubernetes-validations": [{"rule": rule}]}}})
        found, _ = celrules.errors(type_, {"l": [one, two]}, {"l": [two, one]}, ratchet=False)
        assert (not found) is same or not known, (rule, found)


@pytest.mark.parametrize("name", ["a b", "9a", "é", "", "a$"])
def test_a_field_without_an_expression_name_is_compared(name):
    """Upstream finds it under its own name; one that only one object has makes them different, as any other does."""
    spec = {"type": "object", "properties": {name: {"type": "number"}, "z": {"type": "number"}}}
    type_ = schema_type("", {"type": "object", "properties": {"s": spec | {"x-kubernetes-validations": [{"rule": "self == oldSelf"}]}}})
    for new, old, same in (
        ({name: 1}, {"z": 1}, False), ({"z": 1}, {name: 1}, False), ({name: 1}, {name: 2}, False), ({name: 1}, {}, False),
        ({name: 1, "z": 1}, {name: 1.0, "z": 1}, True),
    ):  # fmt: skip
        found, _ = celrules.errors(type_, {"s": new}, {"s": old}, ratchet=False)
        assert (not found) is same, (new, old, found)


def test_a_set_of_durations_equals_none():
    spans = {"type": "array", "x-kubernetes-list-type": "set", "items": TEXT | {"format": "duration"}}
    type_ = schema_type("", {"type": "object", "properties": {"l": spans | {"x-kubernetes-validations": [{"rule": "self == oldSelf"}]}}})
    for value, same in ((["1s"], False), ([], True)):
        assert (not celrules.errors(type_, {"l": value}, {"l": value}, ratchet=False)[0]) is same


@pytest.mark.parametrize(("place", "said"), [
    ("o", "selfType"), ("l", "list(selfType.@idx)"), ("m", "map(string, selfType.@elem)"),
    ("deep", "list(map(string, selfType.@idx.@elem))"),
])  # fmt: skip
def test_types_are_named_from_the_place_of_the_rule(place, said):
    leaf = {"type": "object", "properties": {"a-b": {"type": "object", "properties": {"x": TEXT}}}}
    shapes = {
        "o": leaf, "l": {"type": "array", "items": leaf}, "m": {"type": "object", "additionalProperties": leaf},
        "deep": {"type": "array", "items": {"type": "object", "additionalProperties": leaf}},
    }  # fmt: skip
    ruled = shapes[place] | {"x-kubernetes-validations": [{"rule": "self < 1"}, {"rule": "self.a__dash__b < 1"}]}
    above = {"type": "object", "properties": {place: ruled}}
    type_ = schema_type("", {"type": "object", "properties": {"spec": above}})
    found, _ = celrules.errors(type_, {"spec": {place: [] if place in ("l", "deep") else {}}})
    assert f"found no matching overload for '_<_' applied to '({said}, int)'" in str(found[0])
    if place == "o":
        assert "applied to '(selfType.a__dash__b, int)'" in str(found[1])
