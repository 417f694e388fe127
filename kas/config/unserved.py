"""Rules of flags whose parts kas does not have yet: who asks for one learns at once what else is wrong with the command line.

Upstream: ``pkg/kubeapiserver/options``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kas.config.flags import FLAGS
from kas.config.flagtypes import quote

if TYPE_CHECKING:
    from kas.config.options import Options

SIGNING_ALGORITHMS = frozenset(("RS256", "RS384", "RS512", "ES256", "ES384", "ES512", "PS256", "PS384", "PS512"))
WEBHOOK_VERSIONS = ("v1", "v1beta1")
OIDC = [flag for flag in FLAGS if flag.name.startswith("oidc-")]


def findings(o: Options) -> Iterator[str]:
    """Every finding, one line each."""
    for check in (_oidc, _webhooks):
        yield from check(o)


def _value(o: Options, name: str) -> Any:
    return getattr(o, name.replace("-", "_"))


def _oidc(o: Options) -> Iterator[str]:
    if not any(_value(o, flag.name) not in (flag.default, list(flag.default or ())) for flag in OIDC):
        return
    if not (_value(o, "oidc-issuer-url") and _value(o, "oidc-client-id")):
        yield "oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set"
    unknown = [name for name in _value(o, "oidc-signing-algs") if name not in SIGNING_ALGORITHMS]
    if unknown:
        yield f"oidc: unsupported signing alg: {quote(unknown[0])}"


def _webhooks(o: Options) -> Iterator[str]:
    version = _value(o, "authentication-token-webhook-version")
    if _value(o, "authentication-token-webhook-config-file") and version not in WEBHOOK_VERSIONS:
        known = ", ".join(map(quote, WEBHOOK_VERSIONS))
        yield f"unsupported authentication webhook version {quote(version)}, supported versions are {known}"
