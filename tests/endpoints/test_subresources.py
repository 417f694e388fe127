"""Binding, eviction, tokens, reviews, componentstatuses and other subresources that are not just a view of an object."""

from __future__ import annotations

import pytest

from kas.kinds.core.pod import eviction

MERGE = "application/merge-patch+json"
EVICTION = {"apiVersion": "policy/v1", "kind": "Eviction"}


def pod(client, namespace: str, name: str = "p", node: str = "", labels=None, phase: str = "", ready: str = "", **spec):
    spec = {"containers": [{"name": "c", "image": "x"}], **spec}
    if node:
        spec["nodeName"] = node
    meta = {"name": name, "labels": labels or {}}
    code, body = client("POST", f"/api/v1/namespaces/{namespace}/pods", {"metadata": meta, "spec": spec})
    assert code == 201, body
    if phase:
        status = {"phase": phase}
        if ready:
            status["conditions"] = [{"type": "Ready", "status": ready}]
        code, body = client("PATCH", f"/api/v1/namespaces/{namespace}/pods/{name}/status", {"status": status}, MERGE)
        assert code == 200, body
    return body


def budget(client, namespace: str, name: str = "b", allowed: int | None = 1, healthy: int = 2, desired: int = 1, selector=None, **spec):
    url = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}} if selector is None else selector, **spec}
    code, body = client("POST", url, {"metadata": {"name": name}, "spec": spec})
    assert code == 201, body
    if allowed is not None:
        status = {"disruptionsAllowed": allowed, "observedGeneration": 1, "expectedPods": 2}
        status |= {"currentHealthy": healthy, "desiredHealthy": desired}
        code, body = client("PATCH", f"{url}/{name}/status", {"status": status}, MERGE)
        assert code == 200, body


def evict(client, namespace: str, name: str, query: str = "", **body):
    url = f"/api/v1/namespaces/{namespace}/pods/{name}/eviction{query}"
    return client("POST", url, {**EVICTION, "metadata": {"name": name}, **body})


def get(client, namespace: str, name: str):
    return client("GET", f"/api/v1/namespaces/{namespace}/pods/{name}")[1]


# --- binding


def bind(client, namespace: str, name: str, node: str = "n1", at: str = "", **meta):
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, **meta}, "target": {"kind": "Node", "name": node}}
    return client("POST", f"/api/v1/namespaces/{namespace}/{at or f'pods/{name}/binding'}", body)


def test_binding_sets_the_node_once(client, namespace):
    before = pod(client, namespace)
    code, body = bind(client, namespace, "p", annotations={"x": "1"}, labels={"l": "2"}, uid=before["metadata"]["uid"])
    assert (code, body) == (201, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})
    after = get(client, namespace, "p")
    assert after["spec"]["nodeName"] == "n1"
    assert (after["metadata"]["annotations"]["x"], after["metadata"]["labels"]["l"], after["metadata"]["generation"]) == ("1", "2", 1)
    assert after["status"]["conditions"][0]["type"] == "PodScheduled"
    code, body = bind(client, namespace, "p", at="bindings")
    assert code == 409
    assert body["message"] == 'Operation cannot be fulfilled on pods/binding "p": pod p is already assigned to node "n1"'


def test_binding_refusals(client, namespace):
    pod(client, namespace, "gated", schedulingGates=[{"name": "g"}])
    assert "has non-empty .spec.schedulingGates" in bind(client, namespace, "gated")[1]["message"]
    pod(client, namespace)
    code, body = bind(client, namespace, "p", uid="00000000-0000-0000-0000-000000000000")
    assert (code, "Precondition failed: UID in precondition" in body["message"]) == (409, True)
    assert bind(client, namespace, "nope")[0] == 404
    code, body = bind(client, namespace, "p", node="")
    assert (code, body["message"], "details" in body) == (500, "target.name: Required value", False)
    code, body = bind(client, namespace, "p", at="pods/other/binding")
    assert (code, body["message"]) == (400, "name in URL does not match name in Binding object")
    url = f"/api/v1/namespaces/{namespace}/pods/p/binding?dryRun=All"
    assert client("POST", url, {"metadata": {"name": "p"}, "target": {"name": "n1"}})[0] == 201
    assert "nodeName" not in get(client, namespace, "p")["spec"]


# --- eviction


