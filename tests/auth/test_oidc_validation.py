"""Validation of AuthenticationConfiguration, and the users made from claims."""

from __future__ import annotations

import asyncio
import json

import pytest

from kas.auth.authn import AuthenticationError
from kas.auth.authn.oidc.authenticator import JWTAuthenticator, Metrics
from kas.auth.authn.oidc.configuration import AuthenticationConfigurationError, Issuer, load
from kas.auth.authn.oidc.mapping import user_of
from kas.auth.authn.oidc.validation import MAX_AUTHENTICATORS, compiled_authenticator, validate
from kas.config.features import DEFAULT
from kas.config.options import Options, read
from kas.meta.offload import POOL
from kas.meta.waiting import awaited
from kas.observe.metrics import Registry

SUB = {"claim": "sub", "prefix": ""}


def jwt(username=SUB, **more):
    issuer = {"url": "https://x", "audiences": ["a"], **more.pop("issuer", {})}
    return {"issuer": issuer, "claimMappings": {"username": username, **more.pop("mappings", {})}, **more}


def errors(*authenticators, **more):
    return list(map(str, validate({"jwt": list(authenticators), **more})))


@pytest.mark.parametrize(
    ("authenticator", "says"),
    [
        (jwt(), []),
        (jwt(issuer={"url": ""}), ["issuer.url: Required value"]),
        (jwt(issuer={"url": "https://u:p@x/#f"}),
         ['issuer.url: Invalid value: "https://u:p@x/#f": URL must not contain a username or password',
          'issuer.url: Invalid value: "https://u:p@x/#f": URL must not contain a fragment']),
        (jwt(issuer={"url": "https://x?a=@b"}), ['issuer.url: Invalid value: "https://x?a=@b": URL must not contain a query']),
        (jwt(issuer={"url": "1:b"}),
         ['issuer.url: Invalid value: "1:b": parse "1:b": first path segment in URL cannot contain colon']),
        (jwt(issuer={"url": "x"}), ['issuer.url: Invalid value: "x": URL scheme must be https']),
        (jwt(issuer={"audiences": []}), ["issuer.audiences: Required value: at least one jwt[0].issuer.audiences is required"]),
        (jwt(issuer={"audienceMatchPolicy": "All"}),
         ['issuer.audienceMatchPolicy: Invalid value: "All": audienceMatchPolicy must be empty or MatchAny for single audience']),
        (jwt(issuer={"egressSelectorType": "x"}),
         ['issuer.egressSelectorType: Invalid value: "x": egress selector must be either controlplane or cluster']),
        (jwt(issuer={"certificateAuthority": "-----BEGIN CERTIFICATE-----\nZm9v\n-----END CERTIFICATE-----\n"}),
         ['issuer.certificateAuthority: Invalid value: "<omitted>": x509: malformed certificate']),
        (jwt({"claim": "a", "expression": "'b'"}),
         ['claimMappings.username: Invalid value: "": claim and expression can\'t both be set']),
        (jwt({"claim": "a"}), ["claimMappings.username.prefix: Required value: prefix is required when claim is set. It can be set to an "
                               "empty string to disable prefixing"]),
        (jwt({"expression": "'a'", "prefix": ""}),
         ['claimMappings.username.prefix: Invalid value: "": may not be specified when expression is set']),
        (jwt(mappings={"groups": {"prefix": "x"}}), []),
        (jwt(mappings={"uid": {"claim": "a", "expression": "'b'"}}),
         ['claimMappings.uid: Invalid value: "": claim and expression can\'t both be set']),
        (jwt(mappings={"extra": [{"key": "a.b/c", "valueExpression": "'x'"}] * 2}),
         ['claimMappings.extra[1].key: Duplicate value: "a.b/c"']),
        (jwt(claimValidationRules=[{"claim": "a", "expression": "true"}]),
         ['claimValidationRules[0]: Invalid value: "a": claim and expression can\'t both be set']),
        (jwt(claimValidationRules=[{"expression": "true", "requiredValue": "x"}]),
         ['claimValidationRules[0].requiredValue: Invalid value: "x": may not be specified when expression is set']),
        (jwt(userValidationRules=[{"message": "m"}, {"expression": "true"}, {"expression": "true"}]),
         ["userValidationRules[0].expression: Required value", 'userValidationRules[2].expression: Duplicate value: "true"']),
    ],
)  # fmt: skip
def test_texts(authenticator, says):
    assert errors(authenticator) == [f"jwt[0].{text}" for text in says]


