"""A kubeconfig as the API server reads one: where a backend is, and how it and we prove who we are.

Certificates, tokens (also from a file that changes) and passwords; ``exec`` plug-ins, auth providers and proxies are refused. Paths in
the file are relative to it. Upstream: ``client-go/tools/clientcmd``.
"""

from __future__ import annotations

import base64
import binascii
import os
import posixpath
import ssl
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from kas.client.http import Headers, Target

TOKEN_FILE_AGE_S = 60.0  # client-go reads a token file again after so long
NOTHING = "invalid configuration: no configuration has been provided"
REFUSED = {"exec": "exec plug-ins", "auth-provider": "auth providers", "as": "impersonation"}
# What is read, and is text.
STRINGS = frozenset((
    "cluster", "user", "server", "tls-server-name", "certificate-authority", "certificate-authority-data", "client-certificate",
    "client-certificate-data", "client-key", "client-key-data", "token", "tokenFile", "username", "password",
))  # fmt: skip


class KubeconfigError(ValueError):
    """What is wrong with the file, in one line."""


@dataclass
class Backend:
    """Where requests go, and with which credentials."""

    target: Target
    token: str = ""
    token_file: str = ""
    basic: str = ""
    clock: Callable[[], float] = time.monotonic
    _read: tuple[float, str] = field(default=(float("-inf"), ""), repr=False)

    def headers(self) -> Headers:
        """The authorization header, none without a credential; a token file is read again when it is due."""
        token = self._from_file() if self.token_file else self.token
        if token:
            return [(b"authorization", f"Bearer {token}".encode())]
        return [(b"authorization", f"Basic {self.basic}".encode())] if self.basic else []

    def _from_file(self) -> str:
        at, token = self._read
        if self.clock() - at >= TOKEN_FILE_AGE_S:
            try:
                with open(self.token_file, encoding="utf-8") as f:
                    token = f.read().strip() or token
            except (OSError, UnicodeDecodeError):
                pass  # what was read last goes on counting, upstream too
            self._read = self.clock(), token
        return token or self.token


def load(path: str) -> Backend:
    """The backend that the current context of the kubeconfig at ``path`` names. Raises KubeconfigError."""
    if not path:
        raise KubeconfigError(NOTHING)
    path = os.path.abspath(path)
    document = _document(path)
    name = document.get("current-context") or ""
    if not name:
        raise KubeconfigError(NOTHING)
    context = _named(document, "contexts", "context", name)
    if context is None:
        raise KubeconfigError(f"invalid configuration: context was not found for specified context: {name}")
    cluster_name, user_name = context.get("cluster") or "", context.get("user") or ""
    cluster = _named(document, "clusters", "cluster", cluster_name)
    if cluster is None:
        raise KubeconfigError(f'invalid configuration: cluster "{cluster_name}" does not exist')
    user = _named(document, "users", "user", user_name) if user_name else {}
    if user is None:
        raise KubeconfigError(f'invalid configuration: user "{user_name}" does not exist')
    for key, what in REFUSED.items():
        if user.get(key):
            raise KubeconfigError(f'{path}: user "{user_name}": {what} are not supported')
    if cluster.get("proxy-url"):
        raise KubeconfigError(f'{path}: cluster "{cluster_name}": proxy-url is not supported')
    base = os.path.dirname(path)
    target = _target(cluster, user, cluster_name, base)
    basic = ""
    if user.get("username"):
        basic = base64.b64encode(f"{user['username']}:{user.get('password') or ''}".encode()).decode()
    token_file = os.path.join(base, user["tokenFile"]) if user.get("tokenFile") else ""
    if token_file:
        _bytes_of(token_file)
    return Backend(target, user.get("token") or "", token_file, basic)


def _document(path: str) -> dict[str, Any]:
    from kas.types import yaml_codec  # PyYAML is large

    try:
        value, _ = yaml_codec.decode(_bytes_of(path))
    except yaml_codec.YAMLError as e:
        raise KubeconfigError(f'error loading config file "{path}": {" ".join(str(e).split())}') from None
    if not isinstance(value, dict):
        raise KubeconfigError(NOTHING)
    return value


def _bytes_of(path: str) -> bytes:
    try:
        with open(path, "rb") as f:
            return f.read()
    except OSError as e:
        raise KubeconfigError(f"open {path}: {(e.strerror or str(e)).lower()}") from None


def _named(document: dict[str, Any], kind: str, part: str, name: str) -> dict[str, Any] | None:
    items = document.get(kind) or ()
    if not isinstance(items, (list, tuple)):
        raise KubeconfigError(f"invalid configuration: {kind} is not a list")
    for item in items:
        if isinstance(item, dict) and item.get("name") == name:
            found = item.get(part) or {}
            if not isinstance(found, dict):
                raise KubeconfigError(f'invalid configuration: {part} "{name}" is not an object')
            for key, value in found.items():
                if value is not None and key in STRINGS and not isinstance(value, str):
                    raise KubeconfigError(f'invalid configuration: {part} "{name}": {key} is not a string')
            return found
    return None


def _target(cluster: dict[str, Any], user: dict[str, Any], name: str, base: str) -> Target:
    server = cluster.get("server") or ""
    if not server:
        raise KubeconfigError(f'invalid configuration: no server found for cluster "{name}"')
    ca, cert, key = _pem(cluster, "certificate-authority", base), _pem(user, "client-certificate", base), _pem(user, "client-key", base)
    if "://" not in server:
        server = f"{'https' if ca or cert else 'http'}://{server}"
    try:
        url = urlsplit(server)
        port = url.port
    except ValueError as e:
        raise KubeconfigError(f"invalid configuration: server {server}: {e}") from None
    if url.scheme not in ("http", "https") or not url.hostname:
        raise KubeconfigError(f"invalid configuration: server {server} is not an http or https URL")
    tls = None
    if url.scheme == "https":
        tls = _tls(ca, cert, key, cluster.get("insecure-skip-tls-verify") is True)
    path = posixpath.normpath("/" + unquote(url.path).lstrip("/"))
    return Target(url.scheme, url.hostname, str(port or ""), path, url.query, tls, cluster.get("tls-server-name") or "")


def _pem(part: dict[str, Any], name: str, base: str) -> bytes:
    """``name-data``, or the file that ``name`` is about."""
    data = part.get(name + "-data")
    if data:
        try:
            return base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError):
            raise KubeconfigError(f"invalid configuration: {name}-data is not base64") from None
    return _bytes_of(os.path.join(base, part[name])) if part.get(name) else b""


def _tls(ca: bytes, cert: bytes, key: bytes, insecure: bool) -> ssl.SSLContext:
    if insecure and ca:
        raise KubeconfigError("specifying a root certificates file with the insecure flag is not allowed")
    if bool(cert) != bool(key):
        raise KubeconfigError("invalid configuration: client-certificate and client-key go together")
    try:
        context = ssl.create_default_context(cadata=ca.decode("ascii") if ca else None)
        if insecure:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if cert:
            # OpenSSL's Python face takes only files for these two.
            with tempfile.TemporaryDirectory(prefix="kas-") as folder:
                for part, data in (("cert", cert), ("key", key)):
                    with open(os.path.join(folder, part), "wb", opener=lambda p, flags: os.open(p, flags, 0o600)) as f:
                        f.write(data)
                context.load_cert_chain(os.path.join(folder, "cert"), os.path.join(folder, "key"), password=lambda: b"")
    except (ssl.SSLError, UnicodeDecodeError) as e:
        raise KubeconfigError(f"invalid configuration: certificates: {getattr(e, 'reason', None) or e}") from None
    return context
