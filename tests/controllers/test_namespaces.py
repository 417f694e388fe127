"""Namespaces: their default objects, their deletion, and their conditions."""

from __future__ import annotations

import asyncio
import time
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kas.admission import DELETE, Attributes, Chain
from kas.controllers import ALWAYS, BY_CHOICE, chosen, namespace
from kas.controllers.client import Client
from kas.controllers.namespace import NamespaceController
from kas.controllers.namespace_conditions import Findings, updated
from kas.controllers.serviceaccounts import RootCA
from tests.controllers.stored import stored
from tests.controllers.waiting import until

MERGE = "application/merge-patch+json"


def conditions(call, name: str) -> dict[str, dict]:
    return {c["type"]: c for c in call("GET", f"/api/v1/namespaces/{name}")[1].get("status", {}).get("conditions", [])}


def test_every_namespace_has_a_service_account_and_the_ca(call, server):
    call("POST", "/api/v1/namespaces", {"metadata": {"name": "new"}})
    base = "/api/v1/namespaces/new"
    until(lambda: call("GET", f"{base}/serviceaccounts/default")[0] == 200)
    until(lambda: call("GET", f"{base}/configmaps/kube-root-ca.crt")[0] == 200)
    with open(server.ca) as f:
        assert call("GET", f"{base}/configmaps/kube-root-ca.crt")[1]["data"] == {"ca.crt": f.read()}
    call("DELETE", f"{base}/serviceaccounts/default")
    call("PATCH", f"{base}/configmaps/kube-root-ca.crt", {"data": {"ca.crt": "x", "other": "y"}}, MERGE)
    until(lambda: call("GET", f"{base}/serviceaccounts/default")[0] == 200)
    until(lambda: list(call("GET", f"{base}/configmaps/kube-root-ca.crt")[1]["data"].values()) not in (["x", "y"],))
    call("PATCH", f"{base}/configmaps/kube-root-ca.crt", {"metadata": {"annotations": None}}, MERGE)
    until(lambda: "annotations" in call("GET", f"{base}/configmaps/kube-root-ca.crt")[1]["metadata"])


def test_a_missing_ca_fails_only_its_publisher(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An event does not read the file: the controller's own task does, reports the error and starts again."""
    ca = tmp_path / "ca.crt"
    ca.write_text("the CA")

    async def run() -> None:
        async with stored(tmp_path / "store") as registries, asyncio.timeout(60):
            client, publisher = Client(registries, "test"), RootCA(registries, ca)
            await client.create("", "namespaces", {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "a"}})

            def published() -> dict[str, Any]:
                return (client.get("", "configmaps", "a", "kube-root-ca.crt") or {}).get("data") or {}

            def changed(live: dict[str, Any]) -> bool:
                live["data"] = {}
                return True

            task = asyncio.create_task(publisher.run())
            while not published():  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            ca.unlink()
            await client.update(registries.of("", "configmaps"), "a", "kube-root-ca.crt", changed)
            with pytest.raises(ExceptionGroup) as failed:
                await task
            assert [str(e) for e in failed.value.exceptions] == [f"[Errno 2] No such file or directory: '{ca}'"]
            ca.write_text("another CA")
            task = asyncio.create_task(publisher.run())
            while published() != {"ca.crt": "another CA"}:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())
    assert not [r for r in caplog.records if r.name == "kas.store"]  # nothing was rebuilt because a listener failed


def test_a_namespace_with_many_objects_is_deleted(call):
    base = "/api/v1/namespaces/full"
    call("POST", "/api/v1/namespaces", {"metadata": {"name": "full"}})
    until(lambda: call("GET", f"{base}/serviceaccounts/default")[0] == 200)
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    workload = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    for i in range(150):
        assert call("POST", f"{base}/configmaps", {"metadata": {"name": f"c{i}"}})[0] == 201
    for i in range(5):
        for path, body in (
            (f"{base}/pods", {"spec": template["spec"]}),
            (f"{base}/services", {"spec": {"ports": [{"port": 80}]}}),
            (f"{base}/secrets", {}),
            (f"{base}/persistentvolumeclaims", {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}),
            ("/apis/apps/v1/namespaces/full/deployments", {"spec": workload}),
            ("/apis/batch/v1/namespaces/full/jobs", {"spec": {"template": {"spec": {**template["spec"], "restartPolicy": "Never"}}}}),
            ("/apis/rbac.authorization.k8s.io/v1/namespaces/full/roles", {}),
        ):
            code, made = call("POST", path, {"metadata": {"name": f"o{i}"}, **body})
            assert code == 201, made
    addresses = call("GET", "/apis/networking.k8s.io/v1/ipaddresses")[1]["items"]
    assert sum(a["spec"]["parentRef"]["namespace"] == "full" for a in addresses) == 5
    code, answer = call("DELETE", base)
    assert (code, answer["status"]["phase"]) == (200, "Terminating")
    until(lambda: call("GET", base)[0] == 404)
    assert call("GET", f"{base}/configmaps")[1]["items"] == []
    addresses = call("GET", "/apis/networking.k8s.io/v1/ipaddresses")[1]["items"]
    assert not [a for a in addresses if a["spec"]["parentRef"]["namespace"] == "full"]
    assert call("POST", "/api/v1/namespaces", {"metadata": {"name": "full"}})[0] == 201


