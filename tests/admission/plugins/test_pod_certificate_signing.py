"""The PodCertificateSigning plug-in alone."""

from __future__ import annotations

from kas.admission.plugins import pod_certificate_signing
from kas.auth.user import UserInfo
from tests.admission.admission_fakes import Request, refused

BOB = UserInfo("bob", ("system:authenticated",))


def test_writing_the_status_needs_sign_on_the_signer_or_its_domain(server):
    plugin = server.plugin(pod_certificate_signing)
    old = {"metadata": {"name": "r", "namespace": "ns1"}, "spec": {"signerName": "example.com/s"}}
    where = {
        "operation": "UPDATE", "group": "certificates.k8s.io", "resource": "podcertificaterequests", "subresource": "status",
        "kind": "PodCertificateRequest", "user": BOB,
    }  # fmt: skip
    Request(plugin, obj=old | {"status": {}}, old=old, **where).run()
    denied = old | {"status": {"conditions": [{"type": "Denied", "status": "True"}]}}
    for changed in (old | {"status": {"certificateChain": "x"}}, denied):
        e = refused(Request(plugin, obj=changed, old=old, **where))
        text = 'Forbidden: User "bob" is not permitted to "sign" for signer "example.com/s"'
        assert e.code == 422 and [(c["field"], c["message"]) for c in e.details["causes"]] == [("spec.signerName", text)]
    server.grants.add(("bob", "sign", "signers", "example.com/*"))
    Request(plugin, obj=denied, old=old, **where).run()
