"""``serviceaccounts/NAME/token``: TokenRequest (``kinds/authentication/tokenrequest.py`` creates the token)."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import orjson

from kas.auth.tokens import Signer
from kas.endpoints import respond
from kas.endpoints.subresources import named
from kas.endpoints.write import Writer
from kas.kinds.authentication import tokenrequest as token_request
from kas.meta.offload import LARGE, POOL, step
from kas.meta.waiting import awaited
from kas.request.http import Request, Response
from kas.types.scheme import builtin_kind

TOKEN_REQUEST = builtin_kind("authentication.k8s.io", "v1", "TokenRequest")
ISSUED = "authentication.kubernetes.io/issued-credential-id"


class Token:
    """Serves the ``token`` subresource.

    ``issuer`` is called by the first request, because its key may be created while the server starts.
    """

    def __init__(self, writer: Writer, issuer: Callable[[], token_request.Issuer], get: token_request.Getter) -> None:
        self.writer, self._make, self._get = writer, issuer, get
        self._issuer: token_request.Issuer | None = None

    async def create(self, req: Request, served: Any, namespace: str, name: str) -> Response:
        """Serve POST of /token: sign a token for the service account, and record its id in the audit event."""
        posted = await named.read(self.writer, req, served, TOKEN_REQUEST, namespace, name, "token", keep_system=True)
        await posted.validate()
        if self._issuer is None:
            self._issuer = await POOL.run(self._first)
        large = len(req.body) >= LARGE
        made = token_request.create(posted.ctx, name, posted.obj, self._issuer, self._get, large, req.annotate)
        answer, warnings = await awaited(made)
        for text in warnings:
            req.warn(text)

        def encoded() -> tuple[str, Response]:
            return jti_of(answer["status"]["token"]), respond.virtual(req, TOKEN_REQUEST, answer, 201)

        jti, resp = await step(large, encoded)
        req.annotate(ISSUED, f"JTI={jti}")
        return resp

    def _first(self) -> token_request.Issuer:
        issuer = self._make()
        if isinstance(issuer.signer, Signer):
            issuer.signer.load()
        return issuer


def jti_of(token: str) -> str:
    """Return the id of a token that this server issued, which identifies its use in the audit log."""
    payload = token.split(".")[1]
    return orjson.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))["jti"]