def test_conditions_report_remaining_objects_and_finalizers(call):
    base = "/api/v1/namespaces/held"
    call("POST", "/api/v1/namespaces", {"metadata": {"name": "held"}})
    call("POST", f"{base}/configmaps", {"metadata": {"name": "c", "finalizers": ["example.com/hold"]}})
    call("DELETE", base)
    until(lambda: conditions(call, "held").get("NamespaceContentRemaining", {}).get("status") == "True")
    found = conditions(call, "held")
    assert list(found) == [
        "NamespaceDeletionDiscoveryFailure", "NamespaceDeletionGroupVersionParsingFailure", "NamespaceDeletionContentFailure",
        "NamespaceContentRemaining", "NamespaceFinalizersRemaining",
    ]  # fmt: skip
    assert found["NamespaceContentRemaining"]["message"] == "Some resources are remaining: configmaps. has 1 resource instances"
    assert found["NamespaceContentRemaining"]["reason"] == "SomeResourcesRemain"
    text = "Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances"
    assert found["NamespaceFinalizersRemaining"]["message"] == text
    assert found["NamespaceDeletionContentFailure"]["reason"] == "ContentDeleted"
    call("PATCH", f"{base}/configmaps/c", {"metadata": {"finalizers": None}}, MERGE)
    until(lambda: call("GET", base)[0] == 404)


