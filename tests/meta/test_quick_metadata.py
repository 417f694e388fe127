"""The quick check of metadata never passes what the rules refuse, and passes common objects."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from kas._codecs import quick_annotations, quick_metadata
from kas.meta import objectmeta as metadata
from kas.meta.labelselectors import labels

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
def test_what_it_passes_is_valid(meta):
    if quick_metadata(meta):
        assert not labels(meta.get("labels"), "l")
        assert not metadata.validate_annotations(meta.get("annotations"), "a")
        assert not metadata.validate_owner_references(meta.get("ownerReferences"), "o")
        assert not metadata.validate_finalizers(meta.get("finalizers"), "f")
        assert not metadata.validate_managed_fields(meta.get("managedFields"), "m")


@settings(max_examples=400)
@given(NAMES)
def test_annotations_alone(found):
    # The rules themselves ask it first: what they say of each key must agree.
    from kas.meta import names

    if quick_annotations(found):
        assert not [m for key in found for m in names.is_qualified_name(key.lower())]


def test_common_metadata_passes():
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u", "controller": True, "blockOwnerDeletion": True}
    entry = {"manager": "kubectl", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {}}
    meta = {
        "name": "n", "labels": {"app.kubernetes.io/name": "a", "b": ""}, "annotations": {"Example.com/A": "any text"},
        "ownerReferences": [owner], "finalizers": ["example.com/f", "orphan"], "managedFields": [entry, {**entry, "subresource": "status"}],
    }  # fmt: skip
    assert quick_metadata(meta) and quick_metadata({}) and quick_annotations(None)
    assert not quick_metadata({**meta, "ownerReferences": [owner, owner]})
    assert not quick_metadata({**meta, "finalizers": ["orphan", "foregroundDeletion"]})
    assert not quick_metadata({"labels": ["a"]}) and not quick_metadata({"managedFields": {"a": 1}})
