"""Plug-ins of storage, certificates, nodes, owners, events and namespaces, each alone."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from admission_fakes import ADMIN, FakeServer, Request, pod

from kas.admission import order
from kas.admission.plugins import (
    certificate_approval,
    default_ingress_class,
    default_storage_class,
    deny_service_external_ips,
    dra_admin_access,
    namespace_exists,
    node_restriction,
    owner_references_permission_enforcement,
    persistent_volume_claim_resize,
    storage_object_in_use_protection,
    taint_nodes_by_condition,
)
from kas.api.errors import ApiError
from kas.auth.user import UserInfo

NODE = UserInfo("system:node:n", ("system:nodes", "system:authenticated"))
BOB = UserInfo("bob", ("system:authenticated",))


def refused(request: Request) -> ApiError:
    with pytest.raises(ApiError) as e:
        request.run()
    return e.value


def test_every_plugin_of_the_order_has_a_module():
    assert order.available() == list(order.ORDER)
    assert set(order.enabled([], [])) == order.DEFAULT_ON | order.ALWAYS
    assert "RBACEscalation" in order.enabled([], list(order.DEFAULT_ON))
    with pytest.raises(ValueError, match="unknown"):
        order.enabled(["Nonsense"], [])


def classes(server: FakeServer, group: str, resource: str, annotation: str) -> None:
    for name, born in (("old", "2020-01-01T00:00:00Z"), ("z", "2021-01-01T00:00:00Z"), ("b", "2021-01-01T00:00:00Z")):
        server.add(group, resource, {"metadata": {"name": name, "creationTimestamp": born, "annotations": {annotation: "true"}}})


def test_default_storage_class(server):
    plugin = default_storage_class.Plugin(server)
    claim = {"metadata": {"name": "c"}, "spec": {}}
    assert "storageClassName" not in Request(plugin, resource="persistentvolumeclaims", obj=claim).run()["spec"]
    classes(server, "storage.k8s.io", "storageclasses", default_storage_class.DEFAULT[0])
    assert Request(plugin, resource="persistentvolumeclaims", obj=claim).run()["spec"]["storageClassName"] == "b"
    none = {"metadata": {"name": "c"}, "spec": {"storageClassName": ""}}
    assert Request(plugin, resource="persistentvolumeclaims", obj=none).run()["spec"]["storageClassName"] == ""


def test_admin_access_to_devices_needs_a_labelled_namespace(server):
    plugin = dra_admin_access.Plugin(server)
    at = {"group": "resource.k8s.io", "namespace": "ns"}
    wanted = {"requests": [{"name": "a"}, {"name": "b", "exactly": {"deviceClassName": "c", "adminAccess": True}}]}
    claim = {"metadata": {"name": "c"}, "spec": {"devices": wanted}}
    template = {"metadata": {"name": "t"}, "spec": {"spec": {"devices": wanted}}}
    server.add("", "namespaces", {"metadata": {"name": "ns", "labels": {"resource.kubernetes.io/admin-access": "yes"}}})
    for resource, obj in (("resourceclaims", claim), ("resourceclaimtemplates", template)):
        e = refused(Request(plugin, **at, resource=resource, obj=obj)).status()
        assert (e["code"], e["details"]["causes"][0]["field"]) == (422, "spec.devices.requests[1].adminAccess")
    granted = claim | {"status": {"allocation": {"devices": {"results": [{"adminAccess": True}]}}}}
    status = at | {"resource": "resourceclaims", "operation": "UPDATE", "subresource": "status"}
    e = refused(Request(plugin, **status, obj=granted, old=claim)).status()
    assert e["details"]["causes"][0]["field"] == "status.allocation.devices.results[0].adminAccess"
    Request(plugin, **status, obj=granted, old=granted).run()
    Request(plugin, **at, resource="resourceclaims", obj={"metadata": {"name": "c"}, "spec": {}}).run()
    server.add("", "namespaces", {"metadata": {"name": "ns", "labels": {"resource.kubernetes.io/admin-access": "true"}}})
    Request(plugin, **at, resource="resourceclaims", obj=claim).run()
    Request(plugin, **status, obj=granted, old=claim).run()


def test_default_ingress_class(server):
    classes(server, "networking.k8s.io", "ingressclasses", default_ingress_class.DEFAULT)
    plugin = default_ingress_class.Plugin(server)
    out = Request(plugin, group="networking.k8s.io", resource="ingresses", obj={"metadata": {"name": "i"}, "spec": {}}).run()
    assert out["spec"]["ingressClassName"] == "b"


def test_finalizers_and_taints(server):
    out = Request(storage_object_in_use_protection.Plugin(server), resource="persistentvolumes", obj={"metadata": {"name": "v"}}).run()
    assert out["metadata"]["finalizers"] == ["kubernetes.io/pv-protection"]
    out = Request(taint_nodes_by_condition.Plugin(server), resource="nodes", obj={"metadata": {"name": "n"}}).run()
    assert out["spec"]["taints"] == [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]


def test_claims_grow_only_where_they_may(server):
    plugin = persistent_volume_claim_resize.Plugin(server)

    def claim(size, phase="Bound"):
        spec = {"storageClassName": "s", "resources": {"requests": {"storage": size}}}
        return {"metadata": {"name": "c"}, "spec": spec, "status": {"phase": phase}}

    def grow(phase="Bound"):
        return Request(plugin, operation="UPDATE", resource="persistentvolumeclaims", obj=claim("2Gi"), old=claim("1Gi", phase))

    assert "Only bound persistent volume claims can be expanded" in refused(grow("Pending")).message
    assert "only dynamically provisioned pvc can be resized" in refused(grow()).message
    server.add("storage.k8s.io", "storageclasses", {"metadata": {"name": "s"}, "allowVolumeExpansion": True})
    grow().run()


def test_certificate_approval(server):
    plugin = certificate_approval.Plugin(server)
    csr = {"metadata": {"name": "r"}, "spec": {"signerName": "example.com/s"}}
    where = {"operation": "UPDATE", "group": "certificates.k8s.io", "resource": "certificatesigningrequests", "subresource": "approval"}
    e = refused(Request(plugin, obj=csr, old=csr, user=BOB, **where))
    assert e.message.endswith('user not permitted to approve requests with signerName "example.com/s"')
    server.grants.add(("bob", "approve", "signers", "example.com/*"))
    Request(plugin, obj=csr, old=csr, user=BOB, **where).run()


def test_owner_references(server):
    plugin = owner_references_permission_enforcement.Plugin(server)
    record = SimpleNamespace(namespaced=True, resource="replicasets")
    server.rest.resources["apps", "v1"] = {"replicasets": SimpleNamespace(kind="ReplicaSet", record=record)}
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u"}
    owned = {"metadata": {"name": "a", "ownerReferences": [owner]}}
    blocked = {"metadata": {"name": "a", "ownerReferences": [{**owner, "blockOwnerDeletion": True}]}}
    Request(plugin, obj=owned, user=BOB).run()
    e = refused(Request(plugin, operation="UPDATE", obj=owned, old={"metadata": {"name": "a"}}, user=BOB))
    assert "cannot set an ownerRef on a resource you can't delete" in e.message
    e = refused(Request(plugin, obj=blocked, user=BOB))
    assert "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on" in e.message
    server.grants.add(("bob", "update", "replicasets/finalizers", "r"))
    Request(plugin, obj=blocked, user=BOB).run()


def test_external_ips_may_only_go(server):
    plugin = deny_service_external_ips.Plugin(server)
    one = {"metadata": {"name": "s"}, "spec": {"externalIPs": ["1.2.3.4"]}}
    none = {"metadata": {"name": "s"}, "spec": {}}
    assert "Use of external IPs is denied by admission control." in refused(Request(plugin, resource="services", obj=one)).message
    Request(plugin, operation="UPDATE", resource="services", obj=one, old=one).run()
    Request(plugin, operation="UPDATE", resource="services", obj=none, old=one).run()


def test_namespace_exists(server):
    assert refused(Request(namespace_exists.Plugin(server), obj=pod())).code == 404


# --- NodeRestriction


def mirror(**spec):
    obj = pod(nodeName="n", **spec)
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "node-uid", "controller": True}
    obj["metadata"] |= {"annotations": {"kubernetes.io/config.mirror": "x"}, "ownerReferences": [owner]}
    return obj


@pytest.fixture
def restriction(server):
    server.add("", "nodes", {"metadata": {"name": "n", "uid": "node-uid"}})
    sources = [{"serviceAccountToken": {"audience": "vault"}}]
    server.add("", "pods", pod("mine", nodeName="n", volumes=[{"name": "v", "projected": {"sources": sources}}]))
    server.add("", "pods", pod("other", nodeName="m"))
    return node_restriction.Plugin(server)


def test_others_are_not_restricted(restriction):
    Request(restriction, obj=pod(), user=ADMIN).run()


def test_nodes_make_mirror_pods_of_themselves(restriction):
    Request(restriction, obj=mirror(), user=NODE).run()
    assert "can only create mirror pods" in refused(Request(restriction, obj=pod(nodeName="n"), user=NODE)).message
    for spec, why in (
        ({"serviceAccountName": "s"}, "reference serviceaccounts"),
        ({"volumes": [{"name": "v", "secret": {"secretName": "s"}}]}, "reference secrets"),
        ({"resourceClaims": [{"name": "r"}]}, "reference resourceclaims"),
        ({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}, "reference persistentvolumeclaims"),
        ({"volumes": [{"name": "v", "csi": {"driver": "d"}}]}, "reference csidrivers (via CSI volumes)"),
        ({"volumes": [{"name": "v", "ephemeral": {}}]}, "reference persistentvolumeclaims (via ephemeral volumes)"),
        ({"volumes": [{"name": "v", "projected": {"sources": [{"serviceAccountToken": {}}]}}]}, "reference serviceaccounts (via p"),
        ({"volumes": [{"name": "v", "projected": {"sources": [{"podCertificate": {}}]}}]}, "reference podcertificates"),
    ):
        assert f'node "n" can not create pods that {why}' in refused(Request(restriction, obj=mirror(**spec), user=NODE)).message


def test_nodes_delete_their_own_pods(restriction):
    Request(restriction, operation="DELETE", old=pod("mine"), name="mine", user=NODE).run()
    e = refused(Request(restriction, operation="DELETE", old=pod("other"), name="other", user=NODE))
    assert 'node "n" can only delete pods with spec.nodeName set to itself' in e.message


def test_nodes_write_only_their_node(restriction):
    def write(labels=None, **spec):
        new = {"metadata": {"name": "n", "labels": labels or {}}, "spec": spec}
        return Request(restriction, operation="UPDATE", resource="nodes", namespace="", obj=new, old={"metadata": {"name": "n"}}, user=NODE)

    write({"kubernetes.io/hostname": "n", "example.com/x": "y", "foo.kubelet.kubernetes.io/x": "y"}).run()
    assert "is not allowed to modify labels: a.node-restriction.kubernetes.io/x, kubernetes.io/foo" in refused(
        write({"a.node-restriction.kubernetes.io/x": "1", "kubernetes.io/foo": "1"})
    ).message  # fmt: skip
    assert 'node "n" is not allowed to modify taints' in refused(write(taints=[{"key": "k"}])).message
    e = refused(Request(restriction, resource="nodes", namespace="", obj={"metadata": {"name": "m"}}, user=NODE))
    assert 'node "n" is not allowed to modify node "m"' in e.message


def test_nodes_get_tokens_of_their_pods(restriction, server):
    def token(name="mine", audiences=("vault",)):
        spec = {"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": f"uid-{name}"}, "audiences": list(audiences)}
        obj = {"metadata": {"name": "sa"}, "spec": spec}
        return Request(restriction, resource="serviceaccounts", subresource="token", obj=obj, user=NODE)

    token().run()
    assert "node requested token bound to a pod scheduled on a different node" in refused(token("other")).message
    assert 'audience "elsewhere" not found in pod spec volume' in refused(token(audiences=("elsewhere",))).message
    server.grants.add((NODE.name, node_restriction.AUDIENCE_VERB, "elsewhere", "sa"))
    token(audiences=("elsewhere",)).run()


def test_nodes_ask_for_the_certificates_of_their_pods(restriction, server):
    server.add("", "pods", pod("p", nodeName="n", serviceAccountName="sa"))
    server.add("", "pods", pod("static", nodeName="n") | {"metadata": mirror()["metadata"] | {"name": "static", "uid": "uid-static"}})
    server.add("", "serviceaccounts", {"metadata": {"name": "sa", "namespace": "ns1", "uid": "sa-uid"}})
    good = {
        "podName": "p", "podUID": "uid-p", "nodeName": "n", "nodeUID": "node-uid",
        "serviceAccountName": "sa", "serviceAccountUID": "sa-uid",
    }  # fmt: skip

    def ask(**changes):
        given = {"group": "certificates.k8s.io", "resource": "podcertificaterequests", "user": NODE}
        return Request(restriction, obj={"metadata": {"name": "r", "namespace": "ns1"}, "spec": good | changes}, **given)

    ask().run()
    for changes, code, why in (
        ({"nodeName": "m"}, 403, 'PodCertificateRequest.Spec.NodeName="m", which is not the requesting node "n"'),
        ({"nodeUID": "x"}, 500, 'pod "ns1/p" names node UID "x", inconsistent with the running node ("node-uid")'),
        ({"podName": "q"}, 500, 'while retrieving pod "ns1/q" named in the PodCertificateRequest: pod "q" not found'),
        ({"podUID": "x"}, 500, 'PodCertificateRequest for pod "ns1/p" contains pod UID ("x") which differs from running pod "uid-p"'),
        (
            {"podName": "other", "podUID": "uid-other"},
            403,
            'pod "ns1/other" is not running on node "n" named in the PodCertificateRequest',
        ),
        ({"podName": "static", "podUID": "uid-static"}, 403, 'pod "ns1/static" is a mirror pod'),
        ({"serviceAccountName": "x"}, 403, 'contains serviceAccountName ("x") that differs from running pod ("sa")'),
        ({"serviceAccountUID": "x"}, 500, 'names service account UID "x", which differs from the running service account ("sa-uid")'),
    ):
        error = refused(ask(**changes))
        assert (error.code, why in error.message) == (code, True), error


def test_nodes_write_what_is_named_like_them(restriction):
    lease = {"group": "coordination.k8s.io", "resource": "leases", "user": NODE}
    Request(restriction, obj={"metadata": {"name": "n"}}, namespace="kube-node-lease", **lease).run()
    assert "can only access leases in the" in refused(Request(restriction, obj={"metadata": {"name": "n"}}, **lease)).message
    e = refused(Request(restriction, obj={"metadata": {"name": "m"}}, namespace="kube-node-lease", **lease))
    assert "can only access node lease with the same name as the requesting node" in e.message
