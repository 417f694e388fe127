"""Validation of object metadata."""

from kas.meta import names
from kas.meta.objectmeta import validate_annotations, validate_field_manager, validate_object_meta, validate_object_meta_update


def texts(errors):
    return [str(e) for e in errors]


def test_a_plain_object():
    assert validate_object_meta({"name": "a", "namespace": "ns", "labels": {"a": "b"}}, True, names.dns_subdomain) == []


def test_without_a_rule_a_name_is_a_path_segment():
    assert validate_object_meta({"name": "A:b"}, False) == []
    assert texts(validate_object_meta({"name": "a/b"}, False)) == ["metadata.name: Invalid value: \"a/b\": may not contain '/'"]


def test_an_update_keeps_the_identity():
    old = {"name": "a", "uid": "1", "resourceVersion": "5", "generation": 2, "creationTimestamp": "2024-01-01T00:00:00Z"}
    assert validate_object_meta_update(dict(old), old) == []
    new = {"name": "b", "uid": "2", "generation": 1, "deletionGracePeriodSeconds": 0}
    assert texts(validate_object_meta_update(new, old)) == [
        'metadata.resourceVersion: Invalid value: "": must be specified for an update',
        "metadata.generation: Invalid value: 1: must not be decremented",
        'metadata.name: Invalid value: "b": field is immutable',
        'metadata.uid: Invalid value: "2": field is immutable',
        "metadata.creationTimestamp: Invalid value: null: field is immutable",
        "metadata.deletionGracePeriodSeconds: Invalid value: 0: field is immutable",
    ]


def test_a_terminating_object_gets_no_new_finalizers():
    old = {"name": "a", "resourceVersion": "1", "deletionTimestamp": "2024-01-01T00:00:00Z", "finalizers": ["x/a"]}
    new = old | {"finalizers": ["x/c", "x/b"]}
    assert texts(validate_object_meta_update(new, old)) == [
        "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers "
        '[]string{"x/b", "x/c"}'
    ]


def test_the_total_size_of_annotations_is_bounded():
    assert validate_annotations({"a": "x" * (256 * 1024 - 1)}, "f") == []
    assert texts(validate_annotations({"a": "x" * (256 * 1024)}, "f")) == ["f: Too long: may not be more than 262144 bytes"]


def test_field_managers_are_printable():
    assert validate_field_manager("kübectl", "f") == []
    assert texts(validate_field_manager("é\u0007", "f")) == ['f: Invalid value: "é\\a": invalid character U+0007 (at position 2)']
