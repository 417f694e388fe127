"""CertificateApproval: who approves a certificate request must hold "approve" on its signer.

Uses ``server.authorizer``. Upstream: ``plugin/pkg/admission/certificates/approval``.
"""

from __future__ import annotations

from typing import Any

from kas.admission import UPDATE, Attributes
from kas.api.field import go_quote
from kas.auth.certificates import GROUP, authorized_for_signer


class Plugin:
    name = "CertificateApproval"

    def __init__(self, server: Any) -> None:
        self._server = server

    def handles(self, a: Attributes) -> bool:
        return a.operation == UPDATE and a.group == GROUP and a.resource == "certificatesigningrequests" and a.subresource == "approval"

    def validate(self, a: Attributes) -> None:
        signer = (a.old.get("spec") or {}).get("signerName") or ""
        if not authorized_for_signer(self._server.authorizer, a.user, "approve", signer):
            raise a.forbid(f"user not permitted to approve requests with signerName {go_quote(signer)}")
