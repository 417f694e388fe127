"""Server-side apply: merging, pruning, conflicts, and the move from client-side apply."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kas.apiextensions.mergeschema import crd_schema
from kas.meta.errors import ApiError
from kas.patch._fieldsets import is_written, remove_items
from kas.patch.fieldmanager import Schema, apply, builtin, create, deduced_schema, field_set, update
from kas.patch.fieldmanager.builtin import type_node
from kas.types.scheme import BUILTIN, builtin_kind, decode, encode_json, schema_type
from tests.types.randomobjects import struct

T1, T2, T3 = "2024-01-02T03:04:05Z", "2024-01-02T03:04:06Z", "2024-01-02T03:04:07Z"
CONFIG_MAP = builtin("", "v1", "ConfigMap")
DEPLOYMENT = builtin("apps", "v1", "Deployment")
WIDGET = crd_schema(
    schema_type("Widget", {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {
                    "size": {"type": "integer"},
                    "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
                    "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                    "parts": {
                        "type": "array",
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["name"],
                        "items": {"type": "object", "properties": {"name": {"type": "string"}, "n": {"type": "integer"}}},
                    },
                },
            }
        },
    }),
    "e.com/v1",
    "Widget",
)  # fmt: skip


def config_map(data: dict, **meta) -> dict:
    return {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "c", "namespace": "n", **meta}, "data": data}


def widget(spec: dict) -> dict:
    return {"kind": "Widget", "apiVersion": "e.com/v1", "metadata": {"name": "w"}, "spec": spec}


def owners(obj: dict) -> dict:
    return {e["manager"]: e["fieldsV1"] for e in obj["metadata"].get("managedFields", [])}


def refused(*args, **more) -> ApiError:
    with pytest.raises(ApiError) as e:
        apply(*args, now=T2, **more)
    return e.value


def test_apply_creates_the_object_and_owns_its_fields() -> None:
    obj = apply(CONFIG_MAP, None, config_map({"a": "1"}), "m", now=T1)
    assert obj["data"] == {"a": "1"}
    assert obj["metadata"]["managedFields"] == [
        {
            "manager": "m", "operation": "Apply", "apiVersion": "v1", "time": T1, "fieldsType": "FieldsV1",
            "fieldsV1": {"f:data": {"f:a": {}}},
        },
    ]  # fmt: skip


def test_a_field_that_is_no_longer_applied_is_removed_unless_another_owns_it() -> None:
    live = apply(CONFIG_MAP, None, config_map({"a": "1", "b": "1", "c": "1"}), "m", now=T1)
    live = apply(CONFIG_MAP, live, config_map({"b": "1"}), "n", now=T1)
    live = apply(CONFIG_MAP, live, config_map({"a": "1"}), "m", now=T2)
    assert live["data"] == {"a": "1", "b": "1"}
    assert owners(live) == {"m": {"f:data": {"f:a": {}}}, "n": {"f:data": {"f:b": {}}}}


def test_conflict_names_manager_version_and_field() -> None:
    live = config_map({"a": "1"}, uid="u")
    live["metadata"]["managedFields"] = update(CONFIG_MAP, None, live, "u", now=T1)
    e = refused(CONFIG_MAP, live, config_map({"a": "2"}), "m")
    assert (e.code, e.reason) == (409, "Conflict")
    assert e.message == 'Apply failed with 1 conflict: conflict with "u" using v1: .data.a'
    assert e.details == {"causes": [{"reason": "FieldManagerConflict", "message": 'conflict with "u" using v1', "field": ".data.a"}]}


def test_several_conflicts_are_grouped_by_manager() -> None:
    live = apply(CONFIG_MAP, None, config_map({"a": "1", "b": "1"}), "one", now=T1)
    live = apply(CONFIG_MAP, live, config_map({"c": "1"}), "two", now=T1, subresource="status")
    e = refused(CONFIG_MAP, live, config_map({"a": "2", "b": "2", "c": "2"}), "m")
    assert e.message == (
        'Apply failed with 3 conflicts: conflicts with "one":\n- .data.a\n- .data.b\n'
        'conflicts with "two" with subresource "status":\n- .data.c'
    )


def test_force_takes_fields_over() -> None:
    live = apply(CONFIG_MAP, None, config_map({"a": "1"}), "one", now=T1)
    live = apply(CONFIG_MAP, live, config_map({"a": "2"}), "two", now=T2, force=True)
    assert owners(live) == {"two": {"f:data": {"f:a": {}}}}


def test_equal_values_are_shared() -> None:
    live = apply(CONFIG_MAP, None, config_map({"a": "1"}), "one", now=T1)
    live = apply(CONFIG_MAP, live, config_map({"a": "1"}), "two", now=T2)
    entries = live["metadata"]["managedFields"]
    # Nothing changed, so the new manager has no time yet, and comes first.
    assert [(e["manager"], e.get("time")) for e in entries] == [("two", None), ("one", T1)]


def test_fields_of_an_object_without_managers_get_one() -> None:
    live = config_map({"a": "1"}, uid="u")
    e = refused(CONFIG_MAP, live, config_map({"a": "2"}), "m")
    assert e.message == 'Apply failed with 1 conflict: conflict with "before-first-apply" using v1: .data.a'
    assert owners(apply(CONFIG_MAP, live, config_map({"b": "2"}), "m", now=T2)) == {
        "before-first-apply": {"f:data": {".": {}, "f:a": {}}},
        "m": {"f:data": {"f:b": {}}},
    }


NOT_TYPED = "failed to create typed patch object (n/c; /v1, Kind=ConfigMap): "
MISFITS = """errors:
  .metadata.name: expected string, got &value.valueUnstructured{Value:5}
  .metadata.labels: expected map, got &{5}"""


@pytest.mark.parametrize(
    ("applied", "code", "message"),
    [
        (config_map({}, managedFields=[]), 400, "metadata.managedFields must be nil"),
        (config_map({}, managedFields=[{}]), 400, "metadata.managedFields must be nil"),
        (config_map({}, managedFields="x"), 500, NOT_TYPED + ".metadata.managedFields: expected list, got &{x}"),
        (config_map({}, managedFields=[5]), 500, NOT_TYPED + ".metadata.managedFields[0]: expected map, got &{5}"),
        ({**config_map({}), "metadata": 5}, 500, NOT_TYPED.replace("n/c", "/") + ".metadata: expected map, got &{5}"),
        (config_map({}, name=5, labels=5), 500, NOT_TYPED.replace("c;", ";") + MISFITS),
        ({**config_map({}), "apiVersion": "v2"}, 400, "invalid object type: /v2, Kind=ConfigMap"),
        ({**config_map({}), "x": 1}, 500, NOT_TYPED + ".x: field not declared in schema"),
        (config_map({"a": 5}), 500, NOT_TYPED + ".data.a: expected string, got &value.valueUnstructured{Value:5}"),
        (config_map([1]), 500, NOT_TYPED + ".data: expected map, got &{[1]}"),
        (config_map({}, finalizers=["a", "a"]), 500, NOT_TYPED + '.metadata.finalizers: duplicate entries for key [="a"]'),
    ],
)
def test_refusals(applied, code, message) -> None:
    e = refused(CONFIG_MAP, None, applied, "m")
    assert (e.code, e.message) == (code, message)


def test_items_keep_the_order_of_the_applier_and_their_former_neighbours() -> None:
    live = apply(WIDGET, None, widget({"tags": ["a", "b", "c"]}), "m", now=T1)
    live = apply(WIDGET, live, widget({"tags": ["c", "x", "a"]}), "n", now=T1)
    assert live["spec"]["tags"] == ["b", "c", "x", "a"]


def test_keyed_items_merge_field_by_field() -> None:
    live = apply(WIDGET, None, widget({"parts": [{"name": "p", "n": 1}]}), "m", now=T1)
    live = apply(WIDGET, live, widget({"parts": [{"name": "q"}, {"name": "p"}]}), "n", now=T1)
    assert live["spec"]["parts"] == [{"name": "q"}, {"name": "p", "n": 1}]
    live = apply(WIDGET, live, widget({"parts": []}), "m", now=T2)
    assert live["spec"]["parts"] == [{"name": "q"}, {"name": "p"}]


def test_reset_fields_are_not_owned() -> None:
    applied = {"kind": "Deployment", "apiVersion": "apps/v1", "metadata": {"name": "d"}, "spec": {"replicas": 1}, "status": {"replicas": 2}}
    live = apply(DEPLOYMENT, None, applied, "m", now=T1, reset_fields=field_set(["status"]))
    assert owners(live) == {"m": {"f:spec": {"f:replicas": {}}}}


def test_kubectl_moves_from_client_side_apply_without_conflict() -> None:
    name = "kubectl.kubernetes.io/last-applied-configuration"
    last = json.dumps(config_map({"a": "1", "b": "1"}))
    live = config_map({"a": "1", "b": "changed"}, uid="u", annotations={name: last})
    live["metadata"]["managedFields"] = update(CONFIG_MAP, None, live, "kubectl-client-side-apply", now=T1)
    moved = apply(CONFIG_MAP, live, config_map({"a": "2"}), "kubectl", now=T2)
    assert moved["data"] == {"a": "2", "b": "changed"}
    assert json.loads(moved["metadata"]["annotations"][name]) == config_map({"a": "2"})
    e = refused(CONFIG_MAP, live, config_map({"a": "2", "b": "2"}), "kubectl")
    assert [c["field"] for c in e.details["causes"]] == [".data.b"]
    assert refused(CONFIG_MAP, live, config_map({"a": "2"}), "other").code == 409


@pytest.mark.parametrize("last", [
    "[" * 5000 + "]" * 5000, '{"a":' * 5000 + "1" + "}" * 5000, "{", "9" * 5000, "1e999", '"\\ud800"',
    '{"apiVersion":"v1","kind":"ConfigMap","data":' + '{"a":' * 900 + "1" + "}" * 901,
])  # fmt: skip
def test_the_last_applied_annotation_may_be_any_text(last: str) -> None:
    live = config_map({"a": "1"}, uid="u", annotations={"kubectl.kubernetes.io/last-applied-configuration": last})
    live["metadata"]["managedFields"] = update(CONFIG_MAP, None, live, "kubectl-client-side-apply", now=T1)
    assert [c["field"] for c in refused(CONFIG_MAP, live, config_map({"a": "2"}), "kubectl").details["causes"]] == [".data.a"]


def test_an_empty_metadata_does_not_remove_the_name() -> None:
    live = apply(CONFIG_MAP, None, config_map({}, labels={"a": "b"}), "a", now=T1)
    again = apply(CONFIG_MAP, live, {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {}}, "a", now=T2)
    assert again["metadata"] == {"name": "c", "namespace": "n"}


def test_a_container_that_pruning_empties_stays() -> None:
    live = apply(WIDGET, None, widget({"labels": {"a": "1"}, "parts": [{"name": "p", "n": 1}], "tags": ["x"]}), "m", now=T1)
    live = apply(WIDGET, live, widget({"labels": {"b": "1"}}), "n", now=T1)
    live = apply(WIDGET, live, widget({"labels": {}}), "m", now=T2)
    assert live["spec"] == {"labels": {"b": "1"}}
    schema = {"type": "object", "properties": {"m": {"type": "object", "x-kubernetes-map-type": "atomic"}, "l": {"type": "array"}}}
    atomic = crd_schema(schema_type("W", schema), "e.com/v1", "W")
    obj = {"kind": "W", "m": {"a": 1}, "l": [1]}
    assert remove_items(atomic.root, obj, {"f:m": {"f:a": {}}, "f:l": {"i:0": {}}}) == {"kind": "W", "m": {}, "l": []}


@pytest.mark.parametrize("kind, live, said, field", [
    ("Pod", {"hostNetwork": True}, {"hostNetwork": False}, ".spec.hostNetwork"),
    ("Pod", {"nodeName": "a"}, {"nodeName": ""}, ".spec.nodeName"),
    ("Pod", {"containers": [{"name": "c", "command": ["x"]}]}, {"containers": [{"name": "c", "command": []}]},
     '.spec.containers[name="c"].command'),
    ("Service", {"selector": {"a": "b"}}, {"selector": {}}, ".spec.selector"),
    ("Service", {"selector": {"a": "b"}}, {"selector": None}, ".spec.selector"),
])  # fmt: skip
def test_empty_values_that_are_applied_conflict_as_others_do(kind, live, said, field) -> None:
    schema = builtin("", "v1", kind)
    base = {"apiVersion": "v1", "kind": kind, "metadata": {"name": "n"}}
    there = apply(schema, None, {**base, "spec": live}, "owner", now=T1)
    with pytest.raises(ApiError) as caught:
        apply(schema, there, {**base, "spec": said}, "other", now=T2)
    assert caught.value.message == f'Apply failed with 1 conflict: conflict with "owner": {field}'
    taken = apply(schema, there, {**base, "spec": said}, "other", now=T2, force=True)
    assert [e["manager"] for e in taken["metadata"]["managedFields"] if field.rpartition(".")[2] in str(e["fieldsV1"])] == ["other"]
    unsaid = apply(schema, there, {**base, "spec": {}}, "other", now=T2)["spec"]
    assert {k: v for k, v in unsaid.items() if v is not None} == live  # fields that are not given stay


@pytest.mark.parametrize("group, kind, said, fields", [
    ("", "ConfigMap", {"metadata": {"name": "n", "generateName": ""}}, ".metadata.generateName"),
    ("", "ConfigMap", {"metadata": {"name": "n", "labels": None}, "data": {}}, "s with"),
    ("apps", "Deployment", {"status": {"readyReplicas": 0}}, ".status.readyReplicas"),
    ("apps", "Deployment", {"spec": {"template": {"spec": {"dnsConfig": {"options": []}}}}}, ".spec.template.spec.dnsConfig.options"),
])  # fmt: skip
def test_empty_values_are_owned_by_their_applier_though_go_omits_them(group, kind, said, fields) -> None:
    schema = builtin(group, "v1", kind)
    base = {"apiVersion": schema.api_version, "kind": kind, "metadata": {"name": "n"}}
    there = apply(schema, None, {**base, **said}, "owner", now=T1)
    stored, _ = decode(builtin_kind(group, "v1", kind).type, there)
    stored = json.loads(encode_json(builtin_kind(group, "v1", kind).type, {**stored, **base, "metadata": stored["metadata"]}))
    with pytest.raises(ApiError) as caught:
        apply(schema, stored, {**base, **said}, "other", now=T2)
    assert fields in caught.value.message
    taken = apply(schema, stored, {**base, **said}, "other", now=T2, force=True)["metadata"]["managedFields"]
    assert "other" in [e["manager"] for e in taken]
    assert fields.rpartition(".")[2] not in "".join(str(e["fieldsV1"]) for e in taken if e["manager"] == "owner")


def test_items_are_completed_with_the_empty_key_that_go_writes() -> None:
    base = {"apiVersion": "v1", "kind": "ConfigMap"}
    made = apply(CONFIG_MAP, None, {**base, "metadata": {"name": "n", "ownerReferences": [{"kind": "K"}]}}, "m", now=T1)
    owned = made["metadata"]["managedFields"][0]["fieldsV1"]["f:metadata"]["f:ownerReferences"]
    assert owned == {'k:{"uid":""}': {}}


@pytest.mark.parametrize("group, kind, empty, owned", [
    ("rbac.authorization.k8s.io", "RoleBinding", {"roleRef": {"apiGroup": "", "kind": "", "name": ""}}, False),
    ("rbac.authorization.k8s.io", "RoleBinding", {"roleRef": {"apiGroup": "", "kind": "Role", "name": ""}}, True),
    ("autoscaling", "HorizontalPodAutoscaler", {"spec": {"maxReplicas": 0, "scaleTargetRef": {"kind": "", "name": ""}}}, False),
])  # fmt: skip
def test_an_atomic_struct_is_compared_as_go_writes_it(group, kind, empty, owned) -> None:
    schema = builtin(group, "v1", kind)
    obj = {"apiVersion": schema.api_version, "kind": kind, "metadata": {"name": "n"}, **empty}
    assert bool(create(schema, obj, "m", now=T1)) == bool(update(schema, None, obj, "m", now=T1)) == owned


def test_a_live_object_without_keys_in_its_items_is_named_in_the_error() -> None:
    schema = builtin("", "v1", "ServiceAccount")
    base = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "n"}}
    why = '.secrets: element 0: associative list with keys has an element that omits all key fields ["name"]'
    for live, begin in (
        ({**base, "secrets": [{}]}, "failed to create manager for existing fields: failed to convert new object (/n; /v1, "
                                    f"Kind=ServiceAccount) to smd typed: {why}"),
        ({**apply(schema, None, base | {"automountServiceAccountToken": True}, "m", now=T1), "secrets": [{}]},
         f"failed to create typed live object (/n; /v1, Kind=ServiceAccount): {why}"),
    ):  # fmt: skip
        with pytest.raises(ApiError) as caught:
            apply(schema, live, {**base, "secrets": [{"name": "a"}]}, "other", now=T2)
        assert caught.value.message.startswith(begin)


NUMBERS = crd_schema(
    schema_type("Widget", {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "ids": {"type": "array", "items": {"type": "number"}, "x-kubernetes-list-type": "set"},
            "parts": {
                "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["id"],
                "items": {"type": "object", "properties": {"id": {"type": "integer"}, "n": {"type": "integer"}}},
            },
        },
    }),
    "e.com/v1",
    "Widget",
)  # fmt: skip


def numbers(**fields) -> dict:
    return {"kind": "Widget", "apiVersion": "e.com/v1", "metadata": {"name": "w"}, **fields}


def test_numbers_in_path_elements_are_printed_as_in_go() -> None:
    obj = apply(NUMBERS, None, numbers(ids=[1e-7, 0.5, 1e6, 1e21]), "m", now=T1)
    assert owners(obj) == {"m": {"f:ids": {"v:1e-07": {}, "v:0.5": {}, "v:1000000": {}, "v:1e+21": {}}}}


def test_a_conflict_prints_a_stored_number_as_a_float() -> None:
    obj = apply(NUMBERS, None, numbers(parts=[{"id": 1000000, "n": 1}]), "m", now=T1)
    e = refused(NUMBERS, obj, numbers(parts=[{"id": 1000000, "n": 2}]), "other")
    assert e.message == 'Apply failed with 1 conflict: conflict with "m": .parts[id=1e+06].n'
    assert e.details["causes"][0]["field"] == ".parts[id=1e+06].n"
    del obj["metadata"]["managedFields"]
    e = refused(NUMBERS, obj, numbers(parts=[{"id": 1000000, "n": 2}]), "other")
    assert e.message == 'Apply failed with 1 conflict: conflict with "before-first-apply" using e.com/v1: .parts[id=1000000].n'


@pytest.mark.parametrize(("value", "shown"), [
    (1e6, "Value:1e+06"), (1000000, "Value:1000000"), (-(1 << 63), "Value:-9223372036854775808"),
    (1e-5, "Value:1e-05"), (0.0001, "Value:0.0001"), (100000.5, "Value:100000.5"), (1e20, "Value:1e+20"),
    ([1e6], "Value:[]interface {}{1e+06}"), ({"x": 1e-7}, 'Value:map[string]interface {}{"x":1e-07}'),
])  # fmt: skip
def test_a_number_where_a_string_is_expected_is_printed_as_go_does(value, shown) -> None:
    e = refused(NUMBERS, None, numbers(name=value), "m")
    assert e.message.endswith(f".name: expected string, got &value.valueUnstructured{{{shown}}}")


def test_an_invalid_api_version_shows_no_kind() -> None:
    e = refused(CONFIG_MAP, None, {**config_map({}), "apiVersion": "a/b/c"}, "m")
    assert (e.code, e.message) == (400, "invalid object type: /, Kind=")


# No empty lists: an applier does not own them, so upstream removes their parent in one apply and restores it in the next.
specs = st.fixed_dictionaries(
    {},
    optional={
        "size": st.integers(0, 3),
        "tags": st.lists(st.sampled_from("abcd"), unique=True, min_size=1),
        "labels": st.dictionaries(st.sampled_from("abc"), st.sampled_from(["1", "2"])),
        "parts": st.lists(
            st.fixed_dictionaries({"name": st.sampled_from("pqr")}, optional={"n": st.integers(0, 2)}),
            unique_by=lambda p: p["name"],
            min_size=1,
        ),
    },
)


@given(st.lists(st.tuples(st.sampled_from(["m", "n"]), specs), min_size=1, max_size=5))
def test_applying_again_changes_nothing(steps) -> None:
    live = None
    for manager, spec in steps:
        live = apply(WIDGET, live, widget(spec), manager, now=T1, force=True)
    manager, spec = steps[-1]
    if not owners(live):
        return  # no field has an owner, so the next apply begins with "before-first-apply"
    assert apply(WIDGET, live, widget(spec), manager, now=T2) == live


@given(specs, specs)
def test_a_sole_appliers_object_equals_its_configuration(first, second) -> None:
    """Removed items and keys are gone; only containers may stay, empty."""

    def full(v):
        if isinstance(v, dict):
            kept = {k: full(x) for k, x in v.items()}
            return {k: x for k, x in kept.items() if x not in ({}, [], None)}
        if isinstance(v, list) and v and isinstance(v[0], dict):
            return sorted((full(x) for x in v), key=lambda x: x["name"])
        return sorted(v) if isinstance(v, list) else v

    live = apply(WIDGET, None, widget(first), "m", now=T1)
    live = apply(WIDGET, live, widget(second), "m", now=T2)
    assert full(live.get("spec") or {}) == full(second)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["name", "tags", "parts", "a"]), inner, max_size=3),
    max_leaves=12,
)


@pytest.mark.parametrize("field", ["parts", "tags"])
def test_an_applier_of_only_an_empty_list_owns_nothing_the_next_time(field) -> None:
    live = apply(WIDGET, None, widget({field: []}), "m", now=T1)
    assert owners(live) == {}
    e = refused(WIDGET, live, widget({field: None}), "m")
    assert (e.code, e.message) == (
        409, f'Apply failed with 1 conflict: conflict with "before-first-apply" using e.com/v1: .spec.{field}'
    )  # fmt: skip
    assert owners(apply(WIDGET, live, widget({"size": 1}), "m", now=T2)) == {
        "m": {"f:spec": {"f:size": {}}}, "before-first-apply": {"f:spec": {".": {}, f"f:{field}": {}}},
    }  # fmt: skip


@given(json_values, json_values)
@example({"parts": []}, {"parts": None})
def test_any_json_is_applied_or_refused(first, second) -> None:
    for schema in (WIDGET, deduced_schema("e.com/v1", "Widget")):
        live = None
        for spec in (first, second):
            try:
                live = apply(schema, live, widget(spec), "m", now=T1)
            except ApiError as e:
                # Fields without an owner belong to "before-first-apply", and the applier may conflict with it.
                assert e.code == 500 or (e.code == 409 and live is not None and not owners(live) and "before-first-apply" in e.message)
            else:
                assert update(schema, live, widget(spec), "u", now=T2) is not None


@given(json_values, json_values)
def test_any_built_in_object_is_tracked_without_error(first, second) -> None:
    live = {"kind": "Deployment", "apiVersion": "apps/v1", "metadata": {"name": "d"}, "spec": first}
    live["metadata"]["managedFields"] = update(DEPLOYMENT, None, live, "m", now=T1)
    assert update(DEPLOYMENT, live, {**live, "spec": second}, "n", now=T2) is not None


def test_an_object_is_encoded_again_only_if_go_would_change_it() -> None:
    """The check that saves the encoding may answer yes only for objects that the encoder would not change: nothing missing, nothing
    omitted."""
    r, spared, kinds = random.Random(5), 0, [r.kind_record for r in BUILTIN.resources if r.storage_gvk]
    for kind in kinds:
        node = type_node(kind.type)
        for _ in range(4):
            stored = json.loads(encode_json(kind.type, decode(kind.type, struct(r, kind.type, 0))[0], stored=True))
            spared += is_written(node, stored)
            changed = json.loads(json.dumps(stored))
            holder, place = r.choice(list(places(changed)) or [({"x": 1}, "x")])
            was = holder.pop(place)
            if r.random() < 0.7:
                empty = r.choice([None, type(was)()])
                holder.insert(place, empty) if isinstance(holder, list) else holder.update({place: empty})
            if is_written(node, changed):
                assert json.loads(encode_json(kind.type, changed)) == changed
    assert spared > 3 * len(kinds)


@pytest.mark.parametrize("kind, spec, spared", [
    ("Pod", {"securityContext": {}, "volumes": [{"name": "v", "emptyDir": {}}], "containers": [{"name": "c", "resources": {}}]}, True),
    ("Pod", {"containers": [{"name": "c"}]}, False),
    ("Pod", {"nodeSelector": {}, "containers": [{"name": "c", "resources": {}}]}, False),
    ("Pod", {"tolerations": [], "containers": [{"name": "c", "resources": {}}]}, False),
    ("CustomResourceDefinition", {"items": {}}, True),
    ("CustomResourceDefinition", {"items": {"required": []}}, False),
    ("CustomResourceDefinition", {"items": [{"required": []}]}, False),
    ("CustomResourceDefinition", {"default": {"required": []}}, True),
])  # fmt: skip
def test_go_writes_an_empty_struct_and_omits_an_empty_map_or_list(kind, spec, spared) -> None:
    status: dict[str, Any] = {}
    if kind == "CustomResourceDefinition":
        version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": spec}}
        spec = {"group": "e.com", "names": {"plural": "as", "kind": "A"}, "scope": "Cluster", "versions": [version]}
        status = {"conditions": None, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": None}
    found = builtin_kind("apiextensions.k8s.io" if status else "", "v1", kind)
    obj = {"kind": kind, "apiVersion": found.api_version, "metadata": {"name": "n"}, "spec": spec, "status": status}
    assert is_written(type_node(found.type), obj) is spared
    assert (json.loads(encode_json(found.type, obj)) == obj) is spared


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every (dict or list, key or index) of a JSON value."""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield value, key
        yield from places(inner)


