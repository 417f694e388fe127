"""OpenAPI documents of the built-in resources, in JSON and protobuf."""

from __future__ import annotations

import json

import jsonschema_rs
import pytest

from kas.config import features
from kas.endpoints import openapi
from kas.endpoints.openapi import OpenAPI, builtin, gnostic, negotiate
from kas.types.scheme import BUILTIN, Resource, decode, encode_json
from tests import prerequisites
from tests.vectors import files

METHODS = ("get", "put", "post", "delete", "patch", "head", "options")


@pytest.fixture(scope="module")
def server() -> OpenAPI:
    return OpenAPI([builtin(r) for r in BUILTIN.resources if r.served_by_default], "v1.36.2")


@pytest.fixture(scope="module")
def v2(server: OpenAPI) -> dict:
    return json.loads(server.v2().body)


@pytest.fixture(scope="module")
def core(server: OpenAPI) -> dict:
    return json.loads(server.v3("api/v1").body)


def walk(value):
    yield value
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from walk(item)


def operations(document):
    for path, item in document["paths"].items():
        for method in METHODS:
            if method in item:
                yield path, method, item[method]


def resolve(document, ref):
    found = document
    for step in ref.removeprefix("#/").split("/"):
        found = found[step]
    return found


@pytest.mark.parametrize("path", ["", "api/v1", "apis/apps/v1", "apis/apps", "api", "apis", "version"])
def test_every_reference_resolves(server, path):
    document = json.loads((server.v3(path) if path else server.v2()).body)
    for value in walk(document):
        if isinstance(value, dict) and isinstance(value.get("$ref"), str):
            resolve(document, value["$ref"])


def test_operation_ids_are_unique_and_follow_upstream(v2):
    ids = [o["operationId"] for _, _, o in operations(v2)]
    assert len(ids) == len(set(ids))
    for path, method, expected in (
        ("/api/v1/namespaces/{namespace}/pods", "get", "listCoreV1NamespacedPod"),
        ("/api/v1/pods", "get", "listCoreV1PodForAllNamespaces"),
        ("/api/v1/namespaces/{namespace}/pods", "delete", "deleteCoreV1CollectionNamespacedPod"),
        ("/api/v1/namespaces/{namespace}/pods/{name}/exec", "post", "connectCoreV1PostNamespacedPodExec"),
        ("/api/v1/namespaces/{namespace}/pods/{name}/proxy/{path}", "get", "connectCoreV1GetNamespacedPodProxyWithPath"),
        ("/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale", "patch", "patchAppsV1NamespacedDeploymentScale"),
        ("/apis/rbac.authorization.k8s.io/v1/clusterroles/{name}", "put", "replaceRbacAuthorizationV1ClusterRole"),
        ("/api/v1/namespaces/{name}/finalize", "put", "replaceCoreV1NamespaceFinalize"),
        ("/api/v1/watch/namespaces/{namespace}/pods/{name}", "get", "watchCoreV1NamespacedPod"),
    ):
        assert v2["paths"][path][method]["operationId"] == expected


def test_parameters_and_answers_of_unusual_operations(server: OpenAPI, v2: dict) -> None:
    """As in upstream's ``api/openapi-spec/swagger.json``."""
    log = v2["paths"]["/api/v1/namespaces/{namespace}/pods/{name}/log"]
    assert {"sinceSeconds", "tailLines"} <= {p.get("name") for p in log["parameters"]} and "sinceTime" not in str(log)
    deleted = {name: v2["paths"][f"/api/v1/{name}"]["delete"]["responses"]["200"]["schema"]["$ref"].rpartition(".")[2]
               for name in ("namespaces/{name}", "nodes/{name}", "persistentvolumes/{name}")}  # fmt: skip
    assert list(deleted.values()) == ["Status", "Status", "PersistentVolume"], "though a namespace is answered with"
    root, version = v2["paths"]["/apis/"]["get"], v2["paths"]["/version/"]["get"]
    assert root["consumes"] == root["produces"] == ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"]
    assert version["consumes"] == version["produces"] == ["application/json"]
    content = json.loads(server.v3("version").body)["paths"]["/version/"]["get"]["responses"]["200"]["content"]
    assert list(content) == ["application/json"]


