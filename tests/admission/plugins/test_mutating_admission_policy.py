"""Mutations, their order, and the effect of errors."""

from __future__ import annotations

import asyncio
import sys

import pytest

from kas.admission.plugins import mutating_admission_policy as module
from kas.config import features
from kas.meta import waiting
from kas.meta.offload import LARGE, POOL
from kas.types.scheme import BUILTIN
from tests.admission.admission_fakes import refused
from tests.admission.policy_objects import Governed
from tests.admission.webhook.hook_server import rule


@pytest.fixture
def governed(server):
    server.kinds["", "v1", "ConfigMap"] = [BUILTIN.resource("", "v1", "configmaps")]
    return Governed(server, module, "mutating")


def applies(text):
    return {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": text}}


def patches(text):
    return {"patchType": "JSONPatch", "jsonPatch": {"expression": text}}


def rounds(request):
    """Runs all rounds of mutating admission, as a write does; returns their number and the object."""

    async def run():
        count = 0
        while True:
            count += 1
            await request.chain.mutate(request.attributes)
            if request.attributes.reinvocation is None or not request.attributes.reinvocation.due():
                return count, request.attributes.obj

    return asyncio.run(run())


def test_mutations_see_earlier_ones(governed):
    governed.policy(mutations=[
        applies("Object{metadata: Object.metadata{labels: {'a': object.data.k}}, data: {'b': 'x'}}"),
        patches("[JSONPatch{op: 'add', path: '/data/' + jsonpatch.escapeKey('c/d'), value: object.metadata.labels.a + object.data.b}]"),
        patches("[JSONPatch{op: 'test', path: '/data/b', value: 'y'}, JSONPatch{op: 'remove', path: '/data/b'}]"),
    ])  # fmt: skip
    governed.bind()
    obj = governed.request().run()
    assert obj["metadata"]["labels"] == {"a": "v"}
    assert obj["data"] == {"k": "v", "b": "x", "c/d": "vx"}  # a failed test operation is no error, and changes nothing


@pytest.mark.parametrize("copies", [2, 9])
def test_copies_that_double_the_object_are_made_off_the_loop(governed, copies):
    copied = [f"JSONPatch{{op: 'copy', from: '/data', path: '/metadata/a{i}'}}" for i in range(copies)]
    gone = [f"JSONPatch{{op: 'remove', path: '/metadata/a{i}'}}" for i in range(copies)]
    governed.policy(mutations=[patches(f"[{', '.join(copied + gone)}]")])
    governed.bind()

    def run() -> None:
        request = governed.request()
        request.attributes.obj["data"]["long"] = "x" * 20_000
        assert len(request.run()["data"]["long"]) == 20_000

    run()  # expressions are compiled
    before = POOL.done
    run()
    assert (POOL.done > before) is (copies > 2)


def test_with_its_gate_off_no_policy_is_evaluated(governed):
    governed.policy(mutations=[patches("[JSONPatch{op: 'add', path: '/data/b', value: 'x'}]")])
    governed.bind()
    with features.DEFAULT.overridden(MutatingAdmissionPolicy=False):
        assert governed.request().run()["data"] == {"k": "v"}
    assert governed.request().run()["data"] == {"k": "v", "b": "x"}


def test_mutations_yield_the_loop(governed, monkeypatch):
    """Each may be small: 300 policies of one mutation each held the loop for half a second."""
    monkeypatch.setattr(waiting, "TIME_SLICE_S", 0.0)
    text = "[JSONPatch{op: 'add', path: '/data/k', value: object.data.k + 'x'}]"
    for i in range(3):
        governed.policy(f"p{i}", mutations=[patches(text) for _ in range(5)])
        governed.bind(f"b{i}", f"p{i}")
    request, pauses = governed.request(), list[int]()
    real = waiting.TimeSlice.pause

    async def pause(self):
        if sys._getframe(1).f_code.co_name == "mutate":
            pauses.append(1)
        await real(self)

    monkeypatch.setattr(waiting.TimeSlice, "pause", pause)
    assert request.run()["data"]["k"] == "v" + "x" * 15 and len(pauses) == 15


def test_params_variables_and_conditions(governed, server):
    server.add("", "configmaps", {
        "kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "p", "namespace": "ns1"}, "data": {"set": "from params"},
    })  # fmt: skip
    governed.policy(
        paramKind={"apiVersion": "v1", "kind": "ConfigMap"}, variables=[{"name": "v", "expression": "params.data.set + '!'"}],
        matchConditions=[{"name": "c", "expression": "object.metadata.name == 'a'"}],
        mutations=[applies("Object{data: {'set': variables.v}}")],
    )  # fmt: skip
    governed.bind(paramRef={"name": "p", "parameterNotFoundAction": "Deny"})
    assert governed.request().run()["data"]["set"] == "from params!"
    other = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "other", "namespace": "ns1"}, "data": {}}
    assert "set" not in governed.request(obj=other).run()["data"]