def versions(**schemas: dict) -> dict[str, Schema]:
    """Merge schemas of a kind's versions, each from the schema of its spec; all versions have the same objects."""
    made: dict[str, Schema] = {}

    def convert(obj: dict, api_version: str) -> tuple[Schema, dict]:
        return made[api_version], {**obj, "apiVersion": api_version}

    for name, spec in schemas.items():
        api_version = f"e.com/{name}"
        type = schema_type("Widget", {"type": "object", "properties": {"spec": {"type": "object", "properties": spec}}})
        made[api_version] = crd_schema(type, api_version, "Widget", convert=convert)
    return made


def test_another_order_of_the_same_items_changes_the_object_but_no_owner() -> None:
    """Items are owned wherever they are in the list."""
    live = apply(WIDGET, None, widget({"tags": ["a", "b"], "parts": [{"name": "x"}, {"name": "y"}]}), "m", now=T1)
    before = owners(live)
    got = apply(WIDGET, live, widget({"tags": ["b", "a"], "parts": [{"name": "y"}, {"name": "x"}]}), "m", now=T2)
    assert got["spec"] == {"tags": ["b", "a"], "parts": [{"name": "y"}, {"name": "x"}]}
    assert (owners(got), got["metadata"]["managedFields"][0]["time"]) == (before, T2)
    again = apply(WIDGET, got, widget({"tags": ["b", "a"], "parts": [{"name": "y"}, {"name": "x"}]}), "m", now=T3)
    assert again == got


