"""Ownership after creates, updates and patches."""

from __future__ import annotations

from kas.apiextensions.mergeschema import crd_schema
from kas.patch.fieldmanager import (
    Only,
    builtin,
    deduced_schema,
    field_set,
    keep_timestamps,
    manager_name,
    restore_after_admission,
    update,
)
from kas.types.scheme import builtin_type, schema_type

T1, T2, T3 = "2024-01-02T03:04:05Z", "2024-01-02T03:04:06Z", "2024-01-02T03:04:07Z"
CONFIG_MAP = builtin("", "v1", "ConfigMap")
POD = builtin("", "v1", "Pod")
STATUS = field_set(["status"])


def config_map(data: dict, entries: list | None = None, **meta) -> dict:
    metadata = {"name": "c", "namespace": "n", "uid": "u", "resourceVersion": "1", **meta}
    if entries is not None:
        metadata["managedFields"] = entries
    return {"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata, "data": data}


def entry(manager: str, fields: dict, operation: str = "Update", time: str = T1, api_version: str = "v1", **more) -> dict:
    return {
        "manager": manager, "operation": operation, "apiVersion": api_version, "time": time, "fieldsType": "FieldsV1",
        "fieldsV1": fields, **more,
    }  # fmt: skip


def test_create_owns_the_fields_set_and_none_of_the_servers() -> None:
    got = update(CONFIG_MAP, None, config_map({"b": "1", "a": "2"}, labels={"l": "1"}), "kubectl-create", now=T1)
    fields = {"f:data": {".": {}, "f:a": {}, "f:b": {}}, "f:metadata": {"f:labels": {".": {}, "f:l": {}}}}
    assert got == [entry("kubectl-create", fields)]
    assert list(got[0]) == ["manager", "operation", "apiVersion", "time", "fieldsType", "fieldsV1"]
    assert str(got[0]["fieldsV1"]) == str(fields)


def test_a_create_does_not_own_fields_that_go_always_writes() -> None:
    spec = {"containers": [{"name": "c", "image": "i", "resources": {}, "ports": [{"containerPort": 80}]}], "volumes": [{"name": "v"}]}
    obj = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p"}, "spec": spec, "status": {"phase": "Pending"}}
    port = {".": {}, "f:containerPort": {}}
    container = {
        ".": {}, "f:image": {}, "f:name": {}, "f:ports": {".": {}, 'k:{"containerPort":80,"protocol":"TCP"}': port}, "f:resources": {},
    }  # fmt: skip
    fields = {"f:spec": {"f:containers": {'k:{"name":"c"}': container}, "f:volumes": {".": {}, 'k:{"name":"v"}': {".": {}, "f:name": {}}}}}
    assert update(POD, None, obj, "m", now=T1, reset_fields=STATUS) == [entry("m", fields)]


def test_an_unset_struct_equals_its_zero_form() -> None:
    container = {"name": "c", "image": "i"}
    old = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p", "uid": "u"}, "spec": {"containers": [container]}}
    new = {**old, "spec": {"containers": [{**container, "resources": {}, "stdin": False, "args": []}], "hostNetwork": False}, "status": {}}
    entries = update(POD, None, old, "a", now=T1)
    old["metadata"]["managedFields"] = entries
    assert update(POD, old, new, "b", now=T2) is entries


def test_fields_that_go_omits_do_not_change_an_atomic_value() -> None:
    """A selector is owned as a whole; its empty maps and lists are not stored. In items of a list they are a change to Go."""
    schema = builtin("networking.k8s.io", "v1", "NetworkPolicy")

    def policy(selector: dict, **rule) -> dict:
        spec = {"podSelector": selector, "egress": [{"to": [{"ipBlock": {"cidr": "::/0"}}], **rule}]}
        return {"kind": "NetworkPolicy", "apiVersion": "networking.k8s.io/v1", "metadata": {"name": "p", "uid": "u"}, "spec": spec}

    old, said = policy({}), policy({"matchLabels": {}, "matchExpressions": []})
    entries = update(schema, None, old, "a", now=T1)
    old["metadata"]["managedFields"] = said["metadata"]["managedFields"] = entries
    assert update(schema, old, said, "b", now=T2) is entries
    assert update(schema, said, old, "b", now=T2) is entries
    taken = entry("b", {"f:spec": {"f:egress": {}}}, time=T2, api_version="networking.k8s.io/v1")
    assert taken in update(schema, old, policy({}, ports=[]), "b", now=T2)


def test_fields_that_go_fills_in_do_not_change_an_atomic_value() -> None:
    """The claims of a stateful set are one list; unset structs are stored as empty ones."""
    schema = builtin("apps", "v1", "StatefulSet")

    def of(claim: dict) -> dict:
        spec = {"volumeClaimTemplates": [{"metadata": {"name": "c"}, **claim}], "serviceName": "s"}
        return {"kind": "StatefulSet", "apiVersion": "apps/v1", "metadata": {"name": "s", "uid": "u"}, "spec": spec}

    old, new = of({"spec": {"resources": {}}, "status": {}}), of({"spec": {"volumeName": ""}})
    entries = update(schema, None, old, "a", now=T1)
    old["metadata"]["managedFields"] = entries
    assert update(schema, old, new, "b", now=T2) is entries
    assert update(schema, old, of({"spec": {"accessModes": ["ReadWriteOnce"]}}), "b", now=T2) is not entries


def test_update_takes_changed_fields_from_their_owner() -> None:
    a = update(CONFIG_MAP, None, config_map({"x": "1", "y": "1"}), "a", now=T1)
    got = update(CONFIG_MAP, config_map({"x": "1", "y": "1"}, a), config_map({"x": "1", "y": "2", "z": "1"}), "b", now=T2)
    assert got == [entry("a", {"f:data": {".": {}, "f:x": {}}}), entry("b", {"f:data": {"f:y": {}, "f:z": {}}}, time=T2)]


def test_removed_fields_lose_their_owner() -> None:
    a = update(CONFIG_MAP, None, config_map({"x": "1", "y": "1"}), "a", now=T1)
    got = update(CONFIG_MAP, config_map({"x": "1", "y": "1"}, a), config_map({"x": "1"}), "b", now=T2)
    assert got == [entry("a", {"f:data": {".": {}, "f:x": {}}})]


def test_same_manager_keeps_one_entry_with_the_new_time() -> None:
    a = update(CONFIG_MAP, None, config_map({"x": "1"}), "a", now=T1)
    got = update(CONFIG_MAP, config_map({"x": "1"}, a), config_map({"x": "2", "y": "1"}), "a", now=T2)
    assert got == [entry("a", {"f:data": {".": {}, "f:x": {}, "f:y": {}}}, time=T2)]


def test_an_update_without_changes_keeps_the_entries() -> None:
    a = update(CONFIG_MAP, None, config_map({"x": "1"}), "a", now=T1)
    assert update(CONFIG_MAP, config_map({"x": "1"}, a), config_map({"x": "1"}), "b", now=T2) is a


def test_untracked_objects_stay_untracked() -> None:
    assert update(CONFIG_MAP, config_map({"x": "1"}), config_map({"x": "2"}), "b", now=T2) == []


def test_a_client_can_clear_the_entries() -> None:
    a = update(CONFIG_MAP, None, config_map({"x": "1"}), "a", now=T1)
    for reset in ([], [{}]):
        assert update(CONFIG_MAP, config_map({"x": "1"}, a), config_map({"x": "2"}, reset), "b", now=T2) == []


def test_entries_from_a_client_are_used_if_they_are_valid() -> None:
    a = update(CONFIG_MAP, None, config_map({"x": "1"}), "a", now=T1)
    live = config_map({"x": "1"}, a)
    given = [entry("z", {"f:data": {'v:"q"': {}, "f:x": {}}}, "Apply", T2)]
    assert update(CONFIG_MAP, live, config_map({"x": "1"}, given), "b", now=T3) == given
    no_sets: list[dict] = [{"fieldsV1": fields} for fields in ({"f": {}}, [], "", 0, False, "{", {"f:data": []})]
    for broken in ({"operation": "Patch"}, {"apiVersion": ""}, {"fieldsType": "FieldsV2"}, *no_sets):
        assert update(CONFIG_MAP, live, config_map({"x": "1"}, [{**given[0], **broken}]), "b", now=T3) == a


def test_entries_from_a_client_are_ignored_on_a_subresource() -> None:
    a = update(CONFIG_MAP, None, config_map({"x": "1"}), "a", now=T1)
    got = update(CONFIG_MAP, config_map({"x": "1"}, a), config_map({"x": "1"}, []), "b", subresource="status", now=T2)
    assert got is a


def test_a_subresource_has_an_entry_of_its_own() -> None:
    old = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p", "uid": "u"}, "spec": {"containers": [{"name": "c"}]}}
    old["metadata"]["managedFields"] = update(POD, None, old, "m", now=T1, reset_fields=STATUS)
    new = {**old, "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    got = update(POD, old, new, "m", subresource="status", now=T1, reset_fields=field_set(["spec", "metadata.deletionTimestamp"]))
    assert [e.get("subresource") for e in got] == [None, "status"]
    ready = {".": {}, "f:lastProbeTime": {}, "f:lastTransitionTime": {}, "f:status": {}, "f:type": {}}
    assert got[1]["fieldsV1"] == {"f:status": {"f:conditions": {".": {}, 'k:{"type":"Ready"}': ready}, "f:phase": {}}}


def test_reset_fields_have_no_owner() -> None:
    obj = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p"}, "status": {"phase": "Running"}}
    assert update(POD, None, obj, "m", now=T1, reset_fields=STATUS) == []


def test_some_endpoints_own_only_a_few_fields() -> None:
    old = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p", "uid": "u"}, "spec": {"containers": [{"name": "c"}]}}
    old["metadata"]["managedFields"] = update(POD, None, old, "a", now=T1)
    container = {"name": "c", "image": "i", "resources": {"limits": {"cpu": "1"}}}
    new = {**old, "metadata": {**old["metadata"], "labels": {"a": "b"}}, "spec": {"containers": [container], "nodeName": "n"}}
    only = Only(["spec.containers.*.resources", "spec.containers.*.resizePolicy"])
    got = update(POD, old, new, "r", now=T2, subresource="resize", reset_fields=only)
    resources = {"f:limits": {".": {}, "f:cpu": {}}}
    assert got[1]["fieldsV1"] == {"f:spec": {"f:containers": {'k:{"name":"c"}': {"f:resources": resources}}}}


def test_only_ten_update_managers_are_kept() -> None:
    live = config_map({"k00": "1"})
    live["metadata"]["managedFields"] = update(CONFIG_MAP, None, live, "m00", now="2024-01-01T00:00:00Z")
    for i in range(1, 14):
        new = config_map({**live["data"], f"k{i:02}": "1"})
        new["metadata"]["managedFields"] = update(CONFIG_MAP, live, new, f"m{i:02}", now=f"2024-01-01T00:00:{i:02}Z")
        live = new
    entries = live["metadata"]["managedFields"]
    assert [e["manager"] for e in entries] == ["ancient-changes", *(f"m{i:02}" for i in range(5, 14))]
    assert entries[0]["fieldsV1"] == {"f:data": {".": {}, **{f"f:k{i:02}": {} for i in range(5)}}}
    assert entries[0]["time"] == "2024-01-01T00:00:04Z"


def test_a_missing_manager_is_called_unknown() -> None:
    assert update(CONFIG_MAP, None, config_map({"x": "1"}), "", now=T1)[0]["manager"] == "unknown"


def test_the_manager_defaults_to_the_user_agent() -> None:
    assert manager_name("", "kubectl/v1.36.2 (linux/amd64)") == "kubectl"
    assert manager_name("me", "kubectl/v1") == "me"
    assert manager_name("", "a\x00b" + "é" * 100) == "ab" + "é" * 63
    assert manager_name("", "") == ""


def test_repeated_items_are_owned_as_one() -> None:
    container = {"name": "c", "ports": [{"containerPort": 80, "name": "a"}, {"containerPort": 80, "name": "b"}]}
    obj = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p"}, "spec": {"containers": [container]}}
    fields = update(POD, None, obj, "m", now=T1)[0]["fieldsV1"]
    ports = fields["f:spec"]["f:containers"]['k:{"name":"c"}']["f:ports"]
    assert ports == {".": {}, 'k:{"containerPort":80,"protocol":"TCP"}': {}}


def test_entries_of_other_versions_are_converted() -> None:
    old, new = crd_schema(None, "e.com/v1", "W"), crd_schema(None, "e.com/v2", "W")
    old.convert = lambda obj, v: (new, {**obj, "apiVersion": v, "b": obj["a"]}) if v == new.api_version else None
    live = {"apiVersion": "e.com/v1", "kind": "W", "metadata": {"name": "w", "uid": "u"}, "a": 1}
    given = [entry("two", {"f:b": {}}, api_version="e.com/v2"), entry("gone", {"f:a": {}}, api_version="e.com/v0")]
    live["metadata"]["managedFields"] = given
    assert update(old, live, {**live, "a": 2}, "one", now=T2) == [entry("one", {"f:a": {}}, api_version="e.com/v1", time=T2)]
    assert update(old, live, {**live, "c": 2}, "one", now=T2) == [
        given[0], entry("one", {"f:c": {}}, api_version="e.com/v1", time=T2),
    ]  # fmt: skip


def test_entries_below_a_field_that_became_atomic_shrink_to_it() -> None:
    free = {"type": "object", "properties": {"spec": {"type": "object", "additionalProperties": {"type": "string"}}}}
    atomic = {"type": "object", "properties": {"spec": {**free["properties"]["spec"], "x-kubernetes-map-type": "atomic"}}}
    live = {"apiVersion": "e.com/v1", "kind": "W", "metadata": {"name": "w", "uid": "u"}, "spec": {"a": "1"}}
    live["metadata"]["managedFields"] = update(crd_schema(schema_type("W", free), "e.com/v1", "W"), None, live, "m", now=T1)
    assert live["metadata"]["managedFields"][0]["fieldsV1"] == {"f:spec": {".": {}, "f:a": {}}}
    got = update(crd_schema(schema_type("W", atomic), "e.com/v1", "W"), live, live, "m", now=T2)
    assert got[0]["fieldsV1"] == {"f:spec": {}}


def test_booleans_are_not_numbers() -> None:
    schema = deduced_schema("e.com/v1", "W")
    live = {"apiVersion": "e.com/v1", "kind": "W", "metadata": {"name": "w", "uid": "u"}, "a": 1, "b": 2}
    live["metadata"]["managedFields"] = update(schema, None, live, "m", now=T1)
    got = update(schema, live, {**live, "a": True, "b": 2.0}, "n", now=T2)
    assert got[1] == entry("n", {"f:a": {}}, api_version="e.com/v1", time=T2)


def test_time_alone_is_no_change() -> None:
    live = config_map({"x": "1"}, [entry("a", {"f:data": {}}, time=T1)])
    new = config_map({"x": "1"}, [entry("a", {"f:data": {}}, time=T2)], resourceVersion="2")
    assert keep_timestamps(live, new)["metadata"]["managedFields"] == [entry("a", {"f:data": {}}, time=T1)]
    other = config_map({"x": "2"}, [entry("a", {"f:data": {}}, time=T2)])
    assert keep_timestamps(live, other) is other


def test_differences_that_go_types_do_not_have_are_no_change() -> None:
    # An apply merges the empty maps of its configuration in; an emptyDir without fields is an emptyDir all the same.
    live = config_map({"x": "1"}, [entry("a", {"f:data": {}}, time=T1)])
    new = config_map({"x": "1"}, [entry("a", {"f:data": {}}, time=T2)], annotations={}, resourceVersion="2")
    kind = builtin_type("core.v1.ConfigMap")
    assert keep_timestamps(live, new, kind)["metadata"]["managedFields"] == [entry("a", {"f:data": {}}, time=T1)]
    assert keep_timestamps(live, new) is new
    live = {"metadata": live["metadata"], "spec": {"volumes": [{"name": "v"}]}}
    new = {"metadata": new["metadata"], "spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}
    assert keep_timestamps(live, new, builtin_type("core.v1.Pod")) is new


def test_entries_that_admission_broke_are_restored() -> None:
    before = [entry("a", {"f:data": {}})]
    meta = {"managedFields": [{**before[0], "operation": "Patch"}]}
    warning = restore_after_admission(before, meta)
    assert warning is not None
    assert warning.endswith("please fix your requests: operation must be `Apply` or `Update`")
    assert meta["managedFields"] is before
    assert restore_after_admission(before, meta) is None


def test_an_update_of_an_object_that_does_not_fit_its_schema_leaves_no_managers() -> None:
    type = schema_type("W", {"type": "object", "properties": {"spec": {"type": "object", "properties": {"n": {"type": "integer"}}}}})
    schema = crd_schema(type, "e.com/v1", "W")
    schema.certain = lambda obj: False
    live = {"apiVersion": "e.com/v1", "kind": "W", "metadata": {"name": "w"}, "spec": {"n": "a"}}
    assert update(schema, live, {**live, "spec": {"n": 1}}, "m", now=T1) == []
    assert update(schema, {**live, "spec": {"n": 2}}, {**live, "spec": {"n": 1}}, "m", now=T1) != []


def test_scalar_fields_share_one_schema_node() -> None:
    """A definition has thousands of them, and a node for each would take as much memory as the field."""
    text = {"type": "string"}
    properties = {"a": text, "b": text, "n": {"type": "integer"}, "l": {"type": "array", "items": text}}
    root = crd_schema(schema_type("W", {"type": "object", "properties": properties}), "e.com/v1", "W").root
    nodes = {name: f.node for name, f in root.fields.items()}
    assert nodes["a"] is nodes["b"] is nodes["l"].item is not nodes["n"]
    # Empty members of a node are shared, too; nobody may have written to them.
    assert nodes["a"].fields is nodes["l"].fields and nodes["a"].fields == {}
