"""Validation of webhook clients and admission rules (upstream ``apiserver/pkg/util/webhook`` and
``pkg/apis/admissionregistration/validation``), shared by webhook configurations, policies and CustomResourceDefinitions.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import SplitResult, urlsplit

from kas.api import field
from kas.api.field import FieldError, go_quote
from kas.api.validation import names
from kas.api.validation.checks import invalid_each, qualified_name, unsupported
from kas.api.validation.labelselectors import label_selector

OPERATIONS = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
MUTATING_OPERATIONS = ("*", "CONNECT", "CREATE", "UPDATE")
SCOPES = ("*", "Cluster", "Namespaced")
FAILURE_POLICIES = ("Fail", "Ignore")
MATCH_POLICIES = ("Equivalent", "Exact")
MAX_MATCH_CONDITIONS = 64
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def webhook_url(path: str, text: str, force_https: bool) -> list[FieldError]:
    """``ValidateWebhookURL``: https, a host, no user, fragment or query."""
    form = "; desired format: https://host[/path]"
    try:
        url = _parse_url(text)
    except ValueError as e:
        return [field.required(path, "url must be a valid URL: " + str(e) + form)]
    errs: list[FieldError] = []
    if force_https and url.scheme != "https":
        errs.append(field.invalid(path, url.scheme, "'https' is the only allowed URL scheme" + form))
    host = url.netloc.rpartition("@")[2]
    if not host:
        errs.append(field.invalid(path, host, "host must be specified" + form))
    if "@" in url.netloc:
        user = url.netloc.rpartition("@")[0]
        errs.append(field.invalid(path, user, "user information is not permitted in the URL"))
    if url.fragment:
        errs.append(field.invalid(path, url.fragment, "fragments are not permitted in the URL"))
    if url.query:
        errs.append(field.invalid(path, url.query, "query parameters are not permitted in the URL"))
    return errs


def _parse_url(text: str) -> SplitResult:
    """``url.Parse`` as far as refusing goes; ValueError carries Go's message."""
    if _CONTROL.search(text):
        raise ValueError(f"parse {go_quote(text)}: net/url: invalid control character in URL")
    head = text.partition("#")[0]
    scheme, colon, rest = head.partition(":")
    if head.startswith(":"):
        raise ValueError(f"parse {go_quote(text)}: missing protocol scheme")
    is_scheme = bool(colon) and re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*", scheme) is not None
    if not is_scheme and colon and "/" not in scheme and not rest.startswith("//") and not head.startswith("/"):
        raise ValueError(f"parse {go_quote(text)}: first path segment in URL cannot contain colon")
    for match in re.finditer(r"%(.{0,2})", head.partition("?")[0]):
        if not re.fullmatch(r"[0-9A-Fa-f]{2}", match.group(1)):
            raise ValueError(f"parse {go_quote(text)}: invalid URL escape {go_quote(match.group(0))}")
    try:
        url = urlsplit(text)
    except ValueError:
        raise ValueError(f"parse {go_quote(text)}: missing ']' in host") from None
    host = url.netloc.rpartition("@")[2]
    if " " in host:
        raise ValueError(f'parse {go_quote(text)}: invalid character " " in host name')
    port = re.search(r":([^\]:]*)$", host)
    if port is not None and not re.fullmatch(r"[0-9]*", port.group(1)):
        raise ValueError(f"parse {go_quote(text)}: invalid port {go_quote(':' + port.group(1))} after host")
    return url


def webhook_service(path: str, service: dict[str, Any]) -> list[FieldError]:
    """``ValidateWebhookService``."""
    errs: list[FieldError] = []
    # upstream's callers hand over name and namespace in each other's place, and clients see it so
    for reported, name in (("name", "namespace"), ("namespace", "name")):
        if not service.get(name):
            errs.append(field.required(field.child(path, reported)))
    port = service.get("port", 443)
    if port is not None and names.is_port_number(port):
        errs.append(field.invalid(field.child(path, "port"), port, "port is not valid: " + ",".join(names.is_port_number(port))))
    url_path = service.get("path")
    if not url_path or url_path == "/":
        return errs
    at = field.child(path, "path")
    if url_path == "//":
        errs.append(field.invalid(at, url_path, "segment[0] may not be empty"))
        return errs
    if not url_path.startswith("/"):
        errs.append(field.invalid(at, url_path, "must start with a '/'"))
    steps = url_path[1:].removesuffix("/").split("/")
    for i, step in enumerate(steps):
        if not step:
            errs.append(field.invalid(at, url_path, f"segment[{i}] may not be empty"))
            continue
        for message in names.is_dns1123_subdomain(step):
            errs.append(field.invalid(at, url_path, f"segment[{i}]: {message}"))
    return errs


def client_config(path: str, config: dict[str, Any], force_https: bool = True) -> list[FieldError]:
    """Exactly one of url and service."""
    url, service = config.get("url"), config.get("service")
    if (url is None) == (service is None):
        return [field.required(path, "exactly one of url or service is required")]
    if url is not None:
        return webhook_url(field.child(path, "url"), url, force_https)
    assert service is not None  # exactly one is
    return webhook_service(field.child(path, "service"), service)


# -- rules ---------------------------------------------------------------------------------------------------------------


