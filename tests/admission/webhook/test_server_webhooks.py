"""Webhooks of a running server with two workers: they are called, their decisions are applied, and a bad one affects only its own
requests."""

from __future__ import annotations

import itertools
import json
import threading
import time

import pytest

from kas.testing.server import KasServer
from tests.admission.webhook.hook_server import PATIENCE_S, HookServer, raw_answer, reviewed, rule, webhook
from tests.conftest import Client

VALIDATING, MUTATING = (f"/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations" for kind in ("validating", "mutating"))
_numbers = itertools.count()


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with KasServer(tmp_path_factory.mktemp("kas"), "--unsafe-no-fsync", "--controllers", "none", workers=2) as server:
        yield server


@pytest.fixture
def api(running):
    return Client(running)


@pytest.fixture
def space(api):
    """A namespace for this test alone."""
    name = f"ns{next(_numbers)}"
    assert api("POST", "/api/v1/namespaces", {"metadata": {"name": name}})[0] == 201
    return name


@pytest.fixture
def configure(api, space):
    """``configure(webhook, …)`` creates a validating configuration for the test's namespace, with ``path=MUTATING`` a mutating one; they
    are deleted after the test."""
    made = []

    def make(*hooks, path=VALIDATING, name=""):
        name = name or f"{space}-{len(made)}"
        hooks = [{**hook, "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": space}}} for hook in hooks]
        code, answer = api("POST", path, {"metadata": {"name": name}, "webhooks": hooks})
        assert code == 201, answer
        made.append(f"{path}/{name}")
        return made[-1]

    yield make
    for path in made:
        api("DELETE", path)


def config_map(name: str, **data: str) -> dict:
    return {"metadata": {"name": name}, "data": data}


def test_the_validated_object_is_the_stored_one(api, space, configure, hook):
    def mutate(review):
        return reviewed(review, patch=[{"op": "add", "path": "/data/b", "value": "2"}, {"op": "add", "path": "/nobody", "value": {"a": 1}}])

    hook.answers = lambda review: mutate(review) if review["path"].startswith("/m") else reviewed(review)
    configure(webhook(hook.client("/m")), path=MUTATING)
    configure(webhook(hook.client("/v")))
    code, stored = api("POST", f"/api/v1/namespaces/{space}/configmaps", config_map("a", a="1"))
    assert code == 201 and stored["data"] == {"a": "1", "b": "2"} and "nobody" not in stored
    mutated, validated = hook.requests(operation="CREATE")
    assert "uid" not in mutated["object"]["metadata"] and mutated["object"]["data"] == {"a": "1"}
    shown = {**stored, "metadata": {k: v for k, v in stored["metadata"].items() if k != "resourceVersion"}}
    assert validated["object"] == shown
    # The applier owns the fields it sent, not those that the webhook added.
    assert stored["metadata"]["managedFields"][0]["fieldsV1"] == {"f:data": {".": {}, "f:a": {}}}


def test_an_update_is_shown_to_webhooks_as_it_would_be_read(api, space, configure, hook):
    """Byte by byte, as a stored object is shown without being encoded again."""
    path = f"/api/v1/namespaces/{space}/configmaps/a"
    given = {"metadata": {"name": "a", "annotations": {"b": "", "a": "<é>"}}, "data": {"k": "1"}}
    before = api("POST", f"/api/v1/namespaces/{space}/configmaps", given)[1]
    configure(webhook(hook.client()))
    for query in ("?dryRun=All", ""):
        hook.seen.clear()
        code, after = api("PUT", path + query, {**before, "metadata": {**before["metadata"], "selfLink": "/x"}, "data": {"k": "2"}})
        assert code == 200
        (request,) = hook.requests(operation="UPDATE")
        assert json.dumps(request["oldObject"]) == json.dumps(before)
        # Only the storage removes selfLink, which a dry run does not reach.
        shown = {**request["object"], "metadata": {k: v for k, v in request["object"]["metadata"].items() if query or k != "selfLink"}}
        same = {**after, "metadata": {**after["metadata"], "resourceVersion": before["metadata"]["resourceVersion"]}}
        assert json.dumps(shown) == json.dumps(same)
    assert json.dumps(api("GET", path)[1]) == json.dumps(after) and "selfLink" not in after["metadata"]


