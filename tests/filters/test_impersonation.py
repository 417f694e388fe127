"""The impersonation filter: who a request becomes, and what is left of its headers."""

from __future__ import annotations

import asyncio

import pytest

from kas.auth.attributes import ALLOW, NO_OPINION
from kas.filters.impersonation import impersonation
from kas.meta.errors import ApiError
from tests.filters.requests import request


class Allows:
    """An authorizer that lets jane use the verbs given; answers later where ``later``."""

    def __init__(self, *verbs: str, later: bool = False) -> None:
        self.verbs, self.later, self.asked = verbs, later, []

    def authorize(self, a):
        self.asked.append((a.user.name, a.verb, a.resource, a.name))
        outcome = (ALLOW if a.verb in self.verbs else NO_OPINION, "", "")
        return self.wait(outcome) if self.later else outcome

    async def wait(self, outcome):
        await asyncio.sleep(0)
        return outcome


def become(allows: Allows, **headers: str):
    """The request after the filter."""
    req = request(**headers)
    waiting = impersonation(allows).before(req)
    assert (waiting is not None) is allows.later
    if waiting is not None:
        asyncio.run(_of(waiting))
    return req


async def _of(waiting):
    return await waiting


@pytest.mark.parametrize("later", [False, True])
def test_the_request_becomes_the_users_and_its_headers_are_dropped(later):
    allows = Allows("impersonate", later=later)
    req = become(allows, impersonate_user="bob", impersonate_group="dev", impersonate_extra_scopes="a", accept="*/*")
    assert (req.user.name, req.user.groups, req.user.extra) == ("bob", ("dev", "system:authenticated"), {"scopes": ["a"]})
    assert req.headers == [(b"accept", b"*/*")]
    assert {who for who, *_ in allows.asked} == {"jane"}
    assert ("jane", "impersonate", "users", "bob") in allows.asked and ("jane", "impersonate", "groups", "dev") in allows.asked


def test_the_constrained_form_is_noted_for_the_audit_log():
    req = become(Allows("impersonate:user-info", "impersonate-on:user-info:list"), impersonate_user="bob")
    assert req.user.name == "bob"
    assert req.annotations == {"authentication.kubernetes.io/impersonation-constraint": "impersonate:user-info"}


@pytest.mark.parametrize("later", [False, True])
def test_who_may_not_is_403_and_stays_who_they_are(later):
    req = request(impersonate_user="bob")
    with pytest.raises(ApiError) as e:
        waiting = impersonation(Allows(later=later)).before(req)
        asyncio.run(_of(waiting))
    assert e.value.code == 403 and req.user.name == "jane"


def test_without_such_headers_nobody_is_asked():
    allows = Allows("impersonate")
    req = become(allows, accept="*/*")
    assert req.user.name == "jane" and allows.asked == [] and req.headers == [(b"accept", b"*/*")]


def test_groups_without_a_user_are_400():
    with pytest.raises(ApiError) as e:
        impersonation(Allows("impersonate")).before(request(impersonate_group="dev"))
    assert e.value.code == 400
