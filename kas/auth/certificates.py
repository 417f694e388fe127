"""Permission to approve, sign or attest for a signer (``pkg/registry/certificates`` and the admission plug-ins of that name)."""

from __future__ import annotations

from kas.auth.attributes import ALLOW, Attributes, Authorizer
from kas.auth.user import UserInfo
from kas.meta.waiting import awaited, eager

GROUP = "certificates.k8s.io"


@eager
async def authorized_for_signer(authorizer: Authorizer, user: UserInfo, verb: str, signer_name: str) -> bool:
    """Return whether ``user`` may ``verb`` (approve, sign or attest) for the signer, by its name or by its domain (``example.com/*``)."""
    domain = signer_name.partition("/")[0]
    for name in (signer_name, f"{domain}/*"):
        decision, _, error = await awaited(authorizer.authorize(Attributes(user, verb, "", GROUP, "*", "signers", "", name)))
        if error and decision != ALLOW:
            return False
        if decision == ALLOW:
            return True
    return False