def test_after_a_conflict_webhooks_are_called_again(api, space, configure, hook):
    """What they were shown in the first attempt is not what is stored."""
    path = f"/api/v1/namespaces/{space}/configmaps/a"
    api("POST", f"/api/v1/namespaces/{space}/configmaps", config_map("a", k="1"))
    configure(webhook(hook.client()))
    others = iter([True])

    def answer(review):
        if review["request"]["object"]["data"].get("mine") and next(others, False):
            api("PATCH", path, {"data": {"other": "x"}}, "application/merge-patch+json")
        return reviewed(review)

    hook.answers = answer
    code, stored = api("PATCH", path, {"data": {"mine": "y"}}, "application/merge-patch+json")
    assert code == 200 and stored["data"] == {"k": "1", "mine": "y", "other": "x"} == api("GET", path)[1]["data"]
    assert [a["object"]["data"] for a in hook.requests(operation="UPDATE")] == [
        {"k": "1", "mine": "y"}, {"k": "1", "other": "x"}, {"k": "1", "mine": "y", "other": "x"},
    ]  # fmt: skip


def test_a_configuration_counts_in_every_worker_at_once(running, api, space, configure, hook):
    hook.answers = lambda review: reviewed(review, False, status={"message": "no", "code": 418})
    path = f"/api/v1/namespaces/{space}/configmaps?dryRun=All"
    where = configure(webhook(hook.client()))
    for _ in range(8):  # connections of their own, which the workers share
        code, e = Client(running)("POST", path, config_map("a"))
        assert (code, e["message"]) == (418, 'admission webhook "h.example.com" denied the request: no')
    assert api("DELETE", where)[0] == 200
    for _ in range(8):
        assert Client(running)("POST", path, config_map("a"))[0] == 201


def test_connections_are_reused(api, space, configure, hook):
    configure(webhook(hook.client("/kept")))
    before = hook.connections
    for i in range(10):
        assert api("POST", f"/api/v1/namespaces/{space}/configmaps", config_map(f"a{i}"))[0] == 201
    assert len(hook.seen) == 10 and hook.connections - before <= 2  # one for each worker that called it


@pytest.mark.parametrize("policy", ["Fail", "Ignore"])
def test_invalid_responses(api, space, configure, hook, policy):
    answers = {
        "redirect": (raw_answer(b"", 307, Location=hook.url + "/elsewhere"),
                     "the server responded with the status code 307 but did not return more information"),
        "garbage": (raw_answer(b"\x00\x01 garbage"), "yaml: control characters are not allowed"),
        "broken": (raw_answer(b'{"kind": '), "couldn't get version/kind; json parse error: unexpected end of JSON input"),
        "large": (raw_answer(b'{"a": "' + b"x" * (10 << 20) + b'"}'), "the answer is larger than 3145728 bytes"),
        "cut": (raw_answer(b"{}", **{"Content-Length": "100000", "Connection": "close"}), "unexpected EOF"),
        "busy": (raw_answer(b"", 503, **{"Content-Type": "text/plain"}), "the server is currently unable to handle the request"),
    }  # fmt: skip

    hook.answers = lambda review: answers[review["request"]["name"]][0]
    configure(webhook(hook.client(), failurePolicy=policy, timeoutSeconds=30))
    for name, (_, text) in answers.items():
        code, e = api("POST", f"/api/v1/namespaces/{space}/configmaps", config_map(name))
        if policy == "Ignore":
            assert code == 201
        else:
            start = 'Internal error occurred: failed calling webhook "h.example.com": failed to call webhook: '
            assert code == 500 and e["message"].startswith(start) and text in e["message"], e
    assert not [s for s in hook.seen if "elsewhere" in s["path"]]


