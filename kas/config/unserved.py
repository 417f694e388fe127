"""Rules of flags whose parts kas does not have yet: who asks for one learns at once what else is wrong with the command line.

Upstream: ``apiserver/pkg/server/options/audit.go``, ``pkg/kubeapiserver/options``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kas.config.flags import FLAGS
from kas.config.flagtypes import quote

if TYPE_CHECKING:
    from kas.config.options import Options

AUDIT_FORMATS = ("legacy", "json")
AUDIT_VERSIONS = ("audit.k8s.io/v1",)
SIGNING_ALGORITHMS = frozenset(("RS256", "RS384", "RS512", "ES256", "ES384", "ES512", "PS256", "PS384", "PS512"))
WEBHOOK_VERSIONS = ("v1", "v1beta1")
OIDC = [flag for flag in FLAGS if flag.name.startswith("oidc-")]
HEADER_LISTS = (
    "requestheader-username-headers", "requestheader-uid-headers", "requestheader-group-headers", "requestheader-extra-headers-prefix",
    "requestheader-allowed-names",
)  # fmt: skip


def findings(o: Options) -> Iterator[str]:
    """Every finding, one line each."""
    for check in (_audit, _oidc, _webhooks, _headers):
        yield from check(o)


def _value(o: Options, name: str) -> Any:
    return getattr(o, name.replace("-", "_"))


def _audit(o: Options) -> Iterator[str]:
    for sink, asked in (("log", "audit-log-path"), ("webhook", "audit-webhook-config-file")):
        if not _value(o, asked):
            continue
        flag = f"audit-{sink}-"
        if _value(o, flag + "mode") == "batch":
            numbers = [("buffer size", "batch-buffer-size"), ("max batch size", "batch-max-size")]
            if _value(o, flag + "batch-throttle-enable"):
                numbers += [("throttle QPS", "batch-throttle-qps"), ("throttle burst", "batch-throttle-burst")]
            for what, name in numbers:
                if _value(o, flag + name) <= 0:
                    yield f"invalid audit batch {sink} {what} {_value(o, flag + name):g}, must be a positive number"
                    break
        event, batch = _value(o, flag + "truncate-max-event-size"), _value(o, flag + "truncate-max-batch-size")
        if event <= 0:
            yield f"invalid audit truncate {sink} max event size {event}, must be a positive number"
        elif batch < event:
            yield f"invalid audit truncate {sink} max batch size {batch}, must be greater than max event size ({event})"
        if _value(o, flag + "version") not in AUDIT_VERSIONS:
            yield f"invalid group version, allowed versions are [{' '.join(map(quote, AUDIT_VERSIONS))}]"
        if sink == "log" and _value(o, "audit-log-format") not in AUDIT_FORMATS:
            yield f"invalid audit log format {_value(o, 'audit-log-format')}, allowed formats are {quote(','.join(AUDIT_FORMATS))}"


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
    asked, file = "Webhook" in o.authorization_mode, _value(o, "authorization-webhook-config-file")
    if asked and not file:
        yield "authorization-mode Webhook's authorization config file not passed"
    if file and not asked:
        yield "cannot specify --authorization-webhook-config-file without mode Webhook"
    others = (name == "authorization-mode" or name.startswith("authorization-webhook-") for name in o.given)
    if _value(o, "authorization-config") and any(others):
        yield "--authorization-config can not be specified when --authorization-mode or --authorization-webhook-* flags are defined"


def _headers(o: Options) -> Iterator[str]:
    for name in HEADER_LISTS:
        if any(not value.strip() for value in _value(o, name)):
            yield f"empty value in {quote(name)}"
