"""The configuration of trusted issuers: an AuthenticationConfiguration file, or the flags ``--oidc-*`` as one with a single issuer.

Upstream: ``pkg/kubeapiserver/options/authentication.go``. An invalid configuration raises ``AuthenticationConfigurationError`` with
upstream's text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kas.auth.attributes import aggregate
from kas.auth.authn.oidc.validation import Mapper, compiled_authenticator, validate
from kas.config.authentication import SIGNING_ALGORITHMS
from kas.types.configfile import BOOL, STRING, ConfigurationError, Kinds, Named, Struct, of_kind, parse, read_file

if TYPE_CHECKING:
    from kas.config.options import Options

Obj = dict[str, Any]
DEFAULT_ALGORITHMS = ("RS256",)
NO_PREFIX = "-"  # value of --oidc-username-prefix
MAX_FILE = 16 << 20

_MAPPING = Struct("PrefixedClaimOrExpression", {"claim": STRING, "prefix": STRING, "expression": STRING})
_JWT = Struct("JWTAuthenticator", {
    "issuer": Struct("Issuer", {
        "url": STRING, "discoveryURL": STRING, "certificateAuthority": STRING, "audiences": [STRING],
        "audienceMatchPolicy": Named("AudienceMatchPolicyType"), "egressSelectorType": Named("EgressSelectorType"),
    }),
    "claimValidationRules": [Struct("ClaimValidationRule", {
        "claim": STRING, "requiredValue": STRING, "expression": STRING, "message": STRING,
    })],
    "claimMappings": Struct("ClaimMappings", {
        "username": _MAPPING, "groups": _MAPPING, "uid": Struct("ClaimOrExpression", {"claim": STRING, "expression": STRING}),
        "extra": [Struct("ExtraMapping", {"key": STRING, "valueExpression": STRING})],
    }),
    "userValidationRules": [Struct("UserValidationRule", {"expression": STRING, "message": STRING})],
})  # fmt: skip
_ANONYMOUS = Struct("AnonymousAuthConfig", {"enabled": BOOL, "conditions": [Struct("AnonymousAuthCondition", {"path": STRING})]})
KINDS: Kinds = {
    (f"apiserver.config.k8s.io/{version}", "AuthenticationConfiguration"):
        Struct("AuthenticationConfiguration", {"jwt": [_JWT], "anonymous": _ANONYMOUS})
    for version in ("v1", "v1beta1", "v1alpha1")
}  # fmt: skip


class AuthenticationConfigurationError(ValueError):
    """Why a configuration is invalid; several reasons are in brackets. May have several lines, since errors in expressions show the
    source."""


@dataclass(frozen=True)
class Issuer:
    """A trusted issuer. ``algorithms`` are the allowed signature algorithms; ``ca`` is PEM ("" for the system's CAs); ``egress`` is the
    name of the route to it, controlplane or cluster ("" for a direct connection)."""

    url: str
    discovery_url: str
    ca: str
    audiences: tuple[str, ...]
    algorithms: tuple[str, ...]
    mapper: Mapper
    egress: str = ""


@dataclass(frozen=True)
class Anonymous:
    """Whether requests without a credential are allowed; ``paths`` are the only allowed ones, None for all."""

    enabled: bool = True
    paths: tuple[str, ...] | None = None


@dataclass(frozen=True)
class AuthenticationConfiguration:
    """``anonymous`` is None if the flag decides; ``data`` is the content of the file, b"" for flags."""

    issuers: tuple[Issuer, ...] = ()
    anonymous: Anonymous | None = None
    data: bytes = b""


def load(o: Options) -> AuthenticationConfiguration:
    """Return the configuration of the flags, or of the file they name. Raises AuthenticationConfigurationError."""
    if o.authentication_config:
        return load_file(o)
    if not (o.oidc_issuer_url and o.oidc_client_id):
        return AuthenticationConfiguration()
    document = {"jwt": [_of_flags(o)]}
    _check(document)
    return AuthenticationConfiguration(_issuers(document["jwt"], o, tuple(o.oidc_signing_algs) or DEFAULT_ALGORITHMS))


def load_file(o: Options, data: bytes | None = None) -> AuthenticationConfiguration:
    """Load the file of ``--authentication-config``; ``data`` is its content if it was read already. Raises
    AuthenticationConfigurationError."""
    path = o.authentication_config
    try:
        data = read_file(path) if data is None else data
        document = _document(data)
    except ConfigurationError as e:
        raise AuthenticationConfigurationError(f'failed to load authentication configuration from file "{path}": {e}') from None
    said = document.get("anonymous")
    if said is not None and "anonymous-auth" in o.given:
        raise AuthenticationConfigurationError(
            "anonymous: Forbidden: --anonymous-auth flag cannot be set when anonymous field is configured in authentication configuration "
            "file"
        )
    anonymous = None
    _check(document)
    if said is not None:
        paths = tuple(c.get("path") or "" for c in said.get("conditions") or ())
        anonymous = Anonymous(bool(said.get("enabled")), paths or None)
    issuers = _issuers(document.get("jwt") or [], o, SIGNING_ALGORITHMS)
    return AuthenticationConfiguration(issuers, anonymous, data)


def _document(data: bytes) -> Obj:
    if not data:
        raise ConfigurationError("empty config data")
    if len(data) > MAX_FILE:
        raise ConfigurationError(f"the file is larger than {MAX_FILE} bytes")
    return of_kind(parse(data), KINDS, unexpected=lambda _, kind: f"expected AuthenticationConfiguration, got *apiserver.{kind}")


def _check(document: Obj) -> None:
    found = validate(document)
    if found:
        raise AuthenticationConfigurationError(f"invalid authentication configuration: {aggregate(list(map(str, found)))}")


def _issuers(documents: Sequence[Obj], o: Options, algorithms: tuple[str, ...]) -> tuple[Issuer, ...]:
    """Return the issuers. The issuers of service-account tokens must not be among them."""
    out = []
    for document in documents:
        mapper, found = compiled_authenticator(document, "", frozenset(filter(None, o.service_account_issuer)))
        if found:
            raise AuthenticationConfigurationError(aggregate(list(map(str, found))))
        issuer = document["issuer"]
        egress = issuer.get("egressSelectorType")
        if egress and not o.egress_selector_config_file:
            raise AuthenticationConfigurationError(f'oidc: egress lookup required with egress selector type "{egress}"')
        out.append(Issuer(
            issuer["url"], issuer.get("discoveryURL") or "", issuer.get("certificateAuthority") or "", tuple(issuer["audiences"]),
            algorithms, mapper, egress or "",
        ))  # fmt: skip
    return tuple(out)


def _of_flags(o: Options) -> Obj:
    prefix = o.oidc_username_prefix
    if not prefix and o.oidc_username_claim != "email":
        prefix = f"{o.oidc_issuer_url}#"
    issuer: Obj = {"url": o.oidc_issuer_url, "audiences": [o.oidc_client_id]}
    if o.oidc_ca_file:
        try:
            issuer["certificateAuthority"] = read_file(o.oidc_ca_file).decode("utf-8", "replace")
        except ConfigurationError as e:
            raise AuthenticationConfigurationError(str(e)) from None
    mappings: Obj = {"username": {"claim": o.oidc_username_claim, "prefix": "" if prefix == NO_PREFIX else prefix}}
    if o.oidc_groups_claim:
        mappings["groups"] = {"claim": o.oidc_groups_claim, "prefix": o.oidc_groups_prefix}
    rules = [{"claim": claim, "requiredValue": value} for claim, value in sorted(o.oidc_required_claim.items())]
    return {"issuer": issuer, "claimMappings": mappings, "claimValidationRules": rules}
