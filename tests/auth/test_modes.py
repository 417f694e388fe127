"""The chain of ``--authorization-mode``, and the authorizers without state."""

import asyncio

import pytest

from kas.auth.attributes import ALLOW, DENY, NO_OPINION, Attributes
from kas.auth.authz.modes import AlwaysAllowPaths, AlwaysDeny, Union, build
from kas.auth.authz.rbac import RbacIndex
from kas.auth.user import MASTERS, UserInfo

BOB = UserInfo("bob", ("system:authenticated",))
ROOT = UserInfo("root", (MASTERS,))


def get(user, name="p", ns="ns", resource="pods", verb="get"):
    return Attributes(user, verb, ns, "", "v1", resource, "", name)


def test_modes():
    index = RbacIndex()
    assert build(["RBAC"], rbac=index).authorize(get(ROOT))[0] == ALLOW
    assert build(["AlwaysDeny"]).authorize(get(BOB)) == (NO_OPINION, "Everything is forbidden.", "")
    for modes in ([], ["Nope"], ["RBAC", "RBAC"], ["ABAC"]):
        with pytest.raises(ValueError):
            build(modes, rbac=index)
    paths = AlwaysAllowPaths(["/healthz", "/x/*"])
    for path, allowed in {"/healthz": True, "/healthz/x": False, "/x/y": True, "/x": False}.items():
        assert (paths.authorize(Attributes(BOB, "get", resource_request=False, path=path))[0] == ALLOW) == allowed
    assert paths.authorize(get(BOB))[0] == NO_OPINION
    with pytest.raises(ValueError):
        AlwaysAllowPaths(["/a*b"])
    assert Union([AlwaysDeny(), AlwaysDeny()]).authorize(get(BOB))[1] == "Everything is forbidden.\nEverything is forbidden."


class Decides:
    """An authorizer that answers at once, or in a later loop iteration if it ``waits``."""

    def __init__(self, outcome, waits: bool, asked: list) -> None:
        self.outcome, self.waits, self.asked = outcome, waits, asked

    def authorize(self, a):
        self.asked.append(self)

        async def later():
            await asyncio.sleep(0)
            return self.outcome

        return later() if self.waits else self.outcome


@pytest.mark.parametrize("waits", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize(
    ("first", "second", "decided", "asked"),
    [
        ((ALLOW, "one", ""), (DENY, "", ""), (ALLOW, "one", ""), 1),
        ((NO_OPINION, "a", "x"), (ALLOW, "two", ""), (ALLOW, "two", ""), 2),
        ((NO_OPINION, "a", "x"), (NO_OPINION, "b", "y"), (NO_OPINION, "a\nb", "[x, y]"), 2),
        ((NO_OPINION, "", ""), (DENY, "no", ""), (DENY, "no", ""), 2),
    ],
)
def test_authorizers_that_wait_are_asked_in_order_as_well(waits, first, second, decided, asked):
    async def go():
        log: list = []
        answer = Union([Decides(first, waits[0], log), Decides(second, waits[1], log)]).authorize(Attributes(UserInfo("u"), "get"))
        waiting = waits[0] or (waits[1] and asked == 2)
        assert isinstance(answer, tuple) is not waiting
        assert (await answer if waiting else answer) == decided and len(log) == asked

    asyncio.run(go())
