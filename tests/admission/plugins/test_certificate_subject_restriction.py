"""The CertificateSubjectRestriction plug-in alone."""

from __future__ import annotations

import base64

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from kas.admission.plugins import certificate_subject_restriction as restriction
from tests.admission.admission_fakes import Request, refused

WHERE = {"group": "certificates.k8s.io", "resource": "certificatesigningrequests", "namespace": ""}


def csr(group: str, signer: str = restriction.CLIENT_SIGNER) -> dict:
    name = x509.Name([x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, group), x509.NameAttribute(x509.NameOID.COMMON_NAME, "me")])
    made = x509.CertificateSigningRequestBuilder().subject_name(name).sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    request = base64.b64encode(made.public_bytes(serialization.Encoding.PEM)).decode()
    return {"metadata": {"name": "r"}, "spec": {"signerName": signer, "request": request}}


def test_client_certificates_for_system_masters_are_refused(server):
    plugin = server.plugin(restriction)
    e = refused(Request(plugin, obj=csr("system:masters"), **WHERE))
    assert e.message.endswith("use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed")
    Request(plugin, obj=csr("system:nodes"), **WHERE).run()
    Request(plugin, obj=csr("system:masters", "example.com/s"), **WHERE).run()


def test_an_invalid_request_is_refused(server):
    spec = {"signerName": restriction.CLIENT_SIGNER, "request": base64.b64encode(b"no PEM").decode()}
    request = Request(server.plugin(restriction), obj={"metadata": {"name": "r"}, "spec": spec}, **WHERE)
    assert "failed to parse CSR" in refused(request).message
