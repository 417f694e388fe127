"""Writes as a whole: what a body may contain, and which errors it gets."""

from __future__ import annotations

import pytest

from kas.apiextensions.schema import MAX_LEVELS
from tests.controllers.waiting import until

NOT_SET = "resourceVersion should not be set on objects to be created"


@pytest.mark.parametrize(("given", "code"), [("5", 500), ("0", 201), ("", 201), ("-1", 201), ("x", 201)])
def test_a_new_object_has_no_revision(client, namespace, given, code):
    """The storage refuses one with a plain error, which is a 500 without reason; it ignores what it cannot parse as a number."""
    name = f"r{ord(given[0]) if given else 'none'}"
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    got, body = client("POST", path, {"metadata": {"name": name, "resourceVersion": given}})
    assert got == code, body
    if code == 500:
        assert body == {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": NOT_SET, "code": 500}
        assert client("POST", path, {"metadata": {"name": "A", "resourceVersion": given}})[0] == 422
        assert client("GET", f"{path}/{name}")[0] == 404
    else:
        assert body["metadata"]["resourceVersion"] not in (given, "")


def test_a_write_that_may_create_ignores_the_revision(client, namespace):
    path = f"/api/v1/namespaces/{namespace}/configmaps/applied?fieldManager=m"
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied", "resourceVersion": "1"}, "data": {"a": "b"}}
    assert client("PATCH", path, body, "application/apply-patch+yaml")[0] == 201
    assert client("PATCH", path, body, "application/apply-patch+yaml")[0] == 409
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/put"
    assert client("PUT", path, {"metadata": {"name": "put", "resourceVersion": "1"}, "spec": {}})[0] == 201


def test_some_kinds_are_not_replaced_unconditionally(client, namespace):
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    assert client("POST", path, {"metadata": {"name": "l"}, "spec": {}})[0] == 201
    code, body = client("PUT", f"{path}/l", {"metadata": {"name": "l"}, "spec": {"leaseDurationSeconds": 5}})
    assert (code, body["message"]) == (
        422,
        'leases.coordination.k8s.io "l" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update',
    )


APPLY, MERGE = "application/apply-patch+yaml", "application/merge-patch+json"


@pytest.mark.parametrize(
    ("given", "code", "message"),
    [
        ("x", 500, 'strconv.ParseUint: parsing "x": invalid syntax'),
        ("-1", 500, 'strconv.ParseUint: parsing "-1": invalid syntax'),
        ("1" * 21, 500, f'strconv.ParseUint: parsing "{"1" * 21}": value out of range'),
        ("007", 409, 'Operation cannot be fulfilled on configmaps "c": the object has been modified'),
        ("0", 200, ""),
    ],
)
def test_the_revision_of_a_write_must_be_a_number(client, namespace, given, code, message):
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    assert client("POST", path, {"metadata": {"name": "c"}})[0] == 201
    body = {"metadata": {"name": "c", "resourceVersion": given}}
    for answer in (client("PUT", f"{path}/c", body), client("PATCH", f"{path}/c", body, MERGE)):
        assert answer[0] == code and answer[1].get("message", "").startswith(message), answer
        assert code != 500 or "reason" not in answer[1]
    # The stored object's revision may be written with leading zeros.
    now = client("GET", f"{path}/c")[1]["metadata"]["resourceVersion"]
    assert client("PUT", f"{path}/c", {"metadata": {"name": "c", "resourceVersion": f"00{now}"}})[0] == 200


def test_a_patch_that_removes_the_revision(client, namespace):
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    assert client("POST", path, {"metadata": {"name": "l"}, "spec": {}})[0] == 201
    code, body = client("PATCH", f"{path}/l", {"metadata": {"resourceVersion": None}, "spec": {"holderIdentity": "h"}}, MERGE)
    assert (code, body["details"]["causes"][0]["field"]) == (422, "metadata.resourceVersion")
    assert client("PATCH", f"{path}/l", {"spec": {"holderIdentity": "h"}}, MERGE)[0] == 200


def test_a_uid_is_a_precondition_of_a_replace(client, namespace):
    """The storage checks it first; a patch that changes it is invalid."""
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    uid = client("POST", path, {"metadata": {"name": "c"}})[1]["metadata"]["uid"]
    body = {"metadata": {"name": "c", "uid": "other", "resourceVersion": "x"}}
    for query, root in (("", "/registry"), ("?dryRun=All", "")):
        code, answer = client("PUT", f"{path}/c{query}", body)
        assert (code, answer["message"]) == (
            409,
            'Operation cannot be fulfilled on configmaps "c": StorageError: invalid object, Code: 4, '
            f"Key: {root}/configmaps/{namespace}/c, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: "
            f"UID in precondition: other, UID in object meta: {uid}",
        )
    assert client("PUT", f"{path}/c", {"metadata": {"name": "c", "uid": uid}})[0] == 200
    code, answer = client("PATCH", f"{path}/c", {"metadata": {"uid": "other"}}, MERGE)
    assert (code, answer["details"]["causes"][0]["message"]) == (422, 'Invalid value: "other": field is immutable')
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/l"
    code, answer = client("PUT", leases, {"metadata": {"name": "l", "uid": "other"}, "spec": {}})
    assert code == 409 and answer["message"].endswith("UID in precondition: other, UID in object meta: ")


def test_writes_that_create_need_the_right_to_create(client, namespace):
    """A right to update or patch does not include creating (``withAuthorization``)."""
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    user = {"Impersonate_User": f"jane-{namespace}"}
    rules = [{"verbs": ["update", "patch"], "apiGroups": ["*"], "resources": ["*"]}]
    role, binding = {"metadata": {"name": "r"}, "rules": rules}, {
        "metadata": {"name": "r"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user["Impersonate_User"]}],
    }  # fmt: skip
    assert client("POST", f"{rbac}/roles", role)[0] == client("POST", f"{rbac}/rolebindings", binding)[0] == 201
    lease = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/l"
    applied = f"/api/v1/namespaces/{namespace}/configmaps/a?fieldManager=m"
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}}

    def put(**headers):
        return client("PUT", lease, {"metadata": {"name": "l", **at}, "spec": {}}, **headers)

    at: dict[str, str] = {}
    code, answer = put(**user)
    cannot = f'User "jane-{namespace}" cannot create resource "leases" in API group "coordination.k8s.io" in the namespace "{namespace}"'
    assert (code, answer["message"]) == (403, f'leases.coordination.k8s.io "l" is forbidden: {cannot}')
    assert client("PATCH", applied, body, APPLY, **user)[0] == 403
    created = put()
    assert created[0] == client("PATCH", applied, body, APPLY)[0] == 201
    at["resourceVersion"] = created[1]["metadata"]["resourceVersion"]
    assert put(**user)[0] == client("PATCH", applied, body, APPLY, **user)[0] == 200


