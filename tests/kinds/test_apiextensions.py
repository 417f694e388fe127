"""CustomResourceDefinition: defaults, structural schemas, stored versions, and what may change once it is established."""

from __future__ import annotations

import base64

import pytest

from kas.kinds.apiextensions import validation
from tests import pki
from tests.kinds.written import FORBIDDEN, INVALID, REQUIRED, UNSUPPORTED, Kind, changed

CRDS = Kind("apiextensions.k8s.io/v1/customresourcedefinitions")
OBJECT = {"type": "object"}


def _crd(**properties) -> dict:
    schema = {"openAPIV3Schema": OBJECT | ({"properties": properties} if properties else {})}
    return {
        "metadata": {"name": "crons.stable.example.com"},
        "spec": {
            "group": "stable.example.com",
            "scope": "Namespaced",
            "names": {"plural": "crons", "kind": "Cron"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }


def _established(obj: dict) -> dict:
    return changed(obj, "status.conditions", [{"type": "Established", "status": "True"}])


def test_names_conversion_and_stored_versions_are_defaulted():
    stored = CRDS.create(_crd())
    assert stored["spec"]["names"] == {"plural": "crons", "singular": "cron", "kind": "Cron", "listKind": "CronList"}
    assert stored["spec"]["conversion"] == {"strategy": "None"}
    assert stored["status"]["storedVersions"] == ["v1"]


def test_a_new_storage_version_joins_the_stored_ones():
    old = CRDS.create(_crd())
    first = old["spec"]["versions"][0] | {"storage": False}
    new = changed(old, "spec.versions", [first, first | {"name": "v2", "storage": True}])
    assert CRDS.update(new, old)["status"]["storedVersions"] == ["v1", "v2"]


def test_defaults_are_validated_whatever_the_surrounding_types():
    inner = {"properties": {"b": {"type": "boolean", "default": 0}}, "x-kubernetes-int-or-string": True}
    schema = {"type": "object", "properties": {"a": {"type": "array", "items": inner}}}
    crd = changed(_crd(), "spec.versions.0.schema.openAPIV3Schema", schema)
    at = "spec.validation.openAPIV3Schema.properties[a].items.properties[b].default"
    assert CRDS.refusals(crd) == [(at, "FieldValueTypeInvalid")]


LIST = {"type": "array", "items": {"type": "object", "properties": {"b": {"type": "string"}}}}
OPEN = {"x-kubernetes-preserve-unknown-fields": True}


@pytest.mark.parametrize(("schema", "default", "unknown"), [
    ({"type": "*", "properties": {"b": {"type": "string"}}}, {"b": "x"}, False),
    ({"type": "*", "properties": {"b": {"type": "string"}}}, {"c": "x"}, True),
    (LIST | {"type": "object"}, [{"b": "x"}], False),
    (LIST | {"type": "object"}, [{"b": "x", "c": 1}], True),
    (LIST | {"type": "-", "items": LIST}, [[{"c": 1}]], True),
    (LIST | {"type": "-"} | OPEN, [{"b": "x", "c": {"d": 1}}], False),
    ({"type": "x", "additionalProperties": LIST["items"]}, {"a": {"b": "x"}}, False),
    ({"type": "x", "additionalProperties": LIST["items"]}, {"a": {"c": "x"}}, True),
    ({"type": "x", "x-kubernetes-embedded-resource": True, "properties": {"s": LIST["items"]}}, {"kind": "a", "s": {}}, False),
])  # fmt: skip
def test_unknown_fields_of_a_default_follow_its_properties(schema, default, unknown):
    told = [message for _, message in CRDS.messages(_crd(a=schema | {"default": default}))]
    assert any(message.endswith("must not have unknown fields") for message in told) is unknown


@pytest.mark.parametrize("default", [3.0, 1e3, [2.0], {"a": -0.0}])
def test_a_default_is_validated_as_a_float_and_stored_as_an_integer(default):
    """For an integer, a step of a half allows only 0, and so does a maximum of a half."""
    number = {"type": "number", "multipleOf": 0.5}
    schema = {"type": "array", "items": number} if isinstance(default, list) else number
    if isinstance(default, dict):
        schema = OBJECT | {"properties": {"a": number}}
    crd = _crd(a=schema | {"default": default})
    stored = CRDS.create(crd)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["a"]["default"]
    assert repr(stored) == repr({"a": 0} if isinstance(default, dict) else [2] if isinstance(default, list) else int(default))
    crd = _crd(a={"type": "number", "maximum": 0.5, "default": 3.0})
    assert CRDS.messages(crd)[0][1] == "Invalid value: 3:  in body should be less than or equal to 0.5"


def test_a_stored_version_cannot_be_removed():
    old = CRDS.create(_crd())
    new = changed(old, "spec.versions.0.name", "v2")
    assert any(path.startswith("status.storedVersions") for path, _ in CRDS.refusals(new, old))


@pytest.mark.parametrize(("path", "value"), [("spec.group", "other.example.com"), ("spec.scope", "Cluster"), ("spec.names.plural", "rons")])
def test_identity_is_immutable(path, value):
    old = _established(CRDS.create(_crd()))
    refused = CRDS.refusals(changed(old, path, value), old)
    assert (path, INVALID) in refused


@pytest.mark.parametrize(
    ("path", "value", "want"),
    [
        ("spec.names.kind", "", ("spec.names.kind", REQUIRED)),
        ("spec.scope", "Galaxy", ("spec.scope", UNSUPPORTED)),
        ("spec.group", "nodots", ("spec.group", INVALID)),
        ("spec.versions.0.storage", False, ("spec.versions", INVALID)),
        ("spec.versions.0.name", "V1", ("spec.versions[0].name", INVALID)),
        ("spec.preserveUnknownFields", True, ("spec.preserveUnknownFields", INVALID)),
        ("spec.conversion", {"strategy": "Webhook"}, ("spec.conversion.webhookClientConfig", REQUIRED)),
        ("metadata.name", "rons.stable.example.com", ("metadata.name", INVALID)),
    ],
)
def test_a_definition_is_refused(path, value, want):
    assert want in CRDS.refusals(changed(_crd(), path, value))


@pytest.mark.parametrize(
    ("schema", "want"),
    [
        ({}, ".type"),
        ({"type": "array"}, ".items"),
        ({"type": "strng"}, ".type"),
        ({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "string"}}, ".additionalProperties"),
        ({"type": "string", "$ref": "#/x"}, ".$ref"),
        ({"type": "array", "items": {"type": "string"}, "uniqueItems": True}, ".uniqueItems"),
        ({"type": "array", "items": OBJECT, "x-kubernetes-list-type": "map"}, ".x-kubernetes-list-map-keys"),
        ({"type": "array", "items": OBJECT, "x-kubernetes-list-type": "heap"}, ".x-kubernetes-list-type"),
        ({"type": "string", "default": 7}, ".default"),
        ({"type": "string", "enum": ["a"], "default": "b"}, ".default"),
        ({"type": "string", "pattern": "("}, ".pattern"),
        ({"type": "string", "nullable": True, "anyOf": [{"type": "string"}]}, ".anyOf[0].type"),
    ],
)
def test_a_schema_that_is_not_structural_is_refused(schema, want):
    refused = {path for path, _ in CRDS.refusals(_crd(a=schema))}
    assert any(path.endswith(f"properties[a]{want}") for path in refused), refused


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "enum": ["a", "b"], "default": "b"},
        {"x-kubernetes-int-or-string": True},
        {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
        {
            "type": "array",
            "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}}},
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["k"],
        },
    ],
)
def test_a_structural_schema_is_accepted(schema):
    assert CRDS.create(_crd(a=schema))