def test_the_order_of_variables_is_the_appliers() -> None:
    """Later variables may refer to earlier ones."""

    def deployment(*names: str) -> dict:
        spec = {"template": {"spec": {"containers": [{"name": "c", "env": [{"name": n, "value": n} for n in names]}]}}}
        return {"kind": "Deployment", "apiVersion": "apps/v1", "metadata": {"name": "d"}, "spec": spec}

    schema = builtin("apps", "v1", "Deployment")
    live = apply(schema, None, deployment("a", "b", "c"), "m", now=T1)
    got = apply(schema, live, deployment("c", "a", "b"), "m", now=T2)
    assert [e["name"] for e in got["spec"]["template"]["spec"]["containers"][0]["env"]] == ["c", "a", "b"]


def test_a_list_of_integers_or_strings_is_a_list() -> None:
    schema = versions(v1={"ports": {"type": "array", "items": {"x-kubernetes-int-or-string": True}}})["e.com/v1"]
    assert apply(schema, None, widget({"ports": [1, "a"]}), "m", now=T1)["spec"] == {"ports": [1, "a"]}
    error = refused(schema, None, widget({"ports": 2}), "m")
    assert error.message == "failed to create typed patch object (/w; e.com/v1, Kind=Widget): .spec.ports: expected list, got &{2}"


