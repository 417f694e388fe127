"""The impersonation filter: the impersonated user, and which headers are removed."""

from __future__ import annotations

import asyncio
from time import monotonic

import pytest

from kas.auth.attributes import ALLOW, NO_OPINION
from kas.auth.impersonation import CONSTRAINT
from kas.auth.user import UserInfo
from kas.filters.impersonation import ACTED_S, RecentImpersonations, impersonation
from kas.meta.errors import ApiError
from kas.observe.metrics import Registry
from tests.filters.requests import request


class Allows:
    """An authorizer that lets jane use the given verbs; answers later with ``later``."""

    def __init__(self, *verbs: str, later: bool = False) -> None:
        self.verbs, self.later, self.asked = verbs, later, []

    def authorize(self, a):
        self.asked.append((a.user.name, a.verb, a.resource, a.name))
        outcome = (ALLOW if a.verb in self.verbs else NO_OPINION, "", "")
        return self.wait(outcome) if self.later else outcome

    async def wait(self, outcome):
        await asyncio.sleep(0)
        return outcome


def become(allows: Allows, registry: Registry | None = None, **headers: str):
    """Returns the request after the filter."""
    req = request(**headers)
    waiting = impersonation(allows, registry or Registry()).before(req)
    assert (waiting is not None) is allows.later
    if waiting is not None:
        asyncio.run(_of(waiting))
    return req


async def _of(waiting):
    return await waiting


@pytest.mark.parametrize("later", [False, True])
def test_the_request_gets_the_user_and_loses_the_headers(later):
    allows = Allows("impersonate", later=later)
    req = become(allows, impersonate_user="bob", impersonate_group="dev", impersonate_extra_scopes="a", accept="*/*")
    assert (req.user.name, req.user.groups, req.user.extra) == ("bob", ("dev", "system:authenticated"), {"scopes": ["a"]})
    assert req.headers == [(b"accept", b"*/*")]
    assert {who for who, *_ in allows.asked} == {"jane"}
    assert ("jane", "impersonate", "users", "bob") in allows.asked and ("jane", "impersonate", "groups", "dev") in allows.asked


def test_the_constrained_mode_is_annotated_for_the_audit_log():
    req = become(Allows("impersonate:user-info", "impersonate-on:user-info:list"), impersonate_user="bob")
    assert req.user.name == "bob"
    assert req.annotations == {CONSTRAINT: "impersonate:user-info"}


@pytest.mark.parametrize("later", [False, True])
def test_a_refused_impersonation_is_403_and_keeps_the_user(later):
    req = request(impersonate_user="bob")
    with pytest.raises(ApiError) as e:
        waiting = impersonation(Allows(later=later), Registry()).before(req)
        asyncio.run(_of(waiting))
    assert e.value.code == 403 and req.user.name == "jane"
    assert e.value.headers == {"x-content-type-options": "nosniff"}


def test_allowed_impersonations_are_remembered_for_a_while(monkeypatch):
    acted = RecentImpersonations()
    asyncio.run(_of(impersonation(Allows("impersonate", later=True), Registry(), acted).before(request(impersonate_user="bob"))))
    with pytest.raises(ApiError):
        impersonation(Allows(), Registry(), acted).before(request(impersonate_user="eve"))
    assert acted.has("jane", b"bob") and not acted.has("jane", b"eve") and not acted.has("bob", b"bob")
    monkeypatch.setattr("kas.filters.impersonation.monotonic", lambda: monotonic() + ACTED_S)
    assert not acted.has("jane", b"bob")


def test_without_the_headers_nothing_is_authorized():
    allows = Allows("impersonate")
    req = become(allows, accept="*/*")
    assert req.user.name == "jane" and allows.asked == [] and req.headers == [(b"accept", b"*/*")]


def test_groups_without_a_user_are_400():
    with pytest.raises(ApiError) as e:
        impersonation(Allows("impersonate"), Registry()).before(request(impersonate_group="dev"))
    assert e.value.code == 400 and e.value.headers == {"x-content-type-options": "nosniff"}