@pytest.mark.parametrize(
    ("expression", "more", "good"),
    [
        ("claims.email", {}, False),
        ("claims.?email.orValue('')", {}, False),
        ("claims.email_verified ? claims.email : claims.sub", {}, True),
        ("claims.email", {"claimValidationRules": [{"expression": "claims.?email_verified.orValue(true) == true"}]}, True),
        ("claims.email", {"claimValidationRules": [{"claim": "email_verified", "requiredValue": "true"}]}, False),
        ("claims.email", {"mappings": {"extra": [{"key": "a.b/c", "valueExpression": "[string(claims.email_verified)]"}]}}, True),
        ("claims.email", {"mappings": {"groups": {"expression": "claims.email_verified ? ['a'] : []"}}}, False),
        ("dyn(claims.list).map(x, claims.email)[0]", {}, False),
        ("claims.x.email", {}, True),
    ],
)  # fmt: skip
def test_an_email_must_be_verified(expression, more, good):
    found = errors(jwt({"expression": expression}, **more))
    assert (found == []) is good and all("claims.email_verified must be used in" in text for text in found)


def test_many_authenticators():
    many = [jwt(issuer={"url": f"https://x{i}"}) for i in range(MAX_AUTHENTICATORS + 1)]
    assert errors(*many[:-1]) == []
    assert errors(*many) == ["jwt: Too many: 65: must have at most 64 items"]


def test_anonymous():
    assert errors(anonymous={"enabled": True, "conditions": [{"path": "/livez"}]}) == []
    assert errors(anonymous={"conditions": [{"path": "/livez"}]}) == [
        'anonymous.conditions: Invalid value: [{"Path":"/livez"}]: enabled should be set to true when conditions are defined'
    ]


@pytest.mark.parametrize("egress", ["cluster", "controlplane"])
def test_egress_needs_a_configured_proxy(tmp_path, egress):
    path = tmp_path / "c.yaml"
    kind = {"apiVersion": "apiserver.config.k8s.io/v1beta1", "kind": "AuthenticationConfiguration"}
    path.write_text(json.dumps({**kind, "jwt": [jwt(issuer={"egressSelectorType": egress})]}))
    with pytest.raises(AuthenticationConfigurationError, match=f'egress lookup required with egress selector type "{egress}"'):
        load(Options({"authentication-config": str(path)}))


# --- claims


def user(claims, *args, **more):
    mapper, errs = compiled_authenticator(jwt(*args, **more), "", frozenset())
    assert errs == []
    return user_of(claims, mapper)


def test_long_rules_are_evaluated_off_the_loop():
    """A token may have some thousand groups, over which the operator's expressions iterate as often as they like."""
    rules = [{"expression": "dyn(claims.g).all(x, dyn(claims.g).all(y, x != y + 'z'))"}]
    issuer = Issuer("https://x", "", "", ("a",), ("RS256",), compiled_authenticator(jwt(claimValidationRules=rules), "", frozenset())[0])

    class Verified:
        def __init__(self, groups):
            self.groups = groups

        def claims(self, token):
            return {"sub": "jane", "g": [f"g{i}" for i in range(self.groups)]}

    async def run():
        authenticator, done = JWTAuthenticator(issuer, Metrics(Registry())), []
        for groups in (2, 200):
            authenticator.provider.verifier = Verified(groups)
            before = POOL.done
            assert (await awaited(authenticator.authenticate_token("a.b.c"))).name == "jane"
            done.append(POOL.done - before)
        return done

    assert asyncio.run(run()) == [0, 1]


def test_the_fields_of_a_user():
    mappings = {
        "groups": {"claim": "g", "prefix": "p:"}, "uid": {"expression": "claims.?id.orValue('')"},
        "extra": [{"key": "a.b/c", "valueExpression": "claims.list"}, {"key": "a.b/d", "valueExpression": "''"}],
    }  # fmt: skip
    made = user({"sub": "s", "g": "one", "list": ["x", "", "y"], "jti": "j"}, {"claim": "sub", "prefix": "u:"}, mappings=mappings)
    assert (made.name, made.groups, made.uid) == ("u:s", ("p:one",), "")
    assert made.extra == {"a.b/c": ["x", "y"], "authentication.kubernetes.io/credential-id": ["JTI=j"]}


