"""Authenticators: they turn a request's headers and connection into a ``UserInfo``.

A request authenticator has ``authenticate(get, peer=None) -> UserInfo | None``. ``get`` returns the first value of a header by its
lower-case name, or None. ``peer`` holds the client certificate of the connection (``x509.Peer``), or None.

- None means there is no credential of this kind.
- ``AuthenticationError`` means there is one and it is bad. If no other authenticator accepts the request, it is refused with 401, never
  treated as anonymous.
- An authenticator that must wait returns an awaitable of the same. It may be cancelled with the request and enforces its own timeout.

A token authenticator has ``authenticate_token(token)`` with the same rules.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

from kas.auth.attributes import aggregate
from kas.auth.user import UserInfo

HeaderGet = Callable[[str], str | None]


class AuthenticationError(Exception):
    """A credential was given and is not valid.

    The text is for the log: the client only sees "Unauthorized". ``why`` holds the reasons, one per authenticator; ``annotations`` are
    added to the audit event.
    """

    def __init__(self, *why: str, annotations: Mapping[str, str] = MappingProxyType({})) -> None:
        super().__init__(aggregate(list(why)))
        self.why = why
        self.annotations = annotations

    @property
    def reasons(self) -> Reasons:
        """The reasons and annotations, without a reference to the traceback."""
        return self.why, self.annotations


Reasons = tuple[Sequence[str], Mapping[str, str]]


def all_of(reasons: Sequence[Reasons]) -> AuthenticationError:
    """Combine the errors of several authenticators into one."""
    annotations = {key: value for _, theirs in reversed(reasons) for key, value in theirs.items()}  # the first authenticator wins
    return AuthenticationError(*(reason for why, _ in reasons for reason in why), annotations=annotations)


# The result of an authenticator, or an awaitable of it.
Authentication = UserInfo | None | Awaitable[UserInfo | None]


class Found:
    """How a user was authenticated.

    - ``by_header``: by the Authorization header alone. The result does not depend on the rest of the request and may be cached by it.
    - ``by_certificate``: by the client certificate alone.
    - ``by_proxy``: by the headers of an authenticating proxy that presented its certificate.
    """

    __slots__ = ("by_certificate", "by_header", "by_proxy")

    def __init__(self) -> None:
        self.by_certificate = self.by_header = self.by_proxy = False


class RequestAuthenticator(Protocol):
    """Authenticates by the headers of a request or by its connection. A true ``by_header`` says that it reads only the Authorization
    header."""

    def authenticate(self, get: HeaderGet, peer: Any = None) -> Authentication:
        """Return the user, or None without a credential of this kind; or an awaitable. Raises AuthenticationError for a bad
        credential."""


class TokenAuthenticator(Protocol):
    """Authenticates by a token."""

    def authenticate_token(self, token: str) -> Authentication:
        """Return the user, or None if the token is of another kind; or an awaitable. Raises AuthenticationError for a bad token."""
