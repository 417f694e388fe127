"""The NodeRestriction plug-in alone."""

from __future__ import annotations

import base64

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from kas.admission.plugins import node_restriction
from kas.auth.user import UserInfo
from kas.config import features
from kas.meta.offload import LARGE
from tests.admission.admission_fakes import ADMIN, Request, pod, refused


@pytest.fixture
def restriction(server):
    server.add("", "nodes", {"metadata": {"name": "n", "uid": "node-uid"}})
    sources = [{"serviceAccountToken": {"audience": "vault"}}]
    server.add("", "pods", pod("mine", nodeName="n", volumes=[{"name": "v", "projected": {"sources": sources}}]))
    server.add("", "pods", pod("other", nodeName="m"))
    return server.plugin(node_restriction)


def test_other_users_are_not_restricted(restriction):
    Request(restriction, obj=pod(), user=ADMIN).run()


NODE = UserInfo("system:node:n", ("system:nodes", "system:authenticated"))


def mirror(**spec):
    obj = pod(nodeName="n", **spec)
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "node-uid", "controller": True}
    obj["metadata"] |= {"annotations": {"kubernetes.io/config.mirror": "x"}, "ownerReferences": [owner]}
    return obj


def test_nodes_create_only_their_own_mirror_pods(restriction):
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
        ({"volumes": [{"name": "v", "secret": {}}]}, "reference secrets (via secret volumes)"),
        ({"volumes": [{"name": "v", "configMap": {}}]}, "reference configmaps (via configmap volumes)"),
        ({"volumes": [{"name": "v", "projected": {"sources": [{"secret": {}}]}}]}, "reference secrets (via projected volumes)"),
    ):
        message = refused(Request(restriction, obj=mirror(**spec), user=NODE)).message
        assert f'node "n" can not create pods that {why}' in message and ("(via" in why) is ("(via" in message)
    Request(restriction, obj=mirror(imagePullSecrets=[{"name": ""}]), user=NODE).run()  # it refers to nothing


def test_nodes_delete_their_own_pods(restriction):
    Request(restriction, operation="DELETE", old=pod("mine"), name="mine", user=NODE).run()
    e = refused(Request(restriction, operation="DELETE", old=pod("other"), name="other", user=NODE))
    assert 'node "n" can only delete pods with spec.nodeName set to itself' in e.message


def test_nodes_write_only_their_own_node(restriction):
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


def test_nodes_get_tokens_only_for_their_pods(restriction, server):
    def token(name="mine", audiences=("vault",)):
        spec = {"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": f"uid-{name}"}, "audiences": list(audiences)}
        obj = {"metadata": {"name": "sa"}, "spec": spec}
        return Request(restriction, resource="serviceaccounts", subresource="token", obj=obj, user=NODE)

    token().run()
    assert "node requested token bound to a pod scheduled on a different node" in refused(token("other")).message
    missing = refused(token("gone"))  # as upstream's lister reports it
    assert (missing.code, missing.message, missing.details) == (404, 'pod "gone" not found', {"name": "gone", "kind": "pod"})
    assert 'audience "elsewhere" not found in pod spec volume' in refused(token(audiences=("elsewhere",))).message
    server.grants.add((NODE.name, node_restriction.AUDIENCE_VERB, "elsewhere", "sa"))
    token(audiences=("elsewhere",)).run()


def test_nodes_request_certificates_only_for_their_pods(restriction, server):
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


def test_nodes_write_objects_with_their_name(restriction):
    lease = {"group": "coordination.k8s.io", "resource": "leases", "user": NODE}
    Request(restriction, obj={"metadata": {"name": "n"}}, namespace="kube-node-lease", **lease).run()
    assert "can only access leases in the" in refused(Request(restriction, obj={"metadata": {"name": "n"}}, **lease)).message
    e = refused(Request(restriction, obj={"metadata": {"name": "m"}}, namespace="kube-node-lease", **lease))
    assert "can only access node lease with the same name as the requesting node" in e.message


def audience(restriction, name, wanted=("foo",)):
    spec = {"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": f"uid-{name}"}, "audiences": list(wanted)}
    return Request(restriction, resource="serviceaccounts", subresource="token", obj={"metadata": {"name": "sa"}, "spec": spec}, user=NODE)