def test_an_unknown_format_warns():
    CRDS.create(_crd(a={"type": "string", "format": "roman-numeral"}, b={"type": "string", "format": "date-time"}))
    assert CRDS.warnings == ['unrecognized format "roman-numeral"']


def test_protected_groups_need_an_approval():
    obj = _crd() | {"metadata": {"name": "crons.new.k8s.io"}}
    obj = changed(obj, "spec.group", "new.k8s.io")
    assert "metadata.annotations[api-approved.kubernetes.io]" in {path for path, _ in CRDS.refusals(obj)}
    approved = changed(obj, "metadata.annotations", {"api-approved.kubernetes.io": "https://github.com/kubernetes/kubernetes/pull/1"})
    assert CRDS.create(approved)


def test_versions_are_distinct_and_one_is_stored():
    version = _crd()["spec"]["versions"][0]
    refused = CRDS.refusals(changed(_crd(), "spec.versions", [version, version]))
    assert ("spec.versions", INVALID) in refused


TEXT, NUMBER = {"type": "string", "maxLength": 20}, {"type": "integer"}
AT = "spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0]"


def _ruled(rule: dict, **properties) -> dict:
    return _crd(spec=OBJECT | {"properties": properties, "x-kubernetes-validations": [rule]})


@pytest.mark.parametrize(
    ("rule", "properties", "want"),
    [
        ({"rule": "self.a >"}, {"a": NUMBER}, (f"{AT}.rule", INVALID)),
        ({"rule": "self.a == 'x'"}, {"a": NUMBER}, (f"{AT}.rule", INVALID)),
        ({"rule": "self.nope == 'x'"}, {"a": NUMBER}, (f"{AT}.rule", INVALID)),
        ({"rule": "self.a"}, {"a": NUMBER}, (f"{AT}.rule", INVALID)),
        ({"rule": "true", "messageExpression": "5"}, {}, (f"{AT}.messageExpression", INVALID)),
        ({"rule": "true", "optionalOldSelf": True}, {}, (f"{AT}.optionalOldSelf", INVALID)),
        (
            {"rule": "self.a.all(x, self.a.all(y, x == y))"}, {"a": {"type": "array", "items": {"type": "string"}}},
            (f"{AT}.rule", FORBIDDEN),
        ),
    ],
)  # fmt: skip
def test_a_rule_is_refused(rule, properties, want):
    assert want in CRDS.refusals(_ruled(rule, **properties))


