"""Validation of an AuthenticationConfiguration (``pkg/apis/apiserver/validation``), and compilation of its expressions."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from dataclasses import field as field_of
from typing import Any

from kas.auth.authn.oidc.expressions import CLAIMS, USERS, Expression, compiled, rule
from kas.config.features import DEFAULT
from kas.meta import field
from kas.meta.field import FieldError, child, index
from kas.meta.gourl import parse
from kas.meta.names import domain_prefixed_path
from kas.meta.pem import bundle_problem

Obj = dict[str, Any]
Errors = list[FieldError]

MAX_AUTHENTICATORS = 64
MATCH_ANY = "MatchAny"
EGRESS = ("controlplane", "cluster")
RESERVED = ("k8s.io", "kubernetes.io")
_UNVERIFIED = (
    "claims.email_verified must be used in claimMappings.username.expression or claimMappings.extra[*].valueExpression or "
    "claimValidationRules[*].expression when claims.email is used in claimMappings.username.expression"
)


@dataclass
class Mapping:
    """The source of a user attribute: a claim with a prefix, or an expression; empty if neither is configured."""

    claim: str = ""
    prefix: str = ""
    expression: Expression | None = None


@dataclass
class Mapper:
    """The mapping of claims to a user. ``required`` are claims with their required values; rules are expressions with messages."""

    username: Mapping = field_of(default_factory=Mapping)
    groups: Mapping = field_of(default_factory=Mapping)
    uid: Mapping = field_of(default_factory=Mapping)
    extra: list[tuple[str, Expression]] = field_of(default_factory=list)
    required: dict[str, str] = field_of(default_factory=dict)
    claim_rules: list[tuple[Expression, str]] = field_of(default_factory=list)
    user_rules: list[tuple[Expression, str]] = field_of(default_factory=list)

    @property
    def has_expressions(self) -> bool:
        """Whether any expression uses the claims."""
        return bool(self.username.expression or self.groups.expression or self.uid.expression or self.extra or self.claim_rules)


def validate(document: Obj) -> Errors:
    """Return all errors in a decoded AuthenticationConfiguration; issuers of other authenticators are not considered."""
    jwt = document.get("jwt") or []
    if len(jwt) > MAX_AUTHENTICATORS:
        return [field.too_many("jwt", len(jwt), MAX_AUTHENTICATORS)]
    errs: Errors = []
    urls, discovery_urls = set[str](), set[str]()
    for i, authenticator in enumerate(jwt):
        path = index("jwt", i)
        errs += compiled_authenticator(authenticator, path, frozenset())[1]
        issuer = authenticator.get("issuer") or {}
        url, discovery = issuer.get("url") or "", issuer.get("discoveryURL") or ""
        if url in urls:
            errs.append(field.duplicate(child(path, "issuer", "url"), url))
        urls.add(url)
        if discovery and discovery in discovery_urls:
            errs.append(field.duplicate(child(path, "issuer", "discoveryURL"), discovery))
        discovery_urls.add(discovery)
    anonymous = document.get("anonymous") or {}
    if anonymous.get("conditions") and not anonymous.get("enabled"):
        conditions = [{"Path": c.get("path") or ""} for c in anonymous["conditions"]]
        errs.append(field.invalid("anonymous.conditions", conditions, "enabled should be set to true when conditions are defined"))
    return errs


def compiled_authenticator(authenticator: Obj, path: str, own: Set[str]) -> tuple[Mapper, Errors]:
    """Compile one entry of ``jwt``; return the mapper and the errors. ``own`` are issuers it must not name."""
    mapper = Mapper()
    errs = _issuer(authenticator.get("issuer") or {}, child(path, "issuer"), own)
    errs += _claim_rules(mapper, authenticator.get("claimValidationRules") or [], child(path, "claimValidationRules"))
    errs += _mappings(mapper, authenticator.get("claimMappings") or {}, child(path, "claimMappings"))
    errs += _user_rules(mapper, authenticator.get("userValidationRules") or [], child(path, "userValidationRules"))
    return mapper, errs


def _issuer(issuer: Obj, path: str, own: Set[str]) -> Errors:
    url, discovery = issuer.get("url") or "", issuer.get("discoveryURL") or ""
    errs = _url(url, child(path, "url"), own) if url else [field.required(child(path, "url"))]
    if discovery:
        at = child(path, "discoveryURL")
        if url and url.rstrip("/") == discovery.rstrip("/"):
            errs.append(field.invalid(at, discovery, "discoveryURL must be different from URL"))
        errs += _url(discovery, at, frozenset())
    errs += _audiences(issuer, path)
    ca = issuer.get("certificateAuthority") or ""
    why = bundle_problem(ca.encode()) if ca else ""
    if why:
        errs.append(field.invalid(child(path, "certificateAuthority"), "<omitted>", why))
    egress = issuer.get("egressSelectorType") or ""
    if egress and not DEFAULT.enabled("StructuredAuthenticationConfigurationEgressSelector"):
        why = "egress selector is not supported when StructuredAuthenticationConfigurationEgressSelector feature gate is disabled"
        errs.append(field.invalid(child(path, "egressSelectorType"), egress, why))
    if egress and egress not in EGRESS:
        errs.append(field.invalid(child(path, "egressSelectorType"), egress, "egress selector must be either controlplane or cluster"))
    return errs


def _url(url: str, path: str, own: Set[str]) -> Errors:
    errs: Errors = []
    if url in own:
        errs.append(field.invalid(path, url, f"URL must not overlap with disallowed issuers: [{' '.join(sorted(own))}]"))
    try:
        parsed = parse(url)
    except ValueError as e:
        errs.append(field.invalid(path, url, str(e)))
        return errs
    if parsed.scheme != "https":
        errs.append(field.invalid(path, url, "URL scheme must be https"))
    if parsed.user is not None:
        errs.append(field.invalid(path, url, "URL must not contain a username or password"))
    if parsed.query:
        errs.append(field.invalid(path, url, "URL must not contain a query"))
    if parsed.fragment:
        errs.append(field.invalid(path, url, "URL must not contain a fragment"))
    return errs


def _audiences(issuer: Obj, path: str) -> Errors:
    audiences, policy, at = issuer.get("audiences") or [], issuer.get("audienceMatchPolicy") or "", child(path, "audiences")
    if not audiences:
        return [field.required(at, f"at least one {at} is required")]
    errs: Errors = []
    seen = set[str]()
    for i, audience in enumerate(audiences):
        if not audience:
            errs.append(field.required(index(at, i)))
        if audience in seen:
            errs.append(field.duplicate(index(at, i), audience))
        seen.add(audience)
    at = child(path, "audienceMatchPolicy")
    if len(audiences) > 1 and policy != MATCH_ANY:
        errs.append(field.invalid(at, policy, "audienceMatchPolicy must be MatchAny for multiple audiences"))
    if len(audiences) == 1 and policy not in ("", MATCH_ANY):
        errs.append(field.invalid(at, policy, "audienceMatchPolicy must be empty or MatchAny for single audience"))
    return errs


def _claim_rules(mapper: Mapper, rules: list[Obj], path: str) -> Errors:
    errs: Errors = []
    seen = set[str]()
    for i, said in enumerate(rules):
        at, claim, text = index(path, i), said.get("claim") or "", said.get("expression") or ""
        if claim and text:
            errs.append(field.invalid(at, claim, "claim and expression can't both be set"))
        elif not claim and not text:
            errs.append(field.required(at, "claim or expression is required"))
        elif claim:
            if said.get("message"):
                errs.append(field.invalid(child(at, "message"), said["message"], "may not be specified when claim is set"))
            if claim in mapper.required:
                errs.append(field.duplicate(child(at, "claim"), claim))
            mapper.required[claim] = said.get("requiredValue") or ""
        else:
            if said.get("requiredValue"):
                why = "may not be specified when expression is set"
                errs.append(field.invalid(child(at, "requiredValue"), said["requiredValue"], why))
            if text in seen:
                errs.append(field.duplicate(child(at, "expression"), text))
                continue
            seen.add(text)
            expression, err = rule(text, CLAIMS, child(at, "expression"))
            if expression is not None:
                mapper.claim_rules.append((expression, said.get("message") or ""))
            errs += [err] if err is not None else []
    return errs


def _mappings(mapper: Mapper, said: Obj, path: str) -> Errors:
    mapper.username, errs = _mapping(said.get("username") or {}, child(path, "username"), required=True)
    mapper.groups, more = _mapping(said.get("groups") or {}, child(path, "groups"), required=False)
    errs += more
    uid, at = said.get("uid") or {}, child(path, "uid")
    mapper.uid = Mapping(uid.get("claim") or "")
    if uid.get("claim") and uid.get("expression"):
        errs.append(field.invalid(at, "", "claim and expression can't both be set"))
    elif uid.get("expression"):
        mapper.uid.expression, err = compiled(uid["expression"], CLAIMS, child(at, "expression"))
        errs += [err] if err is not None else []
    errs += _extra(mapper, said.get("extra") or [], child(path, "extra"))
    username = mapper.username.expression
    looking = (username, *(e for _, e in mapper.extra), *(e for e, _ in mapper.claim_rules))
    if username is not None and username.uses("email") and not any(e is not None and e.uses("email_verified") for e in looking):
        errs.append(field.invalid(child(path, "username", "expression"), username.text, _UNVERIFIED))
    return errs


def _mapping(said: Obj, path: str, required: bool) -> tuple[Mapping, Errors]:
    claim, text, prefix = said.get("claim") or "", said.get("expression") or "", said.get("prefix")
    if claim and text:
        return Mapping(), [field.invalid(path, "", "claim and expression can't both be set")]
    if text:
        errs: Errors = []
        if prefix is not None:
            errs.append(field.invalid(child(path, "prefix"), prefix, "may not be specified when expression is set"))
        expression, err = compiled(text, CLAIMS, child(path, "expression"))
        errs += [err] if err is not None else []
        # As upstream, an expression with any error is not checked for the claims it uses.
        return Mapping(expression=expression if not errs else None), errs
    if claim and prefix is None:
        why = "prefix is required when claim is set. It can be set to an empty string to disable prefixing"
        return Mapping(), [field.required(child(path, "prefix"), why)]
    if required and not claim:
        return Mapping(), [field.required(path, "claim or expression is required")]
    return Mapping(claim, prefix or ""), []


def _extra(mapper: Mapper, extra: list[Obj], path: str) -> Errors:
    errs: Errors = []
    seen = set[str]()
    for i, said in enumerate(extra):
        at, key, text = index(path, i), said.get("key") or "", said.get("valueExpression") or ""
        errs += domain_prefixed_path(child(at, "key"), key)
        if key != key.lower():
            errs.append(field.invalid(child(at, "key"), key, "must be lowercase"))
        domain = key.partition("/")[0] if "/" in key else ""
        if any(domain == name or domain.endswith(f".{name}") for name in RESERVED):
            why = "k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use"
            errs.append(field.invalid(child(at, "key"), key, why))
        if key in seen:
            errs.append(field.duplicate(child(at, "key"), key))
            continue
        seen.add(key)
        if not text:
            errs.append(field.required(child(at, "valueExpression")))
            continue
        expression, err = compiled(text, CLAIMS, child(at, "valueExpression"))
        if expression is not None:
            mapper.extra.append((key, expression))
        errs += [err] if err is not None else []
    return errs


def _user_rules(mapper: Mapper, rules: list[Obj], path: str) -> Errors:
    errs: Errors = []
    seen = set[str]()
    for i, said in enumerate(rules):
        at, text = child(index(path, i), "expression"), said.get("expression") or ""
        if not text:
            errs.append(field.required(at))
            continue
        if text in seen:
            errs.append(field.duplicate(at, text))
            continue
        seen.add(text)
        expression, err = rule(text, USERS, at)
        if expression is not None:
            mapper.user_rules.append((expression, said.get("message") or ""))
        errs += [err] if err is not None else []
    return errs
