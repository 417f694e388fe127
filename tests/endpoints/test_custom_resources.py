"""Custom resources are served as their definitions say: all verbs, in all workers, while definitions change."""

from __future__ import annotations

import json
import re
import threading
from typing import Any

import pytest
import requests

from kas.types.scheme import builtin_kind, encode_protobuf, envelope
from tests.endpoints.customs import DEFINITIONS, Customs, definition, until, version

SCALE = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector"}
SPEC = {"replicas": {"type": "integer", "default": 1, "minimum": 0}, "color": {"type": "string"}}
MERGE, JSON_PATCH, STRATEGIC = "application/merge-patch+json", "application/json-patch+json", "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"


@pytest.fixture
def define(client, namespace):
    """``define(crd)`` creates a definition on the shared server, which is deleted at the end."""
    made = []

    def define(crd) -> Customs:
        made.append(Customs(client, crd, namespace))
        return made[-1]

    yield define
    for customs in made:
        client("DELETE", customs.where)
    for customs in made:
        customs.remove()


@pytest.fixture
def widgets(define, namespace) -> Customs:
    """A definition for this test, with both subresources."""
    spec = {**SPEC, "max": {"type": "integer"}}
    v = version(spec=spec, subresources={"status": {}, "scale": SCALE}, selectableFields=[{"jsonPath": ".spec.color"}])
    v["schema"]["openAPIV3Schema"]["properties"]["spec"]["x-kubernetes-validations"] = [
        {"rule": "!has(self.max) || self.replicas <= self.max", "message": "too many"}
    ]
    v["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]["selector"] = {"type": "string"}
    return define(definition(f"{namespace}.example.com", v, shortNames=["wd"], categories=["all"])).install()


def test_the_router_does_not_handle_documents_of_definitions(client, widgets):
    path = f"/apis/{widgets.group}/v1"
    assert client.raw("PUT", path).content == client.raw("GET", path, Accept="application/*").content
    status, body = client("GET", path, Accept="text/html")
    assert (status, body["message"].partition(":")[0]) == (406, "only the following media types are accepted")


@pytest.mark.parametrize(("method", "form"), [("PUT", None), ("PATCH", MERGE)])
def test_patches_and_updates_need_a_name(client, widgets, method, form):
    status, body = client(method, widgets.path(), {}, *([form] if form else []))
    assert (status, body["message"]) == (400, "name must be provided")


def test_members_that_a_json_patchs_value_repeats_are_reported_in_the_object_too(client, widgets):
    widgets.create("a", {"color": "red"})
    patch = '[{"op":"add","path":"/spec","value":{"color":"blue","color":"red","zzz":1}}]'
    status, body = client("PATCH", widgets.path("a") + "?fieldValidation=Strict", patch, JSON_PATCH)
    found = 'json patch duplicate field "[0].value.color", duplicate field "spec.color", unknown field "spec.zzz"'
    assert status == 422 and body["message"].endswith(f": strict decoding error: {found}"), body
    assert client("PATCH", widgets.path("a") + "?fieldValidation=Ignore", patch, JSON_PATCH)[0] == 200


def test_deeply_nested_annotations_are_refused(client, widgets):
    before = widgets.create("a", {"color": "red"})
    patch = [{"op": "add", "path": "/metadata/annotations", "value": 1}]
    text = json.dumps(patch).replace(" 1}", '{"a":' * 900 + "1" + "}" * 901)
    status, body = client("PATCH", widgets.path("a"), text, JSON_PATCH)
    assert status == 422 and "cannot unmarshal object into Go struct field ObjectMeta.annotations" in body["message"], body
    assert client("GET", widgets.path("a"))[1] == before


def test_the_life_cycle_of_an_object(client, widgets):
    made = widgets.create("a", {"color": "red"}, status={"replicas": 9})
    assert made["spec"] == {"color": "red", "replicas": 1} and "status" not in made and made["metadata"]["generation"] == 1
    status, body = client("PATCH", widgets.path("a"), {"spec": {"color": "blue"}}, MERGE)
    assert (status, body["spec"]["color"], body["metadata"]["generation"]) == (200, "blue", 2)
    status, body = client("PATCH", widgets.path("a"), {"metadata": {"labels": {"x": "y"}}}, MERGE)
    assert (status, body["metadata"]["generation"]) == (200, 2)
    status, body = client("PATCH", widgets.path("a"), [{"op": "replace", "path": "/spec/color", "value": "green"}], JSON_PATCH)
    assert (status, body["spec"]["color"]) == (200, "green")
    assert client("PATCH", widgets.path("a"), {"spec": {}}, STRATEGIC)[0] == 415
    status, body = client("PATCH", widgets.path("a") + "/status", {"status": {"replicas": 4}, "spec": {"color": "x"}}, MERGE)
    assert (status, body["status"], body["spec"]["color"], body["metadata"]["generation"]) == (200, {"replicas": 4}, "green", 3)
    status, body = client("PUT", widgets.path("a"), {**body, "status": {"replicas": 5}, "spec": {"color": "black"}})
    assert (status, body["status"], body["spec"]) == (200, {"replicas": 4}, {"color": "black", "replicas": 1})
    assert client("GET", widgets.path("a"))[1] == body
    assert client("GET", widgets.path())[1]["items"] == [body]
    status, body = client("DELETE", widgets.path("a"))
    assert (status, body["kind"]) == (200, "Status")
    assert client("GET", widgets.path("a"))[0] == 404


def test_invalid_objects_are_refused_and_change_nothing(client, widgets):
    widgets.create("a")
    before = client("GET", widgets.path("a"))[1]
    status, body = client("PATCH", widgets.path("a"), {"spec": {"replicas": -1}}, MERGE)
    assert status == 422 and "should be greater than or equal to 0" in body["message"]
    status, body = client("PATCH", widgets.path("a"), {"spec": {"replicas": 3, "max": 2}}, MERGE)
    assert (status, body["details"]["causes"][0]["message"]) == (422, "Invalid value: too many")
    status, body = client("POST", widgets.path() + "?fieldValidation=Strict", widgets.obj("b", {"colour": "red"}))
    assert status == 400 and 'unknown field "spec.colour"' in body["message"]
    status, body = client("POST", widgets.path(), widgets.obj("Not A Name"))
    assert status == 422 and body["details"]["causes"][0]["field"] == "metadata.name"
    answer = client.raw("POST", widgets.path() + "?dryRun=All", widgets.obj("b", {"colour": "red"}))
    assert answer.status_code == 201 and answer.json()["spec"] == {"replicas": 1}
    assert 'unknown field \\"spec.colour\\"' in answer.headers["Warning"]
    assert client("GET", widgets.path())[1]["items"] == [before]


def test_an_empty_list_of_managed_fields_is_ignored(client, widgets):
    """Empty lists in a custom resource's metadata are dropped early; for built-in kinds such a list resets all managed fields."""
    made = widgets.create("a", {"color": "red"})
    owned, bare = made["metadata"]["managedFields"], {"metadata": {**made["metadata"], "managedFields": []}}
    assert owned
    for method, body, form in (
        ("PUT", {**made, **bare}, None), ("PATCH", bare, MERGE),
        ("PATCH", [{"op": "replace", "path": "/metadata/managedFields", "value": []}], JSON_PATCH),
    ):  # fmt: skip
        status, body = client(method, widgets.path("a"), body, *([form] if form else []))
        assert (status, body["metadata"]["managedFields"]) == (200, owned), method
    status, body = client("PATCH", widgets.path("a"), {"metadata": {"managedFields": [{}]}}, MERGE)
    assert status == 200 and "managedFields" not in body["metadata"]


def test_scale(client, widgets):
    widgets.create("a", {"replicas": 2})
    client("PATCH", widgets.path("a") + "/status", {"status": {"replicas": 1, "selector": "a=b"}}, MERGE)
    status, body = client("GET", widgets.path("a") + "/scale")
    assert (status, body["spec"], body["status"]) == (200, {"replicas": 2}, {"replicas": 1, "selector": "a=b"})
    status, body = client("PATCH", widgets.path("a") + "/scale", {"spec": {"replicas": 7}}, MERGE)
    assert (status, body["kind"], body["spec"]) == (200, "Scale", {"replicas": 7})
    assert client("GET", widgets.path("a"))[1]["spec"]["replicas"] == 7
    status, body = client("PUT", widgets.path("a") + "/scale", {**body, "spec": {"replicas": -1}})
    assert status == 422 and "replicas" in body["message"]
    assert client("PATCH", widgets.path("a") + "/scale", {}, STRATEGIC)[0] == 415
    assert client("DELETE", widgets.path("a") + "/scale")[0] == 405
    protobuf = "application/vnd.kubernetes.protobuf"  # a Scale has this form, and upstream does not answer with it here
    assert client.raw("GET", widgets.path("a") + "/scale", Accept=protobuf).status_code == 406
    stale = client("GET", widgets.path("a") + "/scale")[1]
    client("PATCH", widgets.path("a"), {"spec": {"replicas": 1}}, MERGE)
    scale = builtin_kind("autoscaling", "v1", "Scale")
    body = envelope("autoscaling/v1", "Scale", encode_protobuf(scale.type, stale))
    assert client("PUT", widgets.path("a") + "/scale", body, protobuf)[0] == 409  # its revision is read, and is old


def test_a_scale_in_other_formats(client, define, namespace):
    columns = [{"name": "C", "type": "integer", "jsonPath": ".spec.replicas"}]  # not those of a Scale
    v = version(spec=SPEC, subresources={"scale": SCALE}, additionalPrinterColumns=columns)
    kind = define(definition(f"{namespace}.example.com", v)).install()
    kind.create("a", {"replicas": 3, "color": "red"})
    path, form = kind.path("a") + "/scale", "application/json;as={};v=v1;g=meta.k8s.io"
    found = client("GET", path, Accept=form.format("PartialObjectMetadata"))[1]
    assert (found["kind"], found["metadata"]["name"], "spec" in found) == ("PartialObjectMetadata", "a", False)
    table = client("GET", path, Accept=form.format("Table"))[1]
    assert [c["name"] for c in table["columnDefinitions"]] == ["Name", "Desired", "Available", "Age"]
    assert table["rows"][0]["cells"][:3] == ["a", 3, 0]
    assert "(*v1.Scale)" in client("GET", path, Accept=form.format("PartialObjectMetadataList"))[1]["message"]


def test_a_scale_without_replicas(client, define, namespace):
    """The path need not exist: reading it is an error, a write creates it."""
    scale = {"specReplicasPath": ".spec.sizing.replicas", "statusReplicasPath": ".status.replicas"}
    spec = {"sizing": {"type": "object", "properties": {"replicas": {"type": "integer"}}}}
    widgets = define(definition(f"{namespace}.example.com", version(spec=spec, subresources={"scale": scale}))).install()
    widgets.create("a")
    path, missing = widgets.path("a") + "/scale", 'the spec replicas field ".spec.sizing.replicas" '
    status, body = client("GET", path)
    assert (status, body["reason"], body["message"]) == (500, "InternalError", f"Internal error occurred: {missing}does not exist")
    status, body = client("PATCH", path, {"metadata": {"labels": {"a": "b"}}}, MERGE)
    assert (status, body["message"]) == (400, missing + "cannot be empty")
    status, body = client("PATCH", path, {"spec": {"replicas": 2}}, MERGE)
    assert (status, body["spec"], body["status"]) == (200, {"replicas": 2}, {"replicas": 0})
    stored = client("GET", widgets.path("a"))[1]
    assert stored["spec"] == {"sizing": {"replicas": 2}} and stored["metadata"]["generation"] == 2
    put = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "a"}, "spec": {"replicas": -1}}
    status, body = client("PUT", path, put)
    assert status == 422 and [c["field"] for c in body["details"]["causes"]] == [".spec.sizing.replicas"]
    assert client("PUT", path, {**put, "spec": {}})[1]["spec"] == {}
    assert client("GET", widgets.path("a"))[1]["spec"] == {"sizing": {"replicas": 0}}
    stale = {**put, "metadata": {"name": "a", "resourceVersion": stored["metadata"]["resourceVersion"]}, "spec": {"replicas": 3}}
    assert client("PUT", path, stale)[0] == 409


