"""CertificateSubjectRestriction: nobody becomes system:masters by a client certificate.

Upstream: ``plugin/pkg/admission/certificates/subjectrestriction``.
"""

from __future__ import annotations

import base64
import binascii

from kas.admission import CREATE, Attributes
from kas.auth.certificates import GROUP
from kas.auth.user import MASTERS
from kas.meta.aside import LARGE, step
from kas.meta.pem import pem_blocks

CLIENT_SIGNER = "kubernetes.io/kube-apiserver-client"


class Plugin:
    """Sees new certificate requests; only those for kube-apiserver's client signer are looked into."""

    name = "CertificateSubjectRestriction"

    def handles(self, a: Attributes) -> bool:
        """Creates of CertificateSigningRequests."""
        return a.operation == CREATE and a.group == GROUP and a.resource == "certificatesigningrequests" and not a.subresource

    async def validate(self, a: Attributes) -> None:
        """Refuse a client certificate for system:masters."""
        spec = a.obj.get("spec") or {}
        if spec.get("signerName") != CLIENT_SIGNER:
            return
        request = spec.get("request") or ""
        if MASTERS in await step(len(request) >= LARGE, _organizations, a, request):  # 30,000 of them take 130 ms
            raise a.forbid(f"use of {CLIENT_SIGNER} signer with {MASTERS} group is not allowed")


def _organizations(a: Attributes, request: str) -> list[str]:
    from cryptography import x509

    try:
        block = next(pem_blocks(base64.b64decode(request)), None)
        if block is None:
            raise ValueError("PEM block type must be CERTIFICATE REQUEST")
        subject = x509.load_der_x509_csr(block.der).subject
    except (ValueError, binascii.Error) as e:
        raise a.forbid(f"failed to parse CSR: {e}") from None
    return [str(x.value) for x in subject.get_attributes_for_oid(x509.NameOID.ORGANIZATION_NAME)]
