"""Validation of a webhook's ``clientConfig`` (upstream ``apiserver/pkg/util/webhook/validation.go``), in whichever kind it stands."""

from __future__ import annotations

import base64
import re
from typing import Any
from urllib.parse import SplitResult, urlsplit

from kas.meta import field, names
from kas.meta.field import FieldError, go_quote
from kas.meta.pem import authorities_problem

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


def ca_bundle(path: str, config: dict[str, Any]) -> list[FieldError]:
    """``ValidateCABundle`` of a client config at ``path``: none, or one with a certificate."""
    bundle = config.get("caBundle") or ""
    problem = authorities_problem(base64.b64decode(bundle)) if bundle else ""
    return [field.invalid(field.child(path, "caBundle"), bundle, problem)] if problem else []
