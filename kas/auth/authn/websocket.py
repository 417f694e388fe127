"""A bearer token in a WebSocket's subprotocols (apiserver's ``authentication/request/websocket``), for browsers: they cannot set
headers."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any

from kas.auth.authn import Authentication, AuthenticationError, HeaderGet
from kas.auth.authn.bearer import BearerToken
from kas.request.websocket import BEARER_PREFIX

REMEMBERED_AS = "\n"  # no Authorization header begins with it
_RAW_URL = re.compile(r"[A-Za-z0-9_-]*")


class WebSocketToken:
    """Passes the token to ``bearer``. It is tried after ``bearer``, so that a bad Authorization header does not hide a good
    subprotocol."""

    def __init__(self, bearer: BearerToken) -> None:
        self._bearer = bearer

    def authenticate(self, get: HeaderGet, peer: Any = None) -> Authentication:
        """Return the user of the token among the subprotocols; None without one."""
        protocols = get("sec-websocket-protocol")
        if not protocols or BEARER_PREFIX not in protocols or not _is_handshake(get):
            return None
        token, others = websocket_token(protocols)
        if not token:
            return None
        if not others:
            raise AuthenticationError("missing additional subprotocol")
        return self._bearer.check(REMEMBERED_AS + token, token)


def _is_handshake(get: HeaderGet) -> bool:
    """Return whether the request asks to become a WebSocket (``wsstream.IsWebSocketRequest``)."""
    named = (token.strip() for token in (get("connection") or "").lower().split(","))
    return (get("upgrade") or "").lower() == "websocket" and "upgrade" in named


def websocket_token(protocols: str) -> tuple[str, list[str]]:
    """Return (token, other subprotocols); the token is "" if there is none. It is encoded in base64url without padding.

    Raises AuthenticationError for several tokens or a bad encoding.
    """
    tokens, others = list[str](), list[str]()
    for protocol in (p.strip() for p in protocols.split(",")):
        if not protocol.startswith(BEARER_PREFIX):
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