def test_all_objects_wait_for_pods_on_nodes(call):
    base = "/api/v1/namespaces/pods"
    call("POST", "/api/v1/namespaces", {"metadata": {"name": "pods"}})
    until(lambda: call("GET", f"{base}/serviceaccounts/default")[0] == 200)
    call("POST", f"{base}/pods", {"metadata": {"name": "p"}, "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}})
    call("POST", f"{base}/configmaps", {"metadata": {"name": "c"}})
    call("DELETE", base)
    until(lambda: conditions(call, "pods"))
    text = "Some resources are remaining: pods. has 1 resource instances"
    assert conditions(call, "pods")["NamespaceContentRemaining"]["message"] == text
    assert call("GET", f"{base}/configmaps/c")[0] == 200
    assert call("GET", f"{base}/pods/p")[1]["metadata"]["deletionGracePeriodSeconds"] == 30
    call("DELETE", f"{base}/pods/p?gracePeriodSeconds=0")
    until(lambda: call("GET", base)[0] == 404)


def test_a_pod_beyond_its_grace_period_is_a_failure(call):
    base = "/api/v1/namespaces/stuck"
    call("POST", "/api/v1/namespaces", {"metadata": {"name": "stuck"}})
    until(lambda: call("GET", f"{base}/serviceaccounts/default")[0] == 200)
    spec = {"nodeName": "n", "terminationGracePeriodSeconds": 1, "containers": [{"name": "c", "image": "i"}]}
    call("POST", f"{base}/pods", {"metadata": {"name": "p"}, "spec": spec})
    call("DELETE", base)
    until(lambda: conditions(call, "stuck").get("NamespaceDeletionContentFailure", {}).get("status") == "True")
    found = conditions(call, "stuck")["NamespaceDeletionContentFailure"]
    text = "unexpected items still remain in namespace: stuck for gvr: /v1, Resource=pods"
    assert (found["reason"], found["message"]) == ("ContentDeletionFailed", f"Failed to delete all resource types, 1 remaining: {text}")
    call("DELETE", f"{base}/pods/p?gracePeriodSeconds=0")
    until(lambda: call("GET", base)[0] == 404)


def test_other_finalizers_keep_the_namespace(call):
    base = "/api/v1/namespaces/others"
    call("POST", "/api/v1/namespaces", {"metadata": {"name": "others"}, "spec": {"finalizers": ["example.com/mine"]}})
    call("DELETE", base)
    until(lambda: call("GET", base)[1]["spec"].get("finalizers") == ["example.com/mine"])
    obj = call("GET", base)[1]
    obj["spec"]["finalizers"] = []
    assert call("PUT", f"{base}/finalize", obj)[0] == 200
    assert call("GET", base)[0] == 404


def test_the_transition_time_changes_only_with_the_status():
    found = Findings()
    found.remaining["pods."] = 2
    first = updated([], found, "t1")
    assert updated(first, found, "t2") is None
    found.remaining["pods."] = 1
    second = updated(first, found, "t2")
    assert {c["lastTransitionTime"] for c in second} == {"t1"}
    failed = Findings()
    failed.failures += ["z", "a"]
    text = "Failed to delete all resource types, 2 remaining: a, z"
    assert [c["message"] for c in updated([], failed, "t") if c["status"] == "True"] == [text]
    third = {c["type"]: c for c in updated(second, Findings(), "t3")}
    assert third["NamespaceContentRemaining"] == {
        "type": "NamespaceContentRemaining", "status": "False", "lastTransitionTime": "t3", "reason": "ContentRemoved",
        "message": "All content successfully removed",
    }  # fmt: skip


def test_controllers_are_selected_by_name():
    everything = chosen(["*"])
    assert "namespace-controller" in everything
    assert chosen(["none"]) == []
    assert chosen(["garbage-collector-controller"]) == ["garbage-collector-controller"]
    assert set(chosen(["*", "-namespace-controller"])) == set(everything) - {"namespace-controller"}
    with pytest.raises(ValueError, match="is not one of"):
        chosen(["nope"])
    protection = "podgroup-protection-controller"
    assert chosen(["*", protection]) == everything and chosen(["*"], ["GenericWorkload"]) != everything
    assert chosen([protection], ["GenericWorkload"]) == [protection]


def test_controllers_have_the_names_of_the_flag():
    for name, where in {**ALWAYS, **BY_CHOICE}.items():
        module, _, cls = where.partition(".")
        assert getattr(import_module(f"kas.controllers.{module}"), cls).name == name


def test_terminating_objects_are_not_deleted_again(tmp_path: Path) -> None:
    """Many may wait for others and disappear one by one: each pass pauses in proportion to its duration."""

    async def run() -> None:
        async with stored(tmp_path) as registries:
            alone: Any = SimpleNamespace(services=SimpleNamespace(remote={}), active=False)
            control = NamespaceController(registries, alone, Chain([]))
            about = {"name": "n", "finalizers": ["example.com/held"]}
            space = {"kind": "Namespace", "apiVersion": "v1", "metadata": about, "spec": {"finalizers": ["kubernetes"]}}
            await control.client.create("", "namespaces", space)
            for name, finalizer in (("a", "x.com/held"), ("b", "x.com/held"), ("c", "foregroundDeletion")):
                meta = {"name": name, "namespace": "n", "finalizers": [finalizer]}
                await control.client.create("", "configmaps", {"kind": "ConfigMap", "apiVersion": "v1", "metadata": meta})
            await control.client.delete(control.client.registries.of("", "configmaps"), "n", "c", propagationPolicy="Foreground")
            await control.client.delete(control.registry, "", "n")
            deleted, real = list[str](), control.client.delete

            async def delete(reg: Any, namespace: str, name: str, **options: Any) -> bool:
                deleted.append(name)
                return await real(reg, namespace, name, **options)

            control.client.delete = delete  # type: ignore[assignment, method-assign]
            await control._sync("n")
            assert deleted == ["a", "b", "c"]  # the last no longer waits for its dependents
            await control._sync("n")
            assert deleted == ["a", "b", "c"]
            found = control.client.get("", "namespaces", "", "n")
            assert found is not None and any("configmaps. has 2 resource instances" in c["message"] for c in found["status"]["conditions"])
            control._rests["n"], after = 7.0, list[tuple[str, float]]()
            control.queue.add_after = lambda name, seconds: after.append((name, seconds))  # type: ignore[method-assign, assignment]
            gone: Any = SimpleNamespace(key="/registry/configmaps/n/a", record=None)
            control._content_events([gone])
            assert after == [("n", 7.0)]

    asyncio.run(run())


class Refusing:
    """A plug-in that refuses every delete after ``seconds`` of ``clock``."""

    name = "Refusing"

    def __init__(self, clock: list[float], seconds: float, asks_webhooks: bool) -> None:
        self.clock, self.seconds, self.asks_webhooks, self.asked = clock, seconds, asks_webhooks, 0

    def handles(self, a: Attributes) -> bool:
        return a.operation == DELETE

    def validate(self, a: Attributes) -> None:
        self.asked += 1
        self.clock[0] += self.seconds
        raise a.forbid("no")


@pytest.mark.parametrize(
    ("seconds", "webhook", "asked"), [(0.0, False, 100), (10.0, False, namespace.AT_ONCE), (10.0, True, namespace.ASKED_AT_ONCE)]
)
def test_a_pass_continues_after_refusals_unless_they_take_long(
    tmp_path: Path, monkeypatch, seconds: float, webhook: bool, asked: int
) -> None:
    """Objects that a hanging webhook protects are not tried one by one while other namespaces wait."""

    async def run() -> None:
        async with stored(tmp_path) as registries:
            alone: Any = SimpleNamespace(services=SimpleNamespace(remote={}), active=False)
            clock = [0.0]
            monkeypatch.setattr(namespace, "time", SimpleNamespace(monotonic=lambda: clock[0], time=time.time))
            refusing = Refusing(clock, seconds, webhook)
            control = NamespaceController(registries, alone, Chain([refusing]))
            maps = registries.of("", "configmaps")
            for i in range(100):
                meta = {"name": f"c{i}", "namespace": "n"}
                await control.client.create("", "configmaps", {"kind": "ConfigMap", "apiVersion": "v1", "metadata": meta})
            found = Findings()
            await control._empty(maps, "n", found)
            assert refusing.asked == asked
            assert found.remaining == {"configmaps.": 100} and found.failures == ['configmaps "Unknown" is forbidden: no']

    asyncio.run(run())
