"""Bootstrap tokens, with which a new node joins the cluster (``plugin/pkg/auth/authenticator/token/bootstrap``).

A token is ``<id>.<secret>`` and is stored in the Secret ``bootstrap-token-<id>`` of kube-system. Disabled unless
``--enable-bootstrap-token-auth`` is set.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from collections.abc import Callable
from time import time
from typing import Any

from kas._codecs import DecodeError
from kas.auth.authn.jwttokens import Getter
from kas.auth.user import UserInfo
from kas.meta.scalars import parse_time

TYPE = "bootstrap.kubernetes.io/token"
GROUP = "system:bootstrappers"
_TOKEN = re.compile(r"([a-z0-9]{6})\.([a-z0-9]{16})\Z")
_GROUP = re.compile(r"system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]\Z")


class BootstrapTokens:
    """Authenticates bootstrap tokens. Never raises for a bad token: whatever is wrong with it or its Secret, the answer is None."""

    def __init__(self, get: Getter, clock: Callable[[], float] = time) -> None:
        self._get = get
        self._clock = clock

    def authenticate_token(self, token: str) -> UserInfo | None:
        """Return the user of ``id.secret``; None if it is no such token, has expired, or its Secret does not match or forbids this
        use."""
        match = _TOKEN.match(token)
        if match is None:
            return None
        token_id, token_secret = match.groups()
        name = f"bootstrap-token-{token_id}"
        secret = self._get("secrets", "kube-system", name)
        if secret is None or secret["metadata"].get("deletionTimestamp") or secret.get("type") != TYPE:
            return None
        data = _data(secret)
        if not hmac.compare_digest(data.get("token-secret", "").encode(), token_secret.encode()):
            return None
        if data.get("token-id") != token_id or data.get("usage-bootstrap-authentication") != "true":
            return None
        if not self._alive(data.get("expiration", "")):
            return None
        extra = data.get("auth-extra-groups", "")
        groups = extra.split(",") if extra else []
        if not all(map(_GROUP.match, groups)):
            return None
        return UserInfo(f"system:bootstrap:{token_id}", [GROUP, *sorted(set(groups) - {GROUP})])

    def _alive(self, expiration: str) -> bool:
        if not expiration:
            return True
        try:
            seconds, nanos = parse_time(expiration)
            return seconds + nanos / 1e9 > self._clock()
        except DecodeError:
            # An expiration that cannot be parsed counts as past.
            return False


def _data(secret: dict[str, Any]) -> dict[str, str]:
    out = {}
    for key, value in (secret.get("data") or {}).items():
        try:
            out[key] = base64.b64decode(value, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            continue
    return out
