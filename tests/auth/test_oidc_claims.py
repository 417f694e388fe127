"""Upstream's table of ID tokens (``plugin/pkg/authenticator/token/oidc/oidc_test.go``): configuration, claims, and the user or the error.
``test_oidc_keys.py`` has the table of distributed claims."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import pytest

from kas.auth.authn import AuthenticationError
from kas.auth.authn.oidc.authenticator import JWTAuthenticator, JWTAuthenticators, Metrics
from kas.auth.authn.oidc.configuration import Issuer
from kas.auth.authn.oidc.tokens import Verifier
from kas.auth.authn.oidc.validation import compiled_authenticator
from kas.auth.user import CREDENTIAL_ID, UserInfo
from kas.meta.waiting import awaited
from kas.observe.metrics import Registry

NOW, VALID, EXPIRED = 1257894000, 1257897600, 1257890400
URL, CLIENT = "https://auth.example.com", "my-client"
NAMED: dict[str, Any] = {"username": {"claim": "username", "prefix": ""}}
BY_EXPRESSION: dict[str, Any] = {"username": {"expression": "claims.username"}, "groups": {"expression": "claims.groups"}}
WITH_UID = {**BY_EXPRESSION, "uid": {"expression": "claims.uid"}}
FOO_BAR = [{"key": f"example.org/{name}", "valueExpression": f"claims.{name}"} for name in ("foo", "bar")]
Claims = dict[str, Any]


class Signed:
    """Keys that signed everything."""

    def payload(self, token: str, allowed: tuple[str, ...]) -> bytes:
        return base64.urlsafe_b64decode(token.split(".")[1] + "==")


def token(claims: Claims, header: dict[str, str] | None = None) -> str:
    parts = (header or {"alg": "RS256"}, claims)
    return ".".join(base64.urlsafe_b64encode(json.dumps(p).encode()).rstrip(b"=").decode() for p in parts) + ".c2ln"


def said(claims: Claims, mappings: dict[str, Any] = NAMED, audiences: tuple[str, ...] = (CLIENT,), **more: Any) -> UserInfo | str | None:
    """Returns the user of a token that is valid except for ``claims``, or the error; None for a token of another issuer."""
    url, claims = more.pop("url", URL), {"iss": URL, "aud": CLIENT, "username": "jane", "exp": VALID, **claims}
    document = {"issuer": {"url": url, "audiences": list(audiences)}, "claimMappings": mappings, **more}
    if len(audiences) > 1:
        document["issuer"]["audienceMatchPolicy"] = "MatchAny"
    mapper, found = compiled_authenticator(document, "", frozenset())
    if found:
        return str(found[0])
    registry = Registry()
    issuer = Issuer(url, "", "", audiences, ("RS256",), mapper)
    authenticator = JWTAuthenticator(issuer, Metrics(registry))
    authenticator.provider.verifier = Verifier(url, audiences, ("RS256",), Signed(), clock=lambda: NOW)
    of_all = JWTAuthenticators(registry)
    of_all.use({url: authenticator})

    async def ask() -> UserInfo | str | None:
        try:
            return await awaited(of_all.authenticate_token(token({k: v for k, v in claims.items() if v is not ...})))
        except AuthenticationError as e:
            return str(e)

    return asyncio.run(ask())


def with_prefix(prefix: str, **more: Any) -> dict[str, Any]:
    return {"username": {"claim": "username", "prefix": prefix}, **more}


EMAIL = {"username": {"claim": "email", "prefix": ""}}
GROUPS = {**NAMED, "groups": {"claim": "groups", "prefix": ""}}
REQUIRED = [{"claim": "hd", "requiredValue": "example.com"}]
HD = [{"expression": 'claims.hd == "example.com"', "message": "hd claim must be example.com"}]
ALL_THREE = [{
    "expression": 'sets.equivalent(claims.aud, ["bar", "foo", "baz"])', "message": "audience must exactly contain [bar, foo, baz]",
}]  # fmt: skip
BITS = {"bit1": True, "bit2": False, "bit3": 1}
TURTLE = {"turtle": {"foo": {
    "1": "a", "other1": BITS,
    "bar": {"3": "c", "other1": BITS, "baz": {"5": "e", "panda": ["snorlax", "007", "santa", "claus"], "other1": BITS}},
}}}  # fmt: skip
DEEP_EXTRA = {"bio.snorlax.org/1": ["false"], "bio.snorlax.org/2": ["1"], "bio.snorlax.org/3": ["true", "a", "b", "c"]}


def deep(groups: str) -> dict[str, Any]:
    """Returns the configuration that uses nested claims, with these groups."""
    at = "claims.turtle.foo.bar"
    extra = [
        ("bio.snorlax.org/1", f"string({at}.other1.bit2)"), ("bio.snorlax.org/2", f"string({at}.baz.other1.bit3)"),
        ("bio.snorlax.org/3", f"[string({at}.baz.other1.bit1)] + ['a', 'b', 'c']"),
    ]  # fmt: skip
    users = ('user.username != "bad"', 'user.uid == "007"', '"claus" in user.groups', 'user.extra["bio.snorlax.org/3"].size() == 4')
    return {
        "mappings": {
            "username": {"expression": f"{at}.baz.panda[0]"}, "uid": {"expression": f"{at}.baz.panda[1]"},
            "groups": {"expression": groups}, "extra": [{"key": key, "valueExpression": value} for key, value in extra],
        },
        "claimValidationRules": [{"expression": f"claims.turtle.foo.other1.bit1 && !{at}.other1.bit2"}],
        "userValidationRules": [{"expression": rule} for rule in users],
    }  # fmt: skip


def nobody_but(username: str) -> list[dict[str, str]]:
    rules = (f'user.username == "{username}"', 'user.uid == ""', "!('bar' in user.groups)", "!('bar' in user.extra)")
    return [{"expression": rule} for rule in rules]


@pytest.mark.parametrize("claims, how, name, groups, extra", [
    ({}, {}, "jane", (), {}),
    ({"email": "jane@example.com", "email_verified": True}, {"mappings": EMAIL}, "jane@example.com", (), {}),
    ({"email": "jane@example.com"}, {"mappings": EMAIL}, "jane@example.com", (), {}),
    ({"groups": ["team1", "team2"]}, {"mappings": GROUPS}, "jane", ("team1", "team2"), {}),
    ({"groups": "team1"}, {"mappings": GROUPS}, "jane", ("team1",), {}),
    ({}, {"mappings": GROUPS}, "jane", (), {}),
    ({"groups": "team1", "_claim_names": {"groups": "src1"},
      "_claim_sources": {"src1": {"endpoint": f"{URL}/groups", "access_token": "groups_token"}}}, {"mappings": GROUPS},
     "jane", ("team1",), {}),
    ({"_claim_names": {"groups": "src1"}, "_claim_sources": {"src1": {"JWT": "some.jwt.token"}}}, {"mappings": GROUPS}, "jane", (), {}),
    ({"hd": "example.com", "sub": "test"},
     {"claimValidationRules": [*REQUIRED, {"claim": "sub", "requiredValue": "test"}]}, "jane", (), {}),
    ({"aud": ["not-my-client", CLIENT], "azp": "not-my-client"}, {}, "jane", (), {}),
    ({"aud": ["not-my-client", CLIENT, "other-client"], "azp": "not-my-client"}, {"audiences": ("random-client", CLIENT)}, "jane", (), {}),
    ({"aud": ["foo", "bar", "baz"]}, {"audiences": ("bar", "foo", "baz"), "claimValidationRules": ALL_THREE}, "jane", (), {}),
    ({}, {"mappings": with_prefix("oidc:")}, "oidc:jane", (), {}),
    ({"groups": ["team1", "team2"]}, {"mappings": with_prefix("oidc:", groups={"claim": "groups", "prefix": "groups:"})},
     "oidc:jane", ("groups:team1", "groups:team2"), {}),
    ({"iss": "accounts.google.com", "email": "thomas.jefferson@gmail.com"}, {"mappings": EMAIL, "url": "https://accounts.google.com"},
     "thomas.jefferson@gmail.com", (), {}),
    ({"hd": "example.com"}, {"claimValidationRules": HD}, "jane", (), {}),
    ({"foo": {"bar": "baz"}}, {"claimValidationRules": [{"expression": 'claims.foo.bar == "baz"'}]}, "jane", (), {}),
    ({"hd": "example.com", "foo": {"bar": "baz"}},
     {"claimValidationRules": [{"expression": 'claims.foo.bar == "baz"'}, *REQUIRED]}, "jane", (), {}),
    ({"foo": {"username": "jane"}}, {"mappings": {"username": {"expression": "claims.foo.username"}}}, "jane", (), {}),
    (TURTLE, deep("claims.turtle.foo.bar.baz.panda"), "snorlax", ("snorlax", "007", "santa", "claus"), DEEP_EXTRA),
    (TURTLE, deep("claims.turtle.foo.bar.baz.?a.b.c.d.orValue([ 'claus' ])"), "snorlax", ("claus",), DEEP_EXTRA),
    ({"groups": ["team1", "team2"]}, {"mappings": BY_EXPRESSION}, "jane", ("team1", "team2"), {}),
    ({"roles": "foo,bar", "other_roles": "baz,qux"}, {"mappings": with_prefix("oidc:", groups={
        "expression": '(claims.roles.split(",") + claims.other_roles.split(",")).map(role, "groups:" + role)'})},
     "oidc:jane", ("groups:foo", "groups:bar", "groups:baz", "groups:qux"), {}),
    ({"groups": ["team1"], "uid": "1234", "foo": "bar", "bar": ["baz", "qux"]}, {"mappings": {**WITH_UID, "extra": FOO_BAR}},
     "jane", ("team1",), {"example.org/foo": ["bar"], "example.org/bar": ["baz", "qux"]}),
    ({"is_admin": True}, {"mappings": {"username": {"expression": "claims.username"}, "extra": [
        {"key": "example.org/admin", "valueExpression": '(has(claims.is_admin) && claims.is_admin) ? "true":""'},
        {"key": "example.org/admin_1", "valueExpression": 'claims.?is_admin.orValue(false) == true ? "true":""'},
        {"key": "example.org/non_existent", "valueExpression": 'claims.?non_existent.orValue("default") == "default" ? "true":""'},
    ]}}, "jane", (), {"example.org/admin": ["true"], "example.org/admin_1": ["true"], "example.org/non_existent": ["true"]}),
    ({}, {"mappings": {**NAMED, "extra": [{"key": "example.org/admin", "valueExpression": '"true"'}]}},
     "jane", (), {"example.org/admin": ["true"]}),
    ({"groups": ["team1"], "uid": "1234", "foo": "", "bar": ["baz", "qux"]}, {"mappings": {**WITH_UID, "extra": FOO_BAR}},
     "jane", ("team1",), {"example.org/bar": ["baz", "qux"]}),
    ({"groups": ["team1"], "uid": "1234", "baz": "qux"}, {
        "mappings": {**WITH_UID, "extra": [{"key": "example.org/foo", "valueExpression": "'bar'"},
                                           {"key": "example.org/baz", "valueExpression": "claims.baz"}]},
        "userValidationRules": [{"expression": "'bar' in user.extra['example.org/foo'] && 'qux' in user.extra['example.org/baz']"}],
    }, "jane", ("team1",), {"example.org/foo": ["bar"], "example.org/baz": ["qux"]}),
    ({"groups": None}, {"mappings": BY_EXPRESSION}, "jane", (), {}),
    ({"username": " ", "groups": None}, {"mappings": BY_EXPRESSION, "userValidationRules": nobody_but(" ")}, " ", (), {}),
    ({"username": "", "groups": None}, {"mappings": {**BY_EXPRESSION, **NAMED}, "userValidationRules": nobody_but("")}, "", (), {}),
    ({"user": "jane", "username": ...}, {"mappings": {"username": {"expression": "claims.user"}}}, "jane", (), {}),
    ({"jti": "1234"}, {}, "jane", (), {CREDENTIAL_ID: ["JTI=1234"]}),
    ({"jti": "1234", "foo": "bar", "bar": ["baz", "qux"]}, {"mappings": {**NAMED, "extra": FOO_BAR}},
     "jane", (), {CREDENTIAL_ID: ["JTI=1234"], "example.org/foo": ["bar"], "example.org/bar": ["baz", "qux"]}),
    ({"jti": 1234}, {}, "jane", (), {}),
])  # fmt: skip
def test_users(claims: Claims, how: dict[str, Any], name: str, groups: tuple[str, ...], extra: dict[str, list[str]]) -> None:
    user = said(claims, **how)
    assert isinstance(user, UserInfo), user
    assert (user.name, tuple(user.groups), user.extra) == (name, groups, extra)


@pytest.mark.parametrize("mapping", [{"expression": "claims.uid"}, {"claim": "uid"}])
def test_uids(mapping: dict[str, str]) -> None:
    user = said({"uid": "1234"}, {**NAMED, "uid": mapping})
    assert isinstance(user, UserInfo) and user.uid == "1234"


@pytest.mark.parametrize("claims, how, why", [
    ({"username": ...}, {}, 'oidc: parse username claims "username": claim not present'),
    ({"email": "jane@example.com", "email_verified": False}, {"mappings": EMAIL}, "oidc: email not verified"),
    ({"email": "jane@example.com", "email_verified": "false"}, {"mappings": EMAIL},
     "oidc: parse 'email_verified' claim: json: cannot unmarshal string into Go value of type bool"),
    ({"_claim_names": {"groups": "nonexistent-claim-source"}, "_claim_sources": {"src1": {"endpoint": f"{URL}/groups"}}},
     {"mappings": GROUPS}, "oidc: verify token: oidc: source does not exist"),
    ({"_claim_names": {"groups": "src1"}}, {"mappings": GROUPS}, "oidc: verify token: oidc: source does not exist"),
    ({"groups": 42}, {"mappings": GROUPS}, 'oidc: parse groups claim "groups": json: cannot unmarshal number into Go value of type string'),
    ({}, {"claimValidationRules": REQUIRED}, "oidc: required claim hd not present in ID token"),
    ({"hd": "example.org"}, {"claimValidationRules": REQUIRED},
     "oidc: required claim hd value does not match. Got = example.org, want = example.com"),
    ({"exp": EXPIRED}, {}, "oidc: verify token: oidc: token is expired (Token Expiry: 2009-11-10 22:00:00 +0000 UTC)"),
    ({"aud": "not-my-client"}, {}, 'oidc: verify token: oidc: expected audience "my-client" got ["not-my-client"]'),
    ({"aud": ["not-my-client"]}, {"audiences": ("random-client", CLIENT)},
     'oidc: verify token: oidc: expected audience in ["my-client" "random-client"] got ["not-my-client"]'),
    ({"aud": ["foo", "baz"]}, {"audiences": ("bar", "foo", "baz"), "claimValidationRules": ALL_THREE},
     "oidc: error evaluating claim validation expression: validation expression 'sets.equivalent(claims.aud, [\"bar\", \"foo\", \"baz\"])'"
     " failed: audience must exactly contain [bar, foo, baz]"),
    ({}, {"mappings": with_prefix("system:"), "userValidationRules": [
        {"expression": "!user.username.startsWith('system:')", "message": "username cannot used reserved system: prefix"}]},
     "oidc: error evaluating user info validation rule: validation expression '!user.username.startsWith('system:')' failed: "
     "username cannot used reserved system: prefix"),
    ({"groups": ["team1", "team2"]}, {"mappings": {**NAMED, "groups": {"claim": "groups", "prefix": "system:"}}, "userValidationRules": [
        {"expression": "user.groups.all(group, !group.startsWith('system:'))", "message": "no"}]},
     "oidc: error evaluating user info validation rule: validation expression 'user.groups.all(group, !group.startsWith('system:'))' "
     "failed: no"),
    ({}, {"claimValidationRules": HD},
     "oidc: error evaluating claim validation expression: expression 'claims.hd == \"example.com\"' resulted in error: no such key: hd"),
    (TURTLE, deep("claims.turtle.foo.bar.baz.a.b.c.d"),
     "oidc: error evaluating group claim expression: expression 'claims.turtle.foo.bar.baz.a.b.c.d' resulted in error: no such key: a"),
    ({}, {"mappings": {"username": {"prefix": ""}}}, "claimMappings.username: Required value: claim or expression is required"),
    ({}, {"mappings": {**NAMED, "extra": [*FOO_BAR, FOO_BAR[0]]}},
     'claimMappings.extra[2].key: Duplicate value: "example.org/foo"'),
])  # fmt: skip
def test_refused_tokens(claims: Claims, how: dict[str, Any], why: str) -> None:
    assert said(claims, **how) == why


def test_tokens_of_other_issuers_are_ignored() -> None:
    assert said({"iss": "https://example.com"}) is None