def test_values_are_utf_8_as_in_roles():
    req = request(impersonate_user="x")
    req.headers = [(b"impersonate-user", "jösé".encode()), (b"impersonate-group", "Grüße".encode()), (b"impersonate-extra-a", b"\xff")]
    impersonation(Allows("impersonate"), Registry()).before(req)
    assert (req.user.name, req.user.groups[0], req.user.extra) == ("jösé", "Grüße", {"a": ["\ufffd"]})


def test_headers_with_a_similar_name_are_kept():
    req = become(Allows("impersonate"), impersonate_user="bob", impersonate_uid="7", impersonate_group="g", impersonate_extra_a="b",
                 impersonate_colour="red")  # fmt: skip
    assert req.headers == [(b"impersonate-colour", b"red")]


def counts(registry: Registry, name: str) -> dict[tuple[str, ...], float]:
    return dict(registry.metrics[f"apiserver_impersonation_{name}"].values)


@pytest.mark.parametrize("later", [False, True])
def test_attempts_and_authorizations_are_counted_by_mode(later):
    registry = Registry()
    become(Allows("impersonate", later=later), registry, impersonate_user="bob")
    assert counts(registry, "attempts_total") == {("legacy", "allowed"): 1}
    assert counts(registry, "authorization_attempts_total") == {("user-info", "denied"): 1, ("legacy", "allowed"): 1}


def test_the_constrained_modes_are_counted_under_their_names():
    registry = Registry()
    mode = "serviceaccount"
    become(Allows(f"impersonate:{mode}", f"impersonate-on:{mode}:list"), registry, impersonate_user="system:serviceaccount:a:b")
    assert counts(registry, "attempts_total") == {(mode, "allowed"): 1}
    assert counts(registry, "authorization_attempts_total") == {(mode, "allowed"): 2}


def test_a_refused_attempt_has_no_mode():
    registry = Registry()
    with pytest.raises(ApiError):
        become(Allows(), registry, impersonate_user="system:node:n1")
    assert counts(registry, "attempts_total") == {("", "denied"): 1}
    assert counts(registry, "authorization_attempts_total") == {("arbitrary-node", "denied"): 1, ("legacy", "denied"): 1}


def _grants(a) -> bool:
    """Returns what the groups in the table allow: (which resource, subresource, name and group of) impersonation."""
    if a.user.name == "admin":
        return True
    told = {
        "users": a.resource == "users", "accounts": a.resource == "serviceaccounts", "groups": a.resource == "groups",
        "scopes": (a.resource, a.subresource) == ("userextras", "scopes"), "any": True,
        "scope-a": (a.api_group, a.resource, a.subresource, a.name) == ("authentication.k8s.io", "userextras", "scopes", "a"),
        "project": (a.resource, a.subresource) == ("userextras", "project"),
        "uid": (a.api_group, a.resource, a.name) == ("authentication.k8s.io", "uids", "u"),
    }  # fmt: skip
    return a.verb == "impersonate" and any(told[group] for group in a.user.groups)


AUTHENTICATED, UNAUTHENTICATED = "system:authenticated", "system:unauthenticated"


