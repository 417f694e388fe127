"""Webhooks that change objects: their order, and reinvocation."""

from __future__ import annotations

import base64
import contextlib
import json

import pytest

from kas.admission.plugins import mutating_admission_webhook as module
from kas.meta.errors import ApiError
from kas.meta.offload import LARGE, POOL
from tests.admission.admission_fakes import refused
from tests.admission.webhook.hook_server import raw_answer, reviewed, rule, webhook
from tests.admission.webhook.running import Hooked


@pytest.fixture
def hooked(server):
    made = Hooked(server, module, "mutatingwebhookconfigurations")
    yield made
    made.close()


def adds(review):
    """Each webhook adds its own name to the object, once."""
    name, data = review["path"].partition("?")[0][1:], review["request"]["object"]["data"]
    return reviewed(review, patch=[{"op": "add", "path": f"/data/{name}", "value": data.get(name, str(len(data)))}])


def paths(hook):
    return [s["path"].partition("?")[0][1:] for s in hook.seen]


def test_webhooks_are_called_in_order(hooked, hook):
    hook.answers = adds
    hooked.add(webhook(hook.client("/d")), name="b")
    hooked.add(webhook(hook.client("/z")), webhook(hook.client("/y"), "y.example.com"), name="a")
    obj = hooked.request().run()
    assert paths(hook) == ["z", "y", "d"]
    assert obj["data"] == {"k": "v", "z": "1", "y": "2", "d": "3"}


@pytest.mark.parametrize("copies", [2, 9])
def test_copies_that_double_the_object_are_made_off_the_loop(hooked, hook, copies):
    """A patch of some hundred bytes makes 3 MB."""
    grown = {"op": "add", "path": "/data/long", "value": "x" * 20_000}
    copied = [{"op": "copy", "from": "/data", "path": f"/metadata/annotations/a{i}"} for i in range(copies)]
    there, gone = ({"op": op, "path": "/metadata/annotations", "value": {}} for op in ("add", "replace"))
    hook.answers = lambda review: reviewed(review, patch=[grown, there, *copied, gone])
    hooked.add(webhook(hook.client("/a")))
    hooked.request().run()
    before = POOL.done
    assert len(hooked.request().run()["data"]["long"]) == 20_000
    assert (POOL.done > before) is (copies > 2)


def test_reinvocation(hooked, hook, server):
    """Webhooks with reinvocation are called again only if the object was changed after them."""
    hook.answers = lambda review: adds(review) if not review["path"].startswith("/quiet") else reviewed(review)
    hooked.add(webhook(hook.client("/a"), "a.example.com", reinvocationPolicy="IfNeeded"), name="a")
    hooked.add(webhook(hook.client("/b"), "b.example.com", reinvocationPolicy="Never"), name="b")
    hooked.add(webhook(hook.client("/c"), "c.example.com", reinvocationPolicy="IfNeeded"), name="c")
    hooked.add(webhook(hook.client("/quiet"), "q.example.com", reinvocationPolicy="IfNeeded"), name="d")
    request = hooked.request()
    again = []

    async def rounds():
        a = request.attributes
        while True:
            await request.chain.mutate(a)
            again.append(paths(hook))
            hook.seen.clear()
            if not a.reinvocation.due():
                return

    hooked.loop.run_until_complete(rounds())
    assert again == [["a", "b", "c", "quiet"], ["a"]]


def test_changes_of_other_plugins_cause_reinvocation(hooked, hook):
    """What one of them changes between the rounds is seen by those that want to."""
    hook.answers = lambda review: adds(review) if review["path"].startswith("/b") else reviewed(review)
    hooked.add(webhook(hook.client("/b"), "b.example.com"), name="a")
    hooked.add(webhook(hook.client("/c"), "c.example.com", reinvocationPolicy="IfNeeded"), name="b")

    class Follower:
        name = "Follower"

        def handles(self, a):
            return True

        def admit(self, a):
            if a.reinvocation is not None and a.reinvocation.again:
                a.obj["data"]["follower"] = "x"

    request = hooked.request(Follower())

    async def twice():
        await request.chain.mutate(request.attributes)
        first = paths(hook)
        assert request.attributes.reinvocation.due()
        await request.chain.mutate(request.attributes)
        return first, paths(hook)[len(first):]

    assert hooked.loop.run_until_complete(twice()) == (["b", "c"], ["c"])
    assert hook.requests()[-1]["object"]["data"]["follower"] == "x"


