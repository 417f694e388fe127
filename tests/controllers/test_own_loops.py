"""The controllers of every kube-apiserver, whatever ``--controllers`` says, and the smaller controllers."""

from __future__ import annotations

import time

import pytest

from tests.controllers.waiting import until

NETWORKING, FLOWCONTROL = "/apis/networking.k8s.io/v1", "/apis/flowcontrol.apiserver.k8s.io/v1"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
MERGE = "application/merge-patch+json"


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    from kas.testing.server import KasServer

    with KasServer(tmp_path_factory.mktemp("kas"), "--unsafe-no-fsync", "--controllers", "none", workers=2) as running:
        yield running


def dangling(call, name: str) -> dict:
    found = call("GET", f"{FLOWCONTROL}/flowschemas/{name}")[1]
    return next((c for c in found.get("status", {}).get("conditions", []) if c["type"] == "Dangling"), {})


def test_flow_schemas_report_whether_their_level_exists(bare, connect):
    call = connect(bare)
    body = {"metadata": {"name": "fs"}, "spec": {"priorityLevelConfiguration": {"name": "missing"}}}
    assert call("POST", f"{FLOWCONTROL}/flowschemas", body)[0] == 201
    until(lambda: dangling(call, "fs").get("status") == "True")
    assert dangling(call, "fs")["message"] == (
        'This FlowSchema references the PriorityLevelConfiguration object named "missing" but there is no such object'
    )
    level = {"metadata": {"name": "missing"}, "spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}}}
    assert call("POST", f"{FLOWCONTROL}/prioritylevelconfigurations", level)[0] == 201
    until(lambda: dangling(call, "fs").get("status") == "False")
    assert dangling(call, "fs")["reason"] == "Found"
    fields = call("GET", f"{FLOWCONTROL}/flowschemas/fs")[1]["metadata"]["managedFields"]
    assert ("api-priority-and-fairness-config-consumer-v1", "Apply", "status") in [
        (f["manager"], f["operation"], f.get("subresource")) for f in fields
    ]


def test_the_server_renews_a_lease_of_its_own(bare, connect):
    call = connect(bare)
    leases = until(lambda: call("GET", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases")[1]["items"])
    assert leases[0]["metadata"]["labels"]["apiserver.kubernetes.io/identity"] == "kube-apiserver"


def test_system_objects_are_restored(bare, connect):
    call = connect(bare)
    assert call("DELETE", "/api/v1/namespaces/default/services/kubernetes")[0] == 200
    call("DELETE", "/api/v1/namespaces/default/endpoints/kubernetes")
    trust = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
    assert call("DELETE", trust)[0] == 200
    until(lambda: call("GET", "/api/v1/namespaces/default/services/kubernetes")[0] == 200, 60)
    until(lambda: call("GET", trust)[0] == 200, 60)
    until(lambda: call("GET", "/api/v1/namespaces/default/endpoints/kubernetes")[0] == 200)
    assert call("GET", f"{NETWORKING}/ipaddresses/10.0.0.1")[1]["spec"]["parentRef"]["name"] == "kubernetes"


def test_without_controllers_nothing_else_runs(bare, connect):
    call = connect(bare)
    call("POST", "/api/v1/namespaces", {"metadata": {"name": "plain"}})
    time.sleep(0.3)
    assert call("GET", "/api/v1/namespaces/plain/serviceaccounts")[1]["items"] == []
    cidr = {"metadata": {"name": "r"}, "spec": {"cidrs": ["10.50.0.0/24"]}}
    assert call("POST", f"{NETWORKING}/servicecidrs", cidr)[0] == 201
    time.sleep(0.2)
    assert "finalizers" not in call("GET", f"{NETWORKING}/servicecidrs/r")[1]["metadata"]


def test_service_ranges_are_kept_while_in_use(kas, connect):
    call = connect(kas)
    name = "/apis/networking.k8s.io/v1/servicecidrs/extra"
    call("POST", f"{NETWORKING}/servicecidrs", {"metadata": {"name": "extra"}, "spec": {"cidrs": ["10.60.0.0/28"]}})
    until(lambda: call("GET", name)[1].get("status", {}).get("conditions"))
    obj = call("GET", name)[1]
    assert obj["metadata"]["finalizers"] == ["networking.k8s.io/service-cidr-finalizer"]
    condition = obj["status"]["conditions"][0]
    assert (condition["status"], condition["message"]) == ("True", "Kubernetes Service CIDR is ready")
    service = {"metadata": {"name": "user"}, "spec": {"clusterIP": "10.60.0.5", "ports": [{"port": 80}]}}
    code, made = call("POST", "/api/v1/namespaces/default/services", service)
    assert code == 201, made
    call("DELETE", name)
    until(lambda: call("GET", name)[1]["status"]["conditions"][0]["status"] == "False")
    assert call("GET", name)[1]["status"]["conditions"][0]["reason"] == "Terminating"
    service["metadata"]["name"], service["spec"]["clusterIP"] = "second", "10.60.0.6"
    assert call("POST", "/api/v1/namespaces/default/services", service)[0] == 422
    call("DELETE", "/api/v1/namespaces/default/services/user")
    until(lambda: call("GET", name)[0] == 404)


def test_cluster_roles_are_aggregated(kas, connect):
    call = connect(kas)
    rules = [{"apiGroups": ["example.com"], "resources": ["things"], "verbs": ["get"]}]
    selector = {"clusterRoleSelectors": [{"matchLabels": {"collect": "yes"}}]}
    assert call("POST", f"{RBAC}/clusterroles", {"metadata": {"name": "whole"}, "aggregationRule": selector, "rules": []})[0] == 201
    assert call("POST", f"{RBAC}/clusterroles", {"metadata": {"name": "part", "labels": {"collect": "yes"}}, "rules": rules})[0] == 201
    until(lambda: call("GET", f"{RBAC}/clusterroles/whole")[1].get("rules") == rules)
    call("DELETE", f"{RBAC}/clusterroles/part")
    until(lambda: not call("GET", f"{RBAC}/clusterroles/whole")[1].get("rules"))


def test_volume_attribute_classes_are_kept_while_a_claim_names_them(kas, connect):
    call = connect(kas)
    classes, claims = "/apis/storage.k8s.io/v1/volumeattributesclasses", "/api/v1/namespaces/default/persistentvolumeclaims"
    for name in ("free", "named"):
        assert call("POST", classes, {"metadata": {"name": name}, "driverName": "d", "parameters": {"a": "b"}})[0] == 201
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "volumeAttributesClassName": "named"}
    assert call("POST", claims, {"metadata": {"name": "of-class"}, "spec": spec})[0] == 201
    for name in ("free", "named"):
        assert call("DELETE", f"{classes}/{name}")[0] == 200
    until(lambda: call("GET", f"{classes}/free")[0] == 404)
    assert call("GET", f"{classes}/named")[1]["metadata"]["deletionTimestamp"]
    call("DELETE", f"{claims}/of-class")
    until(lambda: call("GET", f"{classes}/named")[0] == 404)


def test_objects_without_the_finalizer_get_it(kas, connect):
    call = connect(kas)
    path = "/api/v1/persistentvolumes"
    spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/tmp/x"}}
    assert call("POST", path, {"metadata": {"name": "pv"}, "spec": spec})[0] == 201
    assert call("PATCH", f"{path}/pv", {"metadata": {"finalizers": None}}, MERGE)[0] == 200
    until(lambda: call("GET", f"{path}/pv")[1]["metadata"].get("finalizers") == ["kubernetes.io/pv-protection"])
    call("DELETE", f"{path}/pv")
    until(lambda: call("GET", f"{path}/pv")[0] == 404)


def test_claims_are_kept_while_a_pod_uses_them(kas, connect):
    call = connect(kas)
    base = "/api/v1/namespaces/claims"
    call("POST", "/api/v1/namespaces", {"metadata": {"name": "claims"}})
    until(lambda: call("GET", f"{base}/serviceaccounts/default")[0] == 200)
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    meta = {"name": "c", "finalizers": ["kubernetes.io/pvc-protection"]}
    assert call("POST", f"{base}/persistentvolumeclaims", {"metadata": meta, "spec": spec})[0] == 201
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    pod = {"containers": [{"name": "c", "image": "i"}], "nodeName": "n", "volumes": volumes}
    assert call("POST", f"{base}/pods", {"metadata": {"name": "p"}, "spec": pod})[0] == 201
    ended = {"status": {"phase": "Succeeded"}}
    assert call("PATCH", f"{base}/pods/p/status", ended, MERGE)[0] == 200
    call("DELETE", f"{base}/persistentvolumeclaims/c")
    time.sleep(0.3)
    assert call("GET", f"{base}/persistentvolumeclaims/c")[1]["metadata"]["deletionTimestamp"]
    call("DELETE", f"{base}/pods/p?gracePeriodSeconds=0")
    until(lambda: call("GET", f"{base}/persistentvolumeclaims/c")[0] == 404)


def quota_used(call, name: str) -> dict:
    return call("GET", f"/api/v1/namespaces/quota/resourcequotas/{name}")[1].get("status", {}).get("used", {})


def test_quota_usage_is_counted_and_released(kas, connect):
    call = connect(kas)
    base = "/api/v1/namespaces/quota"
    call("POST", "/api/v1/namespaces", {"metadata": {"name": "quota"}})
    until(lambda: call("GET", f"{base}/serviceaccounts/default")[0] == 200)
    until(lambda: call("GET", f"{base}/configmaps/kube-root-ca.crt")[0] == 200)
    resources = {"requests": {"cpu": "500m"}}
    pod = {"containers": [{"name": "c", "image": "i", "resources": resources}]}
    assert call("POST", f"{base}/pods", {"metadata": {"name": "a"}, "spec": pod})[0] == 201
    hard = {"pods": "2", "requests.cpu": "1", "configmaps": "2", "count/deployments.apps": "0"}
    assert call("POST", f"{base}/resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": hard}})[0] == 201
    until(lambda: quota_used(call, "q") == {"pods": "1", "requests.cpu": "500m", "configmaps": "1", "count/deployments.apps": "0"})
    assert call("POST", f"{base}/pods", {"metadata": {"name": "b"}, "spec": pod})[0] == 201
    assert quota_used(call, "q")["requests.cpu"] == "1"
    code, status = call("POST", f"{base}/pods", {"metadata": {"name": "c"}, "spec": pod})
    assert (code, status["reason"]) == (403, "Forbidden")
    assert "exceeded quota: q" in status["message"]
    call("DELETE", f"{base}/pods/a")
    until(lambda: quota_used(call, "q")["requests.cpu"] == "500m")
    assert call("POST", f"{base}/pods", {"metadata": {"name": "c"}, "spec": pod})[0] == 201
    call("PATCH", f"{base}/pods/b/status", {"status": {"phase": "Succeeded"}}, MERGE)
    until(lambda: quota_used(call, "q")["pods"] == "1")
    call("PATCH", f"{base}/resourcequotas/q", {"spec": {"hard": {"secrets": "7", "pods": None}}}, MERGE)
    until(lambda: "pods" not in quota_used(call, "q") and quota_used(call, "q").get("secrets") == "0")


