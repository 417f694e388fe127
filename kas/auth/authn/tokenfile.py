"""Static tokens: ``--token-auth-file`` and the administrator's token of a fresh server.

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
    """Tokens known in advance. Looked up by digest, so that comparing takes the same time for every wrong token that is not longer than all
    of them: who sends 12 kB has none worked out."""

    def __init__(self, tokens: Mapping[str, UserInfo]) -> None:
        self._users = {_digest(token): user for token, user in tokens.items()}
        self._longest = max(map(len, tokens), default=0)

    def authenticate_token(self, token: str) -> UserInfo | None:
        """The user of the token; None for one that is not in the file."""
        return self._users.get(_digest(token)) if len(token) <= self._longest else None


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def load_token_file(path: str) -> StaticTokens:
    """Read ``--token-auth-file``; OSError when it cannot be read."""
    return StaticTokens(parse_token_file(read(path), path))


def read(path: str) -> str:
    """The text of a file of secrets, which may be any bytes; those that are not UTF-8 are surrogates. Raises OSError."""
    with open(path, encoding="utf-8", errors="surrogateescape", newline="") as f:
        return f.read()


def parse_token_file(text: str, path: str = "token file") -> dict[str, UserInfo]:
    """Later lines win over earlier ones with the same token, as upstream."""
    return dict(rows(text, path, "token file", "token"))


def rows(text: str, path: str, file: str, secret: str) -> Iterator[tuple[str, UserInfo]]:
    """The secrets of a file and whose they are. ``file`` and ``secret`` are what errors call them. Raises TokenFileError."""
    for line, row in _records(text):
        if len(row) < 3:
            raise TokenFileError(f"{file} '{path}' must have at least 3 columns ({secret}, user name, user uid), found {len(row)}")
        token, name, uid = row[0], *map(_shown, row[1:3])
        if not token:
            log.warning("empty %s in %s, line %d: nobody can use it", secret, path, line)
            continue
        groups = _shown(row[3]).split(",") if len(row) > 3 else []  # of an empty column: one group without a name
        yield token, UserInfo(name, groups, uid)


def _shown(text: str) -> str:
    """What is no UTF-8 as JSON can show it."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _records(text: str) -> Iterator[tuple[int, list[str]]]:
    """The records of a CSV text with the lines they begin at, as Go's ``encoding/csv`` reads them; empty lines are none. Raises
    TokenFileError in its words."""
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
    """One token with all rights, for the administrator of a fresh server."""
    return StaticTokens({token: UserInfo(name, (MASTERS,))})