@pytest.mark.parametrize(
    ("claims", "args", "more", "why"),
    [
        ({}, (), {}, "claim not present"),
        ({"sub": 5}, (), {}, "cannot unmarshal number"),
        ({"email": "a", "email_verified": "true"}, ({"claim": "email", "prefix": ""},), {}, "parse 'email_verified' claim"),
        ({"email": "a", "email_verified": None}, ({"claim": "email", "prefix": ""},), {}, "email not verified"),
        ({"sub": ""}, ({"expression": "claims.sub"},), {}, "empty username via CEL expression"),
        ({"sub": "a"}, ({"expression": "5"},), {}, "username claim expression must return a string"),
        ({}, ({"expression": "claims.sub"},), {}, "error evaluating username claim expression"),
        ({"sub": "a", "g": [1]}, (), {"mappings": {"groups": {"expression": "claims.g"}}}, "must return a string or a list of strings"),
        ({"sub": "a"}, (), {"mappings": {"uid": {"expression": "1"}}}, "uid claim expression must return a string"),
        ({"sub": "a", "x": "no"}, (), {"claimValidationRules": [{"claim": "x", "requiredValue": "yes"}]}, "value does not match"),
        ({"sub": "a"}, (), {"claimValidationRules": [{"claim": "x", "requiredValue": ""}]}, "not present in ID token"),
        ({"sub": "a"}, (), {"claimValidationRules": [{"expression": "has(claims.x)", "message": "no x"}]}, "failed: no x"),
        ({"sub": "a"}, (), {"userValidationRules": [{"expression": "user.username != 'a'", "message": "not a"}]}, "failed: not a"),
    ],
)  # fmt: skip
def test_claims_without_a_valid_user(claims, args, more, why):
    with pytest.raises(AuthenticationError, match=why):
        user(claims, *args, **more)


@pytest.mark.parametrize(
    ("expression", "name"),
    [
        ("claims.kubernetes__dot__io.pod", "p"), ("claims['kubernetes.io'].pod", "p"), ("claims.kubernetes__dot__io.node__slash__uid", "n"),
        ("claims.kubernetes__dot__io.deep[0].a__dash__b", "d"), ("has(claims.kubernetes__dot__io.deep[0].a__dash__b) ? 'has' : ''", "has"),
        ("claims.?kubernetes__dot__io.?none.orValue('none')", "none"), ("'kubernetes__dot__io' in claims ? 'in' : ''", "in"),
        ("claims.__if__", "word"), ("claims.a__underscores__b", "two"), ("claims.kubernetes__dot__io.x__y__z", "odd"),
        ("has(claims.odd__y__z) ? 'has' : 'not'", "not"), ("claims.kubernetes__dot__io == {'pod': 'p'} ? '' : 'other'", "other"),
        ("{'pod': 'p'} == claims.same ? 'same' : ''", "same"), ("type(claims.same) == map ? 'map' : ''", "map"),
    ],
)  # fmt: skip
def test_names_that_are_not_cel_identifiers_are_escaped(expression, name):
    deep = {"pod": "p", "node/uid": "n", "deep": [{"a-b": "d"}], "x__y__z": "odd"}
    claims = {"kubernetes.io": deep, "if": "word", "a__b": "two", "odd__y__z": "odd", "same": {"pod": "p"}}
    assert user(claims, {"expression": expression}).name == name


def test_extra_keys_are_escaped_in_rules():
    extra = [{"key": "a.b/c", "valueExpression": "claims.sub"}]
    rule = {"userValidationRules": [{"expression": "user.extra.a__dot__b__slash__c == ['x']"}]}
    assert user({"sub": "x"}, SUB, mappings={"extra": extra}, **rule).extra == {"a.b/c": ["x"]}


@pytest.mark.parametrize(
    "expression", ["claims.a.map(x, x)", "claims['a'].exists(x, true)", "claims.?a.orValue([]).all(x, true)", "claims.a.sortBy(x, x)"]
)
def test_untyped_claims_cannot_be_iterated_over(expression):
    (said,) = errors(jwt({"expression": expression}))
    assert "expression of type 'any' cannot be range of a comprehension (must be list, map, or dynamic)" in said
    assert errors(jwt({"expression": "dyn(claims.a).map(x, x)"})) == errors(jwt({"expression": "claims.map(k, k)"})) == []


def test_numbers_are_doubles():
    assert user({"sub": "a", "n": 12}, {"expression": "string(claims.n)"}).name == "12"
    assert user({"sub": "a", "n": [2**53 + 1]}, {"expression": "string(claims.n[0])"}).name == "9.007199254740992e+15"


def test_an_endless_expression_exceeds_the_cost_limit():
    deep = "dyn(claims.l).all(a, dyn(claims.l).all(b, dyn(claims.l).all(c, a + b + c >= 0.0))) ? 'a' : 'b'"
    with pytest.raises(AuthenticationError, match="cost limit"):
        user({"l": list(range(300))}, {"expression": deep})


def test_an_empty_list_of_algorithms_is_the_default_one():
    options, errors = read(["--oidc-issuer-url=https://x", "--oidc-client-id=c", "--oidc-signing-algs="])
    assert errors == [] and [issuer.algorithms for issuer in load(options).issuers] == [("RS256",)]


def test_the_egress_setting_of_an_issuer_has_a_gate():
    gate = "StructuredAuthenticationConfigurationEgressSelector"
    with DEFAULT.overridden(**{gate: False}):
        (why,) = errors(jwt(issuer={"egressSelectorType": "cluster"}))
    at = 'jwt[0].issuer.egressSelectorType: Invalid value: "cluster": '
    assert why == f"{at}egress selector is not supported when {gate} feature gate is disabled"