def test_an_apiservice_that_becomes_local_is_available(bare, connect):
    call = connect(bare)
    path = "/apis/apiregistration.k8s.io/v1/apiservices"
    spec = {"group": "x.example.com", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 10}
    remote = {"insecureSkipTLSVerify": True, "service": {"namespace": "default", "name": "none"}}
    code, made = call("POST", path, {"metadata": {"name": "v1.x.example.com"}, "spec": {**spec, **remote}})
    assert code == 201, made
    patch = {"spec": {"service": None, "insecureSkipTLSVerify": None}}
    assert call("PATCH", f"{path}/v1.x.example.com", patch, MERGE)[0] == 200
    until(lambda: (call("GET", f"{path}/v1.x.example.com")[1]["status"].get("conditions") or [{}])[0].get("reason") == "Local")


def test_a_start_repairs_allocations_of_services(tmp_path_factory, connect):
    from kas.testing.server import KasServer

    server = KasServer(tmp_path_factory.mktemp("kas"), "--unsafe-no-fsync", "--controllers", "none").start()
    try:
        call = connect(server)
        service = {"metadata": {"name": "s"}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}}
        made = call("POST", "/api/v1/namespaces/default/services", service)[1]
        ip, port = made["spec"]["clusterIP"], made["spec"]["ports"][0]["nodePort"]
        assert call("DELETE", f"{NETWORKING}/ipaddresses/{ip}")[0] == 200
        labels = {"ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io", "ipaddress.kubernetes.io/ip-family": "IPv4"}
        gone = {"resource": "services", "namespace": "default", "name": "long-gone"}
        thing = {"resource": "things", "name": "x"}
        for name, marks, parent in ((ip, labels, gone), ("10.0.0.250", labels, thing), ("10.0.0.251", {}, gone)):
            body = {"metadata": {"name": name, "labels": marks}, "spec": {"parentRef": parent}}
            assert call("POST", f"{NETWORKING}/ipaddresses", body)[0] == 201
        lost = call("POST", "/api/v1/namespaces/default/services", {"metadata": {"name": "lost"}, "spec": {"ports": [{"port": 80}]}})[1]
        assert call("DELETE", f"{NETWORKING}/ipaddresses/{lost['spec']['clusterIP']}")[0] == 200
        lease = {
            "metadata": {"name": "apiserver-old", "labels": {"apiserver.kubernetes.io/identity": "kube-apiserver"}},
            "spec": {"holderIdentity": "x", "leaseDurationSeconds": 1, "renewTime": "2024-01-01T00:00:00.000000Z"},
        }
        leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
        assert call("POST", leases, lease)[0] == 201
        server.stop()
        server.start()
        call = connect(server)
        until(lambda: call("GET", f"{NETWORKING}/ipaddresses/{lost['spec']['clusterIP']}")[0] == 200)
        until(lambda: call("GET", f"{NETWORKING}/ipaddresses/10.0.0.250")[0] == 404)
        assert call("GET", f"{NETWORKING}/ipaddresses/{ip}")[1]["spec"]["parentRef"]["name"] == "s"
        told = until(lambda: [e for e in call("GET", "/api/v1/namespaces/default/events")[1]["items"] if "IPAddress" in e["message"]])
        assert (told[0]["involvedObject"]["kind"], told[0]["reason"], told[0]["action"], told[0]["message"]) == (
            "IPAddress", "IPAddressNotAllocated", "IPAddressAllocation", "IPAddress 10.0.0.250 appears to have been modified, "
            "not referencing a Service &ParentReference{Group:,Resource:things,Namespace:,Name:x,}: cleaning up",
        )  # fmt: skip
        told = call("GET", "/api/v1/namespaces/default/events?fieldSelector=involvedObject.kind=Service")[1]["items"]
        assert {(e["involvedObject"]["name"], e["reportingComponent"], e["type"], e["reason"], e["message"]) for e in told} == {
            ("lost", "ipallocator-repair-controller", "Warning", "ClusterIPNotAllocated",
             f"Cluster IP [IPv4]: {lost['spec']['clusterIP']} is not allocated; repairing"),
            ("s", "ipallocator-repair-controller", "Warning", "ClusterIPNotAllocated",
             f"the ClusterIP [IPv4]: {ip} for Service default/s has a wrong reference; repairing"),
        }  # fmt: skip
        assert call("GET", f"{NETWORKING}/ipaddresses/10.0.0.251")[0] == 200  # another client's
        until(lambda: call("GET", f"{leases}/apiserver-old")[0] == 404)
        again = {"metadata": {"name": "t"}, "spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]}}
        assert call("POST", "/api/v1/namespaces/default/services", again)[0] == 422
    finally:
        server.stop()


def test_the_default_range_and_the_flag(tmp_path_factory, connect):
    from kas.testing.server import KasServer

    def started(ranges: str):
        server = KasServer(data, "--unsafe-no-fsync", "--controllers", "none", "--service-cluster-ip-range", ranges).start()
        return server, connect(server)

    data, name = tmp_path_factory.mktemp("kas"), f"{NETWORKING}/servicecidrs/kubernetes"
    server, call = started("10.7.0.0/24")
    try:
        before = call("GET", name)[1]
        assert before["spec"]["cidrs"] == ["10.7.0.0/24"]
        server.stop()
        server, call = started("10.7.0.0/24,fd00:7::/112")
        now = call("GET", name)[1]
        assert (now["spec"]["cidrs"], now["metadata"]["uid"]) == (["10.7.0.0/24", "fd00:7::/112"], before["metadata"]["uid"])
        service = {"metadata": {"name": "s"}, "spec": {"ipFamilyPolicy": "RequireDualStack", "ports": [{"port": 80}]}}
        assert len(call("POST", "/api/v1/namespaces/default/services", service)[1]["spec"]["clusterIPs"]) == 2
        server.stop()
        server, call = started("10.8.0.0/24")
        path = "/api/v1/namespaces/default/events?fieldSelector=involvedObject.kind=ServiceCIDR"
        told = until(lambda: call("GET", path)[1]["items"])
        assert [(e["reason"], e["message"]) for e in told] == [(
            "KubernetesDefaultServiceCIDRInconsistent",
            "The default ServiceCIDR [10.7.0.0/24 fd00:7::/112] does not match the controller flag configurations [10.8.0.0/24]",
        )]  # fmt: skip
    finally:
        server.stop()


def test_a_deleted_local_api_service_is_restored_at_once(bare, connect):
    call = connect(bare)
    path = "/apis/apiregistration.k8s.io/v1/apiservices"
    before = call("GET", f"{path}/v1.apps")[1]
    for name in ("v1.apps", "v1."):
        assert call("DELETE", f"{path}/{name}")[0] == 200
    after = until(lambda: (lambda found: found[1] if found[0] == 200 else None)(call("GET", f"{path}/v1.apps")))
    until(lambda: call("GET", f"{path}/v1.")[0] == 200)
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert (after["spec"], after["metadata"]["labels"]) == (before["spec"], before["metadata"]["labels"])
    assert after["status"]["conditions"][0]["status"] == "True"
    # A changed one stays until the next start: automanaged=onstart.
    assert call("PATCH", f"{path}/v1.batch", {"spec": {"versionPriority": 99}}, MERGE)[0] == 200
    assert call("DELETE", f"{path}/v1.policy")[0] == 200
    until(lambda: call("GET", f"{path}/v1.policy")[0] == 200)
    assert call("GET", f"{path}/v1.batch")[1]["spec"]["versionPriority"] == 99
