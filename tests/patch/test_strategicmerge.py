"""Strategic merge patches: lists by key, directives, refusals."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kas.patch.strategicmerge import StrategicMergeError, apply, go_text
from kas.types.scheme import BUILTIN

POD = BUILTIN.kind("", "v1", "Pod").type
DEPLOYMENT = BUILTIN.kind("apps", "v1", "Deployment").type


def pod(**spec):
    return {"metadata": {"name": "p", "finalizers": ["x/a", "x/b"]}, "spec": spec}


def merged(original, patch, type=POD):
    before = copy.deepcopy((original, patch))
    try:
        return apply(original, patch, type)
    finally:
        assert (original, patch) == before


def test_lists_merge_by_key():
    got = merged(pod(containers=[{"name": "a", "image": "1"}]), {"spec": {"containers": [{"name": "b"}, {"name": "a", "image": "2"}]}})
    assert got["spec"]["containers"] == [{"name": "b"}, {"name": "a", "image": "2"}]


def test_directives():
    original = pod(containers=[{"name": "a"}, {"name": "b"}], nodeSelector={"x": "y"})
    assert merged(original, {"spec": {"containers": [{"$patch": "delete", "name": "a"}]}})["spec"]["containers"] == [{"name": "b"}]
    assert merged(original, {"spec": {"nodeSelector": {"$patch": "replace", "z": "1"}}})["spec"]["nodeSelector"] == {"z": "1"}
    order = {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}
    assert merged(original, {"spec": order})["spec"]["containers"] == [{"name": "b"}, {"name": "a"}]
    gone = {"$deleteFromPrimitiveList/finalizers": ["x/a"]}
    assert merged(original, {"metadata": gone})["metadata"]["finalizers"] == ["x/b"]
    retained = {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}
    deployment = {"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}}
    assert merged(deployment, retained, DEPLOYMENT) == {"spec": {"strategy": {"type": "Recreate"}}}


@pytest.mark.parametrize(
    ("patch", "message", "code"),
    [
        ({"spec": {"containers": [{"image": "x"}]}}, "map: map[image:x] does not contain declared merge key: name", 500),
        ({"spec": {"affinity": {"$patch": "merge"}}}, "unknown patch type: merge in map: map[$patch:merge]", 500),
        ({"spec": {"$retainKeys": "x"}}, "invalid patch format of retainKeys", 400),
        ({"metadata": {"$deleteFromPrimitiveList": ["x"]}}, "invalid patch format of primitive list", 400),
        ({"metadata": {"finalizers": [["x"], "y"]}}, "list element types are not identical: [[x/a x/b] [[x] y]]", 500),
        ({"metadata": {"$setElementOrder/nope": []}}, 'unable to find api field in struct ObjectMeta for the json field "nope"', 500),
        ({"metadata": {"$setElementOrder/labels": []}}, "expected slice or array type, but got: struct", 500),
        ({"spec": {"$setElementOrder/containers": [{"name": "b"}, "x"]}}, "value for key 1 is not a map", 500),
        ({"spec": {"volumes": ["x"]}}, "expected a map[string]interface {}, but received a string", 500),
        ({"spec": {"nope": {"a": 1}}}, 'unable to find api field in struct PodSpec for the json field "nope"', 500),
    ],
)
def test_errors(patch, message, code):
    with pytest.raises(StrategicMergeError) as e:
        merged(pod(containers=[{"name": "a"}], affinity={}, nope={}, volumes=[]), patch)
    assert (str(e.value), e.value.code) == (message, code)


def test_directives_among_elements_need_not_be_in_the_order_list():
    order = {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}
    elements = [{"$patch": "replace"}, {"name": "b"}, {"$patch": "delete", "name": "z"}, {"name": "a", "image": "2"}]
    got = merged(pod(containers=[{"name": "a", "image": "1"}, {"name": "c"}]), {"spec": {**order, "containers": elements}})
    assert got["spec"]["containers"] == [{"name": "b"}, {"name": "a", "image": "2"}]
    with pytest.raises(StrategicMergeError, match="doesn't match"):
        merged(pod(containers=[]), {"spec": {**order, "containers": [{"name": "a"}, {"name": "b"}]}})


def test_an_empty_order_allows_any_elements():
    original = pod(containers=[{"name": "a"}, {"name": "b"}])
    got = merged(original, {"spec": {"$setElementOrder/containers": [], "containers": [{"name": "c"}, {"name": "d"}]}})
    # Elements in neither list are reversed, as by upstream's sort.
    assert [c["name"] for c in got["spec"]["containers"]] == ["a", "b", "d", "c"]


@pytest.mark.parametrize(
    ("there", "gone", "added", "after"),
    [
        ("x", "", "a", "ax"),  # its place is not known: before those that only the server has
        ("xc", "c", "a", "xa"),  # in the place of the deleted one, at the end
        ("wxy", "x", "a", "wya"),
        ("wx", "w", "ab", "xab"),
        ("xcd", "cd", "a", "xa"),
        ("xcd", "dc", "abe", "xabe"),
    ],
)
def test_an_element_added_while_others_are_deleted_follows_those_only_the_server_has(there, gone, added, after):
    """Results of client-go's strategicpatch; ``kubectl apply`` sends this patch when a container is renamed beside an injected one."""
    patch = {
        "$setElementOrder/containers": [{"name": n} for n in added],
        "containers": [*({"name": n} for n in added), *({"$patch": "delete", "name": n} for n in gone)],
    }
    got = merged(pod(containers=[{"name": n} for n in there]), {"spec": patch})
    assert [c["name"] for c in got["spec"]["containers"]] == list(after)


def test_numbers_differ_from_booleans_and_texts():
    service = BUILTIN.kind("", "v1", "Service").type
    got = merged({"spec": {"ports": [{"port": 1}]}}, {"spec": {"ports": [{"port": True}, {"port": "1"}]}}, service)
    assert len(got["spec"]["ports"]) == 3


def test_long_lists_take_linear_time():
    many = [{"name": f"c{i}"} for i in range(20_000)]
    patch = [{"name": f"c{i}", "image": "x"} for i in range(0, 40_000, 2)]
    got = apply(pod(containers=many), {"spec": {"containers": patch}}, POD)
    assert len(got["spec"]["containers"]) == 30_000


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.0, "1"), (1.5, "1.5"), (100000.0, "100000"), (1234567.5, "1.2345675e+06"), (1e21, "1e+21"), (1e-7, "1e-07")],
)  # fmt: skip
def test_floats_print_as_in_go(value, text):
    assert go_text(value) == text


name = st.sampled_from(["a", "b", "c"])
member = name | st.none() | st.lists(name, max_size=2)
element = st.dictionaries(st.sampled_from(["name", "image", "$patch", "env", "args"]), member, max_size=3)
patch = st.dictionaries(
    st.sampled_from(["containers", "$setElementOrder/containers", "$retainKeys", "nodeSelector", "$patch", "tolerations", "volumes"]),
    st.lists(element, max_size=3) | element | name | st.none() | st.integers(),
    max_size=4,
)


@given(st.lists(element, max_size=3), patch)
def test_only_its_own_error_is_raised_and_the_input_does_not_change(containers, spec):
    try:
        merged(pod(containers=containers, nodeSelector={"a": "b"}, volumes=[{"name": "a"}]), {"spec": spec})
    except StrategicMergeError as e:
        assert str(e)
