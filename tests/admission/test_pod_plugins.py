"""The plug-ins that complete and judge pods, each alone."""

from __future__ import annotations

import asyncio

import pytest
from admission_fakes import FakeServer, Request, pod

from kas.admission.plugins import (
    always_pull_images,
    default_toleration_seconds,
    extended_resource_toleration,
    limit_pod_hard_anti_affinity_topology,
    limit_ranger,
    pod_node_selector,
    pod_resize_validator,
    pod_toleration_restriction,
    pod_topology_labels,
    priority,
    runtime_class,
    security_context_deny,
    service_account,
)
from kas.api.errors import ApiError


def refused(request: Request) -> ApiError:
    with pytest.raises(ApiError) as e:
        request.run()
    return e.value


# --- LimitRanger


def limits(server: FakeServer, *items: dict, name: str = "l") -> limit_ranger.Plugin:
    server.add("", "limitranges", {"metadata": {"name": name, "namespace": "ns1"}, "spec": {"limits": list(items)}})
    return limit_ranger.Plugin(server)


def test_limit_ranger_fills_in_and_says_so(server):
    plugin = limits(server, {"type": "Container", "default": {"cpu": "500m"}, "defaultRequest": {"cpu": "200m", "memory": "64Mi"}})
    out = Request(plugin, obj=pod(initContainers=[{"name": "i", "resources": {"requests": {"cpu": "1", "memory": "1"}}}])).run()
    assert out["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "200m", "memory": "64Mi"}, "limits": {"cpu": "500m"}}
    assert out["metadata"]["annotations"] == {
        "kubernetes.io/limit-ranger": "LimitRanger plugin set: cpu, memory request for container c; cpu limit for container c; "
        "cpu limit for init container i"
    }


@pytest.mark.parametrize(
    ("item", "resources", "why"),
    [
        ({"min": {"cpu": "100m"}}, {}, "minimum cpu usage per Container is 100m.  No request is specified"),
        ({"min": {"cpu": "100m"}}, {"requests": {"cpu": "50m"}}, "minimum cpu usage per Container is 100m, but request is 50m"),
        ({"max": {"cpu": "1"}}, {"requests": {"cpu": "1"}}, "maximum cpu usage per Container is 1.  No limit is specified"),
        ({"max": {"cpu": "1"}}, {"limits": {"cpu": "1500m"}}, "maximum cpu usage per Container is 1, but limit is 1500m"),
        ({"maxLimitRequestRatio": {"cpu": "2"}}, {"requests": {"cpu": "1"}, "limits": {"cpu": "3"}},
         "cpu max limit to request ratio per Container is 2, but provided ratio is 3.000000"),
        ({"maxLimitRequestRatio": {"cpu": "2"}}, {"limits": {"cpu": "3"}},
         "cpu max limit to request ratio per Container is 2, but no request is specified or request is 0"),
    ],
)  # fmt: skip
def test_limit_ranger_bounds(server, item, resources, why):
    plugin = limits(server, {"type": "Container", **item})
    e = refused(Request(plugin, obj=pod(containers=[{"name": "c", "resources": resources}])))
    assert (e.code, e.message) == (403, f'pods "a" is forbidden: {why}')


def test_limit_ranger_names_all_that_is_wrong_once(server):
    plugin = limits(server, {"type": "Container", "max": {"cpu": "1", "memory": "1Mi"}})
    bad = {"limits": {"cpu": "2", "memory": "2Mi"}}
    e = refused(Request(plugin, obj=pod(containers=[{"name": "c", "resources": bad}, {"name": "d", "resources": bad}])))
    assert e.message.endswith(
        "[maximum cpu usage per Container is 1, but limit is 2, maximum memory usage per Container is 1Mi, but limit is 2Mi]"
    )


def test_limit_ranger_pod_counts_sidecars_and_init_peak(server):
    plugin = limits(server, {"type": "Pod", "max": {"cpu": "3"}})

    def need(cpu):
        return {"limits": {"cpu": cpu}}

    sidecar = {"name": "s", "restartPolicy": "Always", "resources": need("1")}
    fits = pod(containers=[{"name": "c", "resources": need("2")}], initContainers=[sidecar, {"name": "i", "resources": need("2")}])
    Request(plugin, obj=fits).run()
    over = pod(containers=[{"name": "c", "resources": need("2")}], initContainers=[sidecar, {"name": "i", "resources": need("2500m")}])
    assert "maximum cpu usage per Pod is 3, but limit is 3500m" in refused(Request(plugin, obj=over)).message


def test_limit_ranger_leaves_what_is_being_deleted(server):
    plugin = limits(server, {"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}})
    claim = {"metadata": {"name": "c", "namespace": "ns1"}, "spec": {"resources": {"requests": {"storage": "2Gi"}}}}
    e = refused(Request(plugin, resource="persistentvolumeclaims", obj=claim))
    assert "maximum storage usage per PersistentVolumeClaim is 1Gi, but request is 2Gi" in e.message
    old = {**claim, "metadata": {**claim["metadata"], "deletionTimestamp": "x"}}
    Request(plugin, operation="UPDATE", resource="persistentvolumeclaims", obj=claim, old=old).run()


def test_limit_ranger_follows_changes(server):
    plugin = limits(server, {"type": "Container", "max": {"cpu": "1"}})
    refused(Request(plugin, obj=pod()))
    server.store.drop("/registry/limitranges/ns1/l")
    Request(plugin, obj=pod()).run()
    limits(server, {"type": "Container", "max": {"cpu": "1"}}, name="m")
    refused(Request(plugin, obj=pod()))


# --- ServiceAccount


def account(server: FakeServer, **fields) -> service_account.Plugin:
    meta = {"name": "default", "namespace": "ns1", **fields.pop("metadata", {})}
    server.add("", "serviceaccounts", {"metadata": meta, **fields})
    return service_account.Plugin(server)


def test_service_account_must_exist(server):
    e = refused(Request(service_account.Plugin(server), obj=pod()))
    assert e.message == 'pods "a" is forbidden: error looking up service account ns1/default: serviceaccount "default" not found'


def test_the_first_pod_waits_for_the_default_account(server):
    request = Request(service_account.Plugin(server), obj=pod())

    async def create() -> None:
        creating = asyncio.ensure_future(request.steps())
        await asyncio.sleep(0)
        server.add("", "serviceaccounts", {"metadata": {"name": "default", "namespace": "ns1"}})
        await creating

    asyncio.run(create())
    assert request.attributes.obj["spec"]["serviceAccountName"] == "default"


def test_service_account_token_volume_and_pull_secrets(server):
    mounted = {"name": "d", "volumeMounts": [{"name": "x", "mountPath": service_account.MOUNT_PATH}]}
    plugin = account(server, imagePullSecrets=[{"name": "p"}])
    spec = Request(plugin, obj=pod(containers=[{"name": "c"}, mounted])).run()["spec"]
    (volume,) = spec["volumes"]
    assert volume["name"].startswith("kube-api-access-") and len(volume["name"]) == len("kube-api-access-") + 5
    assert volume["projected"]["sources"][0] == {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}}
    assert spec["containers"][0]["volumeMounts"] == [{"name": volume["name"], "readOnly": True, "mountPath": service_account.MOUNT_PATH}]
    assert spec["containers"][1] == mounted
    assert spec["imagePullSecrets"] == [{"name": "p"}]
    assert spec["serviceAccountName"] == spec["serviceAccount"] == "default"


@pytest.mark.parametrize(
    ("own", "of_account", "mounted"), [(None, None, True), (None, False, False), (True, False, True), (False, True, False)]
)
def test_service_account_automount(server, own, of_account, mounted):
    plugin = account(server, automountServiceAccountToken=of_account)
    spec = Request(plugin, obj=pod(automountServiceAccountToken=own)).run()["spec"]
    assert ("volumes" in spec) == mounted


def test_service_account_mountable_secrets(server):
    plugin = account(server, metadata={"annotations": {"kubernetes.io/enforce-mountable-secrets": "true"}}, secrets=[{"name": "mine"}])
    ref = {"name": "E", "valueFrom": {"secretKeyRef": {"name": "other", "key": "k"}}}
    Request(plugin, obj=pod(volumes=[{"name": "v", "secret": {"secretName": "mine"}}])).run()
    assert refused(Request(plugin, obj=pod(containers=[{"name": "c", "env": [ref]}]))).message.endswith(
        'container c with envVar E referencing secret.secretName="other" is not allowed because service account default does not reference '
        "that secret"
    )


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"serviceAccountName": "x"}, "a mirror pod may not reference service accounts"),
        ({"volumes": [{"name": "v", "secret": {"secretName": "s"}}]}, "a mirror pod may not reference secrets"),
        ({"volumes": [{"name": "v", "configMap": {"name": "s"}}]}, "a mirror pod may not reference configmaps"),
        ({"volumes": [{"name": "v", "projected": {"sources": [{"serviceAccountToken": {}}]}}]},
         "a mirror pod may not use ServiceAccountToken volume projections"),
    ],
)  # fmt: skip
def test_service_account_mirror_pods(server, spec, why):
    obj = pod(**spec)
    obj["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    assert refused(Request(service_account.Plugin(server), obj=obj)).message.endswith(why)


# --- Priority


def test_priority(server):
    plugin = priority.Plugin(server)
    spec = Request(plugin, obj=pod()).run()["spec"]
    assert (spec["priority"], spec["preemptionPolicy"]) == (0, "PreemptLowerPriority")
    usual = {"metadata": {"name": "usual"}, "value": 7, "globalDefault": True, "preemptionPolicy": "Never"}
    server.add("scheduling.k8s.io", "priorityclasses", usual)
    spec = Request(plugin, obj=pod()).run()["spec"]
    assert (spec["priorityClassName"], spec["priority"], spec["preemptionPolicy"]) == ("usual", 7, "Never")
    assert "no PriorityClass with name gone was found" in refused(Request(plugin, obj=pod(priorityClassName="gone"))).message
    assert "the integer value of priority (8) must not be provided" in refused(Request(plugin, obj=pod(priority=8))).message
    other = {"metadata": {"name": "b"}, "value": 1, "globalDefault": True}
    e = refused(Request(plugin, group="scheduling.k8s.io", resource="priorityclasses", namespace="", obj=other))
    assert "PriorityClass usual is already marked as default. Only one default can exist" in e.message


# --- the smaller ones


def test_default_tolerations_unless_tolerated(server):
    plugin = default_toleration_seconds.Plugin(server)
    out = Request(plugin, obj=pod(tolerations=[{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}])).run()
    assert [t["key"] for t in out["spec"]["tolerations"]] == ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]
    everything = [{"operator": "Exists"}]
    assert Request(plugin, obj=pod(tolerations=everything)).run()["spec"]["tolerations"] == everything