def test_a_cluster_scoped_object_loses_its_namespace(client, namespace):
    body = {"metadata": {"name": f"sc-{namespace}", "namespace": namespace}, "provisioner": "p"}
    code, made = client("POST", "/apis/storage.k8s.io/v1/storageclasses?dryRun=All", body)
    assert code == 201 and "namespace" not in made["metadata"]
    assert client("POST", f"/api/v1/namespaces/{namespace}/configmaps", {"metadata": {"name": "c", "namespace": "other"}})[0] == 400


def test_repeated_owners(client, namespace):
    """Only completely equal ones are dropped; for a patch, the warning comes after admission."""
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    a, b = ({"apiVersion": "v1", "kind": "Pod", "name": n, "uid": "1"} for n in "ab")
    answer = client.raw("POST", f"{path}?dryRun=All", {"metadata": {"name": "c", "ownerReferences": [a, b, a]}})
    assert [r["name"] for r in answer.json()["metadata"]["ownerReferences"]] == ["a", "b"]
    assert "contains duplicate entries; API server dedups" in answer.headers["Warning"]
    assert client("POST", path, {"metadata": {"name": "c"}})[0] == 201
    answer = client.raw("PUT", f"{path}/c?dryRun=All", {"metadata": {"name": "c", "ownerReferences": [b, b, b]}})
    assert "contains duplicate entries; API server dedups" in answer.headers["Warning"]
    assert answer.headers["Warning"].endswith('observed: 1, 1"')
    answer = client.raw("PATCH", f"{path}/c?dryRun=All", {"metadata": {"ownerReferences": [a, a]}}, MERGE)
    assert "contains duplicate entries after mutating admission happens; API" in answer.headers["Warning"]


def test_invalid_options_are_reported_first(client, namespace):
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    bad = "?dryRun=x&fieldManager=a%0Ab&fieldValidation=y"
    fields = ["fieldManager", "dryRun", "fieldValidation"]
    code, body = client("POST", path + bad, {})
    assert (code, [c["field"] for c in body["details"]["causes"]]) == (422, fields)
    code, body = client("PATCH", f"{path}/c{bad}&force=true", {}, MERGE)
    assert (code, [c["field"] for c in body["details"]["causes"]]) == (422, ["force", *fields])
    code, body = client("PATCH", f"{path}/c?dryRun=x", {}, APPLY)
    assert (code, [c["field"] for c in body["details"]["causes"]]) == (422, ["fieldManager", "dryRun"])
    # The body is not read then, and a patched object need not exist.
    assert client("PATCH", f"{path}/c", "{", MERGE)[0] == 404