def test_annotations(hooked, hook):
    hook.answers = lambda review: adds(review) if review["path"].startswith("/a") else reviewed(review)
    down = webhook({"url": "https://127.0.0.1:1/"}, "down.example.com", failurePolicy="Ignore")
    hooked.add(webhook(hook.client("/a")), down, name="conf")
    request = hooked.request()
    request.attributes.bodies_recorded = True
    request.run()
    patched = json.loads(request.annotations["patch.webhook.admission.k8s.io/round_0_index_0"])
    assert patched["patch"] == [{"op": "add", "path": "/data/a", "value": "1"}] and patched["patchType"] == "JSONPatch"
    assert "patch.webhook.admission.k8s.io/round_0_index_1" not in request.annotations
    prefix = "mutation.webhook.admission.k8s.io/round_0_index_"
    assert json.loads(request.annotations[prefix + "0"]) == {"configuration": "conf", "webhook": "h.example.com", "mutated": True}
    assert json.loads(request.annotations[prefix + "1"])["mutated"] is False
    assert request.annotations[f"failed-open.{prefix}1"] == "down.example.com"


@pytest.mark.parametrize(
    ("patch", "shown"),
    [
        (b'[ {"value": {"b": "<", "a": 1}, "path": "/data/a", "op": "test" } ]', ""),
        (b'[ {"value": "<", "path": "/data/a", "op": "add" } ]', '[{"op":"add","path":"/data/a","value":"\\u003c"}]'), (b"[]", ""),
    ],
)  # fmt: skip
def test_a_patch_is_logged_as_go_writes_it(hooked, hook, patch, shown):
    """Whatever its spaces and order of fields; one that has no operations or does not apply is not."""
    def answer(review):
        response = {"uid": review["request"]["uid"], "allowed": True, "patch": base64.b64encode(patch).decode(), "patchType": "JSONPatch"}
        return raw_answer(json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}).encode())

    hook.answers = answer
    hooked.add(webhook(hook.client("/a")), name="conf")
    request = hooked.request()
    request.attributes.bodies_recorded = True
    with contextlib.suppress(ApiError):
        request.run()
    annotation = request.annotations.get("patch.webhook.admission.k8s.io/round_0_index_0", "")
    assert annotation == (f'{{"configuration":"conf","webhook":"h.example.com","patch":{shown},"patchType":"JSONPatch"}}' if shown else "")


def test_changes_decide_which_webhooks_are_called_next(hooked, hook):
    label = [{"op": "add", "path": "/metadata/labels", "value": {"x": "y"}}]
    hook.answers = lambda review: reviewed(review, patch=label) if review["path"].startswith("/first") else reviewed(review)
    hooked.add(webhook(hook.client("/first")), webhook(hook.client("/then"), "t.example.com", objectSelector={"matchLabels": {"x": "y"}}))
    hooked.request().run()
    assert paths(hook) == ["first", "then"]


@pytest.mark.parametrize(("patch", "kind", "policy", "says"), [
    ([{"op": "add", "path": "/data/x", "value": "y"}], "MergePatch", "Fail", 'unsupported patch type "MergePatch"'),
    ([{"op": "bogus", "path": "/data"}], "JSONPatch", "Ignore", "Unexpected kind: bogus"),
    ([{"op": "replace", "path": "/kind", "value": "Nope"}], "JSONPatch", "Ignore", 'no kind "Nope" is registered for version "v1"'),
    ([{"op": "replace", "path": "/kind", "value": "Secret"}], "JSONPatch", "Ignore", "illegal base64 data at input byte 0"),
])  # fmt: skip
def test_patches_that_do_not_apply(hooked, hook, patch, kind, policy, says):
    hook.answers = lambda review: reviewed(review, patch=patch, patchType=kind)
    hooked.add(webhook(hook.client(), failurePolicy=policy))
    e = refused(hooked.request())
    assert e.code == 500 and says in e.message


def test_large_objects_are_patched_off_the_loop(hooked, hook):
    hook.answers = adds
    hooked.add(webhook(hook.client("/a")))
    large = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a", "namespace": "ns1"}, "data": {"k": "v" * LARGE}}
    before = POOL.done
    assert hooked.request(obj=large).run()["data"]["a"] == "1" and POOL.done > before


def test_a_changed_kind(hooked, hook):
    """Later webhooks see the new kind; the request cannot continue with it."""
    other = [{"op": "replace", "path": "/kind", "value": "Pod"}, {"op": "remove", "path": "/data"}]
    hook.answers = lambda review: reviewed(review, patch=other) if review["path"].startswith("/first") else reviewed(review)
    hooked.add(webhook(hook.client("/first"), failurePolicy="Ignore"), webhook(hook.client("/then"), "t.example.com"))
    e = refused(hooked.request())
    assert (e.code, e.reason, e.message) == (500, "", "converting (v1.Pod) to (core.ConfigMap): unknown conversion")
    then = hook.requests()[1]
    assert then["kind"]["kind"] == "ConfigMap" and then["object"]["kind"] == "Pod" and then["object"]["spec"]["restartPolicy"] == "Always"


