"""Content negotiation: media types of responses, bodies and patches."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kas.meta.errors import ApiError
from kas.request import negotiation as n

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


@pytest.mark.parametrize(
    ("accept", "want"),
    [
        ("", n.JSON),
        ("*/*", n.JSON),
        ("application/*", n.JSON),
        ("application/vnd.kubernetes.protobuf,application/json", n.PROTOBUF),
        ("application/json;q=0.1,application/yaml;q=0.2", n.YAML),
        ("text/html,*/*;q=0.8", n.JSON),
    ],
)
def test_accept(accept, want):
    assert n.negotiate(accept).media_type == want


@pytest.mark.parametrize(
    ("header", "want"),
    [
        ("gzip", True), ("deflate, gzip , br", True), ("", False), ("gzip;q=0", False), ("gzip;q=1", False), ("x-gzip", False),
        ("*", False),
    ],
)  # fmt: skip
def test_gzip(header, want):
    assert n.takes_gzip(header) is want


def test_transformations():
    assert n.negotiate(TABLE).convert == n.Convert("meta.k8s.io", "v1", "Table")
    assert n.negotiate("application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io,application/json").convert is None
    with pytest.raises(ApiError):
        n.negotiate(TABLE, n.NO_TABLE)


def test_custom_resources_have_no_protobuf_but_their_metadata_has():
    with pytest.raises(ApiError):
        n.negotiate(n.PROTOBUF, n.CUSTOM)
    partial = f"{n.PROTOBUF};as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
    assert n.negotiate(partial, n.CUSTOM).media_type == n.PROTOBUF


def test_watches_have_no_yaml():
    with pytest.raises(ApiError) as e:
        n.negotiate_stream("application/yaml")
    streams = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"
    assert e.value.message == f"only the following media types are accepted: {streams}"
    with pytest.raises(ApiError) as e:  # nor is it a list's
        n.negotiate_stream("application/vnd.kubernetes.protobuf", n.CUSTOM)
    assert e.value.message.endswith(": application/json, application/yaml, application/vnd.kubernetes.protobuf")
    assert n.negotiate_stream("application/json;stream=watch").stream == "watch"


@pytest.mark.parametrize(
    ("pretty", "agent", "want"),
    [("", "", False), ("", "curl/8", True), ("0", "curl/8", False), ("true", "", True), ("x", "curl/8", False), ("", "kubectl", False)],
)
def test_pretty(pretty, agent, want):
    assert n.is_pretty(pretty, agent) is want


@pytest.mark.parametrize(
    ("content_type", "want"),
    [("", n.JSON), ("Application/JSON", n.JSON), ("application/json; charset=utf-8", n.JSON), ("application/yaml;", n.YAML)],
)
def test_bodies(content_type, want):
    assert n.body_media_type(content_type) == want


@pytest.mark.parametrize("content_type", ["text/plain", "application/json; charset", "application/json;a=b;a=c", "json json"])
def test_bodies_refused(content_type):
    with pytest.raises(ApiError) as e:
        n.body_media_type(content_type)
    assert e.value.code == 415


def test_patches():
    assert n.patch_media_type("application/merge-patch+json; charset=utf-8") == n.MERGE_PATCH
    with pytest.raises(ApiError) as e:
        n.patch_media_type(n.STRATEGIC_MERGE_PATCH, n.CUSTOM_PATCH_TYPES)
    assert e.value.message == (
        "the body of the request was in an unknown format - accepted media types include: "
        "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
    )


def test_the_cache_is_bounded():
    for i in range(2000):
        n.negotiate(f"application/json;x={i}")
    assert 0 < n._memo.size <= n._memo.budget


@given(st.one_of(st.text(), st.text('application/json*;,=q0.5" vgas')))
def test_only_api_errors_are_raised(header):
    for function in (n.negotiate, n.negotiate_stream, n.body_media_type, n.patch_media_type):
        try:
            function(header)
        except ApiError as e:
            assert e.code in (406, 415)


def test_an_accept_header_that_is_too_long_is_not_acceptable():
    one = "application/json;q=0.5,"
    assert n.negotiate(one * 100).media_type == n.JSON
    with pytest.raises(ApiError) as e:
        n.negotiate(one * 1000)
    assert e.value.code == 406
