"""The list of authorizers: an AuthorizationConfiguration, from ``--authorization-config`` or built from the flags.

Decoding is strict, and all problems are reported at once. Upstream: apiserver ``pkg/apis/apiserver/{load,validation}``,
``pkg/kubeapiserver/authorizer``.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from kas.auth.attributes import aggregate
from kas.meta import duration
from kas.meta.field import NOT_SUPPORTED, FieldError, child, duplicate, go_quote, index, invalid, not_supported, required
from kas.meta.names import is_dns1123_subdomain
from kas.meta.records import NamedTuple
from kas.types.configfile import BOOL, DURATION, STRING, ConfigurationError, Kinds, Struct, check, of_kind, parse, read_file

if TYPE_CHECKING:
    from kas.auth.authz.matchconditions import MatchConditions
    from kas.config.options import Options

FLAG = "--authorization-config"
WEBHOOK = "Webhook"
TYPES = ("ABAC", "AlwaysAllow", "AlwaysDeny", "Node", "RBAC", WEBHOOK)
VERSIONS = ("v1", "v1beta1")
IN_CLUSTER, KUBECONFIG_FILE = "InClusterConfig", "KubeConfigFile"
SECOND = 10**9
MAX_TIMEOUT = 30 * SECOND
AUTHORIZED_TTL, UNAUTHORIZED_TTL = 300 * SECOND, 30 * SECOND

_WEBHOOK = Struct("WebhookConfiguration", {
    "authorizedTTL": DURATION, "cacheAuthorizedRequests": BOOL, "unauthorizedTTL": DURATION, "cacheUnauthorizedRequests": BOOL,
    "timeout": DURATION, "subjectAccessReviewVersion": STRING, "matchConditionSubjectAccessReviewVersion": STRING, "failurePolicy": STRING,
    "connectionInfo": Struct("WebhookConnectionInfo", {"type": STRING, "kubeConfigFile": STRING}),
    "matchConditions": [Struct("WebhookMatchCondition", {"expression": STRING})],
})  # fmt: skip
_AUTHORIZER = Struct("AuthorizerConfiguration", {"type": STRING, "name": STRING, "webhook": _WEBHOOK})
_CONFIGURATION = Struct("AuthorizationConfiguration", {"authorizers": [_AUTHORIZER]})
KINDS: Kinds = {
    (f"apiserver.config.k8s.io/{version}", "AuthorizationConfiguration"): _CONFIGURATION for version in ("v1", "v1beta1", "v1alpha1")
}
SCHEME = "k8s.io/apiserver/pkg/apis/apiserver/load/load.go:32"


class WebhookSettings(NamedTuple):
    """The settings of one webhook. Times are nanoseconds; a time to live of 0 disables caching."""

    kubeconfig: str
    timeout: int
    authorized_ttl: int
    unauthorized_ttl: int
    version: str
    deny_on_error: bool
    conditions: tuple[str, ...] = ()


class AuthorizerSettings(NamedTuple):
    """One authorizer: its mode, its name in metrics, and the settings of a Webhook."""

    type: str
    name: str
    webhook: WebhookSettings | None = None


Authorizers = tuple[AuthorizerSettings, ...]


def from_flags(o: Options) -> Authorizers:
    """Return the configuration of ``--authorization-mode`` and ``--authorization-webhook-*``."""
    hook = WebhookSettings(
        o.authorization_webhook_config_file, MAX_TIMEOUT, int(o.authorization_webhook_cache_authorized_ttl * SECOND),
        int(o.authorization_webhook_cache_unauthorized_ttl * SECOND), o.authorization_webhook_version, False,
    )  # fmt: skip
    return tuple(
        AuthorizerSettings(mode, "default", hook) if mode == WEBHOOK else AuthorizerSettings(mode, mode.lower())
        for mode in o.authorization_mode
    )


def load_file(path: str) -> Authorizers:
    """Load and validate the file. Raises ConfigurationError."""
    return load(read_file(path))


def _unexpected(_: str, kind: str) -> str:
    return f"expected AuthorizationConfiguration, got *apiserver.{kind}"


def load(data: bytes, needed: Collection[str] = ()) -> Authorizers:
    """Parse and validate the content of a file; ``needed`` are modes it must contain. Raises ConfigurationError."""
    try:
        # An empty file is an empty configuration, which lacks authorizers.
        authorizers = of_kind(parse(data), KINDS, SCHEME, _unexpected).get("authorizers") or [] if data else []
    except ConfigurationError as e:
        raise ConfigurationError(f"failed to load AuthorizationConfiguration from file: {e}") from None
    check(_problems(authorizers))
    wrong = [
        f"expected name {a['type'].lower()} for authorizer {a['type']} instead of {a['name']}"
        for a in authorizers if a["type"] != WEBHOOK and a["name"] != a["type"].lower()
    ]  # fmt: skip
    missing = sorted(set(needed) - {a["type"] for a in authorizers})
    if missing:
        wrong.append(f"missing required authorizer types: {', '.join(missing)}")
    if wrong:
        raise ConfigurationError(aggregate(wrong))
    return tuple(AuthorizerSettings(a["type"], a["name"], _settings(a["webhook"]) if "webhook" in a else None) for a in authorizers)


def _settings(w: dict[str, Any]) -> WebhookSettings:
    return WebhookSettings(
        w["connectionInfo"]["kubeConfigFile"], w["timeout"],
        (w.get("authorizedTTL") or AUTHORIZED_TTL) if w.get("cacheAuthorizedRequests", True) else 0,
        (w.get("unauthorizedTTL") or UNAUTHORIZED_TTL) if w.get("cacheUnauthorizedRequests", True) else 0,
        w["subjectAccessReviewVersion"], w["failurePolicy"] == "Deny",
        tuple(c.get("expression") or "" for c in w.get("matchConditions") or ()),
    )  # fmt: skip


def _problems(authorizers: Sequence[dict[str, Any]]) -> list[FieldError]:
    """Return all problems (``ValidateAuthorizationConfiguration``)."""
    found: list[FieldError] = []
    if not authorizers:
        found.append(required("authorizers", "at least one authorization mode must be defined"))
    types: set[str] = set()
    names: set[str] = set()
    for i, a in enumerate(authorizers):
        path, type_, name = index("authorizers", i), a.get("type") or "", a.get("name") or ""
        if not type_:
            found.append(required(child(path, "type")))
        elif type_ not in TYPES:
            found.append(not_supported(child(path, "type"), type_, TYPES))
        elif type_ in types and type_ != WEBHOOK:
            found.append(duplicate(child(path, "type"), type_))
        else:
            types.add(type_)
            found += _name_problems(child(path, "name"), name, names)
            names.add(name)
            found += _webhook_problems(path, type_, a.get("webhook"))
    return found


def _name_problems(path: str, name: str, others: set[str]) -> list[FieldError]:
    if not name:
        return [required(path)]
    if name in others:
        return [duplicate(path, name)]
    problems = is_dns1123_subdomain(name)
    return [invalid(path, name, f"authorizer name is invalid: {', '.join(problems)}")] if problems else []


def _webhook_problems(path: str, type_: str, webhook: dict[str, Any] | None) -> list[FieldError]:
    if type_ != WEBHOOK:
        return [] if webhook is None else [invalid(child(path, "webhook"), "non-null", "may only be specified when type=Webhook")]
    if webhook is None:
        return [required(child(path, "webhook"), "required when type=Webhook")]
    found = _time_problems(path, webhook)
    found += _listed(child(path, "subjectAccessReviewVersion"), webhook.get("subjectAccessReviewVersion") or "", VERSIONS)
    conditions = [c.get("expression") or "" for c in webhook.get("matchConditions") or ()]
    shown, at = webhook.get("matchConditionSubjectAccessReviewVersion") or "", child(path, "matchConditionSubjectAccessReviewVersion")
    if shown:
        found += _listed(at, shown, ("v1",))
    elif conditions:
        found.append(required(at, "required if match conditions are specified"))
    found += _listed(child(path, "failurePolicy"), webhook.get("failurePolicy") or "", ("NoOpinion", "Deny"))
    found += _connection_problems(child(path, "connectionInfo"), webhook.get("connectionInfo") or {})
    if conditions:
        from kas.auth.authz.matchconditions import compiled  # CEL is large

        found += compiled(conditions, path)[1]
    return found


def _time_problems(path: str, webhook: dict[str, Any]) -> list[FieldError]:
    found = []
    timeout = webhook.get("timeout") or 0
    if not timeout:
        found.append(required(child(path, "timeout")))
    elif not 0 < timeout <= MAX_TIMEOUT:
        found.append(invalid(child(path, "timeout"), duration.format_ns(timeout), "must be > 0s and <= 30s"))
    for name in ("authorizedTTL", "unauthorizedTTL"):  # 0 selects the default
        ttl = webhook.get(name) or 0
        if ttl < 0:
            found.append(invalid(child(path, name), duration.format_ns(ttl), "must be > 0s"))
    return found


def _listed(path: str, value: str, valid: Sequence[str]) -> list[FieldError]:
    if not value:
        return [required(path)]
    return [] if value in valid else [_unsupported(path, value, valid)]


def _unsupported(path: str, value: Any, valid: Sequence[str]) -> FieldError:
    """Upstream lists the valid values in declaration order here, not sorted."""
    return FieldError(NOT_SUPPORTED, path, value, "supported values: " + ", ".join(map(go_quote, valid)))


def _connection_problems(path: str, info: dict[str, Any]) -> list[FieldError]:
    type_, file, at = info.get("type") or "", info.get("kubeConfigFile"), child(path, "kubeConfigFile")
    if not type_:
        return [required(child(path, "type"))]
    if type_ == IN_CLUSTER:
        if file is not None:
            return [invalid(at, file, "can only be set when type=KubeConfigFile")]
        # It is for API servers that run inside a cluster and call that cluster's API server.
        return [invalid(child(path, "type"), type_, "not supported for kube-apiserver")]
    if type_ != KUBECONFIG_FILE:
        value = {"Type": type_, "KubeConfigFile": file}
        return [_unsupported(child(path, "type"), value, (IN_CLUSTER, KUBECONFIG_FILE))]
    if not file:
        return [required(at)]
    if not os.path.isabs(file):
        return [invalid(at, file, "must be an absolute path")]
    try:
        mode = os.stat(file).st_mode
    except OSError as e:
        return [invalid(at, file, f"error loading file: stat {file}: {(e.strerror or str(e)).lower()}")]
    return [] if stat.S_ISREG(mode) else [invalid(at, file, "must be a regular file")]


def conditions_of(settings: WebhookSettings) -> MatchConditions | None:
    """Return the compiled match conditions of validated settings; None if there are none."""
    if not settings.conditions:
        return None
    from kas.auth.authz.matchconditions import compiled  # CEL is large

    return compiled(settings.conditions, "")[0]
