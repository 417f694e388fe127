"""Attempts to gain rights: through RBAC itself, the garbage collector, or an object that changes between checks."""

from __future__ import annotations

import time

import pytest

RBAC = "/apis/rbac.authorization.k8s.io/v1"
ALL = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
HELD = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]
EDIT_RBAC = [
    {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["*"], "verbs": ["get", "list", "create", "update", "patch", "delete"]},
    *HELD,
]
APPLY = "application/apply-patch+yaml"
JSON_PATCH, MERGE, STRATEGIC = "application/json-patch+json", "application/merge-patch+json", "application/strategic-merge-patch+json"


@pytest.fixture(params=["Role", "ClusterRole"])
def roles(request, mallory, admin, room, grant):
    """(kind, URL of roles): mallory may write roles and bindings there, and may herself only read config maps."""
    namespaced = request.param == "Role"
    grant("mallory", EDIT_RBAC, room if namespaced else "")
    return request.param, f"{RBAC}/{f'namespaces/{room}/' if namespaced else ''}{request.param.lower()}s"


def role(name: str, kind: str, rules: list[dict], **more) -> dict:
    return {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "rules": rules, **more}


def test_a_role_cannot_grant_rights_its_writer_lacks(mallory, admin, roles, room):
    kind, url = roles
    name = f"r-{room}"
    for dry in ("", "?dryRun=All"):
        status, body = mallory("POST", url + dry, role(name, kind, ALL))
        assert status == 403, body
        assert "attempting to grant RBAC permissions not currently held" in body["message"]
    assert mallory("PATCH", f"{url}/{name}?fieldManager=m", role(name, kind, ALL), APPLY)[0] == 403
    assert mallory("PATCH", f"{url}/{name}?fieldManager=m&force=true&dryRun=All", role(name, kind, ALL), APPLY)[0] == 403
    assert mallory("POST", url, role(name, kind, HELD))[0] == 201
    wide = {"rules": ALL}
    first = [{"op": "add", "path": "/rules/0", "value": ALL[0]}]
    verb = [{"op": "replace", "path": "/rules/0/verbs/0", "value": "*"}]
    for ctype, patch in ((MERGE, wide), (STRATEGIC, wide), (JSON_PATCH, first), (JSON_PATCH, verb), (APPLY, role(name, kind, ALL))):
        query = "?fieldManager=m&force=true" if ctype == APPLY else ""
        status, body = mallory("PATCH", f"{url}/{name}{query}", patch, ctype)
        assert status == 403, (ctype, body)
    assert mallory("PUT", f"{url}/{name}", role(name, kind, ALL))[0] == 403
    assert admin("GET", f"{url}/{name}")[1]["rules"] == HELD
    admin("DELETE", f"{url}/{name}")


