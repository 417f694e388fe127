"""JSON merge patches."""

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kas.patch import mergepatch

scalar = st.none() | st.booleans() | st.integers(-5, 5) | st.text("ab", max_size=2)
value = st.recursive(
    scalar,
    lambda c: st.lists(c, max_size=3) | st.dictionaries(st.sampled_from("abc"), c, max_size=3),
    max_leaves=10,
)
# Except for arrays: one that replaces an object keeps the nulls inside it, one that replaces another value loses them.
plain = st.recursive(scalar, lambda c: st.dictionaries(st.sampled_from("abc"), c, max_size=3), max_leaves=10)
obj = st.dictionaries(st.sampled_from("abc"), value, max_size=3)


@pytest.mark.parametrize(
    ("document", "patch", "want"),
    [
        ({"a": "b"}, {"a": None, "b": "c"}, {"b": "c"}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
        ({"a": 1}, ["c", None], ["c", None]),
    ],
)
def test_rfc_7386_examples(document, patch, want):
    assert mergepatch.apply(document, json.dumps(patch)) == want


@pytest.mark.parametrize("text", ["", "{", "1", '"x"', "null", "true"])
def test_bodies_that_are_no_merge_patch_are_refused(text):
    with pytest.raises(mergepatch.MergePatchError) as e:
        mergepatch.apply({}, text)
    assert str(e.value) == "Invalid JSON Patch"


@given(obj, st.dictionaries(st.sampled_from("abc"), plain, max_size=3))
def test_merging_twice_is_merging_once(document, patch):
    once = mergepatch.merge(document, patch)
    assert mergepatch.merge(once, patch) == once


@given(obj, obj)
def test_the_arguments_do_not_change(document, patch):
    before = copy.deepcopy((document, patch))
    mergepatch.merge(document, patch)
    assert (document, patch) == before


def test_an_array_that_replaces_an_object_keeps_its_nulls():
    assert mergepatch.merge({"a": {}}, {"a": [{"b": None}]}) == {"a": [{"b": None}]}
    assert mergepatch.merge({"a": 1}, {"a": [{"b": None}]}) == {"a": [{}]}