def test_applying_a_scale(client, widgets):
    """As upstream: a Scale can be applied only once a manager owns the replicas, and an apply that changes nothing creates none."""
    widgets.create("a")
    widgets.create("b", {"replicas": 1})
    applied = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "a"}, "spec": {"replicas": 4}}
    client("PATCH", widgets.path("a"), [{"op": "replace", "path": "/metadata/managedFields", "value": [{}]}], JSON_PATCH)
    status, body = client("PATCH", widgets.path("a") + "/scale?fieldManager=x", applied, APPLY)
    assert status == 500 and body["message"].startswith("failed to create manager for existing fields: failed to convert live object (/;")
    applied["metadata"]["name"] = "b"
    status, body = client("PATCH", widgets.path("b") + "/scale?fieldManager=x", applied, APPLY)
    assert status == 409 and [c["field"] for c in body["details"]["causes"]] == [".spec.replicas"]
    status, body = client("PATCH", widgets.path("b") + "/scale?fieldManager=x&force=true", applied, APPLY)
    assert status == 500 and body["message"].startswith("failed to convert new object (/b; autoscaling/v1, Kind=Scale) to proper version:")
    applied["spec"]["replicas"] = 1
    status, body = client("PATCH", widgets.path("b") + "/scale?fieldManager=x", applied, APPLY)
    assert (status, body["spec"]) == (200, {"replicas": 1})
    entries = client("GET", widgets.path("b"))[1]["metadata"]["managedFields"]
    [owner] = [e for e in entries if "f:replicas" in e["fieldsV1"].get("f:spec", {}) and e["operation"] == "Apply"]
    assert (owner["manager"], owner["subresource"]) == ("x", "scale")