def test_deletecollection_has_the_options_of_a_list(client, namespace):
    path = f"/api/v1/namespaces/{namespace}/secrets"
    for i in range(5):
        assert client("POST", path, {"metadata": {"name": f"c{i}", "labels": {"n": "12"[i % 2]}}})[0] == 201
    code, page = client("DELETE", f"{path}?limit=2&dryRun=All")
    assert (code, [o["metadata"]["name"] for o in page["items"]]) == (200, ["c0", "c1"])
    assert page["metadata"]["remainingItemCount"] == 3
    code, table = client("DELETE", f"{path}?labelSelector=n%3D2", Accept="application/json;as=Table;v=v1;g=meta.k8s.io")
    assert (code, table["kind"], [r["cells"][0] for r in table["rows"]]) == (200, "Table", ["c1", "c3"])
    code, rest = client("DELETE", f"{path}?continue={page['metadata']['continue']}")
    assert (code, [o["metadata"]["name"] for o in rest["items"]]) == (200, ["c2", "c3", "c4"])
    assert [o["metadata"]["name"] for o in client("GET", path)[1]["items"]] == ["c0"]
    assert client("DELETE", f"{path}?resourceVersion=x")[0] == client("DELETE", f"{path}?limit=x")[0] == 400
    assert client("DELETE", f"{path}?resourceVersionMatch=Exact")[0] == client("DELETE", f"{path}?propagationPolicy=x")[0] == 422


def test_preconditions_of_a_delete(client, namespace):
    """Namespaces have messages of their own for what other kinds report alike."""
    path = f"/api/v1/namespaces/{namespace}"
    uid = client("GET", path)[1]["metadata"]["uid"]
    for member, label, have in (("uid", "UID", uid), ("resourceVersion", "ResourceVersion", "")):
        code, body = client("DELETE", path, {"preconditions": {member: "x"}})
        why = f"Precondition failed: {label} in precondition: x, {label} in object meta: {have}"
        assert code == 409 and body["message"].startswith(f'Operation cannot be fulfilled on namespaces "{namespace}": {why}')
    uid = client("POST", f"{path}/secrets", {"metadata": {"name": "s"}})[1]["metadata"]["uid"]
    code, body = client("DELETE", f"{path}/secrets/s", {"preconditions": {"uid": "x"}})
    why = f"the UID in the precondition (x) does not match the UID in record ({uid})"
    assert code == 409 and body["message"].startswith(f'Operation cannot be fulfilled on Secret "s": {why}')


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("{", "couldn't get version/kind; json parse error: unexpected end of JSON input"),
        ('{"gracePeriodSeconds":"x"}', "json: cannot unmarshal string into Go struct field DeleteOptions.gracePeriodSeconds of type int64"),
        (
            '{"kind":"Pod","apiVersion":"v1"}',
            'no kind "Pod" is registered for version "v1" in scheme '
            '"k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme/register.go:27"',
        ),
    ],
)
def test_a_delete_with_an_invalid_body(client, namespace, body, message):
    """The decoder's message is passed on."""
    for path in ("secrets/none", "secrets"):
        code, answer = client("DELETE", f"/api/v1/namespaces/{namespace}/{path}", body)
        assert (code, answer["reason"], answer["message"]) == (400, "BadRequest", message)


def test_delete_options_may_have_any_version(client, namespace):
    path = f"/api/v1/namespaces/{namespace}/secrets/none"
    for version in ("v1", "apps/v1", "meta.k8s.io/v1", "nobody.knows/v1"):
        assert client("DELETE", path, {"kind": "DeleteOptions", "apiVersion": version})[0] == 404
    assert client("DELETE", path, "null")[0] == 404
    assert client("DELETE", f"{path}?propagationPolicy=")[0] == 422
    assert client("DELETE", f"{path}?gracePeriodSeconds=")[0] == 400


