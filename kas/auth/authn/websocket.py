"""A bearer token among the subprotocols of a WebSocket (apiserver's ``authentication/request/websocket``): browsers cannot set headers."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any

from kas.auth.authn import Authentication, AuthenticationError, HeaderGet
from kas.auth.authn.bearer import BearerToken
from kas.request.websocket import BEARER_PREFIX

REMEMBERED_AS = "\n"  # what no Authorization header begins with
_RAW_URL = re.compile(r"[A-Za-z0-9_-]*")


class WebSocketToken:
    """Asks ``bearer`` about the token. Stands behind it, so that a bad Authorization header keeps no good subprotocol from counting."""

    def __init__(self, bearer: BearerToken) -> None:
        self._bearer = bearer

    def authenticate(self, get: HeaderGet, peer: Any = None) -> Authentication:
        """The user of the token among the subprotocols; None without one."""
        protocols = get("sec-websocket-protocol")
        if not protocols or BEARER_PREFIX not in protocols or (get("upgrade") or "").lower() != "websocket":
            return None
        token, others = websocket_token(protocols)
        if not token:
            return None
        if not others:
            raise AuthenticationError("missing additional subprotocol")
        return self._bearer.check(REMEMBERED_AS + token, token)


def websocket_token(protocols: str) -> tuple[str, list[str]]:
    """(token, the other subprotocols); "" where none hides among them. It stands there in base64 of URLs without padding."""
    tokens, others = list[str](), list[str]()
    for protocol in (p.strip() for p in protocols.split(",")):
        if not protocol.startswith(BEARER_PREFIX):
            if protocol:
                others.append(protocol)
            continue
        if tokens:
            raise AuthenticationError("multiple base64.bearer.authorization tokens specified")
        encoded = protocol[len(BEARER_PREFIX) :]
        try:
            if not _RAW_URL.fullmatch(encoded):
                raise binascii.Error("illegal character")
            tokens.append(base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode())
        except (binascii.Error, UnicodeDecodeError) as e:
            raise AuthenticationError(f"invalid base64.bearer.authorization token encoding: {e}") from e
    return "".join(tokens), others
