"""CertificateApproval: who approves a certificate request must hold "approve" on its signer.

Uses ``server.authorizer``. Upstream: ``plugin/pkg/admission/certificates/approval``.
"""

from __future__ import annotations

from typing import Any

from kas.admission import UPDATE, Attributes
from kas.admission.plugins._signers import GROUP, REQUESTS, may
from kas.api.field import go_quote


class Plugin:
    name = "CertificateApproval"

    def __init__(self, server: Any) -> None:
        self._server = server

    def handles(self, a: Attributes) -> bool:
        return a.operation == UPDATE and a.group == GROUP and a.resource == REQUESTS and a.subresource == "approval"

    def validate(self, a: Attributes) -> None:
        signer = (a.old.get("spec") or {}).get("signerName") or ""
        if not may(self._server.authorizer, a.user, "approve", signer):
            raise a.forbid(f"user not permitted to approve requests with signerName {go_quote(signer)}")