def test_a_request_whose_answer_would_not_be_accepted_changes_nothing(client, namespace):
    path = f"/api/v1/namespaces/{namespace}/secrets"
    wrong = {"Accept": "application/json;as=Nothing;v=v1;g=meta.k8s.io"}
    body = {"metadata": {"name": "s"}}
    assert client("POST", path, body, **wrong)[0] == 406
    made = client("POST", path, body)[1]
    body["metadata"]["labels"] = {"a": "b"}
    assert client("PUT", f"{path}/s", body, **wrong)[0] == client("PATCH", f"{path}/s", body, MERGE, **wrong)[0] == 406
    assert client("DELETE", f"{path}/s", **wrong)[0] == client("DELETE", path, **wrong)[0] == 406
    assert client("GET", f"{path}/s")[1] == made
    # The content type of a patch is checked first.
    assert client("PATCH", f"{path}/s", body, "text/plain", **wrong)[0] == 415


def test_a_null_sets_nothing(client, namespace):
    path = f"/api/v1/namespaces/{namespace}/secrets"
    for body, ctype in (("null", "application/json"), ("", "application/yaml"), ("null", "application/yaml")):
        code, answer = client("POST", path, body, ctype)
        assert (code, answer["details"]["causes"][0]["field"]) == (422, "metadata.name")


def test_a_self_link_is_not_stored(client, namespace):
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    assert "selfLink" not in client("POST", path, {"metadata": {"name": "linked", "selfLink": "/x"}})[1]["metadata"]
    code, body = client("PATCH", f"{path}/linked", {"metadata": {"selfLink": "/x"}}, "application/merge-patch+json")
    assert code == 200 and "selfLink" not in body["metadata"]


@pytest.mark.parametrize(
    ("plural", "body"),
    [
        ("apis/discovery.k8s.io/v1/namespaces/{}/endpointslices", {"addressType": "IPv4", "endpoints": [], "ports": []}),
        ("apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles", {"rules": []}),
        ("api/v1/namespaces/{}/limitranges", {"spec": {"limits": []}}),
        ("apis/networking.k8s.io/v1/namespaces/{}/networkpolicies", {"spec": {"podSelector": {"matchExpressions": []}, "ingress": []}}),
    ],
)
def test_a_dry_run_returns_the_same_object_as_the_write(client, namespace, plural, body):
    """An empty list that is always written is null there."""
    path = "/" + plural.format(namespace)

    def shown(code: int, answer: dict) -> tuple:
        return code, {k: v for k, v in answer.items() if k != "metadata"}

    body = {"metadata": {"name": "o"}, **body}
    dry = shown(*client("POST", f"{path}?dryRun=All", body))
    code, made = client("POST", path, body)
    assert dry == shown(code, made) == shown(201, client("GET", f"{path}/o")[1])
    body["metadata"]["labels"] = {"a": "b"}
    code, answer = client("PUT", f"{path}/o?dryRun=All", body)
    assert (answer["metadata"]["resourceVersion"], answer["metadata"]["labels"]) == (made["metadata"]["resourceVersion"], {"a": "b"})
    assert shown(code, answer) == shown(*client("PUT", f"{path}/o", body))


@pytest.mark.parametrize(("query", "warns"), [("", True), ("?propagationPolicy=Orphan", False), ("?orphanDependents=false", False)])
def test_deleting_jobs_without_a_propagation_policy(client, namespace, query, warns):
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    for target in (f"{path}/j{query}", f"{path}{query}"):
        assert client("POST", path, {"metadata": {"name": "j"}, "spec": {"template": template}})[0] in (201, 409)
        answer = client.raw("DELETE", target)
        assert answer.status_code in (200, 202)
        assert ("child pods are preserved by default" in answer.headers.get("Warning", "")) is warns


