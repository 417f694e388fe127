"""Invalid patches, with the codes and messages of apiserver's ``handlers/patch.go``."""

from __future__ import annotations

import json

import pytest

JSON, MERGE, STRATEGIC = (f"application/{t}-patch+json" for t in ("json", "merge", "strategic-merge"))
REJECTED = "the server rejected our request due to an error in our request"


@pytest.fixture
def config(client, namespace):
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    client("POST", path, {"metadata": {"name": "c"}, "data": {"x": "1"}})
    return f"{path}/c"


@pytest.fixture
def deployment(client, namespace):
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "a", "image": "i"}]}}
    client("POST", path, {"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}})
    return f"{path}/d"


def warnings(answer) -> list[str]:
    texts = answer.headers["Warning"].split(", 299 - ")
    return [w.removeprefix("299 - ").removeprefix('"').removesuffix('"').replace('\\"', '"') for w in texts]


@pytest.mark.parametrize(
    ("ctype", "patch", "code", "message"),
    [
        # Answered with 500 upstream, too: interpretStrategicMergePatchError does not know these errors.
        (STRATEGIC, '{"data":{"$patch":"bogus"}}', 500, "unknown patch type: bogus in map: map[$patch:bogus]"),
        (STRATEGIC, '{"$patch":7}', 500, "unknown patch type: %!s(int64=7) in map: map[$patch:7]"),
        (STRATEGIC, '{"metadata":{"$retainKeys":["x"],"labels":{"a":"b"}}}', 400, "invalid patch format of retainKeys"),
        (STRATEGIC, "[]", 400, "json: cannot unmarshal array into Go value of type map[string]interface {}"),
        (STRATEGIC, "{", 400, "unexpected end of JSON input"),
        (STRATEGIC, "null", 200, ""),
        (MERGE, "[]", 400, "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}"),
        (MERGE, "{", 400, "error decoding patch: unexpected end of JSON input"),
        (MERGE, "null", 400, "Invalid JSON Patch"),
        (JSON, "{}", 400, "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"),
        (JSON, "[1]", 400, "error decoding patch: json: cannot unmarshal number into Go value of type handlers.jsonPatchOp"),
        (JSON, '[{"op":1,"path":"/a"}]', 400,
         "error decoding patch: json: cannot unmarshal number into Go struct field jsonPatchOp.op of type string"),
        (JSON, "null", 200, ""),
        (JSON, '[{"op":"bogus","path":"/a"}]', 422, REJECTED),
    ],
)  # fmt: skip
def test_invalid_patches(client, config, ctype, patch, code, message):
    got, body = client("PATCH", config, patch, ctype)
    assert (got, body.get("message", "")) == (code, message)
    if code == 500:
        assert body == {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message, "code": 500}


@pytest.mark.parametrize(("body", "what"), [("[]", "array"), ("- a", "array"), ("5", "number")])
def test_invalid_apply_configurations(client, config, body, what):
    code, answer = client("PATCH", config + "?fieldManager=m", body, "application/apply-patch+yaml")
    why = f"json: cannot unmarshal {what} into Go value of type map[string]interface {{}}"
    assert (code, answer["message"]) == (400, f"error decoding YAML: error unmarshaling JSON: while decoding JSON: {why}")


@pytest.mark.parametrize(
    ("ctype", "patch", "message"),
    [
        (MERGE, "[]", "Invalid value: \"[]\": couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value"),
        (JSON, "{}", "json: cannot unmarshal object into Go value of type jsonpatch.Patch"),
        (JSON, '[{"op":1,"path":"/a"}]', REJECTED),
    ],
)
def test_patches_invalid_unless_checked_earlier(client, config, ctype, patch, message):
    code, body = client("PATCH", config + "?fieldValidation=Ignore", patch, ctype)
    assert code in (400, 422) and message in body["message"]


@pytest.mark.parametrize(
    ("patch", "shown", "why"),
    [
        ({"spec": {"replicas": "x"}}, "map[spec:map[replicas:x]]", "unrecognized type: int32"),
        ({"spec": {"replicas": 1.5}}, "map[spec:map[replicas:1.5]]", "cannot convert float64 to int32"),
        ({"spec": {"paused": [1]}}, "map[spec:map[paused:[1]]]", "unrecognized type: bool"),
        ({"metadata": {"labels": "x"}}, "map[metadata:map[labels:x]]", "cannot restore map from string"),
        ({"metadata": {"finalizers": {"a": 1}}}, "map[metadata:map[finalizers:map[a:1]]]", "cannot restore slice from map"),
        ({"spec": {"template": {"spec": {"securityContext": True}}}},
         "map[spec:map[template:map[spec:map[securityContext:true]]]]", "cannot restore struct from: bool"),
        ({"spec": {"template": {"spec": {"restartPolicy": 7}}}},
         "map[spec:map[template:map[spec:map[restartPolicy:7]]]]", "cannot convert int64 to v1.RestartPolicy"),
        ({"spec": {"strategy": {"rollingUpdate": {"maxSurge": True}}}},
         "map[spec:map[strategy:map[rollingUpdate:map[maxSurge:true]]]]", "json: cannot unmarshal bool into Go value of type int32"),
        ({"spec": {"nope": 1}}, "map[spec:map[nope:1]]", 'strict decoding error: unknown field "spec.nope"'),
        # The part that the merge has not consumed.
        ({"spec": {"template": {"spec": {
            "$setElementOrder/containers": [{"name": "a"}], "containers": [{"name": "a", "nope": 1}], "hostNetwork": None,
            "dnsConfig": {"x": None},
            "nodeSelector": {"$patch": "delete"}}}, "$retainKeys": ["template", "selector"]}},
         "map[spec:map[template:map[spec:map[dnsConfig:map[] hostNetwork:<nil> nodeSelector:map[$patch:delete]]]]]",
         'strict decoding error: unknown field "spec.template.spec.containers[0].nope"'),
    ],
)  # fmt: skip
def test_a_strategic_merge_patch_is_printed_as_a_go_map(client, deployment, patch, shown, why):
    code, body = client("PATCH", deployment + "?fieldValidation=Strict", patch, STRATEGIC)
    assert (code, body["message"]) == (422, f' "" is invalid: patch: Invalid value: "{shown}": {why}')
    assert body["details"]["causes"] == [
        {"reason": "FieldValueInvalid", "message": f'Invalid value: "{shown}": {why}', "field": "patch"}
    ]  # fmt: skip


def test_a_patched_document_is_printed_with_sorted_keys_where_it_was_changed(client, config):
    """The rest is the text of the server, or of the client's operation."""
    meta = client("GET", config)[1]["metadata"]
    written = json.dumps(meta, separators=(",", ":"))
    order = ["creationTimestamp", "labels", "managedFields", "name", "namespace", "resourceVersion", "uid"]
    entered = json.dumps({k: {**meta, "labels": {"b": "1", "a": "2"}}[k] for k in order}, separators=(",", ":"))
    new = '"zzz":{"a":[{"c":2,"d":1}],"b":1}'
    for ctype, patch, metadata, data, zzz in (
        (MERGE, {"zzz": {"b": 1, "a": [{"d": 1, "c": 2}]}, "data": {"z": "<", "y": "1"}}, written, '{"x":"1","y":"1","z":"\\u003c"}', new),
        (JSON, [{"op": "add", "path": "/zzz", "value": {"b": 1, "a": 2}},
                {"op": "add", "path": "/metadata/labels", "value": {"b": "1", "a": "2"}}], entered, '{"x":"1"}', '"zzz":{"b":1,"a":2}'),
    ):  # fmt: skip
        code, body = client("PATCH", config + "?fieldValidation=Strict", patch, ctype)
        text = f'{{"apiVersion":"v1","data":{data},"kind":"ConfigMap","metadata":{metadata},{zzz}}}'
        assert (code, body["message"]) == (
            422, f' "" is invalid: patch: Invalid value: {json.dumps(text)}: strict decoding error: unknown field "zzz"',
        )  # fmt: skip


@pytest.mark.parametrize("ctype", [JSON, MERGE, STRATEGIC])
def test_errors_of_a_patch_need_an_object(client, config, ctype):
    assert client("PATCH", config, "{", ctype)[0] == 400
    assert client("PATCH", config + "-missing", "{", ctype)[0] == 404


@pytest.mark.parametrize("body", ["{", "- a", '{"kind": "ConfigMap"}', '"\\ud83c\\udf89"'])
@pytest.mark.parametrize("subresource", ["status", "scale"])
def test_errors_of_an_apply_to_a_subresource_need_an_object(client, deployment, subresource, body):
    apply = "application/apply-patch+yaml"
    there, missing = (f"{path}/{subresource}?fieldManager=m" for path in (deployment, deployment + "-missing"))
    assert [client("PATCH", path, body, apply)[0] for path in (there, missing)] == [400, 404]
    assert client("PATCH", deployment + "-missing?fieldManager=m", body, apply)[0] == 400  # it would create one


def test_numbers_of_a_strategic_merge_patch_become_integers_as_in_go(client, deployment):
    for given, taken in ((2.0, 2), (4294967299, 3), (-4294967295, 1)):
        code, body = client("PATCH", deployment, {"spec": {"replicas": given}}, STRATEGIC)
        assert (code, body["spec"]["replicas"]) == (200, taken)
        code, body = client("PATCH", deployment, {"spec": {"replicas": given}}, MERGE)
        assert code == 422


def test_an_apply_with_a_uid_creates_nothing(client, namespace):
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "n", "uid": "u-1"}}
    path = f"/api/v1/namespaces/{namespace}/configmaps/n?fieldManager=m"
    code, status = client("PATCH", path, body, "application/apply-patch+yaml")
    why = "uid mismatch: the provided object specified uid u-1, and no existing object was found"
    assert (code, status["message"]) == (409, f'Operation cannot be fulfilled on configmaps "n": {why}')


