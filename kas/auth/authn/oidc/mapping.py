"""Mapping of claims to a user: each attribute by a claim or an expression, then the validation rules (``oidc.go``:
``AuthenticateToken``)."""

from __future__ import annotations

from typing import Any

from kas import cel
from kas.auth.authn import AuthenticationError
from kas.auth.authn.oidc.expressions import Expression, claim_variables, user_variables
from kas.auth.authn.oidc.tokens import Claims
from kas.auth.authn.oidc.validation import Mapper, Mapping
from kas.auth.user import CREDENTIAL_ID, UserInfo
from kas.meta import gojson
from kas.meta.field import go_quote

MAX_SHOWN = 200


def user_of(claims: Claims, mapper: Mapper) -> UserInfo:
    """Return the user of verified claims. Raises AuthenticationError."""
    variables = claim_variables(claims) if mapper.has_expressions else {}
    name = _username(claims, mapper.username, variables)
    groups = _groups(claims, mapper.groups, variables)
    uid = _uid(claims, mapper.uid, variables)
    user = UserInfo(name, groups, uid, _extra(claims, mapper, variables))
    _required(claims, mapper.required)
    _rules(mapper.claim_rules, variables, "claim validation expression")
    if mapper.user_rules:
        _rules(mapper.user_rules, user_variables(user), "user info validation rule")
    return user


def _text(claims: Claims, name: str, what: str) -> str:
    """Return a string claim; null is the empty string, as in Go. Raises AuthenticationError."""
    if name not in claims:
        raise AuthenticationError(f"oidc: parse {what}: claim not present")
    value = claims[name]
    if value is not None and not isinstance(value, str):
        raise AuthenticationError(f"oidc: parse {what}: {gojson.cannot_unmarshal(value, 'string')}")
    return value or ""


def _value(expression: Expression, variables: dict[str, Any], what: str) -> Any:
    try:
        return expression.evaluate(variables)
    except cel.EvaluationError as e:
        raise AuthenticationError(f"oidc: error evaluating {what}: expression '{expression.text}' resulted in error: {e}") from None


def _username(claims: Claims, mapping: Mapping, variables: dict[str, Any]) -> str:
    if mapping.expression is not None:
        name = _value(mapping.expression, variables, "username claim expression")
        if not isinstance(name, str):
            raise AuthenticationError("oidc: error evaluating username claim expression: username claim expression must return a string")
        if not name:
            raise AuthenticationError("oidc: empty username via CEL expression is not allowed")
        return name
    name = _text(claims, mapping.claim, f"username claims {go_quote(mapping.claim)}")
    if mapping.claim == "email" and "email_verified" in claims:
        verified = claims["email_verified"]
        if verified is not None and not isinstance(verified, bool):
            raise AuthenticationError(f"oidc: parse 'email_verified' claim: {gojson.cannot_unmarshal(verified, 'bool')}")
        if not verified:
            raise AuthenticationError("oidc: email not verified")
    return mapping.prefix + name


def _groups(claims: Claims, mapping: Mapping, variables: dict[str, Any]) -> list[str]:
    if mapping.expression is not None:
        return _texts(_value(mapping.expression, variables, "group claim expression"), "group claim expression")
    if not mapping.claim or mapping.claim not in claims:
        return []
    value = claims[mapping.claim]
    if isinstance(value, list) and all(g is None or isinstance(g, str) for g in value):
        return [mapping.prefix + (g or "") for g in value]
    if isinstance(value, str):
        return [mapping.prefix + value]
    if value is not None:
        raise AuthenticationError(f"oidc: parse groups claim {go_quote(mapping.claim)}: {gojson.cannot_unmarshal(value, 'string')}")
    return []


def _uid(claims: Claims, mapping: Mapping, variables: dict[str, Any]) -> str:
    if mapping.expression is not None:
        uid = _value(mapping.expression, variables, "uid claim expression")
        if not isinstance(uid, str):
            raise AuthenticationError("oidc: error evaluating uid claim expression: uid claim expression must return a string")
        return uid
    return _text(claims, mapping.claim, f"uid claim {go_quote(mapping.claim)}") if mapping.claim else ""


def _extra(claims: Claims, mapper: Mapper, variables: dict[str, Any]) -> dict[str, list[str]]:
    out = {}
    jti = claims.get("jti")
    if isinstance(jti, str) and jti:
        out[CREDENTIAL_ID] = [f"JTI={jti}"]
    for key, expression in mapper.extra:
        values = _texts(_value(expression, variables, "extra claim expression"), f"extra claim expression: {expression.text}")
        if values:
            out[key] = values
    return out


def _texts(value: Any, what: str) -> list[str]:
    """Return the values of a string or list of strings; empty strings and null are dropped. Raises AuthenticationError."""
    found = value if isinstance(value, list) else [] if value is None else [value]
    if not all(isinstance(v, str) for v in found):
        raise AuthenticationError(f"oidc: error evaluating {what}: expression must return a string or a list of strings")
    return [v for v in found if v]


def _required(claims: Claims, required: dict[str, str]) -> None:
    for name, wanted in required.items():
        if name not in claims:
            raise AuthenticationError(f"oidc: required claim {name} not present in ID token")
        found = _text(claims, name, f"claim {name}")
        if found != wanted:
            raise AuthenticationError(f"oidc: required claim {name} value does not match. Got = {found[:MAX_SHOWN]}, want = {wanted}")


def _rules(rules: list[tuple[Expression, str]], variables: dict[str, Any], what: str) -> None:
    for expression, message in rules:
        verdict = _value(expression, variables, what)
        if verdict is not True:
            raise AuthenticationError(
                f"oidc: error evaluating {what}: " + (f"validation expression '{expression.text}' failed: {message}" if verdict is False
                else "validation expression must return a boolean")
            )  # fmt: skip