def test_endpoints_are_deprecated(client, namespace):
    """In every verb, whether or not the objects are shown."""
    path = f"/api/v1/namespaces/{namespace}/endpoints"
    says = '299 - "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"'
    made = client.raw("POST", path, {"metadata": {"name": "e"}})
    assert (made.status_code, made.headers["Warning"]) == (201, says)
    for method, where in (
        ("GET", path), ("GET", f"{path}/e"), ("GET", f"{path}/e"), ("GET", f"{path}/none"), ("GET", f"{path}?watch=1&timeoutSeconds=1"),
        ("DELETE", f"{path}/e"), ("DELETE", path),
    ):  # fmt: skip
        assert client.raw(method, where).headers.get("Warning") == says, (method, where)
    assert "Warning" not in client.raw("GET", f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices").headers


@pytest.mark.lmdb("3 MiB are this store's; etcd's 1.5 MiB are tried by tests/server/test_etcd.py")
def test_the_size_of_objects_is_bounded(client, namespace):
    """Each patch fits into a body; its result must, too. Managed fields are dropped first, except those of an apply."""
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    deployment = {"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}}
    assert client("POST", path, deployment)[0] == 201

    def grow(name: str, count: int, size: int):
        env = [{"name": f"{name}{i}", "value": "x" * size} for i in range(count)]
        patch = {"spec": {"template": {"spec": {"containers": [{"name": "c", "env": env}]}}}}
        return client.raw("PATCH", f"{path}/d", patch, "application/strategic-merge-patch+json")

    assert "managedFields" in grow("a", 20, 100_000).json()["metadata"]
    refused = grow("b", 20, 100_000)
    assert refused.status_code == 413 and refused.json()["message"] == "Request entity too large: limit is 3145728"
    small = grow("c", 20_000, 0)  # more bytes of managed fields than of environment
    assert small.status_code == 200 and "managedFields" not in small.json()["metadata"]
    assert len(client.raw("GET", f"{path}/d").content) < 3 << 20
    data = {f"k{i:05d}": "" for i in range(120_000)}
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "many"}, "data": data}
    code, body = client("PATCH", f"/api/v1/namespaces/{namespace}/configmaps/many?fieldManager=m", config, "application/apply-patch+yaml")
    assert code == 413, body
    code, body = client("POST", f"/api/v1/namespaces/{namespace}/configmaps", config)
    assert code == 201 and "managedFields" not in body["metadata"]


def test_the_depth_of_objects_is_bounded(client, namespace):
    """What is stored can be read again in every format."""
    path = f"/apis/apps/v1/namespaces/{namespace}/controllerrevisions"

    def revision(name: str, levels: int, width: int = 1) -> str:
        data = '{"a":' * levels + "1" + "}" * levels
        wide = ",".join(f'{{"text":"}}]{{[","n":{i}}}' for i in range(width))
        return f'{{"metadata":{{"name":"{name}"}},"revision":1,"data":{{"deep":{data},"wide":[{wide}]}}}}'

    assert client("POST", path, revision("deep", 480))[0] == 201
    generated = revision("deep", 480).replace('"name"', '"generateName"')
    assert client("POST", f"{path}?dryRun=All", generated)[0] == 201
    assert client("POST", path, revision("wide", 1, 3000))[0] == 201
    for levels in (500, 700, 990):
        code, body = client("POST", path, revision("deeper", levels))
        assert (code, body["message"]) == (400, "exceeded max depth")
    definition = """{"metadata":{"name":"as.b.c"},"spec":{"group":"b.c","scope":"Cluster","names":{"plural":"as","kind":"A"},"versions":[
        {"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","default":%s}}}]}}"""
    code, body = client("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition % ("[" * 1010 + "]" * 1010))
    assert (code, body["message"]) == (400, "exceeded max depth")
    for form in ("json", "yaml", "vnd.kubernetes.protobuf", "json;as=Table;v=v1;g=meta.k8s.io"):
        accept = f"application/{form}"
        assert client.raw("GET", path, Accept=accept).status_code == 200
        assert client.raw("GET", f"{path}/deep", Accept=accept).status_code == 200
    assert client("PUT", f"{path}/deep", client.raw("GET", f"{path}/deep").text)[0] == 200


def test_the_depth_of_schemas_is_bounded(client):
    """One of 130 levels kept every definition after it from being served, and one of 320 was a panic."""
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

    def nested(group: str, levels: int) -> dict:
        schema: dict = {"type": "object"}
        for _ in range(levels - 3):
            schema = {"type": "array", "items": schema}
        version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {
            "type": "object", "properties": {"spec": schema}}}}  # fmt: skip
        names = {"plural": "deeps", "kind": "Deep"}
        return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": f"deeps.{group}"},
                "spec": {"group": group, "scope": "Cluster", "names": names, "versions": [version]}}  # fmt: skip

    for levels in (MAX_LEVELS + 1, 320, 900):
        code, body = client("POST", path, nested("deeper.example.com", levels))
        assert code == 422 and f"must not have more than {MAX_LEVELS} nested objects and arrays" in body["message"]
    crd = nested("deep.example.com", MAX_LEVELS)
    assert client("POST", path, crd)[0] == 201
    try:
        until(lambda: client("GET", "/apis/deep.example.com/v1/deeps")[0] == 200)
        for form in ("json", "yaml", "vnd.kubernetes.protobuf"):
            assert client.raw("GET", f"{path}/deeps.deep.example.com", Accept=f"application/{form}").status_code == 200
        assert client("PUT", f"{path}/deeps.deep.example.com", client("GET", f"{path}/deeps.deep.example.com")[1])[0] == 200
        assert client("PATCH", f"{path}/deeps.deep.example.com?fieldManager=m&force=true", crd, "application/apply-patch+yaml")[0] == 200
        value: list = []
        for _ in range(MAX_LEVELS - 4):
            value = [value]
        deep = {"apiVersion": "deep.example.com/v1", "kind": "Deep", "metadata": {"name": "d"}, "spec": value}
        assert client("POST", "/apis/deep.example.com/v1/deeps", deep)[0] == 201
        assert client("GET", "/openapi/v3/apis/deep.example.com/v1")[0] == 200
    finally:
        assert client("DELETE", f"{path}/deeps.deep.example.com")[0] == 200