@pytest.mark.parametrize(
    "rule",
    [
        {"rule": "self.a == oldSelf.a", "messageExpression": "'a is ' + self.a"},
        {"rule": "!oldSelf.hasValue() || self.a == oldSelf.value().a", "optionalOldSelf": True},
        {"rule": "self.when < timestamp('2030-01-01T00:00:00Z') && self.x__dash__y.startsWith('a') && self.__in__ > 1"},
        {"rule": "self.m.all(k, self.m[k] < 3) && type(self.any) == int"},
    ],
)
def test_a_rule_is_accepted(rule):
    labels = {"type": "object", "additionalProperties": NUMBER, "maxProperties": 10}
    when, either = {"type": "string", "format": "date-time"}, {"x-kubernetes-int-or-string": True}
    assert CRDS.create(_ruled(rule, **{"a": TEXT, "x-y": TEXT, "in": NUMBER, "when": when, "m": labels, "any": either}))


def test_items_of_an_atomic_list_have_no_old_value():
    items = {"type": "string", "maxLength": 5, "x-kubernetes-validations": [{"rule": "self == oldSelf"}]}
    at = "spec.validation.openAPIV3Schema.properties[l].items.x-kubernetes-validations[0].rule"
    assert (at, INVALID) in CRDS.refusals(_crd(l={"type": "array", "maxItems": 5, "items": items}))


@pytest.mark.parametrize(
    ("path", "why"),
    [
        (".a", None),
        (".m.k", None),
        ("a", "expected [ or . but got: a"),
        (".a.b", "does not refer to a valid field"),
        (".m.", "unexpected end of JSON path"),
        (".a[0]", "array notation is not allowed"),
    ],
)
def test_paths_of_selectable_fields(path, why):
    crd = _crd(a=TEXT, m={"type": "object", "additionalProperties": TEXT})
    crd = changed(crd, "spec.versions.0.selectableFields", [{"jsonPath": path}])
    want = [("spec.selectableFields[0].jsonPath", f'Invalid value: "{path}": is an invalid path: {why}')]
    assert (CRDS.messages(crd) == want) if why else CRDS.create(crd)


@pytest.mark.parametrize(
    ("path", "ok"), [("['x.y']", True), (".m['it\\'s']", True), (".m.k", True), (".m['\\q']", False), ("['x.y'", False), (".x.y", False)]
)
def test_the_field_path_of_a_rule(path, ok):
    crd = _ruled({"rule": "true", "fieldPath": path}, **{"x.y": TEXT, "m": {"type": "object", "additionalProperties": TEXT}})
    assert CRDS.create(crd) if ok else CRDS.refusals(crd) == [(f"{AT}.fieldPath", INVALID)]


def test_rules_above_schema_errors_are_not_checked():
    """Those beside them are."""
    wrong = {"type": "array", "items": TEXT, "uniqueItems": True}
    broken = {"x-kubernetes-validations": [{"rule": "1 +"}]}
    found = CRDS.refusals(_crd(spec=OBJECT | {"properties": {"l": wrong}} | broken, other=OBJECT | broken))
    at = "spec.validation.openAPIV3Schema.properties"
    assert found == [(f"{at}[spec].properties[l].uniqueItems", FORBIDDEN), (f"{at}[other].x-kubernetes-validations[0].rule", INVALID)]