def test_audiences_of_volumes(restriction, server):
    """Upstream's table of KEP-4412, including volumes of former in-tree plug-ins."""
    for driver in ("d", "file.csi.azure.com"):
        server.add("storage.k8s.io", "csidrivers", {"metadata": {"name": driver}, "spec": {"tokenRequests": [{"audience": "foo"}]}})
    volumes = {"csi": {"csi": {"driver": "d"}}, "old": {"azureFile": {"shareName": "s"}}, "none": {"hostPath": {"path": "/"}}}
    for name, spec in volumes.items():
        server.add("", "persistentvolumes", {"metadata": {"name": name}, "spec": spec})
        server.add("", "persistentvolumeclaims", {"metadata": {"name": name, "namespace": "ns1"}, "spec": {"volumeName": name}})
    claim = {"metadata": {"name": "of-template-v", "namespace": "ns1"}, "spec": {"volumeName": "csi"}}
    server.add("", "persistentvolumeclaims", claim)
    for name, volume in (
        ("inline", {"csi": {"driver": "d"}}), ("in-tree", {"azureFile": {"shareName": "s", "secretName": "x"}}),
        ("claims", {"persistentVolumeClaim": {"claimName": "csi"}}), ("claims-in-tree", {"persistentVolumeClaim": {"claimName": "old"}}),
        ("of-template", {"ephemeral": {"volumeClaimTemplate": {}}}), ("claims-none", {"persistentVolumeClaim": {"claimName": "none"}}),
    ):  # fmt: skip
        server.add("", "pods", pod(name, nodeName="n", volumes=[{"name": "v", **volume}]))
        if name != "claims-none":
            audience(restriction, name).run()
        assert f'audience "bar" not found in pod spec volume, {NODE.name} is not' in refused(audience(restriction, name, ["bar"])).message


@pytest.mark.parametrize(
    ("volume", "why"),
    [
        ({"csi": {"driver": "gone"}}, 'csidriver.storage.k8s.io "gone" not found'),
        ({"persistentVolumeClaim": {"claimName": "gone"}}, 'persistentvolumeclaim "gone" not found'),
        ({"persistentVolumeClaim": {"claimName": "unbound"}}, 'persistentvolume "" not found'),
        ({"persistentVolumeClaim": {"claimName": "lost"}}, 'persistentvolume "gone" not found'),
    ],
)
def test_objects_of_a_volume_may_be_missing(restriction, server, volume, why):
    for name, spec in (("unbound", {}), ("lost", {"volumeName": "gone"})):
        server.add("", "persistentvolumeclaims", {"metadata": {"name": name, "namespace": "ns1"}, "spec": spec})
    server.grants.add((NODE.name, node_restriction.AUDIENCE_VERB, "foo", "sa"))  # is not looked up then
    server.add("", "pods", pod("p", nodeName="n", volumes=[{"name": "v", **volume}, {"name": "w", **volume}]))
    assert refused(audience(restriction, "p")).message.endswith(f'is forbidden: error validating audience "foo": {why}')
    with features.DEFAULT.overridden(ServiceAccountNodeAudienceRestriction=False):
        audience(restriction, "p", ["foo", "bar"]).run()


def certificate(restriction, name, signer="kubernetes.io/kubelet-serving", **more):
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    made = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    request = base64.b64encode(made.public_bytes(serialization.Encoding.PEM)).decode()
    spec = {"signerName": signer, "request": request, **more}
    where = {"group": "certificates.k8s.io", "resource": "certificatesigningrequests", "namespace": "", "user": NODE}
    return Request(restriction, obj={"metadata": {"name": "r"}, "spec": spec}, **where)


@pytest.mark.parametrize("signer", node_restriction.KUBELET_SIGNERS)
def test_a_node_requests_only_its_own_certificates(restriction, signer):
    certificate(restriction, NODE.name, signer).run()
    certificate(restriction, "another", "kubernetes.io/kube-apiserver-client").run()
    e = refused(certificate(restriction, "system:node:m", signer))
    assert e.message.endswith("is forbidden: can only create a node CSR with CN=system:node:n")
    for nothing in ("bm9uZQ==", "bm9u" * LARGE):  # the other is parsed off the loop
        assert "unable to parse csr: " in refused(certificate(restriction, NODE.name, signer, request=nothing)).message
    with features.DEFAULT.overridden(AllowInsecureKubeletCertificateSigningRequests=True):
        certificate(restriction, "system:node:m", signer).run()