def test_a_scale_with_a_path_outside_of_the_schema(client, define, namespace):
    """What is written there is validated and increments the generation, and is then dropped; the answer does not have it."""
    scale = {"specReplicasPath": ".spec.nowhere", "statusReplicasPath": ".status.replicas"}
    widgets = define(definition(f"{namespace}.example.com", version(subresources={"scale": scale}))).install()
    widgets.create("a")
    put = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "a"}, "spec": {"replicas": 3}}
    for generation in (2, 3):
        status, body = client("PUT", widgets.path("a") + "/scale", put)
        assert (status, body["spec"]) == (200, {})
        stored = client("GET", widgets.path("a"))[1]
        assert (stored.get("spec"), stored["metadata"]["generation"]) == ({}, generation)
    status, body = client("PUT", widgets.path("a") + "/scale", {**put, "spec": {"replicas": -1}})
    assert status == 422 and [c["field"] for c in body["details"]["causes"]] == [".spec.nowhere"]


def test_a_scale_is_written_in_the_version_of_its_path(client, define, namespace):
    """The schema of the requested version must accept it, not that of the stored one."""
    narrow = version("v1", spec={"replicas": {"type": "integer", "maximum": 5}}, subresources={"scale": SCALE})
    wide = version("v2", spec={"replicas": {"type": "integer", "maximum": 9}}, subresources={"scale": SCALE}, storage=False)
    widgets = define(definition(f"{namespace}.example.com", narrow, wide)).install()
    widgets.create("a", {"replicas": 1})
    put = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "a"}, "spec": {"replicas": 7}}
    path = widgets.path("a") + "/scale"
    assert client("PUT", path, put)[0] == 422
    assert client("PUT", path.replace("/v1/", "/v2/"), put)[1]["spec"] == {"replicas": 7}
    assert client("GET", path)[1]["spec"] == {"replicas": 7}


def test_an_applied_null_is_kept_where_the_schema_forbids_it(client, define, namespace):
    """Elsewhere it is dropped, or replaced by a default."""
    spec = {"a": {"type": "string"}, "b": {"type": "string", "nullable": True}, "c": {"type": "string", "default": "d"}}
    widgets = define(definition(f"{namespace}.example.com", version(spec=spec))).install()
    nothing = {"a": None, "b": None, "c": None}
    assert widgets.create("posted", nothing)["spec"] == {"b": None, "c": "d"}
    applied = {"apiVersion": f"{namespace}.example.com/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": nothing}
    status, body = client("PATCH", widgets.path("a") + "?fieldManager=x", applied, APPLY)
    assert status == 422 and [c["field"] for c in body["details"]["causes"]] == ["spec.a"]
    del nothing["a"]
    status, body = client("PATCH", widgets.path("a") + "?fieldManager=x", applied, APPLY)
    assert (status, body["spec"]) == (201, {"b": None, "c": "d"})


def test_server_set_fields_have_no_manager(client, widgets):
    obj = widgets.create("a", {"replicas": 1})
    again = {**obj, "metadata": {"name": "b", "deletionGracePeriodSeconds": 4, "labels": {"a": "b"}}}
    status, body = client("POST", widgets.path(), again)
    assert status == 201 and "f:deletionGracePeriodSeconds" not in body["metadata"]["managedFields"][0]["fieldsV1"]["f:metadata"]


def test_apply_uses_the_schema(client, widgets):
    one = widgets.path("a") + "?fieldManager=one"
    status, body = client("PATCH", one, widgets.obj("a", {"color": "red"}), APPLY)
    assert (status, body["spec"]) == (201, {"color": "red", "replicas": 1})
    status, body = client("PATCH", widgets.path("a") + "?fieldManager=two", widgets.obj("a", {"color": "blue"}), APPLY)
    assert status == 409 and 'conflict with "one"' in body["message"]
    status, body = client("PATCH", one, widgets.obj("a"), APPLY)
    assert (status, body["spec"]) == (200, {"replicas": 1})
    status, body = client("PATCH", one, widgets.obj("a", {"bogus": 1}), APPLY)
    assert status == 500 and ".spec.bogus: field not declared in schema" in body["message"]


def test_formats_of_answers(client, widgets):
    widgets.create("a", {"color": "red"})
    table = client("GET", widgets.path(), Accept="application/json;as=Table;v=v1;g=meta.k8s.io")[1]
    assert [c["name"] for c in table["columnDefinitions"]] == ["Name", "Age"] and table["rows"][0]["cells"][0] == "a"
    partial = client("GET", widgets.path("a"), Accept="application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io")[1]
    assert partial["kind"] == "PartialObjectMetadata" and "spec" not in partial
    assert client.raw("GET", widgets.path("a"), Accept="application/yaml").text.startswith("apiVersion: ")
    assert client.raw("GET", widgets.path("a"), Accept="application/vnd.kubernetes.protobuf").status_code == 406
    assert client.raw("GET", widgets.path("a"), Accept="application/vnd.kubernetes.protobuf,application/json").json()["kind"] == "Widget"
    assert client("POST", widgets.path(), b"k8s\0", "application/vnd.kubernetes.protobuf")[0] == 415
    text = client.raw("GET", widgets.path("a")).text
    assert list(json.loads(text)) == ["apiVersion", "kind", "metadata", "spec"]
    yaml = f"apiVersion: {widgets.group}/v1\nkind: Widget\nmetadata: {{name: b}}\nspec: {{color: green}}\n"
    assert client("POST", widgets.path(), yaml, "application/yaml")[1]["spec"] == {"color": "green", "replicas": 1}


def test_lists_are_written_with_sorted_keys(client, widgets):
    for i in range(300):  # more than one page
        widgets.create(f"w{i:03}")
    items = [client.raw("GET", widgets.path(f"w{i:03}")).text.strip() for i in (0, 1)]
    for query, count in (("", 300), ("?limit=2", 2), ("?limit=200", 200), ("?labelSelector=no", 0)):
        text = client.raw("GET", widgets.path() + query).text
        body = json.loads(text)
        meta = body["metadata"]
        assert (list(body), list(meta), len(body["items"])) == (["apiVersion", "items", "kind", "metadata"], sorted(meta), count)
        said = json.dumps(meta, separators=(",", ":"))
        assert text.startswith(f'{{"apiVersion":"{widgets.group}/v1","items":[' + ",".join(items)[: 9999 if count else 0])
        assert text.endswith(f'],"kind":"WidgetList","metadata":{said}}}\n') and "continue" in meta
    yaml = client.raw("GET", widgets.path() + "?limit=2", Accept="application/yaml").text
    # A controller may have written since the list before.
    assert (end := re.search(r'resourceVersion: "(\d+)"\n\Z', yaml)) and int(end[1]) >= int(meta["resourceVersion"])