@pytest.mark.parametrize(
    ("path", "id", "media"),
    [
        (".well-known/openid-configuration", "getServiceAccountIssuerOpenIDConfiguration", "application/json"),
        ("openid/v1/jwks", "getServiceAccountIssuerOpenIDKeyset", "application/jwk-set+json"),
    ],
)
def test_the_issuer_of_tokens(server: OpenAPI, v2: dict, path: str, id: str, media: str) -> None:
    get = v2["paths"][f"/{path}/"]["get"]
    assert (get["operationId"], get["produces"], get["responses"]["200"]["schema"]) == (id, [media], {"type": "string"})
    assert "consumes" not in get and path in server.paths
    get = json.loads(server.v3(path).body)["paths"][f"/{path}/"]["get"]
    assert (get["operationId"], list(get["responses"]["200"]["content"])) == (id, [media])
    without = OpenAPI([], "v1.36.2", issuer=False)
    assert without.v3(path) is None and path not in without.paths
    assert f"/{path}/" not in json.loads(without.v2().body)["paths"] and without.v2().etag != OpenAPI([], "v1.36.2").v2().etag


def test_path_parameters_match_the_path(v2, core):
    for document in (v2, core):
        for path, item in document["paths"].items():
            named = {p["name"] for p in item.get("parameters", ()) if p.get("in") == "path"}
            assert named == {part[1:-1] for part in path.split("/") if part.startswith("{")}, path


def test_actions_and_kinds_are_marked(core):
    patch = core["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"]
    assert patch["x-kubernetes-action"] == "patch"
    assert patch["x-kubernetes-group-version-kind"] == {"group": "", "kind": "Pod", "version": "v1"}
    assert "application/apply-patch+yaml" in patch["requestBody"]["content"]
    assert {"dryRun", "fieldValidation", "force"} <= {p["name"] for p in patch["parameters"]}
    for plural in ("componentstatuses", "nodes"):  # the one that cannot be watched, and another
        assert "application/json;stream=watch" in core["paths"][f"/api/v1/{plural}"]["get"]["responses"]["200"]["content"]
    eviction = core["paths"]["/api/v1/namespaces/{namespace}/pods/{name}/eviction"]["post"]
    assert eviction["x-kubernetes-group-version-kind"]["group"] == "policy"


def test_schemas_have_merge_keys_and_required_fields(v2, core):
    spec = v2["definitions"]["io.k8s.api.core.v1.ServiceSpec"]["properties"]["ports"]
    assert spec["x-kubernetes-list-type"] == "map" and spec["x-kubernetes-list-map-keys"] == ["port", "protocol"]
    assert spec["x-kubernetes-patch-merge-key"] == "port" and spec["x-kubernetes-patch-strategy"] == "merge"
    port = core["components"]["schemas"]["io.k8s.api.core.v1.ServicePort"]
    assert port["required"] == ["port"]
    # In the order of the fields, as upstream's generator writes them, not alphabetical: clients report missing fields in it.
    webhook = v2["definitions"]["io.k8s.api.admissionregistration.v1.MutatingWebhook"]
    assert webhook["required"] == ["name", "clientConfig", "sideEffects", "admissionReviewVersions"]
    assert port["properties"]["protocol"]["default"] == "TCP" and "UDP" in port["properties"]["protocol"]["enum"]
    assert port["properties"]["targetPort"]["allOf"] == [{"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.util.intstr.IntOrString"}]


BY_VERSION: dict[tuple[str, str], list[tuple[Resource, dict]]] = {}
for _given in (v["in"] for v in files.lines("etcd-samples")):
    _version = _given["group"], _given["version"]
    if _resource := BUILTIN.resource(*_version, _given["resource"]):
        BY_VERSION.setdefault(_version, []).append((_resource, _given))
NONE = pytest.param(None, id="none", marks=prerequisites.missing("no samples"))
VERSIONS = [pytest.param(v, id="/".join(v)) for v in BY_VERSION] or [NONE]


@pytest.mark.parametrize("version", VERSIONS)
def test_encoded_objects_match_their_schemas(version: tuple[str, str]) -> None:
    served = OpenAPI([builtin(r) for r in BUILTIN.resources if (r.group, r.version) == version], "v1.36.2")
    document = served.v3("apis/" + "/".join(version) if version[0] else "api/" + version[1])
    assert document is not None
    components = json.loads(document.body)["components"]
    names = {gvk["kind"]: name for name, s in components["schemas"].items() for gvk in s.get("x-kubernetes-group-version-kind", ())}
    for resource, given in BY_VERSION[version]:
        schema = {"$ref": f"#/components/schemas/{names[given['kind']]}", "components": components}
        obj = json.loads(encode_json(resource.type, decode(resource.type, given["object"])[0]))
        wrong = [(e.instance_path, e.message) for e in jsonschema_rs.Draft4Validator(schema).iter_errors(obj)]
        assert not [w for w in wrong if not w[1].startswith("null is not of type")], given["kind"]  # Go's nil, as upstream