def test_runtime_class(server):
    server.add("node.k8s.io", "runtimeclasses", {
        "metadata": {"name": "r"}, "handler": "h", "overhead": {"podFixed": {"cpu": "1"}},
        "scheduling": {"nodeSelector": {"k": "v"}, "tolerations": [{"key": "t", "operator": "Exists"}]},
    })  # fmt: skip
    plugin = runtime_class.Plugin(server)
    spec = Request(plugin, obj=pod(runtimeClassName="r", tolerations=[{"key": "t", "operator": "Equal", "value": "x"}])).run()["spec"]
    assert spec["overhead"] == {"cpu": "1"} and spec["nodeSelector"] == {"k": "v"}
    assert spec["tolerations"] == [{"key": "t", "operator": "Exists"}]
    assert 'RuntimeClass "x" not found' in refused(Request(plugin, obj=pod(runtimeClassName="x"))).message
    assert "conflict: runtimeClass.scheduling.nodeSelector[k] = v; pod.spec.nodeSelector[k] = w" in refused(
        Request(plugin, obj=pod(runtimeClassName="r", nodeSelector={"k": "w"}))
    ).message  # fmt: skip
    assert "Pod Overhead set without corresponding RuntimeClass" in refused(Request(plugin, obj=pod(overhead={"cpu": "1"}))).message


