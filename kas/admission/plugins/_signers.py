"""Who may approve and sign for a signer (``pkg/certauthorization``)."""

from __future__ import annotations

from typing import Any

from kas.auth.attributes import ALLOW, Attributes
from kas.auth.user import UserInfo

GROUP = "certificates.k8s.io"
REQUESTS = "certificatesigningrequests"


def may(authorizer: Any, user: UserInfo, verb: str, signer: str) -> bool:
    """Whether the user holds ``verb`` on the signer, or on all signers of its domain."""
    for name in (signer, signer.partition("/")[0] + "/*"):
        if authorizer.authorize(Attributes(user, verb, "", GROUP, "*", "signers", "", name))[0] == ALLOW:
            return True
    return False