@pytest.mark.parametrize(
    "rule",
    [
        {"apiGroups": [""], "resources": ["configmaps/*"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["*"], "verbs": ["get"]},
        {"apiGroups": ["*"], "resources": ["configmaps"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "*"]},
        {"apiGroups": ["", "apps"], "resources": ["configmaps"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["configmaps", "secrets"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["*/scale"], "verbs": ["get"]},
    ],
)
def test_similar_rights_are_not_equal(mallory, room, grant, rule):
    grant("mallory", EDIT_RBAC, room)
    assert mallory("POST", f"{RBAC}/namespaces/{room}/roles", role("near", "Role", [rule]))[0] == 403


def binding(name: str, kind: str, role_kind: str, role_name: str) -> dict:
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": role_kind, "name": role_name}
    subject = {"kind": "User", "name": "mallory", "apiGroup": "rbac.authorization.k8s.io"}
    api = "rbac.authorization.k8s.io/v1"
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name}, "roleRef": ref, "subjects": [subject]}


def test_a_binding_cannot_grant_rights_its_writer_lacks(mallory, admin, roles, room):
    kind, url = roles
    bindings, kind_b = url[:-1] + "bindings", kind + "Binding"
    for dry in ("", "?dryRun=All"):
        status, body = mallory("POST", bindings + dry, binding(f"b-{room}", kind_b, "ClusterRole", "cluster-admin"))
        assert status == 403, body
    apply = binding(f"b-{room}", kind_b, "ClusterRole", "cluster-admin")
    assert mallory("PATCH", f"{bindings}/b-{room}?fieldManager=m", apply, APPLY)[0] == 403
    assert mallory("POST", bindings, binding(f"b-{room}", kind_b, "ClusterRole", "no-such-role"))[0] == 404
    # mallory must not add herself to another user's binding.
    theirs = {**apply, "subjects": [{"kind": "User", "name": "alice", "apiGroup": "rbac.authorization.k8s.io"}]}
    assert admin("POST", bindings, theirs)[0] == 201
    add = [{"op": "add", "path": "/subjects/-", "value": apply["subjects"][0]}]
    assert mallory("PATCH", f"{bindings}/b-{room}", add, JSON_PATCH)[0] == 403
    assert mallory("PUT", f"{bindings}/b-{room}", apply)[0] == 403
    assert admin("DELETE", f"{bindings}/b-{room}")[0] == 200
    # If the role gets more rules later, the binding's reference still cannot be changed.
    assert admin("POST", url, role(f"held-{room}", kind, HELD))[0] == 201
    assert mallory("POST", bindings, binding(f"c-{room}", kind_b, kind, f"held-{room}"))[0] == 201
    swap = {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}}
    assert mallory("PATCH", f"{bindings}/c-{room}", swap, MERGE)[0] in (403, 422)
    assert mallory("GET", f"/api/v1/namespaces/{room}/secrets")[0] == 403
    for path in (f"{bindings}/c-{room}", f"{url}/held-{room}"):
        admin("DELETE", path)


def test_aggregation_requires_full_authority(mallory, admin, grant, room):
    grant("mallory", EDIT_RBAC)
    rule = {"clusterRoleSelectors": [{"matchLabels": {"x": room}}]}
    url = f"{RBAC}/clusterroles"
    assert mallory("POST", url, role(f"agg-{room}", "ClusterRole", [], aggregationRule=rule))[0] == 403
    assert mallory("POST", url, role(f"agg-{room}", "ClusterRole", HELD))[0] == 201
    assert mallory("PATCH", f"{url}/agg-{room}", {"aggregationRule": rule}, MERGE)[0] == 403
    # A label that adds a role to admin or edit grants the role's rights, and no more than the writer has.
    labelled = role(f"lab-{room}", "ClusterRole", ALL)
    labelled["metadata"]["labels"] = {"rbac.authorization.k8s.io/aggregate-to-admin": "true"}
    assert mallory("POST", url, labelled)[0] == 403
    for name in (f"agg-{room}", f"lab-{room}"):
        admin("DELETE", f"{url}/{name}")


def test_a_policy_cannot_show_objects_its_writer_may_not_read(mallory, admin, grant, room):
    api, spec = "/apis/admissionregistration.k8s.io/v1", {"matchConstraints": {"resourceRules": [
        {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
    ]}}  # fmt: skip
    grant("mallory", [{"apiGroups": ["admissionregistration.k8s.io"], "resources": ["*"], "verbs": ["*"]}])
    asks = [{"expression": "false", "messageExpression": "string(params.data.k)"}]
    kind, ref = {"apiVersion": "v1", "kind": "Secret"}, {"name": "x", "namespace": "kube-system", "parameterNotFoundAction": "Deny"}
    change = [{"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{op: \"test\", path: \"/data\"}]"}}]
    for sort, more in (("Validating", {"validations": asks}), ("Mutating", {"mutations": change, "reinvocationPolicy": "Never"})):
        policies, bindings = f"{api}/{sort.lower()}admissionpolicies", f"{api}/{sort.lower()}admissionpolicybindings"
        policy = {"metadata": {"name": f"theirs-{room}"}, "spec": {**spec, **more, "paramKind": kind}}
        bound = {"metadata": {"name": room}, "spec": {"policyName": f"theirs-{room}", "paramRef": ref}}
        if sort == "Validating":
            bound["spec"]["validationActions"] = ["Deny"]
        whole = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": f"{sort}AdmissionPolicy", **policy}
        refused = [
            ("POST", policies, policy, ""), ("POST", f"{policies}?dryRun=All", policy, ""),
            ("PATCH", f"{policies}/theirs-{room}?fieldManager=m", whole, APPLY),
        ]  # fmt: skip
        for method, path, body, ctype in refused:
            status, answer = mallory(method, path, body, ctype or "application/json")
            assert status == 422 and 'must have "get" permission' in answer["message"], answer
        assert admin("POST", policies, policy)[0] == 201
        status, answer = mallory("POST", bindings, bound)
        assert status == 422 and "on the object referenced by paramRef" in answer["message"], answer
        for path in (f"{policies}/theirs-{room}", f"{bindings}/{room}"):
            admin("DELETE", path)