def test_a_dry_run_shows_fields_that_storing_would_remove(client, widgets):
    given = widgets.obj("a")
    given["metadata"] |= {"resourceVersion": "5", "selfLink": "/x"}
    status, body = client("POST", widgets.path() + "?dryRun=All", given)
    assert (status, body["metadata"]["resourceVersion"], body["metadata"].get("selfLink")) == (201, "5", None)
    status, body = client("PATCH", widgets.path("a") + "?dryRun=All&fieldManager=m", given, APPLY)
    assert (status, body["metadata"]["resourceVersion"]) == (201, "5")
    assert client("POST", widgets.path(), given)[1]["message"] == "resourceVersion should not be set on objects to be created"
    made = widgets.create("a")["metadata"]
    patch = {"metadata": {"selfLink": "/x"}}
    for query, shown in (("?dryRun=All", "/x"), ("", None)):
        status, body = client("PATCH", widgets.path("a") + query, patch, MERGE)
        assert (status, body["metadata"].get("selfLink")) == (200, shown)
        assert body["metadata"]["resourceVersion"] == made["resourceVersion"]


def test_an_applied_invalid_time_is_dropped(client, widgets):
    for name, times in (("a", {"creationTimestamp": "nope"}), ("a", {"creationTimestamp": 5}), ("a", {"deletionTimestamp": "nope"})):
        applied = widgets.obj(name, {"color": "red"})
        applied["metadata"] |= times
        status, body = client("PATCH", widgets.path(name) + "?fieldManager=m&force=true", applied, APPLY)
        assert status in (200, 201) and body["metadata"]["creationTimestamp"].startswith("20"), body
        assert "deletionTimestamp" not in body["metadata"] and body["spec"]["color"] == "red"


@pytest.mark.parametrize("form", [MERGE, JSON_PATCH])
def test_a_patch_keeps_floats(client, define, namespace, form):
    """For rules 1.0 is not an integer, and comparing finds it different from 1; as in a body."""
    whole = {"type": "integer", "x-kubernetes-validations": [{"rule": "self < 9"}]}
    crd = define(definition(f"{namespace}.example.com", version(spec={"n": whole, "m": {"type": "integer"}}))).install()
    assert crd.create("a", {"m": 1})["metadata"]["generation"] == 1

    def patched(text: str):
        sent = f'{{"spec":{{{text}}}}}' if form == MERGE else f'[{{"op":"replace","path":"/spec","value":{{{text}}}}}]'
        return client("PATCH", crd.path("a"), sent, form)

    status, body = patched('"n":1.0')
    assert status == 422 and "invalid data, expected int, got float64" in body["message"]
    status, body = patched('"m":1.0')
    assert (status, body["metadata"]["generation"], body["spec"]) == (200, 2, {"m": 1})


def test_a_list_without_metadata_has_null(client, widgets):
    accept = {"Accept": "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"}
    assert client.raw("GET", widgets.path(), **accept).text.endswith('},"items":null}\n')
    assert client("GET", widgets.path() + "?pretty=1", **accept)[1]["items"] is None
    widgets.create("a")
    assert len(client("GET", widgets.path(), **accept)[1]["items"]) == 1
    assert client("GET", widgets.path() + "?labelSelector=no", **accept)[1]["items"] is None


def test_the_answer_of_deletecollection_is_no_single_object(client, widgets):
    """Checked after the deletion."""
    widgets.create("a")
    status, body = client("DELETE", widgets.path(), Accept="application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io")
    assert status == 406 and body["message"].startswith("you requested PartialObjectMetadata, but the requested object is a list")
    assert client("GET", widgets.path("a"))[0] == 404


def test_field_selectors(client, widgets):
    for name, color in (("a", "red"), ("b", "blue"), ("c", "red")):
        widgets.create(name, {"color": color})
    status, body = client("GET", widgets.path() + "?fieldSelector=spec.color=red")
    assert [o["metadata"]["name"] for o in body["items"]] == ["a", "c"]
    status, body = client("GET", widgets.path() + "?fieldSelector=spec.replicas=1")
    assert (status, body["message"]) == (400, "field label not supported: spec.replicas")
    where = f"{widgets.path()}?watch=true&fieldSelector=spec.color=red&resourceVersion={body_version(client, widgets)}&timeoutSeconds=5"
    with stream(client, where) as answer:
        client("PATCH", widgets.path("a"), {"spec": {"color": "blue"}}, MERGE)
        client("PATCH", widgets.path("b"), {"spec": {"color": "red"}}, MERGE)
        lines = answer.iter_lines()
        events = [json.loads(next(lines)) for _ in range(2)]
    assert [(e["type"], e["object"]["metadata"]["name"]) for e in events] == [("DELETED", "a"), ("ADDED", "b")]


def body_version(client, widgets) -> str:
    return client("GET", widgets.path())[1]["metadata"]["resourceVersion"]


def stream(client, path: str) -> requests.Response:
    return client.session.get(client.server.url + path, stream=True, timeout=60)


def test_fields_that_became_selectable_later(client, define, namespace):
    """Objects stored before are found, watched and deleted by them, including defaults; pages are complete."""
    spec = {"color": {"type": "string"}, "size": {"type": "integer"}}
    widgets = define(definition(f"{namespace}.example.com", version(spec=spec))).install()
    for i in range(6):
        widgets.create(f"w{i}", {"color": "red" if i % 2 else "blue"})
    path = widgets.path() + "?fieldSelector=spec.color%3Dred"
    assert client("GET", path)[0] == 400

    def selectable(crd):
        crd["spec"]["versions"][0]["selectableFields"] = [{"jsonPath": ".spec.color"}, {"jsonPath": ".spec.size"}]
        fields = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
        fields["default"], fields["properties"]["size"]["default"] = {}, 7

    widgets.change(selectable)
    until(lambda: client("GET", path)[0] == 200, "the field is known")

    def named(query):
        status, body = client("GET", widgets.path() + "?" + query)
        assert status == 200, body
        return [item["metadata"]["name"] for item in body["items"]], body["metadata"].get("continue")

    assert named("fieldSelector=spec.color%3Dred")[0] == ["w1", "w3", "w5"]
    assert named("fieldSelector=spec.color!%3Dred,metadata.name!%3Dw0")[0] == ["w2", "w4"]
    assert len(named("fieldSelector=spec.size%3D7")[0]) == 6
    first, token = named("fieldSelector=spec.color%3Dred&limit=2")
    assert first == ["w1", "w3"] and named(f"fieldSelector=spec.color%3Dred&limit=2&continue={token}") == (["w5"], "")
    with client.session.get(client.server.url + path + "&watch=1&resourceVersion=0&timeoutSeconds=60", stream=True, timeout=60) as answer:
        lines = answer.iter_lines()

        def event():
            e = json.loads(next(lines))
            return e["type"], e["object"]["metadata"]["name"], e["object"]["spec"]["color"]

        assert [event() for _ in range(3)] == [("ADDED", name, "red") for name in ("w1", "w3", "w5")]
        client("PATCH", widgets.path("w0"), {"spec": {"color": "red"}}, MERGE)
        client("PATCH", widgets.path("w1"), {"spec": {"color": "blue"}}, MERGE)
        client("PATCH", widgets.path("w3"), {"metadata": {"labels": {"a": "b"}}}, MERGE)
        assert [event() for _ in range(3)] == [("ADDED", "w0", "red"), ("DELETED", "w1", "red"), ("MODIFIED", "w3", "red")]
    status, body = client("DELETE", path)
    assert status == 200 and [item["metadata"]["name"] for item in body["items"]] == ["w0", "w3", "w5"]
    assert named("")[0] == ["w1", "w2", "w4"]