def test_eviction_without_budget(client, namespace):
    pod(client, namespace, node="n1", phase="Running")
    assert evict(client, namespace, "p")[0] == 201
    after = get(client, namespace, "p")
    assert after["metadata"]["deletionGracePeriodSeconds"] == 30
    condition = next(c for c in after["status"]["conditions"] if c["type"] == "DisruptionTarget")
    assert (condition["reason"], condition["message"], condition["status"]) == ("EvictionByEvictionAPI", "Eviction API: evicting", "True")
    assert evict(client, namespace, "nope")[0] == 404


def test_eviction_uses_up_the_budget(client, namespace):
    for name in ("p", "q"):
        pod(client, namespace, name, node="n1", labels={"a": "b"}, phase="Running", ready="True")
    budget(client, namespace)
    url = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets/b"
    assert evict(client, namespace, "p", "?dryRun=All")[0] == 201
    assert evict(client, namespace, "p", deleteOptions={"dryRun": ["All"]})[0] == 201
    assert client("GET", url)[1]["status"]["disruptionsAllowed"] == 1
    assert "deletionTimestamp" not in get(client, namespace, "p")["metadata"]
    assert evict(client, namespace, "p")[0] == 201
    status = client("GET", url)[1]["status"]
    assert (status["disruptionsAllowed"], list(status["disruptedPods"])) == (0, ["p"])
    code, body = evict(client, namespace, "q")
    assert code == 429
    assert body["message"] == "Cannot evict pod as it would violate the pod's disruption budget."
    assert body["details"]["causes"] == [
        {"reason": "DisruptionBudget", "message": "The disruption budget b does not allow evicting pods currently"}
    ]
    assert "deletionTimestamp" not in get(client, namespace, "q")["metadata"]


