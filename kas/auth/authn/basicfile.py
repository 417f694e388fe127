"""``--basic-auth-file``: users by name and password, as kube-apiserver had it until 1.18 (``plugin/pkg/authenticator/password``).

A line is ``password,user,uid[,"group1,group2"]``. Off unless the flag names a file: passwords in a file never expire.
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
    """Knows users by the Authorization header of scheme Basic. ``users`` are (digest of the password, user) by name."""

    by_header = True

    def __init__(self, users: Mapping[str, tuple[bytes, UserInfo]]) -> None:
        self._users = dict(users)

    def authenticate(self, get: HeaderGet, peer: Any = None) -> UserInfo | None:
        """The user; None without such a header, AuthenticationError for a wrong one."""
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
        # A name that nobody has takes as long as a wrong password.
        if not hmac.compare_digest(digest, _digest(password)) or user is None:
            raise AuthenticationError("invalid username/password combination")
        return user


def _digest(password: str) -> bytes:
    return hashlib.sha256(password.encode("utf-8", "surrogateescape")).digest()


def load_basic_file(path: str) -> BasicAuth:
    """Reads the file. Raises OSError, and TokenFileError for one that is not what it should be. Of lines with the same name the last
    one counts."""
    return BasicAuth({user.name: (_digest(password), user) for password, user in rows(read(path), path, "password file", "password")})
