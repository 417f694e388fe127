"""Identity asserted by an authenticating front proxy (``authentication/request/headerrequest``).

The headers count only if the connection's client certificate was issued by the request-header CA and its common name is among the allowed
ones. Otherwise they may be spoofed and are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import unquote

from kas.auth.authn import AuthenticationError, HeaderGet
from kas.auth.authn.x509 import HeaderPairs, Peer, Verifier
from kas.auth.user import UserInfo

_BAD_ESCAPE = re.compile(r"%(?![0-9a-fA-F]{2})")


class RequestHeader:
    """Authenticates by a proxy's headers. ``verifier`` verifies certificates against the proxies' CA. Of several headers for one
    attribute, the first that is present and not empty counts."""

    by_proxy = True

    def __init__(
        self,
        verifier: Verifier,
        username_headers: Sequence[str] = (),
        group_headers: Sequence[str] = (),
        extra_prefixes: Sequence[str] = (),
        uid_headers: Sequence[str] = (),
        allowed_names: Sequence[str] = (),
    ) -> None:
        self._verifier = verifier
        self._user, self._group, self._uid, self._extra = (
            tuple(h.lower().encode() for h in names) for names in (username_headers, group_headers, uid_headers, extra_prefixes)
        )
        self._allowed = frozenset(allowed_names)

    def authenticate(self, get: HeaderGet, peer: Peer | None = None) -> UserInfo | None:
        """Return the user the proxy names; None without a certificate or a user name. Raises AuthenticationError if the certificate is
        not that of an allowed proxy."""
        if peer is None:
            return None
        self._verifier.check(peer.certificates)
        name = peer.certificates.common_name
        if self._allowed and name not in self._allowed:
            raise AuthenticationError(f"x509: subject with cn={name} is not in the allowed list")
        headers = peer.headers()
        user = _first(headers, self._user)
        if not user:
            return None
        groups = [_text(v) for wanted in self._group for k, v in headers if k == wanted and v]
        extra: dict[str, list[str]] = {}
        for prefix in self._extra:
            for key, value in headers:
                if key.startswith(prefix):
                    extra.setdefault(_unescape(_text(key[len(prefix) :])), []).append(_text(value))
        return UserInfo(user, groups, _first(headers, self._uid), extra)


def _first(headers: HeaderPairs, names: Sequence[bytes]) -> str:
    """Return the first value of the first of ``names`` whose first value is not empty."""
    for name in names:
        value = next((v for k, v in headers if k == name), b"")
        if value:
            return _text(value)
    return ""


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def _unescape(key: str) -> str:
    """Unescape a key; one with a malformed escape stays unchanged."""
    return key if _BAD_ESCAPE.search(key) else unquote(key)
