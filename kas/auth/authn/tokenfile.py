"""Static tokens: ``--token-auth-file`` and the administrator token of a new server.

A line is ``token,user,uid[,"group1,group2"]`` (``auth/authenticator/token/tokenfile``).
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterator, Mapping

from kas.auth.user import MASTERS, UserInfo

log = logging.getLogger("kas.authn")
_LINE = re.compile(r"[^\n]*\n?")


class TokenFileError(ValueError):
    """The file cannot be used; the text names it."""


class StaticTokens:
    """Tokens known in advance, looked up by digest, so that the lookup takes the same time for every wrong token. A token longer than all
    known ones is refused without computing its digest, to keep 12 kB tokens cheap."""

    def __init__(self, tokens: Mapping[str, UserInfo]) -> None:
        self._users = {_digest(token): user for token, user in tokens.items()}
        self._longest = max(map(len, tokens), default=0)

    def authenticate_token(self, token: str) -> UserInfo | None:
        """Return the user of the token; None if it is unknown."""
        return self._users.get(_digest(token)) if len(token) <= self._longest else None


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def load_token_file(path: str) -> StaticTokens:
    """Read ``--token-auth-file``. Raises OSError and TokenFileError."""
    return StaticTokens(parse_token_file(read(path), path))


def read(path: str) -> str:
    """Return the text of a credentials file, which may contain any bytes; bytes that are not UTF-8 become surrogates. Raises OSError."""
    with open(path, encoding="utf-8", errors="surrogateescape", newline="") as f:
        return f.read()


def parse_token_file(text: str, path: str = "token file") -> dict[str, UserInfo]:
    """Return the users by token. Of several lines with the same token the last one counts, as upstream."""
    return dict(rows(text, path, "token file", "token"))


def rows(text: str, path: str, file: str, secret: str) -> Iterator[tuple[str, UserInfo]]:
    """Yield (secret, user) for each line of a file. ``file`` and ``secret`` name the file and its secrets in errors. Raises
    TokenFileError."""
    for line, row in _records(text):
        if len(row) < 3:
            raise TokenFileError(f"{file} '{path}' must have at least 3 columns ({secret}, user name, user uid), found {len(row)}")
        token, name, uid = row[0], *map(_shown, row[1:3])
        if not token:
            log.warning("empty %s in %s, line %d: the line has no effect", secret, path, line)
            continue
        groups = _shown(row[3]).split(",") if len(row) > 3 else []  # an empty column is one group with an empty name
        yield token, UserInfo(name, groups, uid)


def _shown(text: str) -> str:
    """Replace bytes that are not UTF-8, so that JSON can represent the text."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _records(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the records of a CSV text with their first line numbers, as Go's ``encoding/csv`` reads them, skipping empty lines.

    Raises TokenFileError with Go's messages.
    """
    lines = [line for line in _LINE.findall(text.replace("\r\n", "\n")) if line]
    n = 0
    while n < len(lines):
        start, line, at, row = n, lines[n], 0, list[str]()
        if line == "\n":
            n += 1
            continue
        while True:
            if not line.startswith('"', at):
                end = line.find(",", at)
                cell = (line[at:] if end < 0 else line[at:end]).removesuffix("\n")
                quote = cell.find('"')
                if quote >= 0:
                    raise _malformed(start, n, _column(line, at + quote), 'bare " in non-quoted field')
                row.append(cell)
                if end < 0:
                    break
                at = end + 1
                continue
            cell, at = "", at + 1
            while True:
                end = line.find('"', at)
                if end < 0:
                    cell += line[at:]
                    if n + 1 == len(lines):
                        raise _malformed(start, n, _column(line, len(line)), 'extraneous or missing " in quoted field')
                    n, at = n + 1, 0
                    line = lines[n]
                    continue
                cell, at = cell + line[at:end], end + 1
                if not line.startswith('"', at):
                    break
                cell, at = cell + '"', at + 1
            row.append(cell)
            if line[at:] in ("", "\n"):
                break
            if line[at] != ",":
                raise _malformed(start, n, _column(line, at - 1), 'extraneous or missing " in quoted field')
            at += 1
        yield start + 1, row
        n += 1


def _column(line: str, index: int) -> int:
    return len(line[:index].encode("utf-8", "surrogateescape")) + 1


def _malformed(start: int, line: int, column: int, why: str) -> TokenFileError:
    record = f"record on line {start + 1}; " if start != line else ""
    return TokenFileError(f"{record}parse error on line {line + 1}, column {column}: {why}")


def admin_token(token: str, name: str = "admin") -> StaticTokens:
    """Return an authenticator for one token with all rights, for the administrator of a new server."""
    return StaticTokens({token: UserInfo(name, (MASTERS,))})
