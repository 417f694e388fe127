"""The CertificateApproval plug-in alone."""

from __future__ import annotations

from kas.admission.plugins import certificate_approval
from kas.auth.user import UserInfo
from tests.admission.admission_fakes import Request, refused

BOB = UserInfo("bob", ("system:authenticated",))


def test_certificate_approval(server):
    plugin = server.plugin(certificate_approval)
    csr = {"metadata": {"name": "r"}, "spec": {"signerName": "example.com/s"}}
    where = {"operation": "UPDATE", "group": "certificates.k8s.io", "resource": "certificatesigningrequests", "subresource": "approval"}
    e = refused(Request(plugin, obj=csr, old=csr, user=BOB, **where))
    assert e.message.endswith('user not permitted to approve requests with signerName "example.com/s"')
    server.grants.add(("bob", "approve", "signers", "example.com/*"))
    Request(plugin, obj=csr, old=csr, user=BOB, **where).run()
