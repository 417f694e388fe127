"""Upstream's table of AuthenticationConfiguration errors (``apis/apiserver/validation/validation_test.go``): which field is wrong, and
how; the ends of texts are those of the current version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kas.auth.authn.oidc.validation import compiled_authenticator, validate
from tests import pki

ISSUER = {"url": "https://issuer-url", "audiences": ["audience"]}
USERNAME = {"claim": "sub", "prefix": "prefix"}
RULES = [{"claim": "foo", "requiredValue": "bar"}]
UNVERIFIED = "claims.email_verified must be used in "


def found(authenticator: dict[str, Any], own: frozenset[str] = frozenset()) -> list[str]:
    return [str(e) for e in compiled_authenticator(authenticator, "jwt[0]", own)[1]]


def by_expression(username: str, extra: str = "claims.extra", rules: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    mappings = {
        "username": {"expression": username}, "groups": {"expression": "claims.groups"}, "uid": {"expression": "claims.uid"},
        "extra": [{"key": "example.org/foo", "valueExpression": extra}],
    }  # fmt: skip
    return {"issuer": ISSUER, "claimMappings": mappings, "claimValidationRules": rules or []}


@pytest.mark.parametrize("username", [
    "claims.email", "['yay', string(claims.email), 'panda'].join(' ')", "claims.?email", '{claims.?email: "panda"}',
    '{"fancy": claims.?email}', '["a"].map(i, i + claims.email)', "has(claims.email) ? claims.email : claims.sub", "claims.email.trim()",
])  # fmt: skip
@pytest.mark.parametrize("verified, how", [
    (False, {}), (False, {"extra": 'has(claims.email_verified_) ? string(claims.email_verified_) : "false"'}),
    (False, {"rules": [{"claim": "claim2", "requiredValue": "claims.email_verified"}]}),
    (False, {"rules": [{"expression": "has(claims.email_verified_)"}]}),
    (True, {"rules": [{"expression": 'string(claims.email_verified) == "panda"'}]}),
    (True, {"rules": [*RULES, {"expression": "has(claims.email_verified)"}]}), (True, {"extra": "claims.email_verified"}),
    (True, {"extra": "claims.email_verified.upperAscii()"}), (True, {"extra": "claims.?email_verified"}),
    (True, {"extra": 'has(claims.email_verified) ? string(claims.email_verified) : "false"'}),
])  # fmt: skip
def test_an_email_claim_counts_only_if_verified(username: str, verified: bool, how: dict[str, Any]) -> None:
    says = [e for e in found(by_expression(username, **how)) if UNVERIFIED in e]
    assert len(says) == (0 if verified else 1)
    assert all(e.startswith("jwt[0].claimMappings.username.expression: Invalid value: ") for e in says)


@pytest.mark.parametrize("username", [
    "claims.email_", "claims.other.claims.email", "claims.username", "claims.?email_verified.orValue(true) ? claims.email : claims.sub",
    "claims.?email_verified.orValue(false) ? claims.email : claims.sub",
])  # fmt: skip
def test_expressions_without_the_email_claim_need_no_verification(username: str) -> None:
    assert found(by_expression(username)) == []


@pytest.mark.parametrize("issuer, why", [
    ({"url": ""}, "url: Required value"),
    ({"url": "https://issuer-url:invalid-port"}, 'url: Invalid value: "https://issuer-url:invalid-port": parse '
     '"https://issuer-url:invalid-port": invalid port ":invalid-port" after host'),
    ({"url": "http://issuer-url"}, 'url: Invalid value: "http://issuer-url": URL scheme must be https'),
    ({"url": "https://user:pass@issuer-url"},
     'url: Invalid value: "https://user:pass@issuer-url": URL must not contain a username or password'),
    ({"url": "https://issuer-url?query"}, 'url: Invalid value: "https://issuer-url?query": URL must not contain a query'),
    ({"url": "https://issuer-url#fragment"}, 'url: Invalid value: "https://issuer-url#fragment": URL must not contain a fragment'),
    ({}, ""), ({"discoveryURL": "https://oidc.oidc-namespace.svc"}, ""), ({"discoveryURL": "https://oidc.oidc-namespace.svc/path"}, ""),
    ({"discoveryURL": "https://oidc.ns.svc:invalid-port"}, 'discoveryURL: Invalid value: "https://oidc.ns.svc:invalid-port": parse '),
    ({"discoveryURL": "http://oidc.ns.svc"}, 'discoveryURL: Invalid value: "http://oidc.ns.svc": URL scheme must be https'),
    ({"discoveryURL": "https://u:p@oidc.ns.svc"},
     'discoveryURL: Invalid value: "https://u:p@oidc.ns.svc": URL must not contain a username or password'),
    ({"discoveryURL": "https://oidc.ns.svc?q"}, 'discoveryURL: Invalid value: "https://oidc.ns.svc?q": URL must not contain a query'),
    ({"discoveryURL": "https://oidc.ns.svc#f"}, 'discoveryURL: Invalid value: "https://oidc.ns.svc#f": URL must not contain a fragment'),
    ({"discoveryURL": "https://issuer-url"}, 'discoveryURL: Invalid value: "https://issuer-url": discoveryURL must be different from URL'),
    ({"discoveryURL": "https://issuer-url/"},
     'discoveryURL: Invalid value: "https://issuer-url/": discoveryURL must be different from URL'),
    ({"discoveryURL": "https://issuer-url///"},
     'discoveryURL: Invalid value: "https://issuer-url///": discoveryURL must be different from URL'),
    ({"url": "https://issuer-url/", "discoveryURL": "https://issuer-url"},
     'discoveryURL: Invalid value: "https://issuer-url": discoveryURL must be different from URL'),
    ({"audiences": []}, "audiences: Required value: at least one "), ({"audiences": [""]}, "audiences[0]: Required value"),
    ({"audienceMatchPolicy": "MatchExact"},
     'audienceMatchPolicy: Invalid value: "MatchExact": audienceMatchPolicy must be empty or MatchAny '),
    ({"audienceMatchPolicy": "MatchAny"}, ""),
    ({"audiences": ["audience", "audience"], "audienceMatchPolicy": "MatchAny"}, 'audiences[1]: Duplicate value: "audience"'),
    ({"audiences": ["a", "b"]}, 'audienceMatchPolicy: Invalid value: "": audienceMatchPolicy must be MatchAny for multiple audiences'),
    ({"audiences": ["a", "b"], "audienceMatchPolicy": "MatchAny"}, ""), ({"certificateAuthority": ""}, ""),
    ({"certificateAuthority": "invalid"},
     'certificateAuthority: Invalid value: "<omitted>": data does not contain any valid RSA or ECDSA certificates'),
])  # fmt: skip
def test_issuers(issuer: dict[str, Any], why: str) -> None:
    said = found({"issuer": {**ISSUER, **issuer}, "claimMappings": {"username": USERNAME}})
    assert len(said) == bool(why) and all(e.startswith(f"jwt[0].issuer.{why}") for e in said), said


def test_certificate_authorities(tmp_path: Path) -> None:
    certificate, _ = pki.authority("test-ca").write(tmp_path, "ca")
    issuer = {**ISSUER, "certificateAuthority": Path(certificate).read_text()}
    assert found({"issuer": issuer, "claimMappings": {"username": USERNAME}}) == []


def test_issuers_of_the_server() -> None:
    said = found({"issuer": ISSUER, "claimMappings": {"username": USERNAME}}, frozenset({"a", "b", "https://issuer-url", "c"}))
    assert len(said) == 1
    assert said[0].startswith('jwt[0].issuer.url: Invalid value: "https://issuer-url": URL must not overlap with disallowed issuers: [')


UNDECLARED = (
    "Invalid value: \"foo.bar\": compilation failed: ERROR: <input>:1:1: undeclared reference to 'foo' (in container '')"
    "\n | foo.bar\n | ^"
)


@pytest.mark.parametrize("rules, why", [
    ([{}], "[0]: Required value"),
    ([{"claim": "claim", "expression": "expression"}], '[0]: Invalid value: "claim": claim and expression can\'t'),
    ([{"claim": "claim", "message": "message"}], '[0].message: Invalid value: "message": '),
    ([{"expression": "claims.foo == 'bar'", "requiredValue": "value"}], '[0].requiredValue: Invalid value: "value": '),
    ([{"claim": "claim"}, {"claim": "claim"}], '[1].claim: Duplicate value: "claim"'),
    ([{"expression": "claims.foo == 'bar'"}] * 2, "[1].expression: Duplicate value: \"claims.foo == 'bar'\""),
    ([{"expression": "foo.bar"}], f"[0].expression: {UNDECLARED}"),
    ([{"expression": "claims.foo"}], '[0].expression: Invalid value: "claims.foo": must evaluate to bool'),
    ([{"expression": "claims.foo == 'bar'"}], ""), ([{"claim": "claim1", "requiredValue": "value1"}, {"claim": "claim2"}], ""),
])  # fmt: skip
def test_rules_about_claims(rules: list[dict[str, Any]], why: str) -> None:
    said = found({"issuer": ISSUER, "claimMappings": {"username": USERNAME}, "claimValidationRules": rules})
    assert len(said) == bool(why) and all(e.startswith(f"jwt[0].claimValidationRules{why}") for e in said), said


@pytest.mark.parametrize("rules, why", [
    ([{}], "[0].expression: Required value"), ([{"expression": "foo.bar"}], f"[0].expression: {UNDECLARED}"),
    ([{"expression": "user.username == 'foo'"}] * 2, "[1].expression: Duplicate value: \"user.username == 'foo'\""),
    ([{"expression": "user.username"}], '[0].expression: Invalid value: "user.username": must evaluate to bool'),
    ([{"expression": "user.username == 'foo'"}, {"expression": "!user.username.startsWith('system:')", "message": "m"}], ""),
])  # fmt: skip
def test_rules_about_users(rules: list[dict[str, Any]], why: str) -> None:
    said = found({"issuer": ISSUER, "claimMappings": {"username": USERNAME}, "userValidationRules": rules})
    assert len(said) == bool(why) and all(e.startswith(f"jwt[0].userValidationRules{why}") for e in said), said


BOTH, PREFIX = "Invalid value: \"\": claim and expression can't both be set", "Required value: prefix is required when claim is set. "


@pytest.mark.parametrize("mappings, why", [
    ({"username": {"claim": "claim", "expression": "claims.username"}}, f"username: {BOTH}"),
    ({"username": {}}, "username: Required value"), ({"username": {"prefix": "prefix"}}, "username: Required value"),
    ({"username": {"expression": "claims.username", "prefix": "prefix"}}, 'username.prefix: Invalid value: "prefix": '),
    ({"username": {"claim": "claim"}}, f"username.prefix: {PREFIX}"),
    ({"username": {"expression": "foo.bar"}}, f"username.expression: {UNDECLARED}"),
    ({"groups": {"claim": "claim", "expression": "claims.groups"}}, f"groups: {BOTH}"),
    ({"groups": {"expression": "claims.groups", "prefix": "prefix"}}, 'groups.prefix: Invalid value: "prefix": '),
    ({"groups": {"claim": "claim"}}, f"groups.prefix: {PREFIX}"),
    ({"groups": {"expression": "foo.bar"}}, f"groups.expression: {UNDECLARED}"),
    ({"uid": {"claim": "claim", "expression": "claims.uid"}}, f"uid: {BOTH}"),
    ({"uid": {"expression": "foo.bar"}}, f"uid.expression: {UNDECLARED}"),
    ({"extra": [{"key": "", "valueExpression": "claims.extra"}]}, "extra[0].key: Required value"),
    ({"extra": [{"key": "example.org/foo", "valueExpression": ""}]}, "extra[0].valueExpression: Required value"),
    ({"extra": [{"key": "example.org/foo", "valueExpression": "foo.bar"}]}, f"extra[0].valueExpression: {UNDECLARED}"),
    ({"extra": [{"key": "example.org/foo", "valueExpression": e} for e in ("claims.extra", "claims.extras")]},
     'extra[1].key: Duplicate value: "example.org/foo"'),
    ({"extra": [{"key": "foo", "valueExpression": "claims.extra"}]},
     'extra[0].key: Invalid value: "foo": must be a domain-prefixed path (such as "acme.io/foo")'),
    ({"extra": [{"key": "example.org/Foo", "valueExpression": "claims.extra"}]}, 'extra[0].key: Invalid value: "example.org/Foo": '),
    ({}, ""), ({"uid": {"claim": "claim"}}, ""),
])  # fmt: skip
def test_mappings(mappings: dict[str, Any], why: str) -> None:
    said = found({"issuer": ISSUER, "claimMappings": {"username": USERNAME, **mappings}})
    assert len(said) == bool(why) and all(e.startswith(f"jwt[0].claimMappings.{why}") for e in said), said


@pytest.mark.parametrize("issuers, why", [
    ([], ""), ([{}], ""), ([{}, {}], 'jwt[1].issuer.url: Duplicate value: "https://issuer-url"'),
    ([{"discoveryURL": "https://d/.well-known/openid-configuration"},
      {"url": "https://different", "discoveryURL": "https://d/.well-known/openid-configuration"}],
     'jwt[1].issuer.discoveryURL: Duplicate value: "https://d/.well-known/openid-configuration"'),
])  # fmt: skip
def test_several(issuers: list[dict[str, Any]], why: str) -> None:
    jwt = [{"issuer": {**ISSUER, **i}, "claimMappings": {"username": USERNAME}, "claimValidationRules": RULES} for i in issuers]
    assert [str(e) for e in validate({"jwt": jwt})] == ([why] if why else [])
