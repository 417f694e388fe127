"""The union of authenticators, tried in order (apiserver's ``authentication/request/union``)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from typing import Any, TypeVar

from kas.auth.authn import (
    Authentication,
    AuthenticationError,
    Found,
    HeaderGet,
    Reasons,
    RequestAuthenticator,
    TokenAuthenticator,
    all_of,
)  # fmt: skip
from kas.auth.authn.bearer import BearerToken
from kas.auth.user import ANONYMOUS_USER, UserInfo, with_authenticated
from kas.meta.waiting import awaited, eager

T = TypeVar("T")
Reviewed = tuple[UserInfo, list[str]]


class TokenUnion:
    """Tries every token authenticator in turn; an error of one does not prevent a later one from succeeding.

    ``audiences`` are the API server's own; they apply to members that do not check audiences.
    """

    def __init__(self, members: Sequence[TokenAuthenticator], audiences: Sequence[str] = ()) -> None:
        self._members = tuple(members)
        self.audiences = tuple(audiences)

    @eager
    async def authenticate_token(self, token: str) -> UserInfo | None:
        """Return the user of the first member that accepts the token; earlier errors are dropped then."""
        async def ask(member: TokenAuthenticator) -> UserInfo | None:
            return await awaited(member.authenticate_token(token))

        return await self._first(ask)

    @eager
    async def review(self, token: str, audiences: Sequence[str]) -> Reviewed | None:
        """Review a token for TokenReview: return the user, with system:authenticated, and which of ``audiences`` the token is valid
        for."""

        async def ask(member: Any) -> Reviewed | None:
            own = getattr(member, "review", None)
            if own is not None:
                answer: Reviewed | None = await awaited(own(token, audiences))
                return answer
            good = [a for a in audiences if a in self.audiences]
            user = await awaited(member.authenticate_token(token)) if good or not audiences else None
            return None if user is None else (user, good)

        found = await self._first(ask)
        return None if found is None else (with_authenticated(found[0]), found[1])

    async def _first(self, ask: Callable[[Any], Coroutine[Any, Any, T | None]]) -> T | None:
        errs: list[Reasons] = []
        for member in self._members:
            try:
                found = await ask(member)
            except AuthenticationError as e:
                errs.append(e.reasons)
                continue
            if found is not None:
                return found
        if errs:
            raise all_of(errs)
        return None


class Authenticators:
    """Authenticates requests: tries the members in order, adds system:authenticated to the user found, then falls back to anonymous.

    If a member must wait, the result is an awaitable. A bad credential is never treated as no credential: if some member raised an error
    and none succeeded, ``AuthenticationError`` is raised. The result is None if no member recognised the request and anonymous requests
    are off. ``anonymous_paths`` restricts anonymous access to exact paths (AuthenticationConfiguration's conditions); None allows all.
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

    def authenticate(self, get: HeaderGet, peer: Any = None, path: str = "", found: Found | None = None) -> Authentication:
        """Return the user, with ``system:authenticated``, of the first member that accepts a credential; an awaitable if it must wait.

        ``found`` is filled in with the kind of authenticator once there is a user.
        """
        if peer is None and self._bearer is not None:
            # Without a client certificate only credentials in headers count, and this one may be cached.
            known = self._bearer.remembered(get("authorization") or "")
            if known is not None:
                _tell(found, self._bearer)
                return known
        errs: list[Reasons] = []
        members = iter(self._members)
        for member in members:
            try:
                user = member.authenticate(get, peer)
            except AuthenticationError as e:
                errs.append(e.reasons)
                continue
            if user is None:
                continue
            if isinstance(user, UserInfo):
                _tell(found, member)
                return with_authenticated(user)
            return self._wait(user, member, members, get, peer, path, errs, found)
        return self._nobody(path, errs)

    async def _wait(
        self, waiting: Awaitable[UserInfo | None] | None, member: RequestAuthenticator, members: Iterator[RequestAuthenticator],
        get: HeaderGet, peer: Any, path: str, errs: list[Reasons], found: Found | None,
    ) -> UserInfo | None:  # fmt: skip
        """Continue ``authenticate`` from ``member`` on, whose result must be awaited."""
        while True:
            try:
                user = await (waiting if waiting is not None else awaited(member.authenticate(get, peer)))
            except AuthenticationError as e:
                errs.append(e.reasons)
            else:
                if user is not None:
                    _tell(found, member)
                    return with_authenticated(user)
            following = next(members, None)
            if following is None:
                return self._nobody(path, errs)
            member, waiting = following, None

    def _nobody(self, path: str, errs: list[Reasons]) -> UserInfo | None:
        if errs:
            raise all_of(errs)
        if self._anonymous and (self._paths is None or path in self._paths):
            return ANONYMOUS_USER
        return None


def _tell(found: Found | None, member: object) -> None:
    if found is not None:
        found.by_header, found.by_proxy = getattr(member, "by_header", False), getattr(member, "by_proxy", False)
        found.by_certificate = getattr(member, "by_certificate", False)
