"""Validation of the options of each verb."""

import pytest

from kas.endpoints import optionsvalidation as options
from kas.endpoints.options import list_options
from kas.meta.errors import ApiError
from kas.request.negotiation import APPLY_PATCH, MERGE_PATCH
from kas.request.requestinfo import Query


def texts(errors):
    return [str(e) for e in errors]


def test_patch_options():
    assert texts(options.validate_patch_options({}, APPLY_PATCH)) == ["fieldManager: Required value: is required for apply patch"]
    assert options.validate_patch_options({"fieldManager": "m", "force": True}, APPLY_PATCH) == []
    assert texts(options.validate_patch_options({"force": False}, MERGE_PATCH)) == [
        "force: Forbidden: may not be specified for non-apply patch"
    ]


def test_field_validation():
    assert texts(options.validate_create_options({"fieldValidation": "strict"})) == [
        'fieldValidation: Unsupported value: "strict": supported values: "", "Ignore", "Strict", "Warn"'
    ]


def test_unsafe_deletes_exclude_other_options():
    got = options.validate_delete_options(
        {"ignoreStoreReadErrorWithClusterBreakingPotential": True, "dryRun": ["All"], "gracePeriodSeconds": 0, "preconditions": {}}
    )
    assert [e.detail for e in got] == [f"cannot be set together with .{n}" for n in ("dryRun", "gracePeriodSeconds", "preconditions")]


@pytest.mark.parametrize(
    ("given", "fields"),
    [
        ({"resourceVersionMatch": "Exact", "resourceVersion": "5"}, []),
        ({"resourceVersionMatch": "Exact", "resourceVersion": "0"}, ["resourceVersionMatch"]),
        ({"resourceVersionMatch": "Exact"}, ["resourceVersionMatch"]),
        ({"resourceVersionMatch": "Nope", "resourceVersion": "5", "continue": "x"}, ["resourceVersionMatch"] * 2),
        ({"sendInitialEvents": False}, ["sendInitialEvents"]),
        ({"watch": True, "sendInitialEvents": True}, ["resourceVersionMatch"]),
        ({"watch": True, "sendInitialEvents": True, "resourceVersionMatch": "NotOlderThan"}, []),
        ({"watch": True, "resourceVersionMatch": "Exact"}, ["resourceVersionMatch"] * 2),
    ],
)
def test_list_options(given, fields):
    assert [e.field for e in options.validate_list_options(given)] == fields


def test_an_invalid_number_is_reported_before_an_invalid_selector():
    with pytest.raises(ApiError) as caught:
        list_options(Query("labelSelector=,&limit=x"))
    assert caught.value.message == 'strconv.ParseInt: parsing "x": invalid syntax'


@pytest.mark.parametrize("version", ["", "0", "5"])
def test_a_watch_from_the_current_state_refuses_a_continue_token(version):
    """It has initial events by default, which counts as having asked for them, as upstream."""
    query = Query(f"watch=1&continue=x&resourceVersion={version}")
    if version == "5":
        assert list_options(query).continue_token == "x"
        return
    with pytest.raises(ApiError) as e:
        list_options(query)
    assert e.value.code == 422 and "resourceVersionMatch is forbidden when continue is provided" in e.value.message