def test_the_namespace_of_a_body(client, namespace):
    """A cluster-scoped object loses it, another one is refused, before the name is checked."""
    code, body = client("POST", "/api/v1/namespaces", {"metadata": {"name": f"{namespace}-x", "namespace": "other"}})
    assert code == 201 and "namespace" not in body["metadata"]
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    client("POST", path, {"metadata": {"name": "c"}})
    other = {"metadata": {"name": "d", "namespace": "other"}}
    for method, at, ctype in (
        ("POST", path, "application/json"),
        ("PUT", f"{path}/c", "application/json"),
        ("PATCH", f"{path}/c", "application/merge-patch+json"),
    ):
        code, body = client(method, at, other, ctype)
        assert (code, body["message"]) == (400, "the namespace of the provided object does not match the namespace sent on the request")


def test_null_is_an_empty_object(client, namespace):
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    for body, ctype in (("null", "application/json"), ("", "application/yaml")):
        code, status = client("POST", path, body, ctype)
        assert (code, status["details"]["causes"][0]["field"]) == (422, "metadata.name")


@pytest.mark.parametrize("how", ["PUT", *(f"application/{t}-patch+json" for t in ("merge", "strategic-merge", "json"))])
def test_an_empty_list_of_managed_fields_resets_them(client, namespace, how):
    path = f"/api/v1/namespaces/{namespace}/configmaps/c"
    code, made = client("POST", path.removesuffix("/c"), {"metadata": {"name": "c"}, "data": {"a": "1"}})
    assert code == 201 and made["metadata"]["managedFields"]
    if how == "PUT":
        given = {"metadata": {"name": "c", "managedFields": []}, "data": {"a": "1"}}
        code, body = client("PUT", path, given)
    elif "json-" in how and "merge" not in how:
        code, body = client("PATCH", path, [{"op": "replace", "path": "/metadata/managedFields", "value": []}], how)
    else:
        code, body = client("PATCH", path, {"metadata": {"managedFields": []}}, how)
    assert code == 200 and "managedFields" not in body["metadata"]
    code, body = client("PATCH", path, {"metadata": {"labels": {"a": "b"}}}, "application/merge-patch+json")
    assert code == 200 and "managedFields" not in body["metadata"]


def test_creating_by_update_needs_the_right_to_create(client, namespace):
    """An apply or replacement that would create needs the right to create; this is checked once the object is known to be valid."""
    rules = [{"apiGroups": ["", "coordination.k8s.io"], "resources": ["configmaps", "leases"], "verbs": ["get", "update", "patch"]}]
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    role = {"metadata": {"name": "changer"}, "rules": rules}
    user = f"changer-{namespace}"
    binding = {
        "metadata": {"name": "changer"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "changer"},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user}],
    }
    client("POST", f"{rbac}/roles", role)
    client("POST", f"{rbac}/rolebindings", binding)
    who = {"Impersonate-User": user}
    maps = f"/api/v1/namespaces/{namespace}/configmaps"
    applied = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new"}, "data": {"a": "1"}}
    apply = f"{maps}/new?fieldManager=m", applied, "application/apply-patch+yaml"
    lease = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/new"

    code, body = client("PATCH", *apply, **who)
    cannot = f'User "{user}" cannot create resource "%s" in API group "%s" in the namespace "{namespace}"'
    assert (code, body["message"]) == (403, f'configmaps "new" is forbidden: {cannot % ("configmaps", "")}')
    code, body = client("PATCH", apply[0], {**applied, "data": {"a/b": "1"}}, apply[2], **who)
    assert code == 422
    code, body = client("PUT", lease, {"metadata": {"name": "new"}}, **who)
    assert (code, body["message"]) == (403, f'leases.coordination.k8s.io "new" is forbidden: {cannot % ("leases", "coordination.k8s.io")}')

    assert client("PATCH", *apply)[0] == 201
    assert client("PATCH", *apply, **who)[0] == 200
    code, made = client("PUT", lease, {"metadata": {"name": "new"}})
    assert code == 201 and client("PUT", lease, made, **who)[0] == 200


