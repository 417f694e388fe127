"""``--basic-auth-file``: users by name and password, as in kube-apiserver until 1.18 (``plugin/pkg/authenticator/password``).

A line is ``password,user,uid[,"group1,group2"]``. Disabled unless the flag names a file: passwords in a file never expire.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping
from typing import Any

from kas.auth.authn import AuthenticationError, HeaderGet
from kas.auth.authn.tokenfile import read, rows
from kas.auth.user import UserInfo

_NOBODY = b"\0" * 32


class BasicAuth:
    """Authenticates by an Authorization header of scheme Basic. ``users`` maps a name to (digest of the password, user)."""

    by_header = True

    def __init__(self, users: Mapping[str, tuple[bytes, UserInfo]]) -> None:
        self._users = dict(users)

    def authenticate(self, get: HeaderGet, peer: Any = None) -> UserInfo | None:
        """Return the user; None without such a header. Raises AuthenticationError for bad credentials."""
        scheme, _, encoded = (get("authorization") or "").strip().partition(" ")
        if scheme.lower() != "basic":
            return None
        try:
            name, colon, password = base64.b64decode(encoded.strip(), validate=True).decode("utf-8", "surrogateescape").partition(":")
        except binascii.Error:
            colon = ""
        if not colon:
            raise AuthenticationError("invalid basic authorization header")
        digest, user = self._users.get(name, (_NOBODY, None))
        # An unknown name takes as long as a wrong password.
        if not hmac.compare_digest(digest, _digest(password)) or user is None:
            raise AuthenticationError("invalid username/password combination")
        return user


def _digest(password: str) -> bytes:
    return hashlib.sha256(password.encode("utf-8", "surrogateescape")).digest()


def load_basic_file(path: str) -> BasicAuth:
    """Read the file. If several lines have the same name, the last one counts. Raises OSError and TokenFileError."""
    return BasicAuth({user.name: (_digest(password), user) for password, user in rows(read(path), path, "password file", "password")})
