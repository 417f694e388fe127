"""CertificateSubjectRestriction: client certificates for system:masters cannot be requested.

Upstream: ``plugin/pkg/admission/certificates/subjectrestriction``.
"""

from __future__ import annotations

from kas.admission import CREATE, Attributes
from kas.admission.plugins import _requests
from kas.auth.certificates import GROUP
from kas.auth.user import MASTERS

CLIENT_SIGNER = "kubernetes.io/kube-apiserver-client"


class Plugin:
    """Applies to new certificate requests for kube-apiserver's client signer."""

    name = "CertificateSubjectRestriction"

    def handles(self, a: Attributes) -> bool:
        """Handle creates of CertificateSigningRequests."""
        return a.operation == CREATE and a.group == GROUP and a.resource == "certificatesigningrequests" and not a.subresource

    async def validate(self, a: Attributes) -> None:
        """Refuse a request for a client certificate of system:masters."""
        spec = a.obj.get("spec") or {}
        if spec.get("signerName") != CLIENT_SIGNER:
            return
        try:
            subject = await _requests.subject(spec.get("request") or "")
        except ValueError as e:
            raise a.forbid(f"failed to parse CSR: {e}") from None
        from cryptography.x509 import NameOID

        if any(x.value == MASTERS for x in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)):
            raise a.forbid(f"use of {CLIENT_SIGNER} signer with {MASTERS} group is not allowed")