# --- the object that is checked is the object that is stored


def config_map(name: str | None = "x", namespace: str | None = None, **more) -> dict:
    meta = {k: v for k, v in (("name", name), ("namespace", namespace)) if v is not None}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, **more}


def test_a_body_cannot_name_another_object_than_the_path(mallory, admin, room, grant):
    grant("mallory", [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}], room)
    url = f"/api/v1/namespaces/{room}/configmaps"
    assert mallory("POST", url, config_map())[0] == 201
    assert mallory("POST", url, config_map("y", "kube-system"))[0] == 400
    assert mallory("PUT", f"{url}/x", config_map("x", "kube-system"))[0] == 400
    assert mallory("PUT", f"{url}/x", config_map("other"))[0] == 400
    assert mallory("PATCH", f"{url}/new?fieldManager=m", config_map("other"), APPLY)[0] == 400
    assert mallory("PATCH", f"{url}/new?fieldManager=m", config_map("new", "kube-system"), APPLY)[0] == 400
    for ctype, patch in (
        (MERGE, {"metadata": {"name": "other"}}),
        (MERGE, {"metadata": {"namespace": "kube-system"}}),
        (JSON_PATCH, [{"op": "replace", "path": "/metadata/name", "value": "other"}]),
        (JSON_PATCH, [{"op": "replace", "path": "/metadata/namespace", "value": "kube-system"}]),
        (STRATEGIC, {"metadata": {"namespace": "kube-system"}}),
    ):
        status, body = mallory("PATCH", f"{url}/x", patch, ctype)
        assert status in (400, 422), (patch, body)
    status, body = mallory("POST", url, {**config_map("z"), "kind": "Secret"})
    assert status == 400, body
    assert admin("GET", "/api/v1/namespaces/kube-system/configmaps/x")[0] == 404
    assert admin("GET", "/api/v1/namespaces/kube-system/configmaps/y")[0] == 404
    assert admin("GET", f"{url}/other")[0] == 404


def test_the_server_sets_identifying_fields(admin, room):
    wish = {
        "uid": "11111111-1111-1111-1111-111111111111",
        "creationTimestamp": "2001-01-01T00:00:00Z",
        "selfLink": "/x",
        "deletionTimestamp": "2001-01-01T00:00:00Z",
        "deletionGracePeriodSeconds": 5,
    }
    body = config_map()
    body["metadata"] |= wish
    status, made = admin("POST", f"/api/v1/namespaces/{room}/configmaps", body)
    assert status == 201
    for field, value in wish.items():
        assert made["metadata"].get(field) != value, field
    again = dict(made, metadata={**made["metadata"], "uid": wish["uid"]})
    assert admin("PUT", f"/api/v1/namespaces/{room}/configmaps/x", again)[0] == 409


def pod(name: str, **spec) -> dict:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "x"}], **spec}}


