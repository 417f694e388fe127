"""Custom objects and their types: embedded metadata, sets and maps, transition rules, cost budgets, messages."""

import copy
from types import SimpleNamespace

import pytest

from kas.apiextensions import celrules, customtypes, embeddedmeta, listtypes
from kas.apiextensions.schemadefaults import default_values, pruned, unpruned
from kas.types.scheme import schema_type

TEXT = {"type": "string"}


def spec(rules=(), **properties):
    inner = {"type": "object", "properties": properties, "x-kubernetes-validations": list(rules)}
    return schema_type("e.W", {"type": "object", "properties": {"spec": inner}})


def obj(**values):
    return {"apiVersion": "e/v1", "kind": "W", "metadata": {"name": "n"}, "spec": values}


def told(type, new, old=None, **more):
    errs, warnings = customtypes.errors(type, new, **({"old": old} if old is not None else {}), **more)
    return [str(e) for e in errs], warnings


POD = {"type": "object", "x-kubernetes-embedded-resource": True, "properties": {"spec": {"type": "object"}}}


def test_embedded_metadata_is_typed():
    given = obj(pod={"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "bogus": 1, "creationTimestamp": None}, "z": 1})
    assert customtypes.decode(spec(pod=POD), given) == ["spec.pod.z", "spec.pod.metadata.bogus"]
    assert given["spec"]["pod"] == {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}}


@pytest.mark.parametrize(
    ("pod", "why"),
    [
        ({"apiVersion": 5, "kind": "Pod"}, "spec.pod.apiVersion: Invalid value: 5: must be a string"),
        ({"metadata": {"name": 5}}, 'spec.pod.metadata: Invalid value: {"name":5}: json: cannot unmarshal number into Go struct field '
                                    "ObjectMeta.name of type string"),
        ({"metadata": "x"}, 'spec.pod.metadata: Invalid value: "x": json: cannot unmarshal string into Go value of type v1.ObjectMeta'),
    ],
)  # fmt: skip
def test_metadata_of_another_type_is_refused_at_once(pod, why):
    with pytest.raises(embeddedmeta.MetadataError) as e:
        customtypes.decode(spec(pod=POD), obj(pod=pod))
    assert str(e.value.error) == why


@pytest.mark.parametrize(("pod", "read"), [
    ({"apiVersion": 5, "kind": "Pod"}, {"kind": "Pod"}),
    ({"metadata": {"name": "x", "annotations": 11, "labels": {"a": "b"}, "generation": None}},
     {"metadata": {"name": "x", "labels": {"a": "b"}}}),
    ({"metadata": "x"}, {"metadata": "x"}),
])  # fmt: skip
def test_objects_stored_before_a_field_had_metadata_are_read(pod, read):
    """A field may become an embedded object when objects with other values exist; if these were refused, they could not be listed or
    repaired."""
    given = obj(pod=pod)
    assert customtypes.decode(spec(pod=POD), given, stored=True) == []
    assert given == obj(pod=read)


def test_embedded_objects_have_type_fields():
    given = obj(pods=[{}, {"apiVersion": "a/b/c", "kind": "K"}, {"apiVersion": "", "kind": ""}])
    errs, _ = told(spec(pods={"type": "array", "items": POD}), given)
    assert errs == [
        "spec.pods[0].apiVersion: Required value", "spec.pods[0].kind: Required value",
        'spec.pods[1].apiVersion: Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c',
        'spec.pods[2].apiVersion: Invalid value: "": must not be empty', 'spec.pods[2].kind: Invalid value: "": must not be empty',
    ]  # fmt: skip


def test_sets_and_maps():
    type = spec(
        s={"type": "array", "items": {}, "x-kubernetes-list-type": "set"},
        m={"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k", "p"]},
    )
    numbers = [1e10, 1e10, {"n": 1e10}, {"n": 1e10}]
    given = obj(s=["a", 1, True, "a", "a", 1.0, *numbers], m=[{"p": 1, "k": "a"}, {"k": "a"}, {"k": "a", "p": 1}, None, {}])
    assert [str(e) for e in listtypes.errors(type, given)] == [
        'spec.m[2]: Duplicate value: {"k":"a","p":1}', "spec.m[4]: Duplicate value: {}", 'spec.s[3]: Duplicate value: "a"',
        "spec.s[7]: Duplicate value: 1e+10", 'spec.s[9]: Duplicate value: {"n":10000000000}',
    ]  # fmt: skip