def test_lists_merge_by_their_keys(governed):
    containers = "Object{spec: Object.spec{containers: object.spec.containers.map(c, Object.spec.containers{name: c.name, image: 'new'})}}"
    init = "[JSONPatch{op: 'add', path: '/spec/initContainers', value: [Object.spec.initContainers{name: 'init', image: 'i'}]}]"
    governed.policy(rules=[rule("pods")], mutations=[applies(containers), patches(init)])
    governed.bind()
    pod = {
        "kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p", "namespace": "ns1"},
        "spec": {"containers": [{"name": "c", "image": "old", "env": [{"name": "E", "value": "1"}]}, {"name": "d", "image": "old"}]},
    }  # fmt: skip
    request = governed.request(obj=pod)
    request.attributes.resource = "pods"
    spec = request.run()["spec"]
    assert [(c["name"], c["image"]) for c in spec["containers"]] == [("c", "new"), ("d", "new")]
    assert spec["containers"][0]["env"] == [{"name": "E", "value": "1"}] and spec["initContainers"][0]["terminationMessagePath"]


def test_objects_are_equal_if_types_and_fields_are(governed):
    pairs = [("Object{a: 1}", "Object{a: 1}"), ("Object{a: 1}", "Object{a: 2}"), ("Object.x{}", "Object.y{}")]
    said = ", ".join(f"'k{i}': string(dyn({a}) == dyn({b}))" for i, (a, b) in enumerate(pairs))
    governed.policy(mutations=[applies(f"Object{{data: {{{said}}}}}")])
    governed.bind()
    assert governed.request().run()["data"] == {"k": "v", "k0": "true", "k1": "false", "k2": "false"}


@pytest.mark.parametrize(("mutation", "text"), [
    (applies("Object{data: {'x': object.nope}}"), "resulted in error: no such key: nope"),
    (patches("[JSONPatch{op: 'remove', path: '/nope'}]"), "JSON Patch: error in remove for path: '/nope': Unable to remove nonexistent"),
    (patches("[JSONPatch{op: 'add', path: '/data/x', bad: dyn('y')}]"), "resulted in error: unexpected JSONPatchType field: bad"),
    (applies("Object{nobody: 'x'}"),
     "error applying patch: failed to convert patch object to typed object: .nobody: field not declared in schema"),
    (applies("Object{metadata: Object.meta{labels: {'a': 'b'}}}"),
     'type mismatch: unexpected type name "Object.meta", expected "Object.metadata", which matches field name path from root Object type'),
    (patches("[JSONPatch{op: 'add', path: '/metadata', value: Object.metadata{labels: Object.metadata.l{}}}]"),
     'type mismatch: unexpected type name "Object.metadata.l", expected "Object.metadata.labels", which matches field name path from'),
    (applies("'x'"), "denied request: must evaluate to Object but got string"),
    (applies("Object.x{}"), "denied request: must evaluate to Object but got Object.x"),
    (patches("[1]"), "denied request: must evaluate to list(JSONPatch) but got list(int)"),
    (patches("["), "denied request: compilation failed: ERROR: <input>:1:2: Syntax error"),
])  # fmt: skip
def test_failures(governed, mutation, text):
    governed.policy(mutations=[mutation, applies("Object{data: {'y': 'z'}}")])
    governed.bind()
    e = refused(governed.request())
    assert (e.code, e.reason) == (403, "Invalid") and e.details["name"] == "a"
    assert e.message.startswith("policy 'p' with binding 'b' denied request: ") and text in e.message
    assert e.details["causes"] == [{"message": e.message}]
    governed.policy(mutations=[mutation, applies("Object{data: {'y': 'z'}}")], failurePolicy="Ignore")
    assert governed.request().run()["data"] == {"k": "v", "y": "z"}


