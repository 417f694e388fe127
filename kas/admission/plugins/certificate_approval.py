"""CertificateApproval: approving a certificate request requires the "approve" permission for its signer.

Upstream: ``plugin/pkg/admission/certificates/approval``.
"""

from __future__ import annotations

from kas.admission import UPDATE, Attributes
from kas.auth.attributes import Authorizer
from kas.auth.certificates import GROUP, authorized_for_signer
from kas.meta.field import go_quote
from kas.meta.waiting import awaited, eager


class Plugin:
    """Applies to updates of the approval subresource; the signer of the stored object counts, not the one sent."""

    name = "CertificateApproval"

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    def handles(self, a: Attributes) -> bool:
        """Handle updates of a CertificateSigningRequest's approval."""
        return a.operation == UPDATE and a.group == GROUP and a.resource == "certificatesigningrequests" and a.subresource == "approval"

    @eager
    async def validate(self, a: Attributes) -> None:
        """Refuse a user that may not approve for the stored signer."""
        signer = (a.old.get("spec") or {}).get("signerName") or ""
        if not await awaited(authorized_for_signer(self._authorizer, a.user, "approve", signer)):
            raise a.forbid(f"user not permitted to approve requests with signerName {go_quote(signer)}")