DUPLICATES = '{"spec":{"zzz":1,"paused":false,"aaa":2,"paused":true}}'
OPERATIONS = json.dumps([
    {"op": "add", "path": "/spec/zzz", "value": 1, "foo": "bar"},
    {"op": "add", "path": "/spec/aaa", "value": {"k": 1}},
])[:-1] + ', {"op":"add","path":"/spec/paused","value":true,"path":"/spec/paused"}]'  # fmt: skip
IN_PATCH = {
    MERGE: ['duplicate field "spec.paused"'],
    STRATEGIC: ['duplicate field "spec.paused"'],
    JSON: ['json patch unknown field "[0].foo"', 'json patch duplicate field "[2].path"'],
}
IN_OBJECT = ['unknown field "spec.aaa"', 'unknown field "spec.zzz"']


@pytest.mark.parametrize(("ctype", "patch"), [(MERGE, DUPLICATES), (STRATEGIC, DUPLICATES), (JSON, OPERATIONS)])
def test_strict_decoding_reports_both_patch_and_object(client, deployment, ctype, patch):
    found = IN_PATCH[ctype] + IN_OBJECT
    code, body = client("PATCH", deployment + "?fieldValidation=Strict", patch, ctype)
    assert code == 422 and body["message"].endswith(": strict decoding error: " + ", ".join(found)), body
    answer = client.raw("PATCH", deployment + "?dryRun=All", patch, ctype)
    assert answer.status_code == 200
    assert warnings(answer) == found
    answer = client.raw("PATCH", deployment + "?dryRun=All&fieldValidation=Ignore", patch, ctype)
    assert answer.status_code == 200 and "Warning" not in answer.headers