def test_special_types_differ_between_versions(v2, core):
    name = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
    assert v2["definitions"][name]["type"] == "string" and v2["definitions"][name]["format"] == "int-or-string"
    assert core["components"]["schemas"][name]["oneOf"] == [{"type": "integer"}, {"type": "string"}]


def test_kinds_carry_their_group_version_kind(v2):
    assert v2["definitions"]["io.k8s.api.core.v1.Pod"]["x-kubernetes-group-version-kind"] == [{"group": "", "kind": "Pod", "version": "v1"}]
    everywhere = v2["definitions"]["io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"]["x-kubernetes-group-version-kind"]
    assert {"group": "apps", "kind": "DeleteOptions", "version": "v1"} in everywhere


def test_a_document_holds_only_schemas_of_its_paths(server):
    schemas = json.loads(server.v3("version").body)["components"]["schemas"]
    assert list(schemas) == ["io.k8s.apimachinery.pkg.version.Info"]


def test_the_index_names_each_document_by_its_hash(server):
    index = json.loads(server.v3_index().body)["paths"]
    assert {"api/v1", "apis/apps/v1", "apis", "version"} <= set(index)
    assert index["api/v1"]["serverRelativeURL"] == f"/openapi/v3/api/v1?hash={server.v3_hash('api/v1')}"
    assert server.v3("apis/nope/v1") is None and server.v3_hash("apis/nope/v1") is None
    assert server.v3("api/v1").etag == f'"{server.v3_hash("api/v1")}"'


def test_enums_follow_their_gate(v2, core):
    assert v2["definitions"]["io.k8s.api.core.v1.ContainerPort"]["properties"]["protocol"]["enum"] == ["SCTP", "TCP", "UDP"]
    served = [builtin(r) for r in BUILTIN.resources if r.served_by_default]
    with features.DEFAULT.overridden(OpenAPIEnums=False):
        without = OpenAPI(served, "v1.36.2")
        told = [json.loads(without.v2().body), json.loads(without.v3("api/v1").body)]
        kept = without.v3_address("api/v1")
    assert kept != OpenAPI(served, "v1.36.2").v3_address("api/v1")
    assert [value for document in told for value in walk(document) if isinstance(value, dict) and isinstance(value.get("enum"), list)] == []
    schemas = core["components"]["schemas"], told[1]["components"]["schemas"]
    assert schemas[0].keys() == schemas[1].keys()


def test_hashes_are_stable_and_local_to_a_group_version():
    served = [builtin(r) for r in BUILTIN.resources if r.group in ("", "apps") and r.served_by_default]
    one, same = OpenAPI(served, "v1.36.2"), OpenAPI(list(served), "v1.36.2")
    assert one.v3_hash("api/v1") == same.v3_hash("api/v1") and one.v2().etag == same.v2().etag
    less = OpenAPI([s for s in served if s.resource != "daemonsets"], "v1.36.2")
    assert less.v3_hash("api/v1") == one.v3_hash("api/v1") and less.v3_hash("apis/apps/v1") != one.v3_hash("apis/apps/v1")
    assert less.v2().etag != one.v2().etag


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", openapi.JSON),
        ("*/*", openapi.JSON),
        ("application/json, */*", openapi.JSON),
        ("application/com.github.proto-openapi.spec.v2@v1.0+protobuf", openapi.V2_PROTOBUF),
        ("application/com.github.proto-openapi.spec.v2.v1.0+protobuf;q=0.5, application/json;q=0.4", openapi.V2_PROTOBUF),
        ("text/html, application/json;q=0.1", openapi.JSON),
        ("application/json;q=0", None),
        ("application/json;q=many", None),
        ("application/com.github.proto-openapi.spec.v3.v1.0+protobuf", None),
    ],
)
def test_negotiation(accept, expected):
    assert negotiate(accept, "v2") == expected


def varint(data, at):
    shift = value = 0
    while True:
        byte = data[at]
        at, value, shift = at + 1, value | (byte & 0x7F) << shift, shift + 7
        if byte < 0x80:
            return value, at


def fields(data):
    """(number, value) pairs of a protobuf message: bytes, or int for varints and doubles."""
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        if tag & 7 == 2:
            size, at = varint(data, at)
            assert at + size <= len(data)
            yield tag >> 3, data[at : at + size]
            at += size
        elif tag & 7 == 1:
            yield tag >> 3, int.from_bytes(data[at : at + 8], "little")
            at += 8
        else:
            assert tag & 7 == 0
            value, at = varint(data, at)
            yield tag >> 3, value


