"""The compiled checks of metadata never pass what the rules refuse, and pass common objects."""

from __future__ import annotations

import copy

from hypothesis import example, given, settings
from hypothesis import strategies as st

from kas.meta import labelselectors, names
from kas.meta import objectmeta as metadata
from kas.meta.labelselectors import labels
from kas.meta.metachecks import ANNOTATIONS, LABEL_SELECTOR, LABELS, METADATA, OBJECT_META
from tests.checks.mutations import changed, each_place

TEXT = st.one_of(
    st.text(alphabet="aZ0-_./é", max_size=8),
    st.sampled_from(["app.kubernetes.io/name", "A.b/c", "a" * 63, "a" * 64, "a" * 253 + "/b", "a" * 254 + "/b", "", "x\x7f", "\ud800"]),
)
NAMES = st.dictionaries(TEXT, TEXT, max_size=3)
OWNER = st.fixed_dictionaries(
    {"apiVersion": st.sampled_from(["v1", "apps/v1", "a/b/c", "v1/", "", "/v1"]), "kind": st.sampled_from(["Pod", "Event", ""])},
    optional={"name": TEXT, "uid": TEXT, "controller": st.booleans(), "blockOwnerDeletion": st.booleans()},
)
ENTRY = st.fixed_dictionaries(
    {},
    optional={
        "operation": st.sampled_from(["Apply", "Update", "", "x"]), "fieldsType": st.sampled_from(["FieldsV1", "", "V2"]),
        "manager": st.sampled_from(["m", "a" * 128, "a" * 129, "a\nb", "é"]), "subresource": st.sampled_from(["", "status", "s" * 257]),
    },
)  # fmt: skip
META = st.fixed_dictionaries(
    {},
    optional={
        "labels": NAMES, "annotations": NAMES, "ownerReferences": st.lists(OWNER, max_size=3),
        "finalizers": st.lists(st.sampled_from(["orphan", "foregroundDeletion", "a.b/c", "a b", ""]), max_size=3),
        "managedFields": st.lists(ENTRY, max_size=3),
    },
)  # fmt: skip


@settings(max_examples=600)
@given(META)
@example({"annotations": {"a": "x" * 262144}})
@example({"annotations": {"a": "x" * 262143}})
def test_metadata_that_pass_are_valid(meta):
    if METADATA.passes(meta):
        assert not labels(meta.get("labels"), "l")
        assert not metadata.validate_annotations(meta.get("annotations"), "a")
        assert not metadata.validate_owner_references(meta.get("ownerReferences"), "o")
        assert not metadata.validate_finalizers(meta.get("finalizers"), "f")
        assert not metadata.validate_managed_fields(meta.get("managedFields"), "m")


@settings(max_examples=400)
@given(NAMES)
def test_annotations_alone(found):
    # The rules call it first: the results for each key must agree.
    if ANNOTATIONS.passes(found):
        assert not [m for key in found for m in names.is_qualified_name(key.lower())]


def test_common_metadata_passes():
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u", "controller": True, "blockOwnerDeletion": True}
    entry = {"manager": "kubectl", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {}}
    meta = {
        "name": "n", "labels": {"app.kubernetes.io/name": "a", "b": ""}, "annotations": {"Example.com/A": "any text"},
        "ownerReferences": [owner], "finalizers": ["example.com/f", "orphan"], "managedFields": [entry, {**entry, "subresource": "status"}],
    }  # fmt: skip
    assert METADATA.passes(meta) and METADATA.passes({})
    assert not METADATA.passes({**meta, "ownerReferences": [owner, owner]})
    assert not METADATA.passes({**meta, "finalizers": ["orphan", "foregroundDeletion"]})
    assert not METADATA.passes({"labels": ["a"]}) and not METADATA.passes({"managedFields": {"a": 1}})


