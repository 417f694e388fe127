"""Static tokens: ``--token-auth-file`` and the administrator's token of a fresh server.

A line is ``token,user,uid[,"group1,group2"]`` (``auth/authenticator/token/tokenfile``).
"""

from __future__ import annotations

import csv
import hashlib
import logging
from collections.abc import Iterator, Mapping

from kas.auth.user import MASTERS, UserInfo

log = logging.getLogger("kas.authn")


class TokenFileError(ValueError):
    """The file cannot be used; the text names it."""


class StaticTokens:
    """Tokens known in advance. Looked up by digest, so that comparing takes the same time for every wrong token."""

    def __init__(self, tokens: Mapping[str, UserInfo]) -> None:
        self._users = {_digest(token): user for token, user in tokens.items()}

    def authenticate_token(self, token: str) -> UserInfo | None:
        """The user of the token; None for one that is not in the file."""
        return self._users.get(_digest(token))


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def load_token_file(path: str) -> StaticTokens:
    """Read ``--token-auth-file``; OSError when it cannot be read."""
    with open(path, encoding="utf-8", newline="") as f:
        return StaticTokens(parse_token_file(f.read(), path))


def parse_token_file(text: str, path: str = "token file") -> dict[str, UserInfo]:
    """Later lines win over earlier ones with the same token, as upstream."""
    return dict(rows(text, path, "token file", "token"))


def rows(text: str, path: str, file: str, secret: str) -> Iterator[tuple[str, UserInfo]]:
    """The secrets of a file and whose they are. ``file`` and ``secret`` are what errors call them. Raises TokenFileError."""
    reader = csv.reader(text.splitlines(), strict=True)
    while True:
        try:
            row = next(reader, None)
        except csv.Error as e:
            raise TokenFileError(f"{path}:{reader.line_num}: {e}") from e
        if row is None:
            return
        if not row or (len(row) == 1 and not row[0].strip()):
            continue
        line = reader.line_num
        if len(row) < 3:
            raise TokenFileError(f"{file} '{path}' must have at least 3 columns ({secret}, user name, user uid), found {len(row)}")
        token, name, uid = row[0], row[1], row[2]
        if not token:
            log.warning("empty %s in %s, line %d: nobody can use it", secret, path, line)
            continue
        groups = row[3].split(",") if len(row) > 3 else []  # of an empty column: one group without a name
        yield token, UserInfo(name, groups, uid)


def admin_token(token: str, name: str = "admin") -> StaticTokens:
    """One token with all rights, for the administrator of a fresh server."""
    return StaticTokens({token: UserInfo(name, (MASTERS,))})