def test_of_too_costly_rules_the_four_costliest_are_named():
    dear = {"type": "array", "items": {"type": "string"}, "x-kubernetes-validations": [{"rule": "self.all(x, self.all(y, x == y))"}]}
    cheap = {"type": "string", "maxLength": 5, "x-kubernetes-validations": [{"rule": "self == 'a'"}]}
    found = CRDS.messages(_crd(**{f"l{i}": dear for i in range(6)}, s=cheap))
    assert sum("contributed to" in message for _, message in found) == 4
    assert not any("[s]" in path for path, _ in found)


CA = base64.b64encode(pki.authority("ca").pem).decode()


@pytest.mark.parametrize(("before", "after", "ok"), [(CA, "Zm9v", False), ("Zm9v", "YmFy", True), (CA, CA, True)])
def test_a_conversion_webhook_keeps_a_usable_ca_bundle(before, after, ok):
    """A definition may be created with a bad one; it is not established then."""

    def crd(bundle: str) -> dict:
        webhook = {"clientConfig": {"url": "https://a.example", "caBundle": bundle}, "conversionReviewVersions": ["v1"]}
        return changed(_crd(), "spec.conversion", {"strategy": "Webhook", "webhook": webhook})

    old = _established(CRDS.create(crd(before)))
    new = changed(old, "spec.conversion", crd(after)["spec"]["conversion"])
    new = changed(new, "spec.names.shortNames", ["c"])
    text = f'Invalid value: "{after}": unable to load root certificates: unable to parse bytes as PEM block'
    if ok:
        assert CRDS.update(new, old)
    else:
        assert CRDS.messages(new, old) == [("spec.conversion.webhookClientConfig.caBundle", text)]
    assert CRDS.update(new | {"status": {}}, old | {"status": old["status"] | {"conditions": []}})


def _map_of_text(nested) -> dict:
    return OBJECT | {"additionalProperties": TEXT, "allOf": [{"additionalProperties": nested}]}


@pytest.mark.parametrize(
    ("schema", "want"),
    [
        # nested additionalProperties: a schema and true count, false does not
        (_map_of_text({"minLength": 1}), ["Forbidden: must be undefined to be structural"]),
        (_map_of_text(True), ["Forbidden: must be undefined to be structural"]),
        (_map_of_text(False), []),
        # integer or string, with and without the extension, and with fields without effect
        ({"type": "string", "anyOf": [{"type": "integer"}, {"type": "string", "description": "", "nullable": False}]}, []),
        ({"x-kubernetes-int-or-string": True, "allOf": [{"anyOf": [{"type": "integer"}, {"type": "string"}]}, {"pattern": "a"}]}, []),
        ({"type": "string", "anyOf": [{"type": "string"}, {"type": "integer"}]}, ["Forbidden: must be empty to be structural"] * 2),
        # a string that cannot be written, and an empty one
        ({"type": "string", "$ref": ""}, ["Forbidden: $ref is not supported"]),
        ({"type": "null"}, [
            'Unsupported value: "null": supported values: "array", "boolean", "integer", "number", "object", "string"',
            "Forbidden: type cannot be set to null, use nullable as an alternative",
        ]),
        ({"type": "string", "x-kubernetes-validations": [{"rule": "true", "messageExpression": " "}]}, [
            "Required value: messageExpression must be non-empty if specified",
        ]),
    ],
)  # fmt: skip
def test_errors_of_schemas(schema, want):
    if want:
        assert [message for _, message in CRDS.messages(_crd(a=schema))] == want
    else:
        assert CRDS.create(_crd(a=schema))


@pytest.mark.parametrize(
    ("wrong", "want"),
    [
        ({"type": "string", "$schema": "x"}, [("", "Invalid value: \"\": OpenAPIV3Schema 'schema' is not supported")]),
        ({"type": "string", "x-kubernetes-preserve-unknown-fields": False}, [
            (".properties[a].x-kubernetes-preserve-unknown-fields", "Invalid value: false: must be true or undefined"),
        ]),
        ({"type": "array", "items": [TEXT]}, [(".properties[a].items", "Forbidden: items must be a schema object and not an array")]),
    ],
)  # fmt: skip
def test_a_nonstructural_schema_is_not_checked_further(wrong, want):
    """Neither its types, nor its rules, nor their paths."""
    rule = {"rule": "nonsense", "fieldPath": ".nowhere"}
    found = CRDS.messages(_crd(a=wrong, b={"anyOf": [{"type": "string"}]}))
    assert found == [(f"spec.validation.openAPIV3Schema{at}", message) for at, message in want]
    crd = changed(_crd(a=wrong), "spec.versions.0.schema.openAPIV3Schema.x-kubernetes-validations", [rule])
    assert CRDS.messages(crd) == found