def test_bodies_of_another_kind_or_version(client, widgets):
    path, good = widgets.path(), widgets.obj("a")
    status, body = client("POST", path, {**good, "kind": "Other"})
    assert (status, body["message"]) == (422, f'Other.{widgets.group} "a" is invalid: kind: Invalid value: "Other": must be Widget')
    no_kind = '{"metadata":{"name":"a"}}'
    missing = f"Object 'Kind' is missing in '{no_kind}'"
    status, body = client("POST", path, no_kind)
    assert (status, body["message"]) == (400, f"the object provided is unrecognized (must be of type Widget): {missing} ({no_kind})")
    status, body = client("POST", path + "?fieldValidation=Ignore", no_kind)
    assert (status, body["message"]) == (400, f'Widget in version "v1" cannot be handled as a Widget: {missing}')
    status, body = client("POST", path, {**good, "apiVersion": "other.com/v7"})
    assert status == 400 and body["message"].startswith("the API version in the data (other.com/v7) does not match")
    for sent in ("[]", "{", "5", '{"kind":5}'):
        status, body = client("POST", path, sent)
        assert status == 400 and "couldn't get version/kind; json parse error: " in body["message"]
    assert client("GET", path)[1]["items"] == []


def test_objects_of_another_version_or_kind_are_validated_by_its_schema(client, define, namespace):
    one = version("v1", {"a": {"type": "string"}})
    two = version("v2", {"b": {"type": "string"}}, storage=False)
    made = define(definition(f"{namespace}.example.com", one, two)).install()
    path = made.path()

    def posted(query: str = "", **more: Any) -> tuple[int, str, str]:
        body = {**made.obj("x"), "spec": {"a": "1", "b": "2", "c": "3"}, **more}
        answer = client.raw("POST", path + query, json.dumps(body))
        return answer.status_code, answer.json()["message"], answer.headers.get("Warning", "").replace('\\"', '"')

    in_two, in_three = f"{made.group}/v2", f"{made.group}/v3"
    says = f"the API version in the data ({{}}) does not match the expected API version ({made.group}/v1)"
    warned = '299 - "unknown field "spec.a"", 299 - "unknown field "spec.c""'
    assert posted(apiVersion=in_two) == (400, says.format(in_two), warned)
    assert posted("?fieldValidation=Ignore", apiVersion=in_two) == (400, says.format(in_two), "")
    status, message, _ = posted("?fieldValidation=Strict", apiVersion=in_two)
    assert status == 400 and message.endswith('strict decoding error: unknown field "spec.a", unknown field "spec.c"')
    assert posted(apiVersion=in_three) == (400, says.format(in_three), '299 - "unknown field "spec""')
    # The schema does not cover other kinds; metadata is known for all.
    status, message, warning = posted(kind="Other", metadata={"name": "x", "zzz": 1})
    assert status == 422 and message.endswith('kind: Invalid value: "Other": must be Widget')
    assert warning == '299 - "unknown field "metadata.zzz""'
    good = {**made.obj("y"), "spec": {"a": "1"}}
    assert client("POST", path, good)[0] == 201
    answer = client.raw("PATCH", f"{path}/y", json.dumps({"kind": "Other", "spec": {"c": "3"}}), MERGE)
    assert answer.status_code == 422 and "Warning" not in answer.headers


def test_objects_in_tables_are_written_as_by_upstream(client, widgets):
    uid = client("POST", f"/api/v1/namespaces/{widgets.namespace}/configmaps", {"metadata": {"name": "o"}})[1]["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": uid, "controller": False, "blockOwnerDeletion": True}
    meta = {"name": "a", "labels": {"l": "1"}, "annotations": {"a": "1"}, "finalizers": ["example.com/x"], "ownerReferences": [owner]}
    assert client("POST", widgets.path(), {**widgets.obj("a"), "metadata": meta})[0] == 201
    table = "application/json;as=Table;v=v1;g=meta.k8s.io"
    row = client.raw("GET", widgets.path(), Accept=table).json()["rows"][0]["object"]
    assert list(row) == ["kind", "apiVersion", "metadata"]
    assert list(row["metadata"]) == [
        "name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "labels", "annotations", "ownerReferences",
        "finalizers", "managedFields",
    ]  # fmt: skip
    assert list(row["metadata"]["ownerReferences"][0]) == ["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"]
    assert list(row["metadata"]["managedFields"][0]) == ["manager", "operation", "apiVersion", "time", "fieldsType", "fieldsV1"]
    whole = client.raw("GET", f"{widgets.path()}?includeObject=Object", Accept=table).json()["rows"][0]["object"]
    assert list(whole) == ["apiVersion", "kind", "metadata", "spec"]
    assert client("PATCH", f"{widgets.path()}/a", {"metadata": {"finalizers": None}}, MERGE)[0] == 200


def test_integers_beyond_64_bits_are_floats(client, define, namespace):
    """Their shortest digits are written, as Go does."""
    anything = {name: {"type": "object", "x-kubernetes-preserve-unknown-fields": True} for name in ("a", "b")}
    widgets = define(definition(f"{namespace}.example.com", version(spec=anything))).install()
    shown = {"9223372036854775807": 9223372036854775807, "9223372036854775808": 9223372036854776000}
    shown |= {"18446744073709551615": 18446744073709552000, "9300000000000000001": 9300000000000000000}
    for i, (given, kept) in enumerate(shown.items()):
        for form in ("json", "yaml"):
            head = f'"apiVersion": "{widgets.group}/v1", "kind": "Widget", "metadata": {{"name": "{form}{i}"}}'
            body = f'{{{head}, "spec": {{"a": {{"l": [{given}], "n": {given}}}}}}}'
            code, made = client("POST", widgets.path(), body, f"application/{form}")
            assert (code, made["spec"]) == (201, {"a": {"l": [kept], "n": kept}})
            code, made = client("PATCH", widgets.path(f"{form}{i}"), f'{{"spec": {{"b": {{"n": {given}}}}}}}', MERGE)
            assert (code, made["spec"]) == (200, {"a": {"l": [kept], "n": kept}, "b": {"n": kept}})


def test_refusals_name_the_version_of_the_body(client, widgets):
    def told(query: str, **said) -> str:
        body = {"apiVersion": f"{widgets.group}/v1", "kind": "Widget", "metadata": {"name": "a", "creationTimestamp": "bad", "x": 1}} | said
        return client("POST", widgets.path() + query, body)[1]["message"]

    assert told("", apiVersion="").startswith('Widget in version "" cannot be handled as a Widget: parsing time')
    assert told("", apiVersion="x/v9", kind="Other").startswith('Other in version "v9" cannot be handled as a Widget: parsing time')
    strict, meta = "?fieldValidation=Strict", {"name": "a", "x": 1}
    found = 'strict decoding error: unknown field "metadata.x"'
    assert told(strict, metadata=meta, kind="Other") == f'Other in version "v1" cannot be handled as a Other: {found}'
    assert told(strict, metadata=meta, apiVersion="") == "Object 'apiVersion' is missing in 'object has no apiVersion field'"