def test_concurrent_evictions_share_the_budget(client, connect, namespace):
    from concurrent.futures import ThreadPoolExecutor

    names = [f"p{i}" for i in range(8)]
    for name in names:
        pod(client, namespace, name, node="n1", labels={"a": "b"}, phase="Running", ready="True")
    budget(client, namespace, allowed=3)
    with ThreadPoolExecutor(8) as pool:
        codes = list(pool.map(lambda name: evict(connect(client.server), namespace, name)[0], names))
    assert sorted(codes) == [201] * 3 + [429] * 5
    status = client("GET", f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets/b")[1]["status"]
    assert (status["disruptionsAllowed"], len(status["disruptedPods"])) == (0, 3)


def test_eviction_waits_for_a_new_budgets_status(client, namespace):
    pod(client, namespace, node="n1", labels={"a": "b"}, phase="Running", ready="True")
    budget(client, namespace, allowed=None)
    r = client.raw("POST", f"/api/v1/namespaces/{namespace}/pods/p/eviction", {**EVICTION, "metadata": {"name": "p"}})
    assert (r.status_code, r.headers["retry-after"], r.json()["details"]["retryAfterSeconds"]) == (429, "10", 10)
    assert r.json()["details"]["causes"][0]["message"] == "The disruption budget b is still being processed by the server."


def test_eviction_refusals(client, namespace):
    pod(client, namespace, node="n1", labels={"a": "b"}, phase="Running", ready="True")
    budget(client, namespace, allowed=0, healthy=1, desired=2)
    code, body = evict(client, namespace, "p")
    assert (code, body["details"]["causes"][0]["message"]) == (429, "The disruption budget b needs 2 healthy pods and has 1 currently")


def test_two_budgets_refuse_an_eviction(client, namespace):
    pod(client, namespace, node="n1", labels={"a": "b"}, phase="Running", ready="True")
    budget(client, namespace, "b")
    budget(client, namespace, "c", selector={})
    code, body = evict(client, namespace, "p")
    assert (code, body["code"], body["status"]) == (201, 500, "Failure")
    assert "more than one PodDisruptionBudget" in body["message"]


def test_budgets_are_found_on_every_page(client, namespace):
    pod(client, namespace, node="n1", labels={"a": "b"}, phase="Running", ready="True")
    budget(client, namespace, "b")
    for i in range(eviction.PAGE):
        budget(client, namespace, f"c{i:02}", selector={"matchLabels": {"of": "others"}})
    budget(client, namespace, "d", selector={})
    assert evict(client, namespace, "p")[1]["code"] == 500
    assert client("DELETE", f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets/b")[0] == 200
    assert evict(client, namespace, "p")[1]["status"] == "Success"


@pytest.mark.parametrize(
    ("policy", "healthy", "expected"), [("AlwaysAllow", 0, 201), ("IfHealthyBudget", 0, 429), ("IfHealthyBudget", 2, 201)]
)
def test_unhealthy_pods(client, namespace, policy, healthy, expected):
    pod(client, namespace, node="n1", labels={"a": "b"}, phase="Running", ready="False")
    budget(client, namespace, allowed=0, healthy=healthy, desired=2, unhealthyPodEvictionPolicy=policy)
    assert evict(client, namespace, "p")[0] == expected
    client("DELETE", f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets/b")
    client("DELETE", f"/api/v1/namespaces/{namespace}/pods/p?gracePeriodSeconds=0")


def test_pods_that_are_not_running_need_no_budget(client, namespace):
    pod(client, namespace, "done", node="n1", labels={"a": "b"}, phase="Succeeded")
    pod(client, namespace, "new", labels={"a": "b"})
    budget(client, namespace, allowed=0)
    for name in ("done", "new"):
        assert evict(client, namespace, name)[0] == 201
        assert client("GET", f"/api/v1/namespaces/{namespace}/pods/{name}")[0] == 404


def test_eviction_in_its_old_version_and_with_preconditions(client, namespace):
    pod(client, namespace, node="n1", phase="Running")
    code, body = evict(client, namespace, "p", deleteOptions={"preconditions": {"uid": "other"}})
    assert (code, "does not match the UID in record" in body["message"]) == (409, True)
    code, body = evict(client, namespace, "p", deleteOptions={"preconditions": {"resourceVersion": "1"}})
    assert code == 409
    current = get(client, namespace, "p")["metadata"]["resourceVersion"]
    options = {"preconditions": {"resourceVersion": current}, "gracePeriodSeconds": 7}
    assert evict(client, namespace, "p", apiVersion="policy/v1beta1", deleteOptions=options)[0] == 201
    assert get(client, namespace, "p")["metadata"]["deletionGracePeriodSeconds"] == 7


# --- tokens


def token(client, namespace: str, **spec):
    return client("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts/default/token", {"spec": spec})


def whoami(client, bearer: str):
    url = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    return client("POST", url, {}, Authorization=f"Bearer {bearer}")


def test_a_bound_token_is_valid_as_long_as_its_pod_exists(client, namespace):
    made = pod(client, namespace, serviceAccountName="default", node="n1")
    ref = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": made["metadata"]["uid"]}
    code, body = token(client, namespace, expirationSeconds=3600, boundObjectRef=ref)
    assert code == 201, body
    assert body["metadata"]["managedFields"][0]["subresource"] == "token"
    bearer = body["status"]["token"]
    code, review = whoami(client, bearer)
    assert code == 201, review
    user = review["status"]["userInfo"]
    assert user["username"] == f"system:serviceaccount:{namespace}:default"
    assert user["groups"] == ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
    extra = user["extra"]
    assert extra["authentication.kubernetes.io/pod-name"] == ["p"]
    assert extra["authentication.kubernetes.io/pod-uid"] == [made["metadata"]["uid"]]
    assert extra["authentication.kubernetes.io/node-name"] == ["n1"]
    assert extra["authentication.kubernetes.io/credential-id"][0].startswith("JTI=")
    client("DELETE", f"/api/v1/namespaces/{namespace}/pods/p?gracePeriodSeconds=0")
    assert whoami(client, bearer)[0] == 401


def test_a_bound_token_is_valid_as_long_as_its_node_exists(client, namespace):
    client("POST", "/api/v1/nodes", {"metadata": {"name": namespace}})
    code, body = token(client, namespace, boundObjectRef={"apiVersion": "v1", "kind": "Node", "name": namespace})
    assert code == 201 and whoami(client, body["status"]["token"])[0] == 201
    client("DELETE", f"/api/v1/nodes/{namespace}")
    assert whoami(client, body["status"]["token"])[0] == 401


def test_the_uid_of_a_token_request_is_compared(client, namespace):
    code, body = client("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts/default/token", {"metadata": {"uid": "u0"}, "spec": {}})
    assert code == 409 and "the UID in the token request (u0) does not match the UID of the service account (" in body["message"]


def test_token_refusals(client, namespace):
    pod(client, namespace, serviceAccountName="default")
    code, body = token(client, namespace, expirationSeconds=60)
    assert (code, body["details"]["causes"][0]["field"]) == (422, "spec.expirationSeconds")
    code, body = token(client, namespace, boundObjectRef={"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": "x"})
    assert code == 409
    code, body = token(client, namespace, boundObjectRef={"kind": "Pod", "apiVersion": "v1", "name": "nope"})
    assert (code, body["message"]) == (404, 'pods "nope" not found')
    code, body = client("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts/none/token", {"spec": {}})
    assert (code, body["message"]) == (404, 'serviceaccounts "none" not found')


def test_token_review_of_a_token_for_another_audience(client, namespace):
    bearer = token(client, namespace, audiences=["vault"])[1]["status"]["token"]
    url = "/apis/authentication.k8s.io/v1/tokenreviews"
    code, body = client("POST", url, {"spec": {"token": bearer, "audiences": ["vault", "other"]}})
    assert (code, body["status"]["authenticated"], body["status"]["audiences"]) == (201, True, ["vault"])
    code, body = client("POST", url, {"spec": {"token": bearer}})
    assert (code, body["status"].get("authenticated", False)) == (201, False)
    assert whoami(client, bearer)[0] == 401


def test_the_longest_lifetime_is_capped_with_a_warning(kas_server, connect):
    client = connect(kas_server("--unsafe-no-fsync", "--service-account-max-token-expiration=1h"))
    client("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
    url = "/api/v1/namespaces/default/serviceaccounts/default/token"
    r = client.raw("POST", url, {"spec": {"expirationSeconds": 7200}})
    assert (r.status_code, r.json()["spec"]["expirationSeconds"]) == (201, 3600)
    assert "shortened to 3600 seconds" in r.headers["warning"]


def test_legacy_tokens_of_secrets(kas_server, connect):
    """The verifier accepts the tokens of kubernetes.io/service-account-token secrets, too."""
    import base64

    from kas.auth.tokens import Signer, legacy_claims

    server = kas_server("--unsafe-no-fsync")
    client = connect(server)
    client("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
    account = client("GET", "/api/v1/namespaces/default/serviceaccounts/default")[1]
    secret = {"metadata": {"name": "s", "namespace": "default"}}
    assert client("POST", "/api/v1/namespaces/default/serviceaccounts/default/token", {})[0] == 201, "which waits for the key"
    key = (server.data_dir / "pki" / "sa.key").read_bytes()
    bearer = Signer(key, "kubernetes/serviceaccount").sign(legacy_claims(account, secret))
    assert whoami(client, bearer)[0] == 401
    annotations = {"kubernetes.io/service-account.name": "default"}
    body = {
        "metadata": {"name": "s", "annotations": annotations}, "type": "kubernetes.io/service-account-token",
        "data": {"token": base64.b64encode(bearer.encode()).decode()},
    }  # fmt: skip
    code, made = client("POST", "/api/v1/namespaces/default/secrets", body)
    assert code == 201, made
    code, review = whoami(client, bearer)
    assert (code, review["status"]["userInfo"]["username"]) == (201, "system:serviceaccount:default:default")


# --- reviews, componentstatuses, nodes


@pytest.mark.parametrize(
    ("url", "spec", "owned"),
    [
        ("authorization.k8s.io/v1/selfsubjectaccessreviews", {"resourceAttributes": {"verb": "get"}}, True),
        ("authorization.k8s.io/v1/subjectaccessreviews", {"user": "x", "resourceAttributes": {"verb": "get"}}, True),
        ("authentication.k8s.io/v1/tokenreviews", {"token": "x"}, True),
        ("authorization.k8s.io/v1/selfsubjectrulesreviews", {"namespace": "default"}, False),
        ("authentication.k8s.io/v1/selfsubjectreviews", None, False),
    ],
)
def test_reviews_that_return_their_request_have_managed_fields(client, url, spec, owned):
    code, body = client("POST", f"/apis/{url}?fieldManager=me", {"spec": spec} if spec else {})
    assert code == 201, body
    assert [m["manager"] for m in body["metadata"].get("managedFields", ())] == (["me"] if owned else [])


def test_componentstatuses(client):
    r = client.raw("GET", "/api/v1/componentstatuses")
    assert "v1 ComponentStatus is deprecated in v1.19+" in r.headers["warning"]
    found = {i["metadata"]["name"]: i["conditions"][0] for i in r.json()["items"]}
    assert sorted(found) == ["controller-manager", "etcd-0", "scheduler"]
    assert found["etcd-0"] == {"type": "Healthy", "status": "True", "message": "ok"}
    assert client("GET", "/api/v1/componentstatuses/etcd-0")[1]["metadata"] == {"name": "etcd-0"}
    code, body = client("GET", "/api/v1/componentstatuses/x")
    assert (code, body["message"]) == (500, "Component not found: x")
    assert client("DELETE", "/api/v1/componentstatuses/etcd-0")[0] == 405
    table = client.raw("GET", "/api/v1/componentstatuses", Accept="application/json;as=Table;v=v1;g=meta.k8s.io").json()
    assert [c["name"] for c in table["columnDefinitions"]][:2] == ["Name", "Status"]


@pytest.mark.parametrize(
    ("selector", "answer"),
    [
        ("labelSelector=a%3Db", 0),
        ("labelSelector=!a", 3),
        ("labelSelector=a!%3Db&fieldSelector=metadata.name%3Detcd-0", 1),
        ("fieldSelector=metadata.name%3Detcd-0", 1),
        ("fieldSelector=metadata.name!%3Detcd-0", 2),
        ("fieldSelector=a%3Db", '"a" is not a known field selector: only "metadata.name", "metadata.namespace"'),
        ("labelSelector=,,", "found ',', expected: !, identifier, or 'end of string'"),
    ],
)
def test_selectors_of_componentstatuses(client, selector, answer):
    code, body = client("GET", "/api/v1/componentstatuses?" + selector)
    assert (code, body["message"] if code == 400 else len(body["items"])) == (400 if isinstance(answer, str) else 200, answer)


@pytest.mark.parametrize(
    ("name", "form", "answer"),
    [
        ("/etcd-0", "Table", ["etcd-0", "Healthy", "ok", ""]),  # what kubectl requests
        ("/etcd-0", "PartialObjectMetadata", {"name": "etcd-0"}),
        ("/etcd-0", "PartialObjectMetadataList", "the requested object is not a list (*core.ComponentStatus)"),
        ("", "PartialObjectMetadata", "the requested object is a list (*core.ComponentStatusList)"),
    ],
)
def test_componentstatuses_in_other_formats(client, name, form, answer):
    r = client.raw("GET", "/api/v1/componentstatuses" + name, Accept=f"application/json;as={form};v=v1;g=meta.k8s.io")
    body = r.json()
    if isinstance(answer, str):
        assert (r.status_code, body["message"]) == (406, f"you requested {form}, but {answer}")
    else:
        assert (body["rows"][0]["cells"] if form == "Table" else body["metadata"]) == answer


def test_a_node_may_read_the_secrets_of_its_pods(kas_server, connect, tmp_path):
    tokens = tmp_path / "tokens.csv"
    tokens.write_text('node-token,system:node:n1,u,"system:nodes"\n')
    client = connect(kas_server("--unsafe-no-fsync", f"--token-auth-file={tokens}"))
    client("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
    for name in ("mine", "other"):
        client("POST", "/api/v1/namespaces/default/secrets", {"metadata": {"name": name}})

    def may(name: str) -> bool:
        return client("GET", f"/api/v1/namespaces/default/secrets/{name}", Authorization="Bearer node-token")[0] == 200

    volumes = [{"name": "v", "secret": {"secretName": "mine"}}]
    pod(client, "default", "before", node="n1", volumes=volumes)
    assert (may("mine"), may("other")) == (True, False)
    pod(client, "default", "after", volumes=[{"name": "v", "secret": {"secretName": "other"}}])
    assert not may("other")
    bind(client, "default", "after", "n1")
    assert may("other")
    client("DELETE", "/api/v1/namespaces/default/pods/before?gracePeriodSeconds=0")
    assert (may("mine"), may("other")) == (False, True)


# --- scale

DEPLOYMENT = {
    "metadata": {"name": "d"},
    "spec": {
        "replicas": 1, "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}},
    },
}  # fmt: skip


@pytest.fixture
def scale(client, namespace):
    """``scale(method, body, type)`` on a new Deployment's scale; ``scale.parent()`` returns the Deployment."""
    url = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    code, body = client("POST", f"{url}?fieldManager=maker", DEPLOYMENT)
    assert code in (201, 409), body

    def call(method: str, body=None, ctype: str = "application/json", query: str = ""):
        return client(method, f"{url}/d/scale{query}", body, ctype)

    call.parent = lambda: client("GET", f"{url}/d")[1]
    yield call
    client("DELETE", f"{url}/d")


def owners(parent) -> dict[str, str]:
    """Returns the owners of the replica count and their operations."""
    return {
        m["manager"]: f"{m['operation']} {m.get('subresource', '')}"
        for m in parent["metadata"]["managedFields"]
        if "f:replicas" in m["fieldsV1"].get("f:spec", {})
    }


def test_an_export_is_refused(client, namespace, scale):
    """Of an object, its status and its scale; lists never had the parameter."""
    base = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    for path in (f"{base}/d", f"{base}/d/status", f"{base}/d/scale"):
        for query in ("export=true", "export", "export=x&resourceVersion=0"):
            code, body = client("GET", f"{path}?{query}")
            said = "the export parameter, deprecated since v1.14, is no longer supported"
            assert (code, body["reason"], body["message"]) == (400, "BadRequest", said), (path, query)
        assert client("GET", f"{path}?export=false")[0] == client("GET", f"{path}?export=0")[0] == 200
    assert client("GET", f"{base}?export=true")[0] == 200


def test_scales_as_partial_metadata(client, namespace, scale):
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments/d/scale"
    found = client("GET", path, Accept="application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io")[1]
    assert (found["kind"], found["metadata"]["name"], "spec" in found) == ("PartialObjectMetadata", "d", False)
    code, body = client("GET", path, Accept="application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io")
    said = "you requested PartialObjectMetadataList, but the requested object is not a list (*autoscaling.Scale)"
    assert (code, body["message"]) == (406, said)


def test_scale_changes_the_owner_of_replicas(scale):
    code, body = scale("GET")
    assert (code, body["spec"], body["status"]) == (200, {"replicas": 1}, {"replicas": 0, "selector": "a=b"})
    body["spec"]["replicas"] = 3
    code, body = scale("PUT", body, query="?fieldManager=putter")
    assert (code, body["spec"]["replicas"], "managedFields" in body["metadata"]) == (200, 3, False)
    parent = scale.parent()
    assert (parent["metadata"]["generation"], owners(parent)) == (2, {"putter": "Update scale"})
    applied = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d"}, "spec": {"replicas": 4}}
    code, body = scale("PATCH", applied, "application/apply-patch+yaml", "?fieldManager=applier")
    assert (code, body["reason"]) == (409, "Conflict")
    assert '"putter" with subresource "scale"' in body["message"]
    code, body = scale("PATCH", applied, "application/apply-patch+yaml", "?fieldManager=applier&force=true")
    assert (code, body["spec"]["replicas"]) == (200, 4)
    assert owners(scale.parent()) == {"applier": "Apply scale"}


@pytest.mark.parametrize(
    ("ctype", "body"),
    [
        (MERGE, {"spec": {"replicas": 5}}),
        ("application/strategic-merge-patch+json", {"spec": {"replicas": 5}}),
        ("application/json-patch+json", [{"op": "replace", "path": "/spec/replicas", "value": 5}]),
    ],
)
def test_scale_accepts_every_patch_type(scale, ctype, body):
    assert scale("PATCH", body, ctype, "?dryRun=All")[1]["spec"]["replicas"] == 5
    assert scale.parent()["spec"]["replicas"] == 1
    assert scale("PATCH", body, ctype)[1]["spec"]["replicas"] == 5
    assert scale.parent()["spec"]["replicas"] == 5


def test_scale_refusals(scale):
    code, body = scale("PATCH", {"spec": {"replicas": -1}}, MERGE)
    assert (code, body["message"]) == (
        422, 'Scale.autoscaling "d" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0',
    )  # fmt: skip
    assert scale("PATCH", {"metadata": {"resourceVersion": "1"}, "spec": {"replicas": 2}}, MERGE)[0] == 409
    assert scale("PATCH", {"metadata": {"uid": "x"}, "spec": {"replicas": 2}}, MERGE)[0] == 409
    assert scale("PUT", {"metadata": {"name": "other"}})[0] == 400


def test_scale_needs_only_a_name(scale):
    code, body = scale("PUT", {"metadata": {"name": "d"}, "spec": {"replicas": 6}})
    assert (code, body["spec"]["replicas"]) == (200, 6)
    assert scale("PUT", {"metadata": {"name": "d", "labels": {"a b": "c"}}, "spec": {"replicas": 7}})[0] == 422