@pytest.mark.parametrize(("operations", "found"), [
    ('{"op":"add","path":"/spec/strategy","value":{"type":"Recreate","type":"Recreate"}}', ["spec.strategy.type"]),
    ('{"op":"add","path":"/spec/zzz","value":{"type":1,"type":2}}', []),
    ('{"op":"test","path":"/spec/selector/matchLabels","value":{"a":"x","a":"b"}}', []),
    # The patch descends into the first object, which then has each member once, and not into the second.
    ('{"op":"add","path":"/metadata/annotations","value":{"a":"1","a":"2"}},{"op":"add","path":"/metadata/annotations/b","value":""}', []),
    ('{"op":"add","path":"/spec/strategy","value":{"rollingUpdate":{"maxSurge":1,"maxSurge":2}}},'
     '{"op":"add","path":"/spec/strategy/type","value":"RollingUpdate"}', ["spec.strategy.rollingUpdate.maxSurge"]),
])  # fmt: skip
def test_members_that_a_json_patchs_value_repeats_are_reported_in_the_object_too(client, deployment, operations, found):
    code, body = client("PATCH", deployment + "?fieldValidation=Strict", f"[{operations}]", JSON)
    assert code == 422
    text, _, errors = body["message"].partition(": strict decoding error: ")
    assert [e for e in errors.split(", ") if e.startswith("duplicate")] == [f'duplicate field "{path}"' for path in found], body
    assert errors.startswith('json patch duplicate field "[0].value.')
    if found:
        name = found[0].rpartition(".")[2]
        assert text.count(rf'\"{name}\":') == 2
    answer = client.raw("PATCH", deployment + "?dryRun=All", f"[{operations}]", JSON)
    assert answer.status_code == 200
    assert [w for w in warnings(answer) if w.startswith("duplicate")] == [f'duplicate field "{path}"' for path in found]