def test_a_webhook_that_is_down(api, space, configure, hook):
    where = configure(webhook({"url": "https://127.0.0.1:1/x"}))
    path = f"/api/v1/namespaces/{space}/configmaps"
    code, e = api("POST", path, config_map("a"))
    assert (code, e["reason"]) == (500, "InternalError")
    assert e["message"].endswith('Post "https://127.0.0.1:1/x?timeout=10s": dial tcp 127.0.0.1:1: connect: connection refused')
    ignore = [{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"}]
    assert api("PATCH", where, ignore, "application/json-patch+json")[0] == 200
    assert api("POST", path, config_map("a"))[0] == 201


@pytest.mark.parametrize(("patch", "policy", "code", "text"), [
    ([{"op": "remove", "path": "/nope"}], "Ignore", 500, "Internal error occurred: error in remove for path: '/nope': Unable to remove"),
    ([{"op": "replace", "path": "/data", "value": "x"}], "Ignore", 500,
     "json: cannot unmarshal string into Go struct field ConfigMap.data of type map[string]string"),
    ([{"op": "replace", "path": "", "value": []}], "Ignore", 500, "json: cannot unmarshal array into Go value"),
    ({"not": "a patch"}, "Ignore", 201, ""),
    ({"not": "a patch"}, "Fail", 500, "received undecodable patch in webhook response"),
    ([{"op": "replace", "path": "/metadata/namespace", "value": "other"}], "Fail", 400, "does not match"),
    ([{"op": "add", "path": "/data/a.b~1c", "value": "x"}], "Fail", 422, "Invalid value"),
])  # fmt: skip
def test_patches_that_do_not_apply(api, space, configure, hook, patch, policy, code, text):
    hook.answers = lambda review: reviewed(review, patch=patch)
    configure(webhook(hook.client(), failurePolicy=policy), path=MUTATING)
    got, answer = api("POST", f"/api/v1/namespaces/{space}/configmaps", config_map("a", a="1"))
    assert (got, text in answer.get("message", "")) == (code, True), answer
    assert api("GET", f"/api/v1/namespaces/{space}/configmaps/a")[0] == (200 if code == 201 else 404)


def test_a_patch_may_rename_a_new_object(api, space, configure, hook):
    hook.answers = lambda review: reviewed(review, patch=[{"op": "replace", "path": "/metadata/name", "value": "b"}])
    configure(webhook(hook.client()), path=MUTATING)
    code, stored = api("POST", f"/api/v1/namespaces/{space}/configmaps", config_map("a"))
    assert (code, stored["metadata"]["name"]) == (201, "b")


def test_a_patch_that_changes_the_kind_of_a_custom_object(api, space, configure, hook):
    """Custom objects are not decoded as a kind: their validation limits the kind they may have."""
    group = f"{space}.example.com"
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    versions = [{"name": "v1", "served": True, "storage": True, "schema": schema}]
    spec = {"group": group, "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"}, "versions": versions}
    crd = {"metadata": {"name": f"widgets.{group}"}, "spec": spec}
    assert api("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)[0] == 201
    where, end = f"/apis/{group}/v1/namespaces/{space}/widgets", time.monotonic() + PATIENCE_S
    while api("GET", where)[0] != 200:
        assert time.monotonic() < end, "the definition is not served"
        time.sleep(0.05)
    hook.answers = lambda review: reviewed(review, patch=[{"op": "replace", "path": "/kind", "value": "Gadget"}])
    configure(webhook(hook.client(), rules=[rule("widgets", groups=(group,))], failurePolicy="Ignore"), path=MUTATING)
    code, answer = api("POST", where, {"apiVersion": f"{group}/v1", "kind": "Widget", "metadata": {"name": "a"}})
    assert (code, answer["message"]) == (422, f'Gadget.{group} "a" is invalid: kind: Invalid value: "Gadget": must be Widget')


def test_a_webhook_that_hangs_delays_no_other_requests(running, api, space, configure, hook):
    release = threading.Event()

    def hang(review):
        release.wait(PATIENCE_S)
        return reviewed(review)

    hook.answers = hang
    secrets = rule("secrets", operations=["CREATE"])
    configure(webhook(hook.client("/hang"), rules=[secrets], timeoutSeconds=30))
    codes: list[int] = []

    def write(i):
        codes.append(Client(running)("POST", f"/api/v1/namespaces/{space}/secrets", {"metadata": {"name": f"s{i}"}})[0])

    writers = [threading.Thread(target=write, args=(i,)) for i in range(40)]
    for writer in writers:
        writer.start()
    try:
        hook.wait_for(40)
        for i in range(20):
            assert api("POST", f"/api/v1/namespaces/{space}/configmaps", config_map(f"a{i}"))[0] == 201
        assert not codes
    finally:
        release.set()
        for writer in writers:
            writer.join(PATIENCE_S)
    assert codes == [201] * 40


def test_500_writers_wait_only_for_the_webhook_that_hangs(running, api, space, configure, hook, tmp_path):
    """Two backends never answer: each takes its share of the server, which continues for other requests and for a third backend; requests
    beyond a share get the result of the failure policy."""
    release, third = threading.Event(), hook

    def hang(review):
        release.wait(PATIENCE_S)
        return reviewed(review)

    others = [tmp_path / name for name in ("a", "b")]
    for folder in others:
        folder.mkdir()
    with HookServer(others[0]) as first, HookServer(others[1]) as second:
        first.answers = second.answers = hang
        secrets, services = rule("secrets", operations=["CREATE"]), rule("serviceaccounts", operations=["CREATE"])
        configure(webhook(first.client("/hang"), rules=[secrets], timeoutSeconds=30))
        configure(webhook(second.client("/mutate"), rules=[services], timeoutSeconds=30), path=MUTATING)
        configure(webhook(third.client("/third")))
        codes: list[int] = []
        ways = {"secrets": 300, "serviceaccounts": 200}

        def write(resource, i):
            codes.append(Client(running)("POST", f"/api/v1/namespaces/{space}/{resource}", {"metadata": {"name": f"x{i}"}})[0])

        writers = [threading.Thread(target=write, args=(r, i), daemon=True) for r, count in ways.items() for i in range(count)]
        for writer in writers:
            writer.start()
        try:
            first.wait_for(40)
            second.wait_for(20)
            for i in range(20):
                while (code := api("POST", f"/api/v1/namespaces/{space}/configmaps", config_map(f"a{i}"))[0]) == 429:
                    time.sleep(0.05)  # the server's own limit of writes, which the writers reach
                assert code == 201
            assert len(third.seen) >= 20
        finally:
            release.set()
            for writer in writers:
                writer.join(PATIENCE_S)
    assert len(codes) == 500 and codes.count(201) >= 60 and set(codes) <= {201, 429, 500}


def test_a_late_webhook_fails(api, space, configure, hook):
    release = threading.Event()
    hook.answers = lambda review: release.wait(PATIENCE_S) and reviewed(review)
    configure(webhook(hook.client("/late"), timeoutSeconds=1))
    try:
        code, e = api("POST", f"/api/v1/namespaces/{space}/configmaps", config_map("a"))
        assert code == 500 and e["message"].endswith(f'Post "{hook.url}/late?timeout=1s": context deadline exceeded')
        # Within the request's own timeout, which ends first here; the response is upstream's timeout filter's.
        r = api.raw("POST", f"/api/v1/namespaces/{space}/configmaps?timeout=100ms", config_map("a"))
        assert (r.status_code, r.headers["Content-Type"]) == (504, "text/plain; charset=utf-8")
        assert r.json()["reason"] == "Timeout" and "kind" not in r.json()
    finally:
        release.set()


def test_objects_are_converted_to_the_version_of_the_rule(api, space, configure, hook):
    change = [{"op": "replace", "path": "/spec/maxReplicas", "value": 7}]
    hook.answers = lambda review: reviewed(review, patch=change if review["path"].startswith("/m") else None)
    scalers = rule("horizontalpodautoscalers", groups=("autoscaling",), versions=("v2",))
    configure(webhook(hook.client("/m"), rules=[scalers]), path=MUTATING)
    configure(webhook(hook.client("/v"), rules=[scalers]))
    configure(webhook(hook.client("/exact"), name="e.example.com", rules=[scalers], matchPolicy="Exact"))
    target = {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}
    sent = {"metadata": {"name": "h"}, "spec": {"scaleTargetRef": target, "maxReplicas": 2, "targetCPUUtilizationPercentage": 60}}
    code, stored = api("POST", f"/apis/autoscaling/v1/namespaces/{space}/horizontalpodautoscalers", sent)
    assert code == 201 and stored["apiVersion"] == "autoscaling/v1"
    assert stored["spec"]["maxReplicas"] == 7 and stored["spec"]["targetCPUUtilizationPercentage"] == 60
    assert [s["path"].partition("?")[0] for s in hook.seen] == ["/m", "/v"]
    for request in hook.requests():
        assert request["kind"]["version"] == request["resource"]["version"] == "v2" and request["requestKind"]["version"] == "v1"
        assert request["object"]["apiVersion"] == "autoscaling/v2" and request["object"]["spec"]["metrics"]
    assert hook.requests()[1]["object"]["spec"]["maxReplicas"] == 7


def test_pods_pass_a_webhook_and_every_plugin_twice(api, space, configure, hook):
    """A changed object runs through all mutating plug-ins again, and stays valid."""
    assert api("POST", f"/api/v1/namespaces/{space}/serviceaccounts", {"metadata": {"name": "default"}})[0] == 201
    limits = {"limits": [{"type": "Container", "defaultRequest": {"cpu": "1"}, "default": {"cpu": "2"}}]}
    assert api("POST", f"/api/v1/namespaces/{space}/limitranges", {"metadata": {"name": "l"}, "spec": limits})[0] == 201
    container = {"name": "side", "image": "i"}
    add = [{"op": "add", "path": "/spec/containers/-", "value": container}]
    hook.answers = lambda review: reviewed(review, patch=add if len(review["request"]["object"]["spec"]["containers"]) < 2 else None)
    configure(webhook(hook.client(), rules=[rule("pods")]), path=MUTATING)
    sent = {"metadata": {"name": "p"}, "spec": {"containers": [{**container, "name": "c"}]}}
    code, pod = api("POST", f"/api/v1/namespaces/{space}/pods", sent)
    assert code == 201, pod
    assert [c["name"] for c in pod["spec"]["containers"]] == ["c", "side"]
    # The second run of LimitRanger and ServiceAccount saw the new container; the webhook, which did not ask for it, was not called again.
    assert [c["resources"]["requests"] for c in pod["spec"]["containers"]] == [{"cpu": "1"}] * 2
    assert [len(c["volumeMounts"]) for c in pod["spec"]["containers"]] == [1, 1]
    assert len(hook.seen) == 1


def test_webhooks_behind_a_service(api, space, configure, tmp_path):
    """Reached at the Service's external name, with the Service's own as server name."""
    with HookServer(tmp_path, f"hook.{space}.svc") as hook:
        service = {"metadata": {"name": "hook"}, "spec": {"type": "ExternalName", "externalName": "localhost"}}
        assert api("POST", f"/api/v1/namespaces/{space}/services", service)[0] == 201
        where = {"namespace": space, "name": "hook", "path": "/s", "port": hook.port}
        configure(webhook({"service": where, "caBundle": hook.ca_bundle}))
        assert api("POST", f"/api/v1/namespaces/{space}/configmaps", config_map("a"))[0] == 201
        (seen,) = hook.seen
        assert seen["path"] == "/s?timeout=10s" and seen["headers"]["host"] == f"hook.{space}.svc:{hook.port}"
        assert api("DELETE", f"/api/v1/namespaces/{space}/services/hook")[0] == 200
        configure(webhook({"service": {**where, "name": "gone"}, "caBundle": hook.ca_bundle}, "gone.example.com"))
        code, e = api("POST", f"/api/v1/namespaces/{space}/configmaps", config_map("b"))
        assert code == 500 and e["message"].endswith(
            f'Post "https://gone.{space}.svc:{hook.port}/s?timeout=10s": service "gone" not found'
        )  # fmt: skip


def test_warnings_are_returned_with_the_response(api, space, configure, hook):
    hook.answers = lambda review: reviewed(review, warnings=["mind this", "", "x" * 5000, *(f"w{i}" for i in range(3000))])
    configure(webhook(hook.client()))
    r = api.raw("POST", f"/api/v1/namespaces/{space}/configmaps", config_map("a"))
    assert r.status_code == 201
    warnings = r.headers["Warning"].split(", ")
    assert warnings[:3] == ['299 - "mind this"', f'299 - "{"x" * 256}"', '299 - "w0"'] and len(warnings) < 100


def test_the_review_of_each_verb(api, space, configure, hook):
    """Names, options and objects of every verb that writes; a Scale without its parent's managers, a review that is not stored."""
    scaled = rule("deployments/scale", "deployments", groups=("apps",))
    reviews = rule("localsubjectaccessreviews", groups=("authorization.k8s.io",))
    configure(webhook(hook.client("/reviews"), rules=[rule("configmaps"), scaled, reviews]))
    maps = f"/api/v1/namespaces/{space}/configmaps"
    made = api("POST", maps, {"metadata": {"generateName": "g-"}})[1]["metadata"]["name"]
    applied = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}}
    assert api("PATCH", f"{maps}/applied?fieldManager=m&force=true", applied, "application/apply-patch+yaml")[0] == 201
    assert api("PATCH", f"{maps}/applied?fieldManager=p", {"data": {"a": "b"}}, "application/merge-patch+json")[0] == 200
    assert api("DELETE", f"{maps}/{made}", {"gracePeriodSeconds": 0, "kind": "DeleteOptions", "apiVersion": "v1"})[0] == 200
    assert api("DELETE", maps)[0] == 200
    reviewed_writes = [(r["operation"], r.get("name"), r["options"]) for r in hook.requests()]
    meta = {"apiVersion": "meta.k8s.io/v1"}
    assert reviewed_writes == [
        ("CREATE", made, {"kind": "CreateOptions", **meta}), ("CREATE", "applied", {"kind": "CreateOptions", **meta, "fieldManager": "m"}),
        ("UPDATE", "applied", {"kind": "UpdateOptions", **meta, "fieldManager": "p"}),
        ("DELETE", made, {"kind": "DeleteOptions", **meta, "gracePeriodSeconds": 0}), ("DELETE", None, {"kind": "DeleteOptions", **meta}),
    ]  # fmt: skip
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    deployment = {"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}}
    assert api("POST", f"/apis/apps/v1/namespaces/{space}/deployments", deployment)[0] == 201
    scaling = f"/apis/apps/v1/namespaces/{space}/deployments/d/scale", {"spec": {"replicas": 3}}, "application/merge-patch+json"
    assert api("PATCH", *scaling)[0] == 200
    scale = hook.requests()[-1]
    assert (scale["kind"]["kind"], scale["subResource"], scale["object"]["spec"]) == ("Scale", "scale", {"replicas": 3})
    assert "managedFields" not in scale["object"]["metadata"] and "managedFields" not in scale["oldObject"]["metadata"]
    about = {"namespace": space, "verb": "get", "resource": "pods"}
    review = {"metadata": {"namespace": space}, "spec": {"user": "x", "resourceAttributes": about}}
    assert api("POST", f"/apis/authorization.k8s.io/v1/namespaces/{space}/localsubjectaccessreviews", review)[0] == 201
    assert "LocalSubjectAccessReview" in {request["kind"]["kind"] for request in hook.requests()}


def test_metrics(api, space, configure, hook):
    hook.answers = lambda review: reviewed(review, review["request"]["name"] != "bad", status={"code": 409})
    configure(webhook(hook.client(), "counted.example.com"))
    configure(webhook({"url": "https://127.0.0.1:1/x"}, "open.example.com", failurePolicy="Ignore"), path=MUTATING)
    for name in ("good", "bad"):
        api("POST", f"/api/v1/namespaces/{space}/configmaps", config_map(name))
    of, kind = 'name="counted.example.com",operation="CREATE"', 'type="validating"'
    wanted = [
        f'apiserver_admission_webhook_request_total{{code="200",{of},rejected="false",{kind}}} 1',
        f'apiserver_admission_webhook_request_total{{code="409",{of},rejected="true",{kind}}} 1',
        f'apiserver_admission_webhook_rejection_count{{error_type="no_error",{of},rejection_code="409",{kind}}} 1',
        f'apiserver_admission_webhook_admission_duration_seconds_count{{{of},rejected="true",{kind}}} 1',
        'apiserver_admission_webhook_fail_open_count{name="open.example.com",type="admit"} 2',
    ]
    end = time.monotonic() + PATIENCE_S
    while True:  # the other worker's metrics are published a moment later
        text = api.raw("GET", "/metrics").text
        missing = [line for line in wanted if line not in text]
        if not missing:
            return
        assert time.monotonic() < end, missing
        time.sleep(0.1)


def test_latency_of_webhooks_is_not_part_of_the_sli(api, space, configure, hook):
    """``apiserver_request_sli_duration_seconds`` excludes it, ``apiserver_request_duration_seconds`` includes it."""

    def others() -> float:
        text = api.raw("GET", "/metrics").text
        of = [line for line in text.splitlines() if 'resource="configmaps"' in line and 'verb="POST"' in line]
        whole, own = (
            sum(float(line.rsplit(" ", 1)[1]) for line in of if line.startswith(f"apiserver_request_{name}_seconds_sum"))
            for name in ("duration", "sli_duration")
        )
        return whole - own

    def slow(review: dict) -> dict:
        time.sleep(0.2)
        return reviewed(review, True)

    hook.answers = slow
    configure(webhook(hook.client(), "slow.example.com"))
    configure(webhook(hook.client(), "slow.example.com"), path=MUTATING)
    end, before = time.monotonic() + PATIENCE_S, others()
    assert api("POST", f"/api/v1/namespaces/{space}/configmaps", config_map("good"))[0] == 201
    while others() < before + 0.4:  # the other worker's metrics are published a moment later
        assert time.monotonic() < end
        time.sleep(0.1)