def test_admission_sees_the_object_that_is_stored(admin, room):
    """A namespace that enforces "baseline" stores no privileged pod, however it is written."""
    label = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}}
    assert admin("PATCH", f"/api/v1/namespaces/{room}", label, MERGE)[0] == 200
    assert admin("POST", f"/api/v1/namespaces/{room}/serviceaccounts", {"metadata": {"name": "default"}})[0] in (201, 409)
    url = f"/api/v1/namespaces/{room}/pods"
    good = '{"containers":[{"name":"c","image":"x"}]}'
    bad = '{"containers":[{"name":"c","image":"x","securityContext":{"privileged":true}}],"hostPID":true}'
    head = '"apiVersion":"v1","kind":"Pod","metadata":{"name":"%s"}'
    texts = [
        f'{{{head},"spec":{good},"spec":{bad}}}',
        f'{{{head},"spec":{bad},"spec":{good}}}',
        f'{{{head},"spec":{good},"Spec":{bad}}}',
        f'{{{head},"SPEC":{bad},"spec":{good}}}',
        f'{{{head},"spec":{good},"sp\\u0065c":{bad}}}',
        f'{{{head},"metadata":{{"name":"%s","namespace":"default"}},"spec":{bad}}}',
        f'{{{head},"spec":{good}}}{{"spec":{bad}}}',
    ]
    for i, text in enumerate(texts):
        for j, level in enumerate(("Ignore", "Warn", "Strict")):
            body = text.replace("%s", f"p{i}{j}")
            status, answer = admin("POST", f"{url}?fieldValidation={level}", body)
            assert status in (201, 400, 403), (body, answer)
            status, _ = admin("POST", f"{url}?fieldValidation={level}", body.replace('{"spec"', '\n---\n{"spec"'), "application/yaml")
            assert status in (201, 400, 403, 409)
    status, answer = admin("POST", url, pod("plain"))
    assert status == 201, answer
    loud = {"name": "d", "image": "x", "securityContext": {"privileged": True}}
    add = {"spec": {"ephemeralContainers": [loud]}}
    assert admin("PATCH", f"{url}/plain/ephemeralcontainers", add, STRATEGIC)[0] == 403
    assert admin("PATCH", f"{url}/applied?fieldManager=m", pod("applied", hostNetwork=True), APPLY)[0] == 403
    status, pods = admin("GET", url)
    for p in pods["items"]:
        assert not p["spec"].get("hostPID"), p["metadata"]["name"]
        assert not any((c.get("securityContext") or {}).get("privileged") for c in p["spec"]["containers"]), p["metadata"]["name"]


def test_status_and_subresources_change_nothing_else(mallory, admin, room, grant):
    url = f"/api/v1/namespaces/{room}/pods"
    admin("POST", f"/api/v1/namespaces/{room}/serviceaccounts", {"metadata": {"name": "default"}})
    assert admin("POST", url, pod("p"))[0] == 201
    grant("mallory", [{"apiGroups": [""], "resources": ["pods/status"], "verbs": ["patch", "update"]}], room)
    patch = {"spec": {"containers": [{"name": "c", "image": "evil"}]}, "metadata": {"ownerReferences": []}, "status": {"message": "m"}}
    status, body = mallory("PATCH", f"{url}/p/status", patch, MERGE)
    assert status == 200, body
    assert body["spec"]["containers"][0]["image"] == "x"
    for path, payload in ((f"{url}/p", {"spec": {}}), (f"{url}/p/ephemeralcontainers", {}), (f"{url}/p/resize", {})):
        assert mallory("PATCH", path, payload, MERGE)[0] == 403
    assert mallory("POST", f"{url}/p/binding", {"metadata": {"name": "p"}, "target": {"name": "n"}})[0] == 403
    assert mallory("POST", f"/api/v1/namespaces/{room}/bindings", {"metadata": {"name": "p"}, "target": {"name": "n"}})[0] == 403


# --- deletion by the garbage collector


def owner(obj: dict, **more) -> dict:
    return {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "name": obj["metadata"]["name"], "uid": obj["metadata"]["uid"], **more}


