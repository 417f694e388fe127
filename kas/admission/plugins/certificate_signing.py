"""CertificateSigning: who issues a certificate must hold "sign" on its signer.

Uses ``server.authorizer``. Upstream: ``plugin/pkg/admission/certificates/signing``.
"""

from __future__ import annotations

from typing import Any

from kas.admission import UPDATE, Attributes
from kas.api.equality import semantic_equal
from kas.api.field import go_quote
from kas.auth.certificates import GROUP, authorized_for_signer


class Plugin:
    name = "CertificateSigning"

    def __init__(self, server: Any) -> None:
        self._server = server

    def handles(self, a: Attributes) -> bool:
        return a.operation == UPDATE and a.group == GROUP and a.resource == "certificatesigningrequests" and a.subresource == "status"

    def validate(self, a: Attributes) -> None:
        new, old = a.obj.get("status") or {}, a.old.get("status") or {}
        if new.get("certificate") == old.get("certificate") and semantic_equal(new.get("conditions"), old.get("conditions")):
            return
        signer = (a.old.get("spec") or {}).get("signerName") or ""
        if not authorized_for_signer(self._server.authorizer, a.user, "sign", signer):
            raise a.forbid(f"user not permitted to sign requests with signerName {go_quote(signer)}")