def test_protobuf_has_every_path_and_definition(server, v2):
    document = list(fields(server.v2(openapi.V2_PROTOBUF).body))
    assert document[0] == (1, b"2.0")
    by_number = dict(document)
    paths = [dict(fields(pair))[1].decode() for number, pair in fields(by_number[8]) if number == 2]
    assert paths == sorted(v2["paths"])
    definitions = [dict(fields(pair))[1].decode() for _, pair in fields(by_number[9])]
    assert definitions == sorted(v2["definitions"])


def test_protobuf_of_v3_has_every_schema(server, core):
    document = server.v3("api/v1", openapi.V3_PROTOBUF)
    assert document.etag != server.v3("api/v1").etag
    by_number = dict(fields(document.body))
    schemas = dict(fields(dict(fields(by_number[5]))[1]))
    assert by_number[1] == b"3.0.0" and 1 in schemas
    names = [dict(fields(pair))[1].decode() for _, pair in fields(dict(fields(by_number[5]))[1])]
    assert names == sorted(core["components"]["schemas"])


def test_an_operation_in_protobuf():
    operation = {
        "operationId": "x",
        "parameters": [{"$ref": "#/parameters/pretty"}, {"in": "query", "name": "q", "type": "string", "uniqueItems": True}],
        "responses": {"200": {"description": "OK", "schema": {"type": "string"}}}, "x-kubernetes-action": "get",
    }  # fmt: skip
    data = gnostic.encode_v2({"swagger": "2.0", "paths": {"/x": {"get": operation}}})
    path = dict(fields(dict(fields(dict(fields(data))[8]))[2]))
    found = list(fields(dict(fields(path[2]))[2]))
    assert [number for number, _ in found] == [5, 8, 8, 9, 13]
    assert dict(fields(found[1][1])) == {2: b"\n\x13#/parameters/pretty"}
    extension = dict(fields(found[4][1]))
    assert extension[1] == b"x-kubernetes-action" and dict(fields(extension[2])) == {2: b'"get"\n'}