@pytest.mark.parametrize(("version_of_status", "kept"), [("v2", True), ("v3", False)])
def test_status_writes_take_the_spec_from_managers_of_versions_without_status(client, define, namespace, version_of_status, kept):
    """Fields beside the status are ignored for managers of versions that have a status subresource, and a change for others."""
    plain, text = {"a": {"type": "string"}}, {"type": "string"}
    v1, v2, v3 = version(spec=plain), version("v2", plain | {"b": text}, False), version("v3", plain | {"c": text}, False)
    status = {"subresources": {"status": {}}}
    versions = (v1 | status, v2 | status, v3) if version_of_status == "v2" else (v1 | status, v2, v3 | status)
    crd = define(definition(f"{namespace}.example.com", *versions)).install()
    crd.create("a", {"a": "x"}, version="v2")
    status, body = client("PUT", crd.path("a", "v1") + "/status", client("GET", crd.path("a"))[1] | {"spec": {}})
    assert (status, body["spec"]) == (200, {"a": "x"})
    fields = next(m["fieldsV1"] for m in body["metadata"]["managedFields"] if m["apiVersion"].endswith("/v2"))
    assert ("f:a" in fields.get("f:spec", {})) == kept


def test_each_finding_of_the_yaml_decoder_is_one_warning(client, widgets):
    text = f"apiVersion: {widgets.group}/v1\nkind: Widget\nmetadata: {{name: a}}\nspec:\n  color: a\n  color: b\n  zzz: 1\n  zzz: 2\n"
    lines = ['line 6: key "color" already set in map', 'line 8: key "zzz" already set in map']
    answer = client.raw("POST", widgets.path(), text, "application/yaml")
    assert answer.status_code == 201
    assert answer.headers["Warning"].replace('\\"', '"') == ", ".join(f'299 - "{w}"' for w in (*lines, 'unknown field "spec.zzz"'))
    status, body = client("POST", widgets.path() + "?fieldValidation=Strict", text, "application/yaml")
    assert status == 400 and "strict decoding error: yaml: unmarshal errors:\n  " + "\n  ".join(lines) in body["message"]


def test_unknown_paths(client, widgets):
    wrong = [
        f"/apis/{widgets.group}/v2/widgets", f"/apis/{widgets.group}/v1/gadgets", f"/apis/{widgets.group}/v2",
        f"/apis/x{widgets.group}/v1/widgets",
    ]  # fmt: skip
    for path in wrong:
        answer = client.raw("GET", path)
        assert (answer.status_code, answer.text) == (404, "404 page not found\n"), path
    assert client.raw("POST", f"/apis/{widgets.group}/v1/widgets", widgets.obj("a")).text == "404 page not found\n"
    assert client("GET", widgets.path("a") + "/bogus")[0] == 404
    assert client("DELETE", widgets.path("a") + "/status")[0] == 405


def test_discovery_and_openapi(client, widgets):
    listed = client("GET", f"/apis/{widgets.group}/v1")[1]["resources"]
    assert [r["name"] for r in listed] == ["widgets", "widgets/status", "widgets/scale"] and listed[0]["shortNames"] == ["wd"]
    assert client("GET", f"/apis/{widgets.group}")[1]["preferredVersion"]["version"] == "v1"
    where = client("GET", "/openapi/v3")[1]["paths"][f"apis/{widgets.group}/v1"]["serverRelativeURL"]
    answer = client.raw("GET", where)
    assert answer.headers["Cache-Control"] == "public, immutable"
    schemas = answer.json()["components"]["schemas"]
    mine = next(s for name, s in schemas.items() if name.endswith(".v1.Widget"))
    assert mine["properties"]["spec"]["properties"]["color"] == {"type": "string"}
    widgets.change(lambda crd: spec_of(crd).update(size={"type": "integer"}))
    other = client("GET", "/openapi/v3")[1]["paths"][f"apis/{widgets.group}/v1"]["serverRelativeURL"]
    assert other != where
    assert client.raw("GET", where).url.endswith(other)  # redirected to the current one
    definitions = client("GET", "/openapi/v2")[1]["definitions"]
    mine = next(d for name, d in definitions.items() if widgets.namespace in name and name.endswith(".v1.Widget"))
    assert mine["properties"]["spec"]["properties"]["size"] == {"type": "integer"}


def spec_of(crd, which: int = 0):
    return crd["spec"]["versions"][which]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]


def test_a_watch_ends_when_the_definition_changes(client, widgets):
    with stream(client, f"{widgets.path()}?watch=true&timeoutSeconds=300") as answer:
        widgets.create("a")
        lines = answer.iter_lines()
        assert json.loads(next(lines))["object"]["metadata"]["name"] == "a"
        client("PATCH", widgets.where, {"metadata": {"labels": {"x": "y"}}}, MERGE)
        widgets.create("b")
        assert json.loads(next(lines))["object"]["metadata"]["name"] == "b"  # a change of the definition's metadata ends no watch
        before = client("GET", widgets.path())[1]["metadata"]["resourceVersion"]
        widgets.change(lambda crd: spec_of(crd).update(size={"type": "integer"}))
        assert list(lines) == []
    # A watch that resumes from before the change must list again, because objects may look different now.
    with stream(client, f"{widgets.path()}?watch=true&timeoutSeconds=300&resourceVersion={before}") as answer:
        event = json.loads(next(answer.iter_lines()))
        assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
    now = client("GET", widgets.path())[1]["metadata"]["resourceVersion"]
    with stream(client, f"{widgets.path()}?watch=true&timeoutSeconds=300&resourceVersion={now}") as answer:
        widgets.create("c")
        assert json.loads(next(answer.iter_lines()))["object"]["metadata"]["name"] == "c"


def test_stored_objects_follow_the_schema(client, widgets):
    widgets.create("old", {"color": "red"})
    widgets.change(lambda crd: (spec_of(crd).update(size={"type": "integer", "default": 5}), spec_of(crd).pop("color"),
                                crd["spec"]["versions"][0].pop("selectableFields")))  # fmt: skip
    widgets.create("young")
    want = {"old": {"replicas": 1, "size": 5}, "young": {"replicas": 1, "size": 5}}
    assert client("GET", widgets.path("old"))[1]["spec"] == want["old"]
    assert {o["metadata"]["name"]: o["spec"] for o in client("GET", widgets.path())[1]["items"]} == want
    with stream(client, f"{widgets.path()}?watch=true&timeoutSeconds=60") as answer:
        lines = answer.iter_lines()
        assert {(e := json.loads(next(lines))["object"])["metadata"]["name"]: e["spec"] for _ in range(2)} == want
    status, body = client("PATCH", widgets.path("old"), {"metadata": {"labels": {"x": "y"}}}, MERGE)
    assert (status, body["spec"], body["metadata"]["generation"]) == (200, want["old"], 1)


