"""CertificateSigning: issuing a certificate requires the "sign" permission for its signer.

Upstream: ``plugin/pkg/admission/certificates/signing``.
"""

from __future__ import annotations

from kas.admission import UPDATE, Attributes
from kas.auth.attributes import Authorizer
from kas.auth.certificates import GROUP, authorized_for_signer
from kas.meta.equality import semantic_equal
from kas.meta.field import go_quote
from kas.meta.waiting import awaited, eager
from kas.types.scheme import builtin_field


class Plugin:
    """Applies to updates of the status, which contains the certificate."""

    name = "CertificateSigning"

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    def handles(self, a: Attributes) -> bool:
        """Handle updates of a CertificateSigningRequest's status."""
        return a.operation == UPDATE and a.group == GROUP and a.resource == "certificatesigningrequests" and a.subresource == "status"

    @eager
    async def validate(self, a: Attributes) -> None:
        """Refuse a user that changes the certificate or conditions but may not sign for the stored signer."""
        new, old = a.obj.get("status") or {}, a.old.get("status") or {}
        of = builtin_field("certificates.v1.CertificateSigningRequestStatus", "conditions")
        same = (new.get("certificate") or "") == (old.get("certificate") or "")
        if same and semantic_equal(new.get("conditions"), old.get("conditions"), of):
            return
        signer = (a.old.get("spec") or {}).get("signerName") or ""
        if not await awaited(authorized_for_signer(self._authorizer, a.user, "sign", signer)):
            raise a.forbid(f"user not permitted to sign requests with signerName {go_quote(signer)}")