def test_topology_labels(server):
    server.add("", "nodes", {"metadata": {"name": "n", "labels": {"topology.kubernetes.io/zone": "z", "other": "x"}}})
    plugin = pod_topology_labels.Plugin(server)
    binding = {"metadata": {"name": "a"}, "target": {"kind": "Node", "name": "n"}}
    assert Request(plugin, subresource="binding", obj=binding).run()["metadata"]["labels"] == {"topology.kubernetes.io/zone": "z"}
    assert Request(plugin, obj=pod(nodeName="n")).run()["metadata"]["labels"] == {"topology.kubernetes.io/zone": "z"}
    assert "labels" not in Request(plugin, obj=pod(nodeName="gone")).run()["metadata"]


def test_resize_validator(server):
    status = {"allocatable": {"cpu": "1", "memory": "1Gi"}}
    server.add("", "nodes", {"metadata": {"name": "n", "labels": {"kubernetes.io/os": "linux"}}, "status": status})
    plugin = pod_resize_validator.Plugin(server)

    def resize(cpu):
        new = pod(nodeName="n", containers=[{"name": "c", "resources": {"requests": {"cpu": cpu}}}])
        new["metadata"]["generation"] = 2
        return Request(plugin, operation="UPDATE", subresource="resize", obj=new, old=pod(nodeName="n"))

    resize("1").run()
    e = refused(resize("2"))
    assert "Node didn't have enough allocatable resources: cpu, requested: 2000, allocatable: 1000" in e.message
    assert e.details["causes"] == [{"reason": "NodeCapacity"}]


