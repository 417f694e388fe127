"""Authenticators: from a request's headers and connection to a ``UserInfo``.

A request authenticator is anything with ``authenticate(get, peer=None) -> UserInfo | None``: ``get`` reads a header by its
lower-case name (the first value or None), ``peer`` is what the connection proved (``x509.Peer``) or None. None means
"not mine"; ``AuthenticationError`` means "mine, and wrong": the request is refused (401), later authenticators that
would guess a lesser identity are not asked. One that has to wait returns an awaitable of the same; it may be cancelled with the
request, and ends itself when what it asks takes too long. A token authenticator has ``authenticate_token(token)`` with the same rules.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

from kas.auth.attributes import aggregate
from kas.auth.user import UserInfo

HeaderGet = Callable[[str], str | None]


class AuthenticationError(Exception):
    """A credential was given and is not good. The text is for the log: the client only ever sees "Unauthorized". ``why`` are the reasons,
    one for each who was asked, ``annotations`` what the audit log is told."""

    def __init__(self, *why: str, annotations: Mapping[str, str] = MappingProxyType({})) -> None:
        super().__init__(aggregate(list(why)))
        self.why = why
        self.annotations = annotations

    @property
    def said(self) -> Said:
        """All that it says, without what leads to where it came from."""
        return self.why, self.annotations


Said = tuple[Sequence[str], Mapping[str, str]]


def all_of(said: Sequence[Said]) -> AuthenticationError:
    """What each of those who were asked said, as one error."""
    annotations = {key: value for _, theirs in reversed(said) for key, value in theirs.items()}  # who came first has the word
    return AuthenticationError(*(reason for why, _ in said for reason in why), annotations=annotations)


# What an authenticator says; one that has to ask somebody else says it later.
Authentication = UserInfo | None | Awaitable[UserInfo | None]


class Found:
    """What is to be known of how a user was found. ``by_header``: by the Authorization header alone, so that it is the same user's whatever
    else a request says, and may be remembered by it. ``by_certificate``: by the client's certificate alone,
    ``by_proxy``: by what a proxy said, which showed its own."""

    __slots__ = ("by_certificate", "by_header", "by_proxy")

    def __init__(self) -> None:
        self.by_certificate = self.by_header = self.by_proxy = False


class RequestAuthenticator(Protocol):
    """Knows users by the headers of a request, or by what its connection proved. One with a true ``by_header`` goes by the Authorization
    header and by nothing else."""

    def authenticate(self, get: HeaderGet, peer: Any = None) -> Authentication:
        """The user, or None without a credential of this kind; AuthenticationError for one that is bad. Awaitable where one has to wait."""


class TokenAuthenticator(Protocol):
    """Knows users by a token."""

    def authenticate_token(self, token: str) -> Authentication:
        """The user, or None for a token of somebody else; AuthenticationError for one that is bad. Awaitable where one has to wait."""