@pytest.mark.parametrize(
    ("groups", "headers", "becomes"),
    [
        ("", ["user: bob"], 403),
        ("users", ["user: bob"], ("bob", (AUTHENTICATED,), "", {})),
        ("accounts", ["user: bob"], 403),
        ("", ["group: g"], 400),
        ("", ["extra-scopes: a"], 400),
        ("", ["uid: u"], 400),
        ("users", ["user: bob", "group: g"], 403),
        ("users groups", ["user: bob", "group: g"], ("bob", ("g", AUTHENTICATED), "", {})),
        ("users groups", ["user: bob", "group: g", f"group: {AUTHENTICATED}"], ("bob", ("g", AUTHENTICATED), "", {})),
        ("users", ["user: bob", "extra-scopes: a"], 403),
        ("users project", ["user: bob", "extra-scopes: a"], 403),
        ("users scope-a", ["user: bob", "extra-scopes: a"], ("bob", (AUTHENTICATED,), "", {"scopes": ["a"]})),
        ("users scope-a", ["user: bob", "extra-scopes: a", "extra-scopes: b"], 403),
        ("users scopes", ["user: bob", "extra-scopes: a", "extra-scopes: b"], ("bob", (AUTHENTICATED,), "", {"scopes": ["a", "b"]})),
        ("any", ["user: bob", "extra-example.com%2fescaped%e1%9b%84scopes: a"],
         ("bob", (AUTHENTICATED,), "", {"example.com/escaped\u16c4scopes": ["a"]})),
        ("any", ["user: bob", "extra-almost%zzpercent%xxencoded: a"], ("bob", (AUTHENTICATED,), "", {"almost%zzpercent%xxencoded": ["a"]})),
        ("accounts", ["user: system:serviceaccount:foo:default"],
         ("system:serviceaccount:foo:default", ("system:serviceaccounts", "system:serviceaccounts:foo", AUTHENTICATED), "", {})),
        ("users", ["user: system:serviceaccount:foo:default"], 403),
        ("admin", ["user: system:anonymous"], ("system:anonymous", (UNAUTHENTICATED,), "", {})),
        ("admin", ["user: system:anonymous", f"group: {UNAUTHENTICATED}"], ("system:anonymous", (UNAUTHENTICATED,), "", {})),
        ("admin", ["user: unknown", f"group: {UNAUTHENTICATED}"], ("unknown", (UNAUTHENTICATED,), "", {})),
        ("admin", ["user: unknown", f"group: {AUTHENTICATED}"], ("unknown", (AUTHENTICATED,), "", {})),
        ("users uid", ["user: bob", "uid: u"], ("bob", (AUTHENTICATED,), "u", {})),
        ("users uid", ["user: bob", "uid: other"], 403),
        ("users groups uid scopes", ["user: bob", "uid: u", f"group: {AUTHENTICATED}", "extra-scopes: a", "extra-scopes: b"],
         ("bob", (AUTHENTICATED,), "u", {"scopes": ["a", "b"]})),
    ],
)  # fmt: skip
def test_which_users_may_be_impersonated(groups, headers, becomes):
    """``TestImpersonationFilter``: user, groups, uid and extras are authorized separately, and all must be allowed."""

    class Asked:
        def authorize(self, a):
            return (ALLOW if _grants(a) else NO_OPINION, "", "")

    req = request()
    req.user = UserInfo("admin") if groups == "admin" else UserInfo("dev", groups.split())
    pairs = [header.split(": ", 1) for header in headers]
    req.headers = [(b"impersonate-" + name.encode(), value.encode()) for name, value in pairs] + [(b"accept", b"*/*")]
    before = req.user
    filtered = impersonation(Asked(), Registry())
    if isinstance(becomes, int):
        with pytest.raises(ApiError) as e:
            filtered.before(req)
        assert e.value.code == becomes and req.user is before
        return
    assert filtered.before(req) is None
    assert (req.user.name, req.user.groups, req.user.uid, req.user.extra) == becomes
    assert req.headers == [(b"accept", b"*/*")]


def test_with_certificates_the_effective_user_is_remembered():
    """The user named by an authenticating proxy, else the certificate's; and the impersonated one."""
    acted = RecentImpersonations()
    shown = {(b"front", "ann"): "ann", (b"ann", ""): "ann", (b"front2", ""): "front2", (b"front2", "bob"): "bob"}

    def who(*asked):
        return acted.who(lambda certificates, name: shown.get((certificates, name)), *asked)

    assert who(b"front", "ann", None) == (b"front", "ann", None) and who(b"front", "bob", None) is None is who(b"eve", "", None)
    assert who(b"ann", "", None) == (b"ann", "", None) == who(b"ann", "bob", b"bob")  # this client is no proxy
    assert [who(b"front2", name, None) for name in ("bob", "eve")] == [(b"front2", "bob", None), (b"front2", "", None)]
    acted.keep("ann", b"eve")
    assert who(b"ann", "", b"eve") == (b"ann", "", b"eve") and who(b"ann", "", b"bob") == (b"ann", "", None)
    assert who(b"front2", "", b"eve") == (b"front2", "", None)