def test_versions_that_differ_by_name(client, define, namespace):
    v1 = version("v1", {"a": {"type": "string"}, "both": {"type": "integer"}})
    v2 = version("v2", {"both": {"type": "integer"}}, storage=False)
    customs = define(definition(f"{namespace}.example.com", v1, v2)).install()
    customs.create("a", {"a": "x", "both": 1})
    status, body = client("GET", customs.path("a", "v2"))
    assert (body["apiVersion"], body["spec"]) == (f"{customs.group}/v2", {"both": 1})
    assert [o["apiVersion"] for o in client("GET", customs.path(version="v2"))[1]["items"]] == [f"{customs.group}/v2"]
    status, body = client("PATCH", customs.path("a", "v2"), {"spec": {"both": 2}}, MERGE)
    assert (status, body["spec"]) == (200, {"both": 2})

    def other_storage(crd):
        crd["spec"]["versions"][0]["storage"], crd["spec"]["versions"][1]["storage"] = False, True

    assert customs.change(other_storage)["status"]["storedVersions"] == ["v1", "v2"]
    customs.create("b", {"both": 3})
    for v in ("v1", "v2"):
        items = client("GET", customs.path(version=v))[1]["items"]
        assert [(o["apiVersion"], o["spec"]["both"]) for o in items] == [(f"{customs.group}/{v}", 2), (f"{customs.group}/{v}", 3)]


def test_objects_of_a_removed_version(client, define, namespace):
    """The status claims that no object is stored in v1 any more although "a" is: it cannot be read, other objects are served."""
    v1, v2 = version("v1", {"a": {"type": "string"}}), version("v2", {"a": {"type": "string"}}, storage=False)
    customs = define(definition(f"{namespace}.example.com", v1, v2)).install()
    customs.create("a", {"a": "x"})

    def other_storage(crd):
        crd["spec"]["versions"][0]["storage"], crd["spec"]["versions"][1]["storage"] = False, True

    customs.change(other_storage)
    customs.create("b", {"a": "y"})
    client("PATCH", customs.where + "/status", {"status": {"storedVersions": ["v2"]}}, MERGE)
    customs.change(lambda crd: crd["spec"]["versions"].pop(0))
    until(lambda: client("GET", customs.path())[0] == 404, "v1 is served no more")
    assert client("GET", customs.path("b", "v2"))[0] == 200
    for path in (customs.path("a", "v2"), customs.path(version="v2")):
        status, body = client("GET", path)
        assert (status, body["message"]) == (500, f"request to convert CR from an invalid group/version: {customs.group}/v1")


def test_names_used_by_another_definition(client, define, namespace):
    group = f"{namespace}.example.com"
    first = define(definition(group, shortNames=["w"])).install()
    second = define(definition(group, plural="gadgets", kind="Widget", shortNames=["w"]))
    assert client("POST", DEFINITIONS, second.crd)[0] == 201
    until(lambda: second.condition("NamesAccepted") == "False", "the second is refused")
    found = {c["type"]: c for c in client("GET", second.where)[1]["status"]["conditions"]}
    assert (found["NamesAccepted"]["reason"], found["NamesAccepted"]["message"]) == ("ListKindConflict", '"WidgetList" is already in use')
    assert (found["Established"]["status"], found["Established"]["reason"]) == ("False", "NotAccepted")
    assert client.raw("GET", second.path()).text == "404 page not found\n"
    assert client("DELETE", first.where)[0] == 200
    first.gone()
    second.established()
    second.create("a")


def test_objects_are_deleted_before_their_definition(client, define, namespace):
    customs = define(definition(f"{namespace}.example.com")).install()
    customs.create("plain")
    held = customs.obj("held")
    held["metadata"]["finalizers"] = ["example.com/held"]
    assert client("POST", customs.path(), held)[0] == 201
    status, body = client("DELETE", customs.where)
    assert status == 200 and body["metadata"]["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]
    until(lambda: client("GET", customs.path("plain"))[0] == 404, "the plain one goes")
    assert client("GET", customs.path("held"))[1]["metadata"]["deletionTimestamp"]
    status, body = client("POST", customs.path(), customs.obj("new"))
    assert (status, body["message"].partition(": ")[2]) == (403, "create not allowed while custom resource definition is terminating")
    assert client("PATCH", customs.path("new") + "?fieldManager=m", customs.obj("new"), APPLY)[0] == 403
    assert "create" not in client("GET", f"/apis/{customs.group}/v1")[1]["resources"][0]["verbs"]
    assert client("PATCH", customs.path("held"), {"metadata": {"finalizers": None}}, MERGE)[0] == 200
    customs.gone()
    assert client.raw("GET", customs.path()).text == "404 page not found\n"
    customs.install()
    assert client("GET", customs.path())[1]["items"] == []


def test_api_services_of_definitions(client, define, namespace):
    customs = define(definition(f"{namespace}.example.com")).install()
    where = f"/apis/apiregistration.k8s.io/v1/apiservices/v1.{customs.group}"
    until(lambda: client("GET", where)[0] == 200, "there is an APIService")
    assert client("DELETE", where)[0] == 200
    until(lambda: client("GET", where)[0] == 200, "it is made anew")
    client("PATCH", where, {"spec": {"versionPriority": 7}}, MERGE)
    until(lambda: client("GET", where)[1]["spec"]["versionPriority"] == 100, "it is put right")
    client("DELETE", customs.where)
    until(lambda: client("GET", where)[0] == 404, "it goes with the definition")


def test_a_definition_in_a_kubernetes_group_is_shown_and_not_served(client, define):
    """The built-in group serves all its paths. OpenAPI documents show the definition, too, except for a path of Kubernetes."""
    group, form = "networking.k8s.io", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    crd = definition(group, version("v9"))
    crd["metadata"]["annotations"] = {"api-approved.kubernetes.io": "unapproved, for a test"}

    def shown() -> dict[str, list[str]]:
        groups = client.raw("GET", "/apis", Accept=form).json()["items"]
        found = next(g for g in groups if g["metadata"]["name"] == group)
        return {v["version"]: [r["resource"] for r in v["resources"]] for v in found["versions"]}

    before = shown()
    customs = define(crd).install()
    until(lambda: shown() == {"v9": ["widgets"], **before}, "it is shown")
    until(lambda: f"apis/{group}/v9" in client("GET", "/openapi/v3")[1]["paths"], "it has a document")
    assert f"/apis/{group}/v9/widgets" in client("GET", f"/openapi/v3/apis/{group}/v9")[1]["paths"]
    assert {f"/apis/{group}/v1/ingresses", f"/apis/{group}/v9/widgets"} < set(client("GET", "/openapi/v2")[1]["paths"])
    assert client("GET", customs.path(version="v9"))[0] == 404 and client("GET", f"/apis/{group}/v9")[0] == 404
    until(lambda: "v9" in [v["version"] for v in client("GET", f"/apis/{group}")[1]["versions"]], "its APIService is there")
    customs.remove()
    until(lambda: shown() == before, "it is gone")


def test_namespaces_quota_and_owners(client, define, namespace):
    customs = define(definition(f"{namespace}.example.com")).install()
    client("POST", "/api/v1/namespaces", {"metadata": {"name": f"{namespace}-x"}})
    inner = Customs(client, customs.crd, f"{namespace}-x")
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {f"count/widgets.{customs.group}": "2"}}}
    quotas = f"/api/v1/namespaces/{inner.namespace}/resourcequotas"
    assert client("POST", quotas, quota)[0] == 201
    until(lambda: client("GET", f"{quotas}/q")[1]["status"].get("used"), "the quota counts")
    owner = inner.create("owner")
    dependent = inner.obj("dependent")
    dependent["metadata"]["ownerReferences"] = [
        {"apiVersion": f"{customs.group}/v1", "kind": "Widget", "name": "owner", "uid": owner["metadata"]["uid"]}
    ]
    assert client("POST", inner.path(), dependent)[0] == 201
    status, body = client("POST", inner.path(), inner.obj("third"))
    assert status == 403 and "exceeded quota" in body["message"]
    client("DELETE", inner.path("owner"))
    until(lambda: client("GET", inner.path("dependent"))[0] == 404, "the dependent is collected")
    held = customs.create("stays")
    assert client("DELETE", f"/api/v1/namespaces/{inner.namespace}")[0] == 200
    until(lambda: client("GET", f"/api/v1/namespaces/{inner.namespace}")[0] == 404, "the namespace goes")
    assert client("GET", customs.path("stays"))[1] == held