TWICE = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata:\n  a: '1'\n  a: '2'\n  b: '1'\n  b: '2'\n"


def test_each_finding_of_the_yaml_decoder_is_one_warning(client, namespace):
    lines = ['line 6: key "a" already set in map', 'line 8: key "b" already set in map']
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    assert warnings(client.raw("POST", path, TWICE % "made", "application/yaml")) == lines
    assert warnings(client.raw("PATCH", f"{path}/applied?fieldManager=m", TWICE % "applied", "application/apply-patch+yaml")) == lines
    unknown = ['unknown field "aaa"', 'unknown field "zzz"']
    assert warnings(client.raw("POST", path, TWICE % "more" + "zzz: 1\naaa: 2\n", "application/yaml")) == lines + unknown
    whole = "yaml: unmarshal errors:\n  " + "\n  ".join(lines)
    code, body = client("POST", f"{path}?fieldValidation=Strict", TWICE % "strict", "application/yaml")
    assert code == 400 and body["message"].endswith(f": strict decoding error: {whole}")
    apply = f"{path}/applied?fieldValidation=Strict&fieldManager="
    code, body = client("PATCH", apply + "m", TWICE % "applied", "application/apply-patch+yaml")
    assert (code, body["message"]) == (400, f"error strict decoding YAML: error converting YAML to JSON: {whole}")
    # The conflict is found earlier.
    code, body = client("PATCH", apply + "other", (TWICE % "applied").replace("b: '2'", "b: '3'"), "application/apply-patch+yaml")
    assert code == 409, body


@pytest.mark.parametrize("version", ["1", "{}", "[v1]", "true", "null"])
def test_an_apply_whose_version_is_not_a_string(client, config, version):
    body = f"apiVersion: {version}\nkind: ConfigMap\nmetadata: {{name: c}}\n"
    code, status = client("PATCH", config + "?fieldManager=m", body, "application/apply-patch+yaml")
    assert (code, status["message"]) == (400, "invalid object type: /, Kind=ConfigMap")


@pytest.mark.parametrize(
    ("metadata", "why"),
    [
        ("x", "(/; /v1, Kind=ConfigMap): .metadata: expected map, got &{x}"),
        ({"name": 3}, "(/; /v1, Kind=ConfigMap): .metadata.name: expected string, got &value.valueUnstructured{Value:3}"),
        ({"managedFields": "x"}, "(/; /v1, Kind=ConfigMap): .metadata.managedFields: expected list, got &{x}"),
    ],
)
def test_an_apply_whose_metadata_are_not_an_object(client, config, metadata, why):
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    code, answer = client("PATCH", f"{config}?fieldManager=m", body, "application/apply-patch+yaml")
    assert (code, answer["message"]) == (500, f"failed to create typed patch object {why}")


def test_an_empty_apply_has_no_kind(client, config):
    code, body = client("PATCH", config + "?fieldManager=m", "", "application/apply-patch+yaml")
    assert code == 400 and "cannot unmarshal" not in body["message"], body


