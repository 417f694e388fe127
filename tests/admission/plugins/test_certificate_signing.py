"""The CertificateSigning plug-in alone."""

from __future__ import annotations

from kas.admission.plugins import certificate_signing
from kas.auth.user import UserInfo
from tests.admission.admission_fakes import Request, refused

BOB = UserInfo("bob", ("system:authenticated",))


def test_issuing_needs_sign_on_the_signer(server):
    plugin = server.plugin(certificate_signing)
    old = {"metadata": {"name": "r"}, "spec": {"signerName": "example.com/s"}}
    new = old | {"status": {"certificate": "x"}}
    where = {
        "operation": "UPDATE", "group": "certificates.k8s.io", "resource": "certificatesigningrequests", "subresource": "status",
        "user": BOB,
    }  # fmt: skip
    Request(plugin, obj=old, old=old, **where).run()
    failed = old | {"status": {"conditions": [{"type": "Failed", "status": "True"}]}}
    for changed in (new, failed):
        e = refused(Request(plugin, obj=changed, old=old, **where))
        assert e.message.endswith('user not permitted to sign requests with signerName "example.com/s"')
    server.grants.add(("bob", "sign", "signers", "example.com/s"))
    Request(plugin, obj=new, old=old, **where).run()