def test_a_single_key_differs_from_one_with_a_fraction():
    """Go compares a single key by type, several as JSON."""
    items = {"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "map"}
    type = spec(one={**items, "x-kubernetes-list-map-keys": ["k"]}, two={**items, "x-kubernetes-list-map-keys": ["k", "p"]})
    given = obj(one=[{"k": 2}, {"k": 2.0}, {"k": 2}, {}, {}], two=[{"k": 2}, {"k": 2.0}])
    assert [str(e) for e in listtypes.errors(type, given)] == [
        'spec.one[2]: Duplicate value: {"k":2}', "spec.one[4]: Duplicate value: {}", 'spec.two[1]: Duplicate value: {"k":2}',
    ]  # fmt: skip


def test_a_transition_rule():
    final = {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "is final"}]}
    rule = {"rule": "!oldSelf.hasValue() || oldSelf.value() <= self", "optionalOldSelf": True}
    grows = {"type": "integer", "x-kubernetes-validations": [rule]}
    type = spec(a=final, n=grows)
    assert told(type, obj(a="x", n=1)) == ([], [])
    assert told(type, obj(a="y", n=0), obj(a="x", n=1))[0] == [
        'spec.a: Invalid value: "y": is final',
        "spec.n: Invalid value: 0: failed rule: !oldSelf.hasValue() || oldSelf.value() <= self",
    ]
    assert told(type, obj(a="y"), obj()) == ([], [])


def test_errors_in_unchanged_parts_are_warnings():
    rule = {"rule": "self.x < 20", "message": "x too big"}
    o = {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}}, "x-kubernetes-validations": [rule]}
    old = obj(o={"x": 50, "y": 1})
    assert told(spec(o=o, n=TEXT), obj(o={"x": 50, "y": 1}, n="new"), old) == ([], ["spec.o: Invalid value: x too big"])
    assert told(spec(o=o, n=TEXT), obj(o={"x": 50, "y": 2}), old) == (["spec.o: Invalid value: x too big"], [])


@pytest.mark.parametrize(
    ("rule", "error"),
    [
        ({"rule": "false", "reason": "FieldValueForbidden", "message": "no"}, "spec: Forbidden: no"),
        ({"rule": "false", "reason": "FieldValueRequired", "fieldPath": ".m['a.b']"}, "spec.m[a.b]: Required value: failed rule: false"),
        ({"rule": "false", "reason": "FieldValueDuplicate"}, "spec: Duplicate value"),
        ({"rule": "false", "messageExpression": "'n is ' + string(self.n)"}, "spec: Invalid value: n is 3"),
        ({"rule": "false", "messageExpression": "' '", "message": " m "}, "spec: Invalid value: m"),
        ({"rule": "false", "messageExpression": "'a\\nb'"}, "spec: Invalid value: failed rule: false"),
        ({"rule": "self.n / 0 == 1"}, 'spec: Invalid value: "object": division by zero evaluating rule: self.n / 0 == 1'),
        ({"rule": "self.ios + 1 == 2"},
         'spec: Invalid value: "object": \'no such overload\': call arguments did not match a supported operator, '
         "function or macro signature for rule: self.ios + 1 == 2"),
    ],
)  # fmt: skip
def test_messages_of_failures(rule, error):
    type = spec([rule], n={"type": "integer"}, ios={"x-kubernetes-int-or-string": True}, m={"type": "object", "additionalProperties": TEXT})
    assert told(type, obj(n=3, ios="x"))[0] == [error]


def test_values_in_rules_have_the_types_of_their_formats():
    type = spec(
        [
            {"rule": "self.d > duration('1m') && self.t.getFullYear() == 2020 && self.day < self.t"},
            {"rule": "self.b == b'\\x00\\x01' && self.f == 1.0"},
            {"rule": "self.s == ['b', 'a'] && (self.s + ['a', 'c']).size() == 3 && self.a__dash__b == 'x' && has(self.m.k)"},
        ],
        d={"type": "string", "format": "duration"}, t={"type": "string", "format": "date-time"}, day={"type": "string", "format": "date"},
        b={"type": "string", "format": "byte"}, f={"type": "number"}, s={"type": "array", "items": TEXT, "x-kubernetes-list-type": "set"},
        m={"type": "object", "additionalProperties": TEXT}, **{"a-b": TEXT},
    )  # fmt: skip
    given = obj(d="2m", t="2020-01-02T00:00:00Z", day="2020-01-01", b="AAE=", f=1, s=["a", "b"], m={"k": "v"}, **{"a-b": "x"})
    assert told(type, given) == ([], [])