OWNED = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u", "controller": True, "blockOwnerDeletion": True}
ENTRIES = [
    {
        "manager": "kubectl",
        "operation": "Update",
        "apiVersion": "v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": {},
        "time": "2024-01-02T03:04:05Z",
    },
    {"manager": "x", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {}, "subresource": "status"},
]
WHOLE = {
    "name": "n", "generateName": "n-", "namespace": "ns", "uid": "u", "creationTimestamp": "2024-01-02T03:04:05Z", "generation": 1,
    "resourceVersion": "1", "labels": {"app.kubernetes.io/name": "a", "b": ""}, "annotations": {"Example.com/A": "any text, é"},
    "ownerReferences": [OWNED, {**OWNED, "controller": False}], "finalizers": ["example.com/f", "orphan", "plain"],
    "managedFields": ENTRIES,
}  # fmt: skip


def refused(meta, namespaced, rule):
    """Returns the errors of the rules, part by part, as when no check has passed."""
    found = [m for key, prefix in (("name", False), ("generateName", True)) if meta.get(key) for m in rule(meta[key], prefix)]
    found += ["name"] if not meta.get("name") else []
    if namespaced:
        found += names.is_dns1123_label(meta.get("namespace") or "")
    elif meta.get("namespace"):
        found.append("namespace")
    found += ["generation"] if (meta.get("generation") or 0) < 0 else []
    found += labels(meta.get("labels"), "l")
    found += [m for key in meta.get("annotations") or () for m in names.is_qualified_name(key.lower())]
    found += metadata.validate_owner_references(meta.get("ownerReferences"), "o") + metadata.validate_finalizers(
        meta.get("finalizers"), "f"
    )
    return found + metadata.validate_managed_fields(meta.get("managedFields"), "m")


def test_metadata_with_one_invalid_change():
    for (rule, namespaced), check in OBJECT_META.items():
        meta = {key: value for key, value in copy.deepcopy(WHOLE).items() if namespaced or key != "namespace"}
        if rule is names.dns1035_label:
            del meta["generateName"]
        assert check.passes(meta), rule
        for what in each_place(meta):
            if check.passes(meta):
                assert refused(meta, namespaced, rule) == [], (rule, what)


@settings(max_examples=500)
@given(changed(WHOLE))
def test_metadata_with_random_changes(meta):
    for (rule, namespaced), check in OBJECT_META.items():
        if check.passes(meta):
            assert refused(meta, namespaced, rule) == []


SELECTOR = {
    "matchLabels": {"app": "a", "a.b/c": ""}, "matchExpressions": [
        {"key": "a", "operator": "In", "values": ["b", "c"]}, {"key": "a", "operator": "NotIn", "values": [""]},
        {"key": "a.b/c", "operator": "Exists"}, {"key": "d", "operator": "DoesNotExist"},
    ],
}  # fmt: skip


def selector_findings(selector):
    """Returns the errors of the rules for a selector, part by part."""
    found = [m for key in selector.get("matchLabels") or () for m in names.is_qualified_name(key)]
    found += [m for value in (selector.get("matchLabels") or {}).values() for m in names.is_label_value(value)]
    for term in selector.get("matchExpressions") or ():
        operator, values = term.get("operator"), term.get("values") or []
        found += names.is_qualified_name(term.get("key") or "")
        found += [m for value in values for m in names.is_label_value(value)]
        if operator not in ("In", "NotIn", "Exists", "DoesNotExist") or (operator in ("In", "NotIn")) != bool(values):
            found.append("operator")
    return found


def test_selectors_with_one_invalid_change():
    selector = copy.deepcopy(SELECTOR)
    assert LABEL_SELECTOR.passes(selector) and LABEL_SELECTOR.passes({})
    for what in each_place(selector):
        if LABEL_SELECTOR.passes(selector):
            assert selector_findings(selector) == [], what
            assert labelselectors.label_selector(selector, "s") == [] and labelselectors.converted(selector) is not None


def test_labels_alone():
    assert LABELS.passes({"a.b/c": "D", "e": ""}) and not LABELS.passes({"A.b/c": "d"}) and not LABELS.passes(None)
    assert not labelselectors.labels({"a.b/c": "D"}, "l")