def test_always_pull_images(server):
    plugin = always_pull_images.Plugin(server)
    assert Request(plugin, obj=pod()).run()["spec"]["containers"][0]["imagePullPolicy"] == "Always"
    same = Request(plugin, operation="UPDATE", obj=pod(), old=pod()).run()
    assert "imagePullPolicy" not in same["spec"]["containers"][0]


def test_extended_resource_toleration(server):
    obj = pod(containers=[{"name": "c", "resources": {"requests": {"vendor.com/gpu": "1", "cpu": "1"}}}])
    out = Request(extended_resource_toleration.Plugin(server), obj=obj).run()
    assert out["spec"]["tolerations"] == [{"key": "vendor.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]


def test_pod_node_selector(server):
    server.add("", "namespaces", {"metadata": {"name": "ns1", "annotations": {pod_node_selector.ANNOTATION: "a=b, c=d"}}})
    plugin = pod_node_selector.Plugin(server)
    assert Request(plugin, obj=pod(nodeSelector={"x": "y"})).run()["spec"]["nodeSelector"] == {"a": "b", "c": "d", "x": "y"}
    assert pod_node_selector.CONFLICT in refused(Request(plugin, obj=pod(nodeSelector={"a": "z"}))).message


def test_pod_toleration_restriction(server):
    annotations = {
        pod_toleration_restriction.WHITELIST: '[{"key":"ok","operator":"Exists"}]',
        pod_toleration_restriction.DEFAULTS: '[{"key":"ok","value":"1"}]',
    }
    server.add("", "namespaces", {"metadata": {"name": "ns1", "annotations": annotations}})
    plugin = pod_toleration_restriction.Plugin(server)
    assert Request(plugin, obj=pod()).run()["spec"]["tolerations"] == [{"key": "ok", "value": "1"}]
    assert refused(Request(plugin, obj=pod(tolerations=[{"key": "bad"}]))).code == 500


def test_old_restrictions(server):
    term = {"topologyKey": "zone"}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    refused(Request(limit_pod_hard_anti_affinity_topology.Plugin(server), obj=pod(affinity=apart)))
    e = refused(Request(security_context_deny.Plugin(server), obj=pod(securityContext={"runAsUser": 1})))
    assert e.message.endswith("pod.Spec.SecurityContext.RunAsUser is forbidden")