CRD = {
    "spec": {
        "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget", "listKind": "WidgetList"},
        "versions": [{"name": "v1", "served": True, "storage": True, "subresources": {"status": {}}, "schema": {"openAPIV3Schema": {
            "type": "object", "properties": {
                "spec": {"type": "object", "required": ["size", "note"], "properties": {
                    "size": {"type": "integer", "minimum": 1, "default": 2},
                    "note": {"type": "string", "nullable": True},
                    "port": {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]},
                    "template": {"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True},
                    "size2": {"x-kubernetes-int-or-string": True},
                    "rule": {"type": "string", "x-kubernetes-validations": [{"rule": "self != 'x'"}]},
                }},
            },
        }}}],
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def extended() -> OpenAPI:
    return OpenAPI([builtin(r) for r in BUILTIN.resources if r.served_by_default], "v1.36.2", [part(CRD)])


def described(crd, version):
    """Returns what a definition adds to the document of one of its versions."""
    spec = crd["spec"]
    return openapi.custom.describe({**crd, "spec": {**spec, "versions": [v for v in spec["versions"] if v["name"] == version]}})


def part(crd):
    return openapi.Part("example.com", "v1", "1", lambda: described(crd, "v1"))


def test_custom_resources_have_a_document_of_their_own(extended, server):
    document = json.loads(extended.v3("apis/example.com/v1").body)
    assert {"/apis/example.com/v1/namespaces/{namespace}/widgets/{name}/status", "/apis/example.com/v1/widgets"} <= set(document["paths"])
    assert document["info"] == {"title": "Kubernetes CRD Swagger", "version": "v0.1.0"} and document["components"].keys() == {"schemas"}
    schemas = document["components"]["schemas"]
    spec = schemas["com.example.v1.Widget"]["properties"]["spec"]
    assert spec["properties"]["size"] == {"type": "integer", "minimum": 1, "default": 2}
    assert spec["properties"]["note"]["nullable"] is True
    assert spec["properties"]["port"]["anyOf"] == spec["properties"]["size2"]["anyOf"] == [{"type": "integer"}, {"type": "string"}]
    assert spec["properties"]["template"]["required"] == ["kind", "apiVersion"]
    assert {"apiVersion", "kind", "metadata"} <= set(spec["properties"]["template"]["properties"])
    assert schemas["com.example.v1.Widget"]["properties"]["metadata"]["allOf"]
    assert schemas["com.example.v1.WidgetList"]["properties"]["items"]["items"] == {"$ref": "#/components/schemas/com.example.v1.Widget"}
    patch = document["paths"]["/apis/example.com/v1/namespaces/{namespace}/widgets/{name}"]["patch"]
    assert "application/strategic-merge-patch+json" not in patch["requestBody"]["content"]
    assert extended.v3_hash("api/v1") == server.v3_hash("api/v1") and extended.v2().etag != server.v2().etag


def test_v2_omits_parts_of_custom_schemas_it_cannot_express(extended):
    spec = json.loads(extended.v2().body)["definitions"]["com.example.v1.Widget"]["properties"]["spec"]
    assert spec["required"] == ["size"]
    assert spec["properties"]["size"] == {"type": "integer", "minimum": 1}
    assert spec["properties"]["note"] == {}
    assert spec["properties"]["port"] == {"x-kubernetes-int-or-string": True}


@pytest.mark.parametrize("content_type", [openapi.JSON, openapi.V2_PROTOBUF])
def test_a_custom_kind_named_as_a_built_in_one_gets_another_name(server, content_type):
    group = "apiextensions.apis.pkg.apiextensions-apiserver.k8s.io"
    names = {"plural": "customresourcedefinitions", "kind": "CustomResourceDefinition", "listKind": "CustomResourceDefinitionList"}
    crd = {"spec": CRD["spec"] | {"group": group, "names": names}}
    found = openapi.Part(group, "v1", "1", lambda: described(crd, "v1"))
    both = OpenAPI([builtin(r) for r in BUILTIN.resources if r.served_by_default], "v1.36.2", [found])
    name = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition"
    body = both.v2(content_type).body
    if content_type == openapi.V2_PROTOBUF:
        assert f"{name}_v2".encode() in body
        return
    document, before = json.loads(body), json.loads(server.v2().body)
    assert document["definitions"][name] == before["definitions"][name]
    assert document["definitions"][f"{name}List"] == before["definitions"][f"{name}List"]
    assert "size" in document["definitions"][f"{name}_v2"]["properties"]["spec"]["properties"]
    assert document["definitions"][f"{name}List_v2"]["properties"]["items"]["items"] == {"$ref": f"#/definitions/{name}_v2"}
    post = document["paths"][f"/apis/{group}/v1/namespaces/{{namespace}}/customresourcedefinitions"]["post"]
    assert post["responses"]["201"]["schema"] == {"$ref": f"#/definitions/{name}_v2"}


def test_definitions_in_a_built_in_version_do_not_change_its_documents(server):
    """v2 shows both; v3 has one document per version, and the built-in one is served. A version of its own has its own document."""
    crd = {"spec": CRD["spec"] | {"group": "apps"}}
    crd["spec"]["versions"] = [{**CRD["spec"]["versions"][0], "name": name} for name in ("v1", "v9")]
    parts = [openapi.Part("apps", name, "1", lambda name=name: described(crd, name)) for name in ("v1", "v9")]
    both = OpenAPI([builtin(r) for r in BUILTIN.resources if r.served_by_default], "v1.36.2", parts)
    assert both.v3_hash("apis/apps/v1") == server.v3_hash("apis/apps/v1")
    assert both.v3("apis/apps/v1").body == server.v3("apis/apps/v1").body
    assert next(iter(json.loads(both.v3("apis/apps/v9").body)["paths"])).startswith("/apis/apps/v9/")
    document, before = json.loads(both.v2().body), json.loads(server.v2().body)
    assert {path: document["paths"][path] for path in before["paths"]} == before["paths"]
    added = set(document["paths"]) - set(before["paths"])
    assert {f"/apis/apps/{name}/namespaces/{{namespace}}/widgets/{{name}}" for name in ("v1", "v9")} < added
    assert {name: document["definitions"][name] for name in before["definitions"]} == before["definitions"]


def test_custom_documents_in_protobuf(extended):
    assert b"com.example.v1.Widget" in extended.v2(openapi.V2_PROTOBUF).body
    assert b"com.example.v1.Widget" in extended.v3("apis/example.com/v1", openapi.V3_PROTOBUF).body


def test_an_open_custom_resource_has_no_field_descriptions():
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {
        "type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {"spec": {"type": "object"}},
    }}}  # fmt: skip
    server = OpenAPI([], "v1.36.2", [part({"spec": CRD["spec"] | {"versions": [version]}})])
    v2 = json.loads(server.v2().body)["definitions"]["com.example.v1.Widget"]
    assert v2["type"] == "object" and "properties" not in v2 and v2["x-kubernetes-group-version-kind"][0]["kind"] == "Widget"
    v3 = json.loads(server.v3("apis/example.com/v1").body)["components"]["schemas"]["com.example.v1.Widget"]
    assert {"spec", "metadata", "kind"} <= set(v3["properties"])