def wait_gone(admin, path: str, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while admin("GET", path)[0] != 404:
        assert time.monotonic() < end, f"{path} is still there"
        time.sleep(0.1)


def looked_at(admin, room: str) -> None:
    """Waits until the collector has processed earlier writes: an object with an owner that never existed is deleted. Twice, because it
    processes several objects at once."""
    never = {"apiVersion": "v1", "kind": "ConfigMap", "name": "never", "uid": "f7ae4a9e-6a2f-4b0f-8f6e-000000000000"}
    for _ in range(2):
        body = {"metadata": {"generateName": "orphan-", "ownerReferences": [never]}}
        status, made = admin("POST", f"/api/v1/namespaces/{room}/configmaps", body)
        assert status == 201, made
        wait_gone(admin, f"/api/v1/namespaces/{room}/configmaps/{made['metadata']['name']}")


def test_owner_references_do_not_reach_other_namespaces(mallory, admin, room, grant):
    """A child that names an owner of another namespace is deleted itself; the owner and its real dependents stay."""
    other = room + "-b"
    assert admin("POST", "/api/v1/namespaces", {"metadata": {"name": other}})[0] in (201, 409)
    theirs, mine = (f"/api/v1/namespaces/{ns}/configmaps" for ns in (other, room))
    _, victim = admin("POST", theirs, config_map("victim"))
    child = config_map("child")
    child["metadata"]["ownerReferences"] = [owner(victim)]
    assert admin("POST", theirs, child)[0] == 201
    grant("mallory", [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}], room)
    for name, ref in (
        ("a", owner(victim)),
        ("b", owner(victim, controller=True, blockOwnerDeletion=True)),
        ("c", owner(victim) | {"name": "other-name"}),
        ("d", owner(victim) | {"kind": "Secret"}),
        ("e", owner(victim) | {"kind": "Namespace"}),
        ("f", owner(victim) | {"apiVersion": "apps/v1", "kind": "Deployment"}),
    ):
        bait = config_map(name, finalizers=None)
        bait["metadata"]["ownerReferences"] = [ref]
        status, body = mallory("POST", mine, bait)
        assert status == 201, body
        mallory("DELETE", f"{mine}/{name}?propagationPolicy=Foreground")
    for name in "abcdef":
        wait_gone(admin, f"{mine}/{name}")
    looked_at(admin, room)
    for name in ("victim", "child"):
        status, body = admin("GET", f"{theirs}/{name}")
        assert status == 200, name
        assert "deletionTimestamp" not in body["metadata"], name


def test_cluster_scoped_objects_cannot_have_namespaced_owners(mallory, admin, room):
    _, mine = admin("POST", f"/api/v1/namespaces/{room}/configmaps", config_map("lure"))
    body = {"metadata": {"name": f"c-{room}", "ownerReferences": [owner(mine)]}}
    assert admin("POST", f"{RBAC}/clusterroles", body)[0] == 201
    assert admin("DELETE", f"/api/v1/namespaces/{room}/configmaps/lure")[0] == 200
    looked_at(admin, room)
    assert admin("GET", f"{RBAC}/clusterroles/c-{room}")[0] == 200
    admin("DELETE", f"{RBAC}/clusterroles/c-{room}")


def test_invalid_owner_references(admin, room):
    url = f"/api/v1/namespaces/{room}/configmaps"
    for ref in (
        {},
        {"uid": "x"},
        {"apiVersion": "v1", "kind": "Event", "name": "x", "uid": "y"},
        {"apiVersion": "a/b/c", "kind": "X", "name": "x", "uid": "y"},
    ):
        body = config_map("n")
        body["metadata"]["ownerReferences"] = [ref]
        assert admin("POST", url, body)[0] == 422, ref
    body["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": str(i), "controller": True} for i in range(2)
    ]
    assert admin("POST", url, body)[0] == 422
    loop = [config_map(n) for n in ("one", "two")]
    made = [admin("POST", url, o)[1] for o in loop]
    for o, p in ((made[0], made[1]), (made[1], made[0])):
        patch = {"metadata": {"ownerReferences": [owner(p, blockOwnerDeletion=True)]}}
        assert admin("PATCH", f"{url}/{o['metadata']['name']}", patch, MERGE)[0] == 200
    assert admin("DELETE", f"{url}/one?propagationPolicy=Foreground")[0] == 200
    for name in ("one", "two"):
        wait_gone(admin, f"{url}/{name}")
