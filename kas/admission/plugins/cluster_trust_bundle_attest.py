"""ClusterTrustBundleAttest: writing a bundle for a signer requires the "attest" permission for that signer.

Upstream: ``plugin/pkg/admission/certificates/ctbattest``.
"""

from __future__ import annotations

from kas.admission import CREATE, UPDATE, Attributes
from kas.auth.attributes import Authorizer
from kas.auth.authz.escalation import only_gc_fields_changed
from kas.auth.certificates import GROUP, authorized_for_signer
from kas.config import features
from kas.meta.field import go_quote
from kas.meta.waiting import awaited, eager


class Plugin:
    """Applies to writes of ClusterTrustBundles."""

    name = "ClusterTrustBundleAttest"

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    def handles(self, a: Attributes) -> bool:
        """Handle creates and updates of ClusterTrustBundles, while the gate of that name is on."""
        known = a.group == GROUP and a.resource == "clustertrustbundles"
        return known and a.operation in (CREATE, UPDATE) and "ClusterTrustBundle" in features.DEFAULT.on

    @eager
    async def validate(self, a: Attributes) -> None:
        """Refuse a user that may not attest for the new object's signer; the signer of an existing object cannot be changed. Writes by
        the garbage collector and by storage migration need no permission."""
        signer = (a.obj.get("spec") or {}).get("signerName") or ""
        if not signer or (a.operation == UPDATE and only_gc_fields_changed(a.obj, a.old)):
            return
        if not await awaited(authorized_for_signer(self._authorizer, a.user, "attest", signer)):
            raise a.forbid(f"user not permitted to attest for signerName {go_quote(signer)}")
