"""PodCertificateSigning: deciding on a PodCertificateRequest requires the "sign" permission for its signer.

Upstream this is part of the storage of requests (``pkg/registry/certificates/podcertificaterequest``), so it cannot be disabled.
"""

from __future__ import annotations

from kas.admission import UPDATE, Attributes
from kas.auth.attributes import Authorizer
from kas.auth.certificates import GROUP, authorized_for_signer
from kas.meta import errors, field
from kas.meta.equality import semantic_equal
from kas.meta.field import go_quote
from kas.meta.waiting import awaited, eager
from kas.types.scheme import builtin_type


class Plugin:
    """Applies to updates of the status, which contains the certificate chain and the decision."""

    name = "PodCertificateSigning"

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    def handles(self, a: Attributes) -> bool:
        """Handle updates of a PodCertificateRequest's status."""
        return a.operation == UPDATE and a.group == GROUP and a.resource == "podcertificaterequests" and a.subresource == "status"

    @eager
    async def validate(self, a: Attributes) -> None:
        """Raise 422 if the user changes the status but may not sign for the stored signer."""
        of = builtin_type("certificates.v1beta1.PodCertificateRequestStatus")
        if semantic_equal(a.obj.get("status") or {}, a.old.get("status") or {}, of):
            return
        signer = (a.old.get("spec") or {}).get("signerName") or ""
        if not await awaited(authorized_for_signer(self._authorizer, a.user, "sign", signer)):
            text = f'User {go_quote(a.user.name)} is not permitted to "sign" for signer {go_quote(signer)}'
            raise errors.invalid(GROUP, a.kind, a.name, [field.forbidden("spec.signerName", text)])
