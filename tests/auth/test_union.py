"""Authenticators that are asked in order."""

import asyncio

import pytest

from kas.auth.authn import AuthenticationError
from kas.auth.authn.bearer import BearerToken
from kas.auth.authn.tokenfile import admin_token
from kas.auth.authn.union import Authenticators, TokenUnion
from kas.auth.user import ANONYMOUS_USER, UserInfo
from tests.auth.headers import headers


def test_an_invalid_token_is_never_anonymous():
    chain = Authenticators([BearerToken(admin_token("t"))])
    with pytest.raises(AuthenticationError):
        chain.authenticate(headers(authorization="Bearer nope"))
    assert chain.authenticate(headers()) is ANONYMOUS_USER
    assert chain.authenticate(headers(authorization="Bearer t")).groups == ("system:masters", "system:authenticated")
    assert Authenticators([], anonymous=False).authenticate(headers()) is None
    only = Authenticators([], anonymous_paths=["/livez"])
    assert only.authenticate(headers(), path="/livez") is ANONYMOUS_USER
    assert only.authenticate(headers(), path="/api") is None


JANE = UserInfo("jane")


class Says:
    """Answers at once, or in a later loop iteration if it ``waits``."""

    def __init__(self, answer, waits: bool) -> None:
        self.answer, self.waits = answer, waits

    def authenticate(self, get, peer=None):
        async def later():
            await asyncio.sleep(0)
            return self.now()

        return later() if self.waits else self.now()

    def authenticate_token(self, token):
        return self.authenticate(None)

    def now(self):
        if isinstance(self.answer, str):
            raise AuthenticationError(self.answer)
        return self.answer


async def said(answer):
    return answer if answer is None or isinstance(answer, (UserInfo, tuple)) else await answer


@pytest.mark.parametrize("waits", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        (JANE, "no", "jane"), (None, JANE, "jane"), ("bad", JANE, "jane"), (None, None, "system:anonymous"), ("a", "b", "[a, b]"),
        ("a", None, "a"),
    ],
)  # fmt: skip
def test_members_that_wait_are_asked_in_order_as_well(waits, first, second, found):
    async def go() -> str:
        members = [Says(first, waits[0]), Says(second, waits[1])]
        try:
            user = await said(Authenticators(members).authenticate(lambda name: None))
        except AuthenticationError as e:
            return str(e)
        return user.name

    assert asyncio.run(go()) == found


@pytest.mark.parametrize("waits", [False, True])
def test_tokens_that_need_no_waiting_are_answered_at_once(waits):
    union = TokenUnion([Says("bad", False), Says(None, False), Says(JANE, waits)], ["api"])

    async def go():
        answer, review = union.authenticate_token("t"), union.review("t", ["api", "x"])
        assert isinstance(answer, UserInfo) is isinstance(review, tuple) is not waits
        assert await said(answer) == JANE
        user, good = await said(review)
        assert (user.name, good) == ("jane", ["api"])

    asyncio.run(go())


def test_a_token_checked_during_a_revocation_is_not_cached():
    async def go():
        bearer = BearerToken(Says(JANE, True))
        get = headers(authorization="Bearer t")
        pending = asyncio.ensure_future(bearer.authenticate(get))
        await asyncio.sleep(0)
        bearer.invalidate()
        assert (await pending).name == "jane" and bearer.remembered("Bearer t") is None
        assert (await bearer.authenticate(get)).name == "jane" and bearer.remembered("Bearer t").name == "jane"

    asyncio.run(go())
