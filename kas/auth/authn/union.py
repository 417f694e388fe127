"""The order in which authenticators are asked (apiserver's ``authentication/request/union``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kas.auth.attributes import aggregate
from kas.auth.authn import AuthenticationError, HeaderGet, RequestAuthenticator, TokenAuthenticator
from kas.auth.authn.bearer import BearerToken
from kas.auth.user import ANONYMOUS_USER, UserInfo, with_authenticated


class TokenUnion:
    """Every token authenticator in turn; an error of one does not keep the next from succeeding.

    ``audiences`` are the API server's own: those of members that know nothing of audiences.
    """

    def __init__(self, members: Sequence[TokenAuthenticator], audiences: Sequence[str] = ()) -> None:
        self._members = tuple(members)
        self.audiences = tuple(audiences)

    def authenticate_token(self, token: str) -> UserInfo | None:
        return self._first(lambda member: member.authenticate_token(token))

    def review(self, token: str, audiences: Sequence[str]) -> tuple[UserInfo, list[str]] | None:
        """For TokenReview: the user, marked authenticated, and which of ``audiences`` the token is good for."""

        def ask(member: Any) -> tuple[UserInfo, list[str]] | None:
            own = getattr(member, "review", None)
            if own is not None:
                return own(token, audiences)
            good = [a for a in audiences if a in self.audiences]
            user = member.authenticate_token(token) if good or not audiences else None
            return None if user is None else (user, good)

        found = self._first(ask)
        return None if found is None else (with_authenticated(found[0]), found[1])

    def _first(self, ask: Callable[[Any], Any]) -> Any:
        errs: list[str] = []
        for member in self._members:
            try:
                found = ask(member)
            except AuthenticationError as e:
                errs.append(str(e))
                continue
            if found is not None:
                return found
        if errs:
            raise AuthenticationError(aggregate(errs))
        return None


class Authenticators:
    """The whole of authentication: members in order, system:authenticated for whom they find, then anonymous.

    A bad credential is never treated as no credential: with any error and no success ``AuthenticationError`` is raised.
    None is returned when nobody recognised the request and anonymous requests are off.
    ``anonymous_paths`` narrows anonymous access to exact paths (AuthenticationConfiguration's conditions); None allows all.
    """

    def __init__(
        self,
        members: Sequence[RequestAuthenticator],
        anonymous: bool = True,
        anonymous_paths: Sequence[str] | None = None,
    ) -> None:
        self._members = tuple(members)
        self._anonymous = anonymous
        self._paths = None if anonymous_paths is None else frozenset(anonymous_paths)
        self._bearer = next((m for m in self._members if isinstance(m, BearerToken)), None)

    def authenticate(self, get: HeaderGet, peer: Any = None, path: str = "") -> UserInfo | None:
        if peer is None and self._bearer is not None:
            # Without a proven connection only credentials in headers count, and this one may be known.
            known = self._bearer.known.get(get("authorization"))
            if known is not None and self._bearer.clock() < known[1]:
                return known[0]
        errs: list[str] | None = None
        for member in self._members:
            try:
                user = member.authenticate(get, peer)
            except AuthenticationError as e:
                errs = [*(errs or ()), str(e)]
                continue
            if user is not None:
                return with_authenticated(user)
        if errs is not None:
            raise AuthenticationError(aggregate(errs))
        if self._anonymous and (self._paths is None or path in self._paths):
            return ANONYMOUS_USER
        return None