def test_a_key_that_is_a_map_is_printed_as_upstream_prints_it() -> None:
    error = refused(WIDGET, None, widget({"parts": [{"name": {"k": "x"}}]}), "m")
    assert error.message == (
        'failed to create typed patch object (/w; e.com/v1, Kind=Widget): .spec.parts[name=k="x"].name: expected string, '
        'got &value.valueUnstructured{Value:map[string]interface {}{"k":"x"}}'
    )


def test_a_live_object_that_does_not_fit_its_schema_is_refused_before_it_gets_managers() -> None:
    error = refused(WIDGET, widget({"tags": {"a": 1}}), widget({"size": "no number"}), "m")
    assert error.message == (
        "failed to create manager for existing fields: failed to convert new object (/w; e.com/v1, Kind=Widget) to smd typed: "
        ".spec.tags: expected list, got &{map[a:1]}"
    )


PARTS = {"type": "array", "items": {"type": "object", "properties": {"k": {"type": "string"}, "n": {"type": "integer"}}}}
KEYED = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (
            {"parts": [{"n": 1}]},
            '.spec.parts: element 0: associative list with keys has an element that omits all key fields ["k"] '
            "(and doesn't have default values for any key fields)",
        ),
        ({"more": 1}, ".spec.more: schema error: invalid atom: inlined"),
    ],
)
def test_an_error_about_another_managers_version_has_its_path(spec: dict, why: str) -> None:
    integer = {"type": "integer"}
    of = versions(v1={"parts": PARTS, "more": integer, "n": integer}, v2={"parts": {**PARTS, **KEYED}, "n": integer})
    live = apply(of["e.com/v2"], None, {**widget({"n": 1}), "apiVersion": "e.com/v2"}, "other", now=T1)
    error = refused(of["e.com/v1"], {**live, "apiVersion": "e.com/v1"}, widget(spec), "m")
    assert (error.code, error.message) == (500, f"failed to compare objects: {why}")


@pytest.mark.parametrize("fields", ["text", 1, [{}], True, {"f:data": 1}, {"f:data": {"f:a": []}}, {"f:data": {"f:a": {".": "x"}}}])
@pytest.mark.parametrize("operation", ["Update", "Apply"])
def test_stored_managed_fields_that_are_invalid_are_ignored(operation: str, fields: Any) -> None:
    """Another client of etcd may store any value there; it must not break the next write of the object."""
    entry = {"manager": "m", "operation": operation, "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields}
    live = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a", "managedFields": [entry]}, "data": {"a": "b"}}
    schema, now = builtin("", "v1", "ConfigMap"), "2024-01-02T03:04:05Z"
    found = update(schema, live, {**live, "data": {"a": "c"}}, "x", now=now)
    assert [(e["manager"], e["fieldsV1"]) for e in found] in ([], [("x", {"f:data": {"f:a": {}}})])
    applied = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}, "data": {"a": "d"}}
    try:
        apply(schema, live, applied, "y", now=now, force=True)
    except ApiError as e:
        assert str(e).startswith("failed to decode managed fields: ")
