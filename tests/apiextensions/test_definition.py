"""What is kept in memory of a stored definition."""

from __future__ import annotations

import orjson
import pytest

from kas.apiextensions import definition
from kas.types.scheme import without_member

SCHEMA = {"type": "object", "properties": {"openAPIV3Schema": {"type": "string", "description": 'a "quoted" } ] text\\'}}}
KEPT = {"type": "object", "properties": {"openAPIV3Schema": {"type": "string"}}}
STORED = {
    "kind": "CustomResourceDefinition", "apiVersion": "apiextensions.k8s.io/v1beta1",
    "metadata": {"name": "widgets.example.com", "uid": "u", "generation": 1},
    "spec": {
        "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
        "versions": [
            {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": SCHEMA}},
            {"name": "v1beta1", "served": True, "storage": False, "deprecated": True, "schema": {"openAPIV3Schema": SCHEMA}},
            {"name": "v1alpha1", "served": False, "storage": False, "deprecated": True, "deprecationWarning": "old"},
        ],
        "additionalPrinterColumns": [{"name": "A", "type": "string", "JSONPath": ".spec.a"}],
        "selectableFields": [{"jsonPath": ".spec.a"}],
    },
    "status": {"acceptedNames": {"plural": "widgets", "kind": "Widget"}, "conditions": [{"type": "NamesAccepted", "status": "True"}]},
}  # fmt: skip


class Record:
    def __init__(self, obj=None, generation=1):
        obj = obj or STORED
        self.json = orjson.dumps(obj | {"metadata": obj["metadata"] | {"generation": generation}})


def test_the_kept_parts_of_a_definition():
    d = definition.read(Record(), 7, 3)
    assert (d.name, d.group, d.namespaced, d.stored.name, d.served, d.is_true("Established")) == (
        "widgets.example.com", "example.com", True, "v1", True, False,
    )  # fmt: skip
    assert d.versions[0].columns == ({"name": "A", "type": "string", "jsonPath": ".spec.a"},) and d.versions[0].selectable == ("spec.a",)
    assert [v.warning for v in d.versions] == ["", "example.com/v1beta1 Widget is deprecated; use example.com/v1 Widget", "old"]


def test_deprecation_warnings_are_computed_once_for_all_versions(monkeypatch):
    """Each version used to be compared with all others on the loop: 2,000 versions held it for 2.7 s."""
    looked: list[str] = []
    monkeypatch.setattr(definition, "version_key", lambda name, key=definition.version_key: looked.append(name) or key(name))
    versions = [{"name": f"v{i + 1}", "served": True, "storage": i == 0, "deprecated": i % 2 == 0} for i in range(1000)]
    d = definition.read(Record(STORED | {"spec": STORED["spec"] | {"versions": versions}}), 7, 3)
    assert d.versions[0].warning == "example.com/v1 Widget is deprecated; use example.com/v1000 Widget" and not d.versions[1].warning
    assert len(looked) <= 4 * len(versions)


def test_a_versions_own_fields_override_the_common_ones():
    spec = {"subresources": {"status": {}}, "additionalPrinterColumns": [{"name": "A", "type": "string", "JSONPath": ".a"}]}
    scale, selectable = {"scale": {"specReplicasPath": ".spec.n"}}, [{"jsonPath": ".b"}]
    own = {"name": "v2", "served": True, "subresources": scale, "selectableFields": selectable}
    versions = [{"name": "v1", "served": True, "storage": True}, own]
    first, second = definition.read(Record(STORED | {"spec": STORED["spec"] | spec | {"versions": versions}}), 7, 3).versions
    assert (first.status, first.scale, first.selectable) == (True, None, ("spec.a",))
    assert (second.status, second.scale, second.selectable) == (False, {"specReplicasPath": ".spec.n"}, ("b",))
    assert first.columns == second.columns == ({"name": "A", "type": "string", "jsonPath": ".a"},)


def test_the_revision_of_the_last_spec_change():
    first = definition.read(Record(), 7, 3)
    assert first.since == 3  # its spec has not changed since it was created
    assert definition.read(Record(generation=2), 9, 3).since == 9  # earlier changes are unknown
    changed = definition.read(Record(generation=2), 9, 3, first)
    assert changed.since == 9
    assert definition.read(Record(generation=2), 12, 3, changed).since == 9  # only its status did


def test_a_schema_is_in_its_version_or_at_the_top_level():
    assert definition.schema(Record(), "v1") == KEPT
    top = STORED | {"spec": {k: v for k, v in STORED["spec"].items() if k != "versions"} | {
        "versions": [{"name": "v1", "served": True, "storage": True}], "validation": {"openAPIV3Schema": SCHEMA},
    }}  # fmt: skip
    assert definition.schema(Record(top), "v1") == KEPT
    open_ = {**top, "spec": {**top["spec"], "preserveUnknownFields": True}}
    assert definition.schema(Record(open_), "v1")["x-kubernetes-preserve-unknown-fields"] is True


def test_a_schema_has_its_defaults_pruned():
    name = {"type": "string", "default": "x"}
    pod = {"type": "object", "x-kubernetes-embedded-resource": True, "properties": {
        "metadata": {"type": "object", "properties": {"name": name, "bogus": {"type": "string", "default": "y"}}},
    }}  # fmt: skip
    stored = {**STORED, "spec": {**STORED["spec"]}}
    stored["spec"]["versions"] = [{"name": "v1", "schema": {"openAPIV3Schema": {"type": "object", "properties": {"pod": pod}}}}]
    kept = definition.schema(Record(stored), "v1")["properties"]["pod"]["properties"]["metadata"]["properties"]
    assert kept == {"name": name, "bogus": {"type": "string"}}


@pytest.mark.parametrize("value", [SCHEMA, {}, [], [1, [2, "]"]], "a \\\" , }", 12.5, None, True, "\\"])
def test_members_are_removed_from_json(value):
    doc = {"a": [{"x": value, "y": 1}, {"x": value}], "x": value, "z": {"not x": "x", "k": ["x", "x:"]}}
    want = {"a": [{"x": None, "y": 1}, {"x": None}], "x": None, "z": {"not x": "x", "k": ["x", "x:"]}}
    assert orjson.loads(without_member(orjson.dumps(doc), b"x")) == want


def test_selectable_fields_without_a_schema_have_upstreams_error():
    from kas.kinds.apiextensions import validation

    found = validation._selectable_of([{"jsonPath": ".spec.s"}], None, "spec.versions[0].selectableFields", "`it` is not included")
    assert [str(e) for e in found] == ['spec.versions[0].selectableFields: Invalid value: "": may only be set when `it` is not included']


def test_descriptions_are_dropped_and_equal_parts_shared():
    text, number = {"type": "string", "description": "one", "title": "A"}, {"type": "integer", "minimum": 1}
    properties = {
        "description": {**text}, "list": {"type": "array", "items": {**text, "example": {}}}, "either": {"anyOf": [{**text}]},
        "map": {"type": "object", "additionalProperties": {**text}, "externalDocs": {"url": "https://example.com"}},
        "one": {**number}, "two": {**number}, "other": {"type": "integer", "minimum": True},
        "open": {"type": "object", "properties": {"a": {**text}, "b": {"type": "array", "items": {**number}}}, "required": ["a"]},
        "as_open": {"type": "object", "properties": {"a": {**text}, "b": {"type": "array", "items": {**number}}}, "required": ["a"]},
        "wanted": {"type": "object", "properties": {"a": {**text}, "b": {"type": "array", "items": {**number}}}, "required": ["b"]},
        "chosen": {"type": "string", "enum": ["a"]}, "as_chosen": {"type": "string", "enum": ["a"]},
        "text": {"type": "string", "enum": ["1"]},
        "numbers": {"type": "integer", "enum": [1]}, "floats": {"type": "integer", "enum": [1.0]},
    }  # fmt: skip
    stored = {**STORED, "spec": {**STORED["spec"]}}
    stored["spec"]["versions"] = [{"name": "v1", "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}}}]
    kept = definition.schema(Record(stored), "v1")["properties"]
    plain = {"type": "string"}
    assert kept["description"] == plain and kept["list"] == {"type": "array", "items": plain}
    assert kept["either"] == {"anyOf": [plain]} and kept["map"] == {"type": "object", "additionalProperties": plain}
    places = (kept["list"]["items"], kept["map"]["additionalProperties"], kept["either"]["anyOf"][0])
    assert all(place is kept["description"] for place in places)
    assert kept["one"] is kept["two"] and kept["one"] is not kept["other"]
    assert kept["open"] is kept["as_open"] and kept["open"]["properties"]["a"] is kept["description"]
    assert kept["wanted"]["required"] == ["b"] and kept["wanted"]["properties"]["b"] is kept["open"]["properties"]["b"]
    assert kept["chosen"] is kept["as_chosen"] and kept["chosen"] == {"type": "string", "enum": ["a"]}
    assert kept["text"]["enum"] == ["1"] and repr((kept["numbers"]["enum"], kept["floats"]["enum"])) == "([1], [1.0])"


def test_a_definition_without_a_uid():
    """An object from etcd may lack what servers set: the definition is served all the same, and so are others."""
    bare = STORED | {"metadata": {"name": "widgets.example.com"}}
    d = definition.read(Record(bare), 7, 3)
    assert (d.name, d.uid, d.since) == ("widgets.example.com", "", 3)
    assert definition.read(Record(bare), 8, 3, d).since == 3
