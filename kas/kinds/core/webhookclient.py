"""Validation of webhooks' ``clientConfig`` in all kinds (upstream ``apiserver/pkg/util/webhook/validation.go``)."""

from __future__ import annotations

import base64
from typing import Any
from urllib.parse import unquote

from kas.meta import field, gourl, names
from kas.meta.field import FieldError
from kas.meta.pem import authorities_problem


def webhook_url(path: str, text: str, force_https: bool) -> list[FieldError]:
    """``ValidateWebhookURL``: https, a host, no user, fragment or query."""
    form = "; desired format: https://host[/path]"
    try:
        url = gourl.parse(text)
    except ValueError as e:
        return [field.required(path, f"url must be a valid URL: {e}{form}")]
    errs: list[FieldError] = []
    if force_https and url.scheme != "https":
        errs.append(field.invalid(path, url.scheme, "'https' is the only allowed URL scheme" + form))
    if not url.host:
        errs.append(field.invalid(path, url.host, "host must be specified" + form))
    if url.user is not None:
        errs.append(field.invalid(path, url.userinfo, "user information is not permitted in the URL"))
    if url.fragment:
        errs.append(field.invalid(path, unquote(url.fragment), "fragments are not permitted in the URL"))
    if url.query:
        errs.append(field.invalid(path, url.query, "query parameters are not permitted in the URL"))
    return errs


def webhook_service(path: str, service: dict[str, Any]) -> list[FieldError]:
    """``ValidateWebhookService``."""
    errs: list[FieldError] = []
    # upstream's callers swap name and namespace, which clients see
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
    """Validate a client config, which must have exactly one of url and service."""
    url, service = config.get("url"), config.get("service")
    if (url is None) == (service is None):
        return [field.required(path, "exactly one of url or service is required")]
    if url is not None:
        return webhook_url(field.child(path, "url"), url, force_https)
    assert service is not None  # exactly one is
    return webhook_service(field.child(path, "service"), service)


def ca_bundle(path: str, config: dict[str, Any]) -> list[FieldError]:
    """``ValidateCABundle`` of a client config at ``path``: empty, or with a certificate."""
    bundle = config.get("caBundle") or ""
    problem = authorities_problem(base64.b64decode(bundle)) if bundle else ""
    return [field.invalid(field.child(path, "caBundle"), bundle, problem)] if problem else []