@pytest.mark.parametrize(
    ("format", "text", "rule"),
    [
        ("duration", "1 day", "self == duration('24h')"), ("duration", "3 hours 2 mins", "self == duration('3h2m')"),
        ("duration", "- 5 µs and 2W", "self == duration('336h') + duration('5us')"), ("duration", "1.5d", "self == duration('120h')"),
        ("duration", "9223372036854775807 hr", "self == duration('-1h')"),  # it overflows
        ("date-time", "0000-01-01T00:00:00Z", "self.getFullYear() == 0 && string(self) == '0000-01-01T00:00:00Z'"),
        ("date-time", "9999-12-31T23:59:59-23:00", "self.getFullYear('UTC') == 10000 && self > timestamp('9999-12-31T00:00:00Z')"),
        ("date", "0000-02-29", "self.getDayOfYear() == 59 && self < timestamp('0001-01-01T00:00:00Z')"),
    ],
)  # fmt: skip
def test_formats_accept_more_than_expressions_write(format, text, rule):
    type = spec([{"rule": rule.replace("self", "self.v")}], v={"type": "string", "format": format})
    assert told(type, obj(v=text)) == ([], [])


def test_the_cost_budget_ends_evaluation():
    items = {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 0"}]}
    type = spec(l={"type": "array", "items": items})
    errs, _ = celrules.errors(type, obj(l=[0] * 10), budget=5)
    assert str(errs[-1]).endswith("validation failed due to running out of cost budget, no further validation rules will be run")
    assert 1 < len(errs) < 6


def test_rules_run_only_on_values_of_their_type():
    type = spec([{"rule": "self.n > 5"}], n={"type": "integer", "maximum": 9})
    assert told(type, obj(n=10))[0] == ["spec.n: Invalid value: 10: spec.n in body should be less than or equal to 9"]
    errs, _ = told(type, obj(n="x"))
    assert errs[1:] == [f"<nil>: Invalid value: null: {customtypes.NOT_ALL_CHECKED}"]


@pytest.mark.parametrize(
    ("schema", "errors"),
    [
        ({"type": "string", "format": "date", "default": "x"}, ['default: Invalid value: "x":  in body must be of type date: "x"']),
        ({"type": "object", "properties": {"b": TEXT}, "default": {"c": 1}},
         ['default: Invalid value: {"c":1}: must not have unknown fields']),
        ({"type": "string", "default": "a", "x-kubernetes-validations": [{"rule": "self == 'b'"}]},
         ["default: Invalid value: \"a\": failed rule: self == 'b'"]),
        ({**POD, "default": {"kind": "x"}}, ["default.apiVersion: Required value"]),
        ({**POD, "default": {"kind": "x", "apiVersion": "v1", "metadata": {"name": 5}}},
         ['default.metadata: Invalid value: {"name":5}: json: cannot unmarshal number into Go struct field ObjectMeta.name '
          "of type string"]),
        ({"type": "array", "items": TEXT, "x-kubernetes-list-type": "set", "default": ["a", "a"]}, []),
        ({**TEXT, "default": "a", "x-kubernetes-validations": [{"rule": "oldSelf.hasValue()", "optionalOldSelf": True}]},
         ["default: Invalid value: \"a\": failed rule: oldSelf.hasValue()"]),
        ({**TEXT, "default": "a", "x-kubernetes-validations": [{"rule": "!oldSelf.hasValue()", "optionalOldSelf": True}]},
         ["default: Invalid value: \"a\": failed rule: !oldSelf.hasValue()"]),
        ({**TEXT, "default": "a", "x-kubernetes-validations": [{"rule": "oldSelf.orValue(self) == self", "optionalOldSelf": True}]}, []),
        ({**TEXT, "default": "a", "x-kubernetes-validations": [{"rule": "self != oldSelf"}]},
         ["default: Invalid value: \"a\": failed rule: self != oldSelf"]),
    ],
)  # fmt: skip
def test_defaults(schema, errors):
    found = default_values({"type": "object", "properties": {"a": schema}}, "s", True)
    assert [str(e).removeprefix("s.properties[a].") for e in found] == errors


def test_defaults_inside_metadata():
    pod = {**POD, "properties": {"metadata": {"type": "object", "properties": {"name": {"type": "string", "default": 5}}}}}
    (error,) = default_values({"type": "object", "properties": {"pod": pod}}, "s", True)
    assert str(error) == (
        's.properties[pod].properties[metadata].properties[name].default: Invalid value: 5: must result in valid metadata: metadata: '
        'Invalid value: {"name":5}: json: cannot unmarshal number into Go struct field ObjectMeta.name of type string'
    )


def test_rules_apply_to_defaults_inside_metadata():
    name = {**TEXT, "default": "b", "x-kubernetes-validations": [{"rule": "self.startsWith('a')"}]}
    pod = {**POD, "properties": {"metadata": {"type": "object", "properties": {"name": name}}}}
    (error,) = default_values({"type": "object", "properties": {"pod": pod}}, "s", True)
    assert str(error) == (
        's.properties[pod].properties[metadata].properties[name].default: Invalid value: "b": failed rule: self.startsWith(\'a\')'
    )


def meta(**properties):
    return {"type": "object", "properties": {k: {**TEXT, "default": v} for k, v in properties.items()}}


WHOLE = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "bogus": "y"}}