def rule_with_operations(rule: dict[str, Any], path: str) -> list[FieldError]:
    errs: list[FieldError] = []
    operations, at = rule.get("operations") or [], field.child(path, "operations")
    if not operations:
        errs.append(field.required(at))
    if len(operations) > 1 and "*" in operations:
        errs.append(field.invalid(at, operations, "if '*' is present, must not specify other operations"))
    for i, operation in enumerate(operations):
        if operation not in OPERATIONS:
            errs.append(unsupported(field.index(at, i), operation, OPERATIONS))
    return errs + _rule(rule, path)


def _rule(rule: dict[str, Any], path: str) -> list[FieldError]:
    errs: list[FieldError] = []
    for name, words in (("apiGroups", "API groups"), ("apiVersions", "API versions")):
        values, at = rule.get(name) or [], field.child(path, name)
        if not values:
            errs.append(field.required(at))
        if len(values) > 1 and "*" in values:
            errs.append(field.invalid(at, values, f"if '*' is present, must not specify other {words}"))
        if name == "apiVersions":  # the group may be empty, the version may not
            errs += [field.required(field.index(at, i)) for i, version in enumerate(values) if not version]
    errs += _resources(rule.get("resources") or [], field.child(path, "resources"))
    scope = rule.get("scope")
    if scope is not None and scope not in SCOPES:
        errs.append(unsupported(field.child(path, "scope"), scope, SCOPES))
    return errs


def _resources(resources: list[str], path: str) -> list[FieldError]:
    errs = [] if resources else [field.required(path)]
    all_subresources: set[str] = set()  # x/*
    all_resources: set[str] = set()  # */x
    plain = False
    for i, text in enumerate(resources):
        at = field.index(path, i)
        if not text:
            errs.append(field.required(at))
            continue
        resource, slash, sub = text.partition("/")
        if not slash:
            plain = text != "*"
            continue
        if resource in all_subresources:
            errs.append(field.invalid(at, text, f"if '{resource}/*' is present, must not specify {text}"))
        if sub in all_resources:
            errs.append(field.invalid(at, text, f"if '*/{sub}' is present, must not specify {text}"))
        if sub == "*":
            all_subresources.add(resource)
        if resource == "*":
            all_resources.add(sub)
    if len(resources) > 1 and "*/*" in resources:
        errs.append(field.invalid(path, resources, "if '*/*' is present, must not specify other resources"))
    if "*" in resources and plain:
        errs.append(field.invalid(path, resources, "if '*' is present, must not specify other resources without subresources"))
    return errs


# -- matching ------------------------------------------------------------------------------------------------------------


def match_conditions(items: list[dict[str, Any]] | None, path: str, params: bool = False) -> list[FieldError]:
    """``params``: whether the expressions may name ``params``."""
    errs: list[FieldError] = []
    items = items or []
    if len(items) > MAX_MATCH_CONDITIONS:
        errs.append(field.too_many(path, len(items), MAX_MATCH_CONDITIONS))
    seen: set[str] = set()
    for i, item in enumerate(items):
        at = field.index(path, i)
        name = item.get("name") or ""
        expression = (item.get("expression") or "").strip()
        if not expression:
            errs.append(field.required(field.child(at, "expression")))
        else:
            from kas.api.validation.expressions import condition  # most servers never see one

            errs += condition(expression, field.child(at, "expression"), params)
        errs += qualified_name(name, field.child(at, "name")) if name else [field.required(field.child(at, "name"))]
        if name and name in seen:
            errs.append(field.duplicate(field.child(at, "name"), name))
        seen.add(name)
    return errs


def match_resources(match: dict[str, Any] | None, path: str) -> list[FieldError]:
    """MatchResources of policies and bindings; selectors are judged strictly."""
    if match is None:
        return []
    errs: list[FieldError] = []
    policy = match.get("matchPolicy")
    if policy is None:
        errs.append(field.required(field.child(path, "matchPolicy")))
    elif policy not in MATCH_POLICIES:
        errs.append(unsupported(field.child(path, "matchPolicy"), policy, MATCH_POLICIES))
    for name in ("namespaceSelector", "objectSelector"):
        if match.get(name) is None:
            errs.append(field.required(field.child(path, name)))
        else:
            errs += label_selector(match[name], field.child(path, name))
    for name in ("resourceRules", "excludeResourceRules"):
        for i, rule in enumerate(match.get(name) or ()):
            errs += _named_rule(rule, field.index(field.child(path, name), i))
    return errs


def mutating_operations(match: dict[str, Any] | None, path: str) -> list[FieldError]:
    """A mutating policy does not see deletions, which leave nothing to mutate; the path names no rule, as upstream's."""
    at = field.child(path, "resourceRules", "operations")
    asked = [op for rule in (match or {}).get("resourceRules") or () for op in rule.get("operations") or ()]
    return [unsupported(at, op, MUTATING_OPERATIONS) for op in asked if op not in MUTATING_OPERATIONS]


def _named_rule(rule: dict[str, Any], path: str) -> list[FieldError]:
    errs: list[FieldError] = []
    seen: set[str] = set()
    for i, name in enumerate(rule.get("resourceNames") or ()):
        at = field.index(field.child(path, "resourceNames"), i)
        errs += invalid_each(at, name, names.is_path_segment_name(name))
        if name in seen:
            errs.append(field.duplicate(at, name))
        seen.add(name)
    return errs + rule_with_operations(rule, path)