def test_a_changed_version(hooked, hook):
    patch = [{"op": "replace", "path": "/apiVersion", "value": "autoscaling/v2"}]
    hook.answers = lambda review: reviewed(review, patch=patch)
    hooked.add(webhook(hook.client(), rules=[rule("horizontalpodautoscalers", groups=("autoscaling",), versions=("v1",))]))
    spec = {"scaleTargetRef": {"kind": "D", "name": "d"}, "maxReplicas": 2}
    obj = {"kind": "HorizontalPodAutoscaler", "apiVersion": "autoscaling/v1", "metadata": {"name": "a", "namespace": "ns1"}, "spec": spec}
    request = hooked.request(obj=obj)
    request.attributes.group, request.attributes.resource = "autoscaling", "horizontalpodautoscalers"
    obj = request.run()
    assert obj["apiVersion"] == "autoscaling/v1" and obj["spec"]["maxReplicas"] == 2 and "metrics" not in obj["spec"]


def test_deletes_are_not_patched(hooked, hook):
    hook.answers = lambda review: reviewed(review, patch=[{"op": "remove", "path": "/data"}])
    hooked.add(webhook(hook.client()))
    old = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a", "namespace": "ns1"}}
    e = refused(hooked.request(operation="DELETE", obj=None, old=old))
    message = 'admission webhook "h.example.com" attempted to modify the object, which is not supported for this operation'
    assert e.message == f"Internal error occurred: {message}"


def test_another_version(hooked, hook, server):
    """The object is patched in the version of the rule, and then converted to the request's again."""
    hook.answers = lambda review: reviewed(review, patch=[{"op": "replace", "path": "/spec/maxReplicas", "value": 9}])
    hooked.add(webhook(hook.client(), rules=[rule("horizontalpodautoscalers", groups=("autoscaling",), versions=("v2",))]))
    target = {"kind": "D", "name": "d"}
    obj = {
        "kind": "HorizontalPodAutoscaler", "apiVersion": "autoscaling/v1", "metadata": {"name": "a", "namespace": "ns1"},
        "spec": {"scaleTargetRef": target, "maxReplicas": 2, "targetCPUUtilizationPercentage": 60}, "status": {},
    }  # fmt: skip
    request = hooked.request(obj=obj)
    request.attributes.group, request.attributes.resource = "autoscaling", "horizontalpodautoscalers"
    obj = request.run()
    assert hook.requests()[0]["object"]["apiVersion"] == "autoscaling/v2"
    assert obj["apiVersion"] == "autoscaling/v1" and obj["spec"]["maxReplicas"] == 9 and obj["spec"]["targetCPUUtilizationPercentage"] == 60


def test_a_long_selector_is_compiled_by_the_first_request(hooked, hook):
    hook.answers = adds
    long = [{"key": f"k{i}.example.com", "operator": "DoesNotExist"} for i in range(2000)]
    hooked.add(webhook(hook.client("/d"), objectSelector={"matchExpressions": long}))
    assert hooked.plugin.handles(hooked.request().attributes) and hooked.plugin._hooks.uncompiled
    assert hooked.request().run()["data"] == {"k": "v", "d": "1"} and not hooked.plugin._hooks.uncompiled
    hooked.add(webhook(hook.client("/e"), objectSelector={"matchExpressions": [*long, {"key": "k", "operator": "Exists"}]}))
    assert hooked.request().run()["data"] == {"k": "v", "d": "1"} and len(hook.seen) == 2


def test_replacing_a_webhook_leaves_no_gap(hooked, hook):
    """If the new configuration was large, a request in progress called neither; it was read at the next request."""
    def answer(review):
        if review["path"].startswith("/a"):
            hooked.add(webhook(hook.client("/new"), objectSelector={"matchExpressions": long}), name="b")
        return adds(review)

    long = [{"key": f"k{i}.example.com", "operator": "DoesNotExist"} for i in range(2000)]
    hook.answers = answer
    hooked.add(webhook(hook.client("/a")), name="a")
    hooked.add(webhook(hook.client("/old")), name="b")
    hooked.request().run()
    assert paths(hook) == ["a", "old"] and hooked.plugin._hooks.uncompiled


def test_a_webhooks_index_counts_webhooks_for_other_resources(hooked, hook):
    hook.answers = adds
    others = [webhook(hook.client(), f"o{i}.example.com", rules=[rule("secrets")]) for i in range(3)]
    hooked.add(*others, name="a")
    hooked.add(others[0], webhook(hook.client("/y")), name="b")
    request = hooked.request()
    assert request.run()["data"]["y"]
    assert [key.rpartition("/")[2] for key in request.annotations] == ["round_0_index_4"]
    hooked.remove("a")
    request = hooked.request()
    assert request.run()
    assert [key.rpartition("/")[2] for key in request.annotations] == ["round_0_index_1"]