@pytest.mark.parametrize(("schema", "given", "filled"), [
    ({**POD, "properties": {"metadata": meta(name="x", bogus="y")}}, {"metadata": {}}, {"metadata": {"name": "x"}}),
    ({**POD, "properties": {"metadata": {**meta(), "default": {"name": "x", "bogus": "y"}}}}, {}, {"metadata": {"name": "x"}}),
    ({**POD, "properties": {"metadata": {**meta(), "default": {"bogus": "y"}}}}, {}, {"metadata": {}}),
    ({**POD, "properties": {"metadata": {"type": "object", "properties": {"finalizers": {"type": "array", "items": TEXT, "default": []}}}}},
     {"metadata": {}}, {"metadata": {}}),
    ({**POD, "properties": {"metadata": {"type": "object", "properties": {
        "deletionGracePeriodSeconds": {"type": "integer", "default": 0},
        "ownerReferences": {"type": "array", "items": meta(name="o", bogus="y")}}}}},
     {"metadata": {"ownerReferences": [{}]}}, {"metadata": {"deletionGracePeriodSeconds": 0, "ownerReferences": [{"name": "o"}]}}),
    ({**POD, "properties": {"kind": {**TEXT, "default": "Pod"}}}, {}, {"kind": "Pod"}),
    ({"type": "object", "properties": {"pod": {**POD, "default": WHOLE}}}, {},
     {"pod": {**WHOLE, "metadata": {"name": "x"}}}),
    ({"type": "object", "properties": {"l": {"type": "array", "items": POD, "default": [WHOLE]}}}, {},
     {"l": [{**WHOLE, "metadata": {"name": "x"}}]}),
    ({"type": "object", "additionalProperties": {**POD, "properties": {"metadata": {**meta(), "default": {"name": "x", "labels": 5}}}}},
     {"k": {}}, {"k": {"metadata": {"name": "x"}}}),
    ({"type": "object", "additionalProperties": {"type": "object", "properties": {"a": TEXT}, "default": {"a": "x", "b": "y"}}},
     {"k": None}, {"k": {"a": "x"}}),
])  # fmt: skip
def test_defaults_are_pruned_before_they_are_filled_in(schema, given, filled):
    whole = {"type": "object", "properties": {"spec": schema}}
    before = copy.deepcopy(whole)
    made = obj(**given)
    customtypes.default(schema_type("e.W", pruned(whole)), made)
    assert made["spec"] == filled
    assert whole == before


def test_a_schema_with_clean_defaults_is_unchanged():
    inner = {"type": "object", "properties": {"b": {**TEXT, "default": "c"}}, "default": {"b": "d"}}
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "default": {"e": [1]}}
    lists = {"type": "array", "items": inner, "default": [{"b": "f"}, {}]}
    schema = {"type": "object", "properties": {"a": inner, "free": free, "lists": lists}}
    assert pruned(schema) is schema
    assert not unpruned(schema)
    assert unpruned({"type": "object", "properties": {"pod": {**POD, "default": WHOLE}}})


@pytest.mark.parametrize(("budget", "ended"), [(10, False), (9, True), (0, True)])
def test_defaults_share_a_budget_and_later_ones_are_not_checked(monkeypatch, budget, ended):
    def ruled(rule, default, **schema):
        return {**schema, "default": default, "x-kubernetes-validations": [{"rule": rule}]}

    number = {"type": "integer"}
    schema = {"type": "object", "properties": {
        "a": ruled("self == 'singleton'", "singleton", **TEXT),
        "b": ruled("self.startsWith('kube')", "kube-everything", **TEXT),
        "c": ruled("self.f < self.g", {"f": 1, "g": 2}, type="object", properties={"f": number, "g": number}),
        "z": {**number, "default": "no number"},
    }}  # fmt: skip
    monkeypatch.setattr(celrules, "BUDGET", budget)
    found = [str(e) for e in default_values(schema, "s", True)]
    assert len(found) == 1
    assert ("running out of cost budget" in found[0]) == ended


def test_keys_of_a_map_list_are_read_once_and_not_for_each_item():
    class Keys(tuple):
        looks = 0

        def __iter__(self):
            self.looks += 1
            return super().__iter__()

    keys = Keys(f"k{i}" for i in range(50))
    items = [{"k0": 1, "k7": 2}, {"k0": 1, "k8": 2}, {"k7": 2, "k0": 1, "other": 3}, None]
    found = listtypes._map(SimpleNamespace(list_map_keys=keys), items, "spec.l")
    assert [e.field for e in found] == ["spec.l[2]"] and found[0].value == {"k0": 1, "k7": 2}
    assert keys.looks == 1