def test_watch_without_a_resource(client):
    """A special verb without a resource: upstream has no RequestInfo for it, and answers in plain text."""
    answer = client.raw("GET", "/api/v1/watch/?a=<b>")
    assert (answer.status_code, answer.headers["Content-Type"]) == (500, "text/plain; charset=utf-8")
    assert answer.headers["X-Content-Type-Options"] == "nosniff" and answer.headers["Audit-Id"]
    assert answer.text.startswith('Internal Server Error: "/api/v1/watch/?a=')
    assert "<b>" not in answer.text
    assert "failed to create RequestInfo: unable to determine kind and namespace from url, /api/v1/watch/?a=" in answer.text


def test_an_apply_that_fits_the_schema_but_not_the_type(client, deployment):
    body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}}
    body["spec"] = {"strategy": {"rollingUpdate": {"maxSurge": True}}}
    code, status = client("PATCH", deployment + "?fieldManager=m&force=true", body, "application/apply-patch+yaml")
    why = "unable to convert unstructured object to apps/v1, Kind=Deployment: json: cannot unmarshal bool into Go value of type int32"
    assert (code, status["message"]) == (500, f"failed to convert new object (/d; apps/v1, Kind=Deployment) to proper version: {why}")
    assert "reason" not in status


def test_an_apply_may_reorder_items(client, namespace):
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments/ordered?fieldManager=m"

    def applied(*names):
        labels, env = {"a": "b"}, [{"name": n, "value": n} for n in names]
        pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i", "env": env}]}}
        spec = {"selector": {"matchLabels": labels}, "template": pod}
        body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "ordered"}, "spec": spec}
        code, obj = client("PATCH", path, body, "application/apply-patch+yaml")
        assert code in (200, 201), obj
        return [e["name"] for e in obj["spec"]["template"]["spec"]["containers"][0]["env"]], obj["metadata"]["generation"]

    assert applied("a", "b") == (["a", "b"], 1)
    assert applied("b", "a") == (["b", "a"], 2)
    assert applied("b", "a") == (["b", "a"], 2)


@pytest.mark.parametrize("operation", [{"op": "replace", "value": [{"verbs": ["get"], "nonResourceURLs": ["/x"]}]}, {"op": "remove"}])
def test_a_json_patch_sees_fields_served_as_null(client, namespace, operation):
    path = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    assert client("POST", path, {"metadata": {"name": namespace}, "rules": None})[1]["rules"] is None
    code, body = client("PATCH", f"{path}/{namespace}", [{"path": "/rules", **operation}], JSON)
    assert (code, body["rules"]) == (200, operation.get("value"))


@pytest.mark.parametrize("name", ["kind", "apiVersion"])
def test_a_patched_kind_that_is_not_a_string(client, config, name):
    code, body = client("PATCH", config, [{"op": "replace", "path": f"/{name}", "value": 5}], JSON)
    why = f"couldn't get version/kind; json parse error: json: cannot unmarshal number into Go struct field .{name} of type string"
    assert (code, body["message"].endswith(why)) == (422, True)


def test_the_first_error_of_a_patched_document_is_that_of_its_text(client, config):
    patch = [{"op": "add", "path": "/metadata/labels", "value": {"a": True}}, {"op": "add", "path": "/immutable", "value": 1.5}]
    assert client("PATCH", config, patch, JSON)[1]["message"].endswith("number into Go struct field ConfigMap.immutable of type bool")


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"paused": True, "template": {"spec": {"containers": [{"name": "a", "image": 1.5}]}}}, "unrecognized type: string"),
        ({"template": {"spec": {"containers": [{"name": "a", "image": 1}]}}}, "cannot convert int64 to string"),
        ({"template": {"spec": {"containers": [{"name": "a", "resources": {"limits": ["x"]}}]}}}, "cannot restore map from slice"),
        ({"template": {"spec": {"containers": [{"name": "a", "livenessProbe": {"httpGet": "x"}}]}}}, "cannot restore struct from: string"),
    ],
)
def test_values_that_a_strategic_merge_patch_cannot_convert(client, deployment, spec, why):
    code, body = client("PATCH", deployment, {"spec": spec}, STRATEGIC)
    assert (code, body["message"].rpartition('": ')[2]) == (422, why)
