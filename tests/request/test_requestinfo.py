"""The attributes of a request, from its method and URL."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kas.request.requestinfo import MAX_QUERY_PAIRS, Query, RequestInfo, RequestInfoError, parse


def facts(info: RequestInfo) -> tuple:
    return info.verb, info.api_group, info.api_version, info.namespace, info.resource, info.subresource, info.name


@pytest.mark.parametrize(
    ("line", "want"),
    [
        ("GET /api/v1/namespaces/ns/pods/p", ("get", "", "v1", "ns", "pods", "", "p")),
        ("GET /api/v1/namespaces/ns/pods/p/log", ("get", "", "v1", "ns", "pods", "log", "p")),
        ("PUT /api/v1/namespaces/ns/finalize", ("update", "", "v1", "ns", "namespaces", "finalize", "ns")),
        ("GET /api/v1/namespaces/ns/status", ("get", "", "v1", "ns", "namespaces", "status", "ns")),
        ("DELETE /apis/apps/v1/namespaces/ns/deployments", ("deletecollection", "apps", "v1", "ns", "deployments", "", "")),
        ("GET /apis/apps/v1/watch/namespaces/ns/deployments/d", ("watch", "apps", "v1", "ns", "deployments", "", "d")),
        ("GET /api/v1/proxy/namespaces/ns/services/s/a/b", ("proxy", "", "v1", "ns", "services", "", "s")),
        ("BREW /api/v1/pods", ("", "", "v1", "", "pods", "", "")),
        ("GET /apis/apps/v1", ("get", "", "", "", "", "", "")),
    ],
)
def test_paths(line, want):
    assert facts(parse(*line.split())) == want


def test_parts_are_the_path_after_the_version_and_namespace():
    assert parse("GET", "/api/v1/namespaces/ns/pods/p/proxy/a/b/c/d/e/f").parts == ["pods", "p", "proxy", *"abcdef"]
    assert parse("GET", "/healthz").parts is None


@pytest.mark.parametrize(
    ("query", "verb", "name"),
    [
        (b"", "list", ""),
        (b"watch", "watch", ""),
        (b"watch=", "watch", ""),
        (b"watch=False", "list", ""),
        (b"watch=0&watch=1", "list", ""),
        (b"fieldSelector=metadata.name%3Dx", "list", "x"),
        (b"fieldSelector=metadata.name%3Dx&limit=ten&watch=1", "watch", ""),
        (b"fieldSelector=metadata.name%3D..", "list", ""),
        ("labelSelector=a&fieldSelector=metadata.name=x", "list", "x"),
    ],
)
def test_the_query_decides_between_list_and_watch(query, verb, name):
    for given_as in (query, Query(query)):
        info = parse("GET", "/api/v1/pods", given_as)
        assert (info.verb, info.name) == (verb, name)


def test_selectors_count_for_collections_only():
    query = b"fieldSelector=a%3Db&labelSelector=x"
    assert parse("DELETE", "/api/v1/pods", query).field_selector == "a=b"
    assert parse("GET", "/api/v1/pods", query).label_selector == "x"
    assert parse("GET", "/api/v1/namespaces/ns/pods/p", query).label_selector == ""
    assert parse("GET", "/api/v1/watch/pods", query).label_selector == ""


def test_a_prefix_without_a_rest_is_an_error_with_the_parsed_version():
    with pytest.raises(RequestInfoError) as e:
        parse("GET", "/api/v1/watch", b"a=b")
    assert e.value.info.api_version == "v1"
    assert str(e.value) == "unable to determine kind and namespace from url, /api/v1/watch?a=b"


def test_the_query_is_parsed_as_in_go():
    q = Query(b"a=1&a=2&b;c&d=%zz&e+f=g%20h&=x&i&&%C3%A9=%ff")
    assert q.pairs == {"a": ["1", "2"], "e f": ["g h"], "": ["x"], "i": [""], "é": ["\ufffd"]}
    assert (q.get("a"), q.get("nope", "-"), q.values("a")) == ("1", "-", ["1", "2"])
    assert "i" in q and q.flag("i") and not q.flag("nope")


def test_a_query_with_too_many_pairs_counts_as_empty():
    assert Query(b"a&" * MAX_QUERY_PAIRS).pairs == {}


@given(st.sampled_from(["GET", "DELETE", "POST", "x"]), st.text(), st.binary())
def test_only_requestinfo_errors_are_raised(method, path, query):
    try:
        parse(method, path, query)
    except RequestInfoError as e:
        assert str(e)


@given(st.lists(st.sampled_from(["api", "apis", "v1", "watch", "proxy", "namespaces", "status", "a", ""]), max_size=14))
def test_the_fields_are_the_parts(segments):
    path = "/" + "/".join(segments)
    try:
        info = parse("PUT", path)
    except RequestInfoError:
        return
    if info.parts is None:
        assert not info.is_resource_request
        return
    assert info.resource == info.parts[0]
    assert info.name == (info.parts[1] if len(info.parts) > 1 else "")
    assert path.strip("/").endswith("/".join(info.parts))