def test_every_worker_serves_an_established_definition(kas_server, connect):
    server = kas_server("--unsafe-no-fsync", "--controllers=none", workers=2)
    client = connect(server)
    for i in range(3):
        customs = Customs(client, definition(f"g{i}.example.com")).install()
        found = [connect(server)("GET", customs.path())[0] for _ in range(12)]  # a connection each, to either worker
        assert found == [200] * 12
        assert connect(server)("POST", customs.path(), customs.obj("a"))[0] == 201
        assert [connect(server)("GET", customs.path("a"))[0] for _ in range(12)] == [200] * 12


def test_nothing_is_written_under_an_old_schema(kas_server, connect):
    """Writers continue while the definition changes: what is stored after the change fits the new schema."""
    server = kas_server("--unsafe-no-fsync", "--controllers=none", workers=2)
    customs = Customs(connect(server), definition("example.com", version(spec={"x": {"type": "string"}}))).install()
    stop, answers, lock = threading.Event(), [], threading.Lock()

    def write(writer: int) -> None:
        client, n = connect(server), 0
        while not stop.is_set():
            n += 1
            status, body = client("POST", customs.path(), customs.obj(f"w{writer}n{n}", {"x": "text"}))
            with lock:
                answers.append((status, body))

    def stuff(n: int) -> bool:
        with lock:
            return len(answers) > n

    threads = [threading.Thread(target=write, args=(i,)) for i in range(6)]
    for t in threads:
        t.start()
    try:
        until(lambda: stuff(60), "writers write")
        changed = customs.change(lambda crd: spec_of(crd).update(x={"type": "integer"}))
        with lock:
            n = len(answers)
        until(lambda: stuff(n + 60), "writers go on")
    finally:
        stop.set()
        for t in threads:
            t.join()
    assert {status for status, _ in answers} <= {201, 422, 429} and {201, 422} <= {status for status, _ in answers}
    revision = int(changed["metadata"]["resourceVersion"])
    assert max(int(body["metadata"]["resourceVersion"]) for status, body in answers if status == 201) < revision


def test_custom_resources_survive_a_restart(kas_server, connect):
    server = kas_server("--unsafe-no-fsync", "--controllers=none")
    client = connect(server)
    customs = Customs(client, definition("example.com", version(spec=SPEC))).install()
    customs.create("a", {"color": "red"})
    customs.change(lambda crd: spec_of(crd).update(size={"type": "integer", "default": 5}))
    customs.create("b")
    server.stop()
    server.start()
    customs.client = client = connect(server)
    want = {"a": {"color": "red", "replicas": 1, "size": 5}, "b": {"replicas": 1, "size": 5}}
    assert {o["metadata"]["name"]: o["spec"] for o in client("GET", customs.path())[1]["items"]} == want
    customs.create("c")


def test_versions_that_a_webhook_converts(client, define, namespace):
    """While it does not answer, objects in the stored version are served, and others are an error."""
    hook = {"conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://127.0.0.1:1/"}}
    crd = definition(f"{namespace}.example.com", version("v1"), version("v2", storage=False))
    crd["spec"]["conversion"] = {"strategy": "Webhook", "webhook": hook}
    customs = define(crd).install()
    made = customs.create("a")
    assert client("GET", customs.path("a"))[1] == made
    for path in (customs.path("a", "v2"), customs.path(version="v2")):
        status, body = client("GET", path)
        assert status == 500 and body["message"].startswith(f"conversion webhook for {customs.group}/v1, Kind=Widget failed: ")
    assert client("POST", customs.path(version="v2"), customs.obj("b", version="v2"))[0] == 500
    assert [o["metadata"]["name"] for o in client("GET", customs.path())[1]["items"]] == ["a"]


def test_stored_bytes_are_served_again_once_no_old_object_is_left(client, widgets):
    """The answers stay the same while the server determines this."""
    widgets.create("a", {"color": "red"})
    widgets.change(lambda crd: spec_of(crd).update(size={"type": "integer", "default": 5}))
    assert client("GET", widgets.path("a"))[1]["spec"]["size"] == 5
    status, after = client("PATCH", widgets.path("a"), {"spec": {"color": "blue"}}, MERGE)
    assert status == 200 and after["spec"] == {"color": "blue", "replicas": 1, "size": 5}
    assert client("GET", widgets.path())[1]["items"] == [after]


@pytest.mark.parametrize(("name", "says"), [("bare", "name to avoid"), ("with.domain", "name including a path (/) to avoid")])
def test_finalizers_that_several_definitions_share(client, widgets, name, says):
    obj = widgets.obj("a")
    obj["metadata"]["finalizers"] = [name, "example.com/mine", "orphan"]
    answer = client.raw("POST", widgets.path() + "?dryRun=All", obj)
    assert answer.status_code == 201 and answer.headers["Warning"].count("299") == 1 and says in answer.headers["Warning"]


def test_metrics_of_deleted_definitions_are_removed(client, define, namespace):
    """Definitions that are created and deleted do not add series without bound."""
    group = f"{namespace}.example.com"

    def told() -> list[str]:
        return [line for line in client.raw("GET", "/metrics").text.splitlines() if group in line]

    for round_ in ("first", "again"):
        customs = define(definition(group)).install()
        for name in ("a", "b"):
            customs.create(name)
        assert client("GET", customs.path())[0] == 200
        until(lambda: any('apiserver_resource_objects{' in line and line.endswith(" 2") for line in told()), "the objects are counted")
        posts = 'apiserver_request_total{code="201",component="apiserver",dry_run="",group="' + group
        assert [line.rpartition(" ")[2] for line in told() if line.startswith(posts)] == ["2"], round_
        assert any(line.startswith("etcd_request_duration_seconds_bucket") for line in told())
        customs.remove()
        until(lambda: not told(), f"nothing of {group} is counted")