@pytest.mark.parametrize(
    ("given", "why"),
    [("x", "invalid syntax"), (" 5", "invalid syntax"), ("1_0", "invalid syntax"), ("9" * 5000, "value out of range")],
)
def test_an_annotation_that_does_not_convert_to_a_field(client, namespace, given, why):
    """A number in the internal version, text in the served one."""
    key, path = "deprecated.daemonset.template.generation", f"/apis/apps/v1/namespaces/{namespace}/daemonsets"
    pods = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    good = {"metadata": {"name": f"d{len(given)}{ord(given[0])}"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": pods}}
    noted = {"metadata": {**good["metadata"], "annotations": {key: given}}}
    said = f'strconv.ParseInt: parsing "{given}": {why}'
    code, body = client("POST", path, {**good, **noted})
    assert (code, body["message"]) == (400, f'DaemonSet in version "v1" cannot be handled as a DaemonSet: {said}')
    assert client("POST", path, good)[0] == 201
    at = f"{path}/{good['metadata']['name']}"
    assert client("PUT", at, {**good, **noted})[0] == 400
    code, body = client("PATCH", at, noted, MERGE)
    assert code == 422 and body["details"]["causes"][0]["field"] == "patch" and body["message"].endswith(said)
    code, body = client("PATCH", at, noted, "application/strategic-merge-patch+json")
    assert (code, body["message"]) == (500, said)
    applied = {"apiVersion": "apps/v1", "kind": "DaemonSet", **noted}
    code, body = client("PATCH", at + "?fieldManager=m&force=true", applied, APPLY)
    assert code == 500 and body["message"].startswith("failed to convert to unversioned (") and body["message"].endswith(said)
    assert client("GET", at)[1]["metadata"]["annotations"][key] == "1"


@pytest.mark.parametrize(("given", "kind"), [("5", "number"), ('"x"', "string"), ('{"a": 1}', "object"), ("true", "bool")])
def test_the_avoided_pods_annotation_of_a_node_is_validated(client, given, kind):
    key = "scheduler.alpha.kubernetes.io/preferAvoidPods"
    node = {"metadata": {"name": "avoids", "annotations": {key: f'{{"preferAvoidPods": {given}}}'}}}
    code, body = client("POST", "/api/v1/nodes", node)
    why = f"json: cannot unmarshal {kind} into Go struct field AvoidPods.preferAvoidPods of type []v1.PreferAvoidPodsEntry"
    assert (code, body["details"]["causes"][0]["message"]) == (422, f'Invalid value: "{key}": {why}')


@pytest.mark.parametrize("query", ["resourceVersion=1", "resourceVersion=x", "resourceVersionMatch=Exact"])
def test_read_options_are_ignored_by_a_replacement(client, namespace, query):
    """Only the object says which revision is replaced."""
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    assert client("POST", path, {"metadata": {"name": "c"}})[0] == 201
    code, body = client("PUT", f"{path}/c?{query}", {"metadata": {"name": "c"}, "data": {"a": "b"}})
    assert (code, body["data"]) == (200, {"a": "b"})


def _with_memory(amount: str) -> dict:
    return {"name": "c", "image": "nginx:1", "resources": {"limits": {"memory": amount, "cpu": "1"}}}


def test_an_equal_quantity_in_another_notation_does_not_change_a_pod(client, namespace):
    path = f"/api/v1/namespaces/{namespace}/pods"
    code, pod = client("POST", path, {"metadata": {"name": "p"}, "spec": {"containers": [_with_memory("1Ki")]}})
    assert code == 201, pod
    for again, expected in (("1024", 200), ("1000", 422)):
        pod["spec"]["containers"][0]["resources"] = {k: {"memory": again, "cpu": "1"} for k in ("limits", "requests")}
        code, body = client("PUT", f"{path}/p", pod)
        assert code == expected, body
        if code == 200:
            pod = body
            assert pod["spec"]["containers"][0]["resources"]["limits"]["memory"] == "1024"


def test_an_equal_quantity_in_another_notation_is_no_new_generation(client, namespace):
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [_with_memory("1Ki")]}}
    body = {"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}}
    assert client("POST", path, body)[0] == 201
    for again, generation in (("1024", 1), ("1025", 2)):
        template["spec"]["containers"] = [_with_memory(again)]
        code, stored = client("PUT", f"{path}/d", body)
        assert (code, stored["metadata"]["generation"]) == (200, generation)


def test_many_owners_are_compared_in_linear_time():
    """Repeats are found by their content, not by comparing each with each: 20,000 owners take one step per reference."""
    from kas.registry.admission import dedup_owner_references

    class Counted(dict):
        looks = 0

        def get(self, *args):
            Counted.looks += 1
            return super().get(*args)

    refs = [Counted(apiVersion="v1", kind="Pod", name=f"p{i}", uid=f"u{i}", controller=i == 7) for i in range(20_000)]
    meta, warned = {"ownerReferences": [*refs, refs[3], Counted(refs[7], controller=None)]}, []
    dedup_owner_references(meta, warned.append)
    assert meta["ownerReferences"] == [*refs, Counted(refs[7], controller=None)]
    assert "observed: u3" in warned[0] and Counted.looks <= 7 * 20_010


def test_repeated_fields_of_a_body_are_merged(client, namespace):
    """As Go's json does where unknown and repeated fields are not refused."""
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    body = '{"metadata":{"name":"twice"},"metadata":{"labels":{"a":"b"}},"data":{"a":"1","b":"1"},"data":{"a":"2"}}'
    for query in ("?fieldValidation=Ignore&dryRun=All", ""):
        code, made = client("POST", path + query, body)
        assert (code, made["metadata"]["labels"], made["data"]) == (201, {"a": "b"}, {"a": "2", "b": "1"})
    code, refused = client("POST", path, '{"metadata":{"name":"twice2"},"data":{"a":1},"data":{"a":"2"}}')
    assert (code, refused["message"].rpartition(": json: ")[2]) == (
        400, "cannot unmarshal number into Go struct field ConfigMap.data of type string",
    )  # fmt: skip


def test_the_type_of_a_body_is_read_in_any_case(client, namespace):
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    code, refused = client("POST", path, '{"metadata":{"name":"any"},"KIND":"Secret","apiVersion":"v1"}')
    assert code == 400 and refused["message"].startswith("Secret in version \"v1\" cannot be handled as a ConfigMap"), refused
    code, refused = client("POST", path, '{"metadata":{"name":"any"},"Kind":1}')
    assert code == 400 and "json: cannot unmarshal number into Go struct field .kind of type string" in refused["message"]
    assert client("POST", path, '{"metadata":{"name":"any"},"Kind":"ConfigMap"}')[0] == 201


def test_an_omitted_template_generation_of_a_daemon_set_has_an_owner(client, namespace):
    """Conversion writes it before managed fields are computed: as 0, which the strategy then replaces."""
    path = f"/apis/apps/v1/namespaces/{namespace}/daemonsets"
    labels = {"app": "a"}
    pods = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    body = {"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": labels}, "template": pods}}

    def owned(obj):
        return {e["manager"]: e["fieldsV1"].get("f:metadata") for e in obj["metadata"]["managedFields"]}

    generation = {"f:deprecated.daemonset.template.generation": {}}
    code, made = client("POST", f"{path}?fieldManager=one", body)
    assert (code, owned(made)) == (201, {"one": {"f:annotations": {".": {}, **generation}}})
    code, put = client("PUT", f"{path}/d?fieldManager=two", body)
    assert (code, owned(put)) == (200, {"one": {"f:annotations": {}}, "two": {"f:annotations": generation}})
    assert put["metadata"]["annotations"] == {"deprecated.daemonset.template.generation": "1"}
    applied = {"apiVersion": "apps/v1", "kind": "DaemonSet", **body}
    code, after = client("PATCH", f"{path}/d?fieldManager=three&force=true", applied, APPLY)
    assert (code, owned(after)) == (200, {"one": {"f:annotations": {}}, "two": {"f:annotations": generation}, "three": None})


def test_applying_an_empty_map_again_changes_nothing(client, namespace):
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "e", "annotations": {}}, "data": {"a": "b"}}
    applied = {
        "manager": "m", "operation": "Apply", "apiVersion": "v1", "time": "2024-01-02T03:04:05Z", "fieldsType": "FieldsV1",
        "fieldsV1": {"f:data": {"f:a": {}}, "f:metadata": {"f:annotations": {}}},
    }  # fmt: skip
    assert client("POST", path, body)[0] == 201
    code, made = client("PUT", f"{path}/e", {**body, "metadata": {"name": "e", "managedFields": [applied]}})
    assert (code, made["metadata"]["managedFields"]) == (200, [applied])
    code, again = client("PATCH", f"{path}/e?fieldManager=m", body, APPLY)
    assert (code, again) == (200, made)
