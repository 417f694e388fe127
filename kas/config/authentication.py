"""Validation of the authenticators' flags (``pkg/kubeapiserver/options/authentication.go``)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kas.config.flagtypes import quote

if TYPE_CHECKING:
    from kas.config.options import Options

SIGNING_ALGORITHMS = ("RS256", "RS384", "RS512", "ES256", "ES384", "ES512", "PS256", "PS384", "PS512")
WEBHOOK_VERSIONS = ("v1", "v1beta1")


def anonymous(o: Options) -> bool:
    """Whether requests without credentials are accepted: not if everyone may do everything (upstream's ``ApplyAuthorization``)."""
    return o.anonymous_auth and "AlwaysAllow" not in o.authorization_mode


def warnings(o: Options) -> Iterator[str]:
    """Yield one line for each flag that requests something the server does not do."""
    if o.anonymous_auth and not anonymous(o):
        yield "--anonymous-auth has no effect: with --authorization-mode=AlwaysAllow requests without a credential are refused"


def problems(o: Options) -> Iterator[str]:
    """Yield a message in upstream's words for each error. The contents of files are checked by their readers."""
    oidc = any(name.startswith("oidc-") for name in o.given)
    if oidc and o.authentication_config:
        yield "authentication-config file and oidc-* flags are mutually exclusive"
    elif oidc and not (o.oidc_issuer_url and o.oidc_client_id):
        yield "oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set"
    elif oidc:  # upstream checks these when it creates the authenticator
        unknown = [name for name in o.oidc_signing_algs if name not in SIGNING_ALGORITHMS]
        yield from (f"oidc: unsupported signing alg: {quote(name)}" for name in unknown[:1])
    version = o.authentication_token_webhook_version
    if o.authentication_token_webhook_config_file and version not in WEBHOOK_VERSIONS:
        known = ", ".join(map(quote, WEBHOOK_VERSIONS))
        yield f"unsupported authentication webhook version {quote(version)}, supported versions are {known}"