def test_unknown_fields_of_a_patched_object(governed):
    """They are an internal error, whatever the failure policy is, in alphabetical order."""
    value = "{'z': '1', 'name': 'a', 'namespace': 'ns1', 'y': '2'}"
    operations = "JSONPatch{op: 'add', path: '/b', value: 1}, JSONPatch{op: 'add', path: '/a', value: 2}"
    governed.policy(mutations=[patches(f"[{operations}, JSONPatch{{op: 'add', path: '/metadata', value: dyn({value})}}]")])
    governed.bind()
    e = refused(governed.request())
    fields = ", ".join(f'unknown field "{name}"' for name in ("a", "b", "metadata.y", "metadata.z"))
    assert (e.code, e.message) == (500, f"Internal error occurred: strict decoding error: {fields}")


def test_atomic_parts_are_not_replaced(governed):
    text = "Object{spec: Object.spec{tolerations: [Object.spec.tolerations{key: 'k', operator: 'Exists'}]}}"
    governed.policy(rules=[rule("pods")], mutations=[applies(text)])
    governed.bind()
    spec = {"containers": [{"name": "c", "image": "i"}]}
    pod = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p", "namespace": "ns1"}, "spec": spec}
    request = governed.request(obj=pod)
    request.attributes.resource = "pods"
    why = "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.tolerations"
    assert refused(request).message.endswith(f"denied request: error applying patch: {why}")


def test_a_result_that_does_not_decode_is_an_error_with_any_failure_policy(governed):
    governed.policy(mutations=[patches("[JSONPatch{op: 'add', path: '/data/x', value: 5}]")], failurePolicy="Ignore")
    governed.bind()
    e = refused(governed.request())
    why = "json: cannot unmarshal number into Go struct field ConfigMap.data of type string"
    assert (e.code, e.message) == (500, f"Internal error occurred: {why}")


def test_misconfigured_policies(governed):
    governed.policy(paramKind={"apiVersion": "x.example.com/v1", "kind": "X"}, mutations=[applies("Object{}")])
    governed.bind()
    e = refused(governed.request())
    why = "failed to find resource referenced by paramKind: 'x.example.com/v1, Kind=X'"
    assert e.message == f'policy "p" denied request: failed to configure policy: {why}'
    assert (e.code, e.reason) == (403, "Forbidden")


def test_reinvocation(governed):
    """Policies with reinvocation run again when a later policy changed the object."""
    count = "object.data.?n.hasValue() ? object.data.n + '+' : '1'"
    governed.policy("a", mutations=[applies(f"Object{{data: {{'n': {count}}}}}")], reinvocationPolicy="IfNeeded")
    governed.policy("b", mutations=[applies("Object{data: {'b': object.data.?b.orValue('') + 'x'}}")], reinvocationPolicy="Never")
    governed.bind("b-a", "a")
    governed.bind("b-b", "b")
    turns, obj = rounds(governed.request())
    assert turns == 2 and obj["data"] == {"k": "v", "n": "1+", "b": "x"}


def test_deletes_are_not_mutated(governed):
    governed.policy(mutations=[applies("Object{data: {'x': 'y'}}")])
    governed.bind()
    old = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a", "namespace": "ns1"}}
    request = governed.request(operation="DELETE", obj=None, old=old)
    request.run()
    assert request.attributes.obj is None


def test_another_version(governed):
    scalers = rule("horizontalpodautoscalers", groups=("autoscaling",), versions=("v2",))
    governed.policy(rules=[scalers], mutations=[applies("Object{spec: Object.spec{maxReplicas: object.spec.metrics.size() + 8}}")])
    governed.bind()
    obj = {
        "kind": "HorizontalPodAutoscaler", "apiVersion": "autoscaling/v1", "metadata": {"name": "a", "namespace": "ns1"},
        "spec": {"scaleTargetRef": {"kind": "D", "name": "d"}, "maxReplicas": 2, "targetCPUUtilizationPercentage": 60}, "status": {},
    }  # fmt: skip
    request = governed.request(obj=obj)
    request.attributes.group, request.attributes.resource = "autoscaling", "horizontalpodautoscalers"
    obj = request.run()
    assert obj["apiVersion"] == "autoscaling/v1" and obj["spec"]["maxReplicas"] == 9


def test_values_become_json(governed):
    text = (
        "Object{data: {'time': string(timestamp('2024-01-02T03:04:05Z')), 'span': string(duration('90s'))}, "
        "immutable: object.data.?none.hasValue(), ?kind: optional.none()}"
    )
    governed.policy(mutations=[applies(text)])
    governed.bind()
    obj = governed.request().run()
    assert obj["data"] == {"k": "v", "time": "2024-01-02T03:04:05Z", "span": "90s"} and obj["immutable"] is False

    from kas.admission.policy.mutating import to_json
    from kas.cel.values import Duration, Optional, Timestamp, Uint

    values = {"t": Timestamp(0), "d": Duration(90 * 10**9), "u": Uint(3), "o": Optional(1), "n": [None, True, 1.5], 1: "x"}
    assert to_json(values) == {"t": "1970-01-01T00:00:00Z", "d": "1m30s", "u": 3, "o": 1, "n": [None, True, 1.5], "1": "x"}