@pytest.mark.parametrize("said", [{"minLength": 0}, {"additionalProperties": False}, {"not": {}}, {"x-kubernetes-map-type": "atomic"}])
def test_metadata_may_only_restrict_names(said):
    found = CRDS.messages(_crd(metadata=OBJECT | said))
    text = "Forbidden: must not specify anything other than name and generateName, but metadata is implicitly specified"
    assert ("spec.validation.openAPIV3Schema.properties[metadata]", text) in found
    assert CRDS.create(_crd(metadata=OBJECT | {"description": "", "nullable": False, "enum": [], "properties": {"name": TEXT}}))


@pytest.mark.parametrize(
    ("default", "want"),
    [
        ("text", 'Invalid value: "string":  in body must be of type object: "string"'),
        (
            {"apiVersion": "a/v1", "kind": "A", "z": 1, "b": 2},
            'Invalid value: {"apiVersion":"a/v1","b":2,"kind":"A","z":1}: must not have unknown fields',
        ),
        ({"kind": "A"}, "Required value"),
    ],
)
def test_the_default_of_a_whole_object_is_checked(default, want):
    found = CRDS.messages(changed(_crd(), "spec.versions.0.schema.openAPIV3Schema.default", default))
    assert any(path.startswith("spec.validation.openAPIV3Schema.default") and message == want for path, message in found), found


def test_a_repeated_storage_version_is_stored_once():
    version = _crd()["spec"]["versions"][0]
    found = CRDS.messages(changed(_crd(), "spec.versions", [version, version]))
    assert ("status.storedVersions", 'Invalid value: ["v1"]: must have the storage version v1') in found


def test_rules_of_items_are_checked_though_their_list_is_invalid():
    """Errors in the items that belong to the list are not reported for the items."""
    items = TEXT | {"x-kubernetes-validations": [{"rule": "nonsense"}]}
    found = CRDS.refusals(_crd(l={"type": "array", "maxItems": 3, "items": items, "x-kubernetes-list-type": "map"}))
    at = "spec.validation.openAPIV3Schema.properties[l]"
    assert found == [
        (f"{at}.x-kubernetes-list-map-keys", REQUIRED), (f"{at}.items.type", INVALID),
        (f"{at}.items.x-kubernetes-validations[0].rule", INVALID),
    ]  # fmt: skip


@pytest.mark.parametrize("rule", ["nonsense", "1", "true"])
def test_optional_old_self_without_a_transition_rule_is_refused(rule):
    """Also if the rule itself is invalid."""
    assert (f"{AT}.optionalOldSelf", INVALID) in CRDS.refusals(_ruled({"rule": rule, "optionalOldSelf": False}))


def test_rules_below_untyped_places():
    """A place with a type of its own has no type below one with a rule and without a type."""
    hidden = {"x-kubernetes-preserve-unknown-fields": True}
    ruled = TEXT | {"x-kubernetes-validations": [{"rule": "self == 'a'"}]}
    assert CRDS.create(_crd(spec=hidden | {"properties": {"a": ruled}}))
    crd = _crd(spec=hidden | {"properties": {"a": ruled}, "x-kubernetes-validations": [{"rule": "true"}]})
    at, text = "spec.validation.openAPIV3Schema.properties[spec]", "unable to convert structural schema to CEL declarations"
    assert [(path, text in message) for path, message in CRDS.messages(crd)] == [
        (f"{at}.properties[a].x-kubernetes-validations", True), (f"{at}.x-kubernetes-validations", True),
    ]  # fmt: skip


def test_versions_are_equal_though_one_has_empty_fields():
    crd = _crd(a=TEXT)
    first = crd["spec"]["versions"][0]
    schema = {"openAPIV3Schema": {**first["schema"]["openAPIV3Schema"], "definitions": {}}}
    second = {**first, "name": "v2", "storage": False, "schema": schema}
    stored = CRDS.create(changed(crd, "spec.versions", [first, second]))
    assert [v["schema"] for v in stored["spec"]["versions"]] == [first["schema"]] * 2


class Walked(list):
    """Counts how often it is iterated over."""

    walks = 0

    def __iter__(self):
        self.walks += 1
        return super().__iter__()


def test_an_update_iterates_over_the_versions_a_constant_number_of_times():
    schema = {"openAPIV3Schema": {"type": "object"}}
    old = Walked({"name": f"v{i}", "schema": schema} for i in range(100))
    new = Walked([*old[1:], {"name": "v0"}])
    assert validation.update_options({"versions": new}, {"versions": old}, False).unchanged == {f"v{i}" for i in range(1, 100)}
    assert max(old.walks, new.walks) < 20