def test_values_of_any_depth_are_converted():
    """A custom object may have hundreds of levels, and a mutation may copy a part of it: 250 of them were a panic."""
    from kas.admission.policy.govalues import go_values
    from kas.admission.policy.mutating import _check_names, to_json

    value = "leaf"
    for _ in range(2000):
        value = {"a": [value]}
    _check_names(value, "Object")
    for found in (to_json(value), go_values(value)):
        for _ in range(2000):
            found = found["a"][0]
        assert found == "leaf"


@pytest.mark.parametrize(("value", "got"), [
    ("null", "{Value:0}"), ("duration('90s')", "{Value:90000000000}"), ("b'hi'", "{Value:[]uint8{0x68, 0x69}}"), ("7u", "{Value:0x7}"),
    ("timestamp('2024-01-02T03:04:05.5Z')", "{Value:time.Date(2024, time.January, 2, 3, 4, 5, 500000000, time.UTC)}"),
])  # fmt: skip
def test_values_without_a_schema_type_are_not_applied(governed, value, got):
    governed.policy(mutations=[applies(f"Object{{metadata: Object.metadata{{generateName: {value}}}}}")])
    governed.bind()
    why = "error applying patch: failed to convert patch object to typed object: .metadata.generateName: expected string, got "
    assert refused(governed.request()).message.endswith(f"{why}&value.valueUnstructured{got}")


def test_numbers_of_other_types_are_not_applied(governed):
    governed.policy(mutations=[applies("Object{metadata: Object.metadata{generation: 7u}}")])
    governed.bind()
    assert refused(governed.request()).message.endswith(".metadata.generation: expected numeric (int or float), got uint64")


def test_items_of_lists_may_be_atomic(governed):
    owner = "Object.metadata.ownerReferences{apiVersion: 'v1', kind: 'Pod', name: 'p', uid: 'u'}"
    governed.policy(mutations=[applies(f"Object{{metadata: Object.metadata{{ownerReferences: [{owner}]}}}}")])
    governed.bind()
    assert refused(governed.request()).message.endswith("atomic arrays, maps or structs: .metadata.ownerReferences[0]")


@pytest.mark.parametrize(("operation", "why"), [
    ("path: '/data/k', value: 'x'", "Unexpected kind: "),
    ("op: 'add', value: 'x'", 'add operation does not apply: doc is missing path: "": missing value'),
])  # fmt: skip
def test_omitted_fields_of_an_operation_are_empty(governed, operation, why):
    governed.policy(mutations=[patches(f"[JSONPatch{{{operation}}}]")])
    governed.bind()
    assert refused(governed.request()).message.endswith(f"denied request: JSON Patch: {why}")


@pytest.mark.parametrize("mutation", [applies("Object{data: {'b': 'x'}}"), patches("[JSONPatch{op: 'add', path: '/data/b', value: 'x'}]")])
def test_large_objects_are_mutated_off_the_loop(governed, mutation):
    governed.policy(mutations=[mutation])
    governed.bind()
    before = POOL.done
    assert governed.request().run()["data"] == {"k": "v", "b": "x"} and POOL.done == before
    large = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a", "namespace": "ns1"}, "data": {"k": "v" * LARGE}}
    assert governed.request(obj=large).run()["data"]["b"] == "x" and POOL.done > before


@pytest.mark.parametrize("mutation", [
    applies("[lists.range(7000).map(i, '0123456789').join('')].map(t, "
            "Object{data: lists.range(50).transformMapEntry(i, v, {string(i): t})})[0]"),
    patches("[lists.range(7000).map(i, '0123456789').join('')].map(t, "
            "lists.range(50).map(i, JSONPatch{op: 'add', path: '/data/x' + string(i), value: t}))[0]"),
])  # fmt: skip
def test_repeated_texts_count_with_their_full_size(governed, mutation):
    """The result may not exceed a request's size: a thousand copies made 500 MB before the size was checked."""
    governed.policy(mutations=[mutation])
    governed.bind()
    assert "operation cancelled: actual cost limit exceeded" in refused(governed.request()).message
