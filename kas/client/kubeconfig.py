"""Kubeconfig files of the API server: where a backend is and how both sides authenticate (``load``), or only the
credentials for each of several servers (``load_users``).

Supported are certificates, tokens (also from a file that changes), passwords, and HTTP proxies for https servers;
``exec`` plug-ins and auth providers are refused. Paths in the file are relative to it. Upstream:
``client-go/tools/clientcmd``.
"""

from __future__ import annotations

import base64
import os
import posixpath
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

from kas.client.http import Headers, Target
from kas.client.proxies import PORTS, SOCKS, way
from kas.client.reloadingtls import ReloadingTLS
from kas.meta.field import go_quote
from kas.meta.files import private
from kas.meta.goerrors import unreadable
from kas.meta.gourl import parse
from kas.meta.records import NamedTuple
from kas.meta.tls import AuthoritiesError, trust_as_go, trust_authorities
from kas.types import configfile
from kas.types.configfile import BOOL, BYTES, RAW, STRING, Struct

TOKEN_FILE_AGE_S = 60.0  # client-go reads a token file again after this time
NOTHING = "invalid configuration: no configuration has been provided, try setting KUBERNETES_MASTER environment variable"
NO_CLUSTER = "cluster has no server defined"
REFUSED = {"exec": "exec plug-ins", "auth-provider": "auth providers", "as": "impersonation"}
API_VERSION, KIND = "v1", "Config"
SCHEME = "k8s.io/client-go/tools/clientcmd/api/latest/latest.go:50"

_CLUSTER = Struct("Cluster", {
    "server": STRING, "tls-server-name": STRING, "insecure-skip-tls-verify": BOOL, "certificate-authority": STRING,
    "certificate-authority-data": BYTES, "proxy-url": STRING, "disable-compression": BOOL, "extensions": RAW,
})  # fmt: skip
_USER = Struct("AuthInfo", {
    "client-certificate": STRING, "client-certificate-data": BYTES, "client-key": STRING, "client-key-data": BYTES, "token": STRING,
    "tokenFile": STRING, "as": STRING, "as-uid": STRING, "as-groups": [STRING], "as-user-extra": RAW, "username": STRING,
    "password": STRING, "auth-provider": RAW, "exec": RAW, "extensions": RAW,
})  # fmt: skip
_CONTEXT = Struct("Context", {"cluster": STRING, "user": STRING, "namespace": STRING, "extensions": RAW})
_CONFIG = Struct("Config", {
    "preferences": RAW, "current-context": STRING, "extensions": RAW,
    "clusters": [Struct("NamedCluster", {"name": STRING, "cluster": _CLUSTER})],
    "users": [Struct("NamedAuthInfo", {"name": STRING, "user": _USER})],
    "contexts": [Struct("NamedContext", {"name": STRING, "context": _CONTEXT})],
})  # fmt: skip


class KubeconfigError(ValueError):
    """What is wrong with the file, in one line."""


class Credentials:
    """The credentials of this client. ``cert`` and ``key`` are PEM; if both came from files, ``files`` are their
    paths, else it is empty."""

    def __init__(
        self, token: str = "", token_file: str = "", basic: str = "", cert: bytes = b"", key: bytes = b"", files: tuple[str, ...] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self.token, self.token_file, self.basic, self.cert, self.key, self.files = token, token_file, basic, cert, key, files
        self.clock = clock
        self._read = float("-inf"), ""

    def headers(self) -> Headers:
        """The Authorization header, none without a token or password; a token file is read again when it is due."""
        token = self._from_file() if self.token_file else self.token
        if token:
            return [(b"authorization", f"Bearer {token}".encode())]
        return [(b"authorization", f"Basic {self.basic}".encode())] if self.basic else []

    def refused(self) -> None:
        """The server refused the credentials: a token file is read again for the next request."""
        self._read = float("-inf"), self._read[1]

    def _from_file(self) -> str:
        at, token = self._read
        if self.clock() - at >= TOKEN_FILE_AGE_S:
            try:
                with open(self.token_file, encoding="utf-8") as f:
                    token = f.read().strip() or token
            except (OSError, UnicodeDecodeError):
                pass  # the last token remains in use, as in upstream
            self._read = self.clock(), token
        return token or self.token


ANONYMOUS = Credentials()


class Backend(NamedTuple):
    """Where requests go, and with which credentials. ``tls`` is the target's, and follows the files it is made of."""

    target: Target
    credentials: Credentials
    tls: ReloadingTLS | None = None

    def headers(self) -> Headers:
        """The Authorization header, none without a token or password."""
        return self.credentials.headers()


def load(path: str) -> Backend:
    """The backend of the current context of the kubeconfig at ``path``. Raises KubeconfigError."""
    if not path:
        raise KubeconfigError(NOTHING)
    path = os.path.abspath(path)
    document = _document(path)
    name = document.get("current-context") or ""
    if not name:
        raise KubeconfigError(NOTHING)
    context = _named(document, "contexts", "context", name)
    if context is None:
        raise KubeconfigError(f"context was not found for specified context: {name}")
    cluster_name, user_name = context.get("cluster") or "", context.get("user") or ""
    cluster = _named(document, "clusters", "cluster", cluster_name) or {}
    user = _named(document, "users", "user", user_name) or {}  # a missing user has no credentials, as in upstream
    base = os.path.dirname(path)
    found = [*_user_problems(user, user_name, base), *_cluster_problems(cluster, cluster_name, base)]
    if found == [NO_CLUSTER]:
        raise KubeconfigError(NOTHING)
    _check(found)
    credentials = _credentials(user, user_name, path)
    target, tls = _target(cluster, credentials, base)
    if tls is None:
        credentials = ANONYMOUS  # secrets are not sent over an unencrypted connection; upstream's clients withhold them, too
    if cluster.get("proxy-url"):
        try:
            target = target._replace(via=way(cluster["proxy-url"], tls.context if tls is not None else None))
        except ValueError as e:
            raise KubeconfigError(f'{path}: cluster "{cluster_name}": proxy-url: {e}') from None
    return Backend(target, credentials, tls)


def _proxy_problem(url: str) -> str:
    """``parseProxyURL``."""
    try:
        scheme = parse(url).scheme
    except ValueError:
        return f"could not parse: {url}"
    return "" if scheme in (*PORTS, SOCKS) else f"unsupported scheme {go_quote(scheme)}, must be http, https, or socks5"


class Users:
    """The credentials for each server: the users of a kubeconfig are named after the servers (upstream's
    ``AuthenticationInfoResolver``)."""

    def __init__(self, by_name: Mapping[str, Credentials], default: Credentials = ANONYMOUS) -> None:
        self._by_name, self._default = by_name, default

    def of(self, host: str, port: int) -> Credentials:
        """The credentials named ``host:port``, else ``*.`` and what follows a dot in it, the longest first; for port
        443 the same without the port; else ``*``, and those of the current context."""
        address = f"[{host}]" if ":" in host else host
        for target in (f"{address}:{port}", host) if port == 443 else (f"{address}:{port}",):
            steps = target.split(".")
            for name in (target, *("*." + ".".join(steps[i:]) for i in range(1, len(steps)))):
                if name in self._by_name:
                    return self._by_name[name]
        return self._by_name.get("*", self._default)


def load_users(path: str) -> Users:
    """The users of the kubeconfig at ``path``; none for "". Raises KubeconfigError."""
    if not path:
        return Users({})
    path = os.path.abspath(path)
    document = _document(path)
    names = [item.get("name") or "" for item in document.get("users") or ()]
    users = {name: _credentials(_named(document, "users", "user", name) or {}, name, path) for name in names}
    context = _named(document, "contexts", "context", document.get("current-context") or "") or {}
    return Users(users, users.get(context.get("user") or "", ANONYMOUS))


def _credentials(user: dict[str, Any], name: str, path: str) -> Credentials:
    for key, what in REFUSED.items():
        if user.get(key):
            raise KubeconfigError(f'{path}: user "{name}": {what} are not supported')
    base, basic = os.path.dirname(path), ""
    if user.get("username"):
        basic = base64.b64encode(f"{user['username']}:{user.get('password') or ''}".encode()).decode()
    token_file = os.path.join(base, user["tokenFile"]) if user.get("tokenFile") else ""
    if token_file:
        _bytes_of(token_file)
    cert, private = _pem(user, "client-certificate", base), _pem(user, "client-key", base)
    if bool(cert) != bool(private):
        raise KubeconfigError("invalid configuration: client-certificate and client-key go together")
    files = _paths(user, ("client-certificate", "client-key"), base)
    return Credentials(user.get("token") or "", token_file, basic, cert, private, files if len(files) == 2 else ())


def _document(path: str) -> dict[str, Any]:
    """The content of the file, empty for an empty one. A missing kind or version means this one."""
    from kas.types import yaml_codec  # PyYAML is large

    if not os.path.exists(path):
        raise KubeconfigError(f"stat {path}: no such file or directory")
    try:
        found, _ = yaml_codec.decode(_bytes_of(path))  # parsed as YAML, as in upstream: {a: b} is not JSON
        value = {} if found is None else found
        version, kind = configfile.kind_of(value)
        if (version or API_VERSION, kind or KIND) != (API_VERSION, KIND):
            said = f"no kind {go_quote(kind or KIND)} is registered for version {go_quote(version or API_VERSION)}"
            raise KubeconfigError(f"{said} in scheme {go_quote(SCHEME)}")
        return configfile.decode(value, _CONFIG, strict=False)
    except yaml_codec.YAMLError as e:
        why = " ".join(str(e).split())
    except (configfile.ConfigurationError, KubeconfigError) as e:
        why = str(e)
    raise KubeconfigError(f'error loading config file "{path}": {why}')


def _bytes_of(path: str) -> bytes:
    try:
        with open(path, "rb") as f:
            return f.read()
    except OSError as e:
        raise KubeconfigError(unreadable(path, e)) from None


def _user_problems(user: dict[str, Any], name: str, base: str) -> Iterator[str]:
    """``validateAuthInfo``: one way to authenticate, with everything that it needs."""
    methods = [what for what, keys in (("token", ("token",)), ("basicAuth", ("username", "password"))) if any(map(user.get, keys))]
    if user.get("client-certificate") or user.get("client-certificate-data"):
        if user.get("client-certificate") and user.get("client-certificate-data"):
            yield f"client-cert-data and client-cert are both specified for {name}. client-cert-data will override."
        if user.get("client-key") and user.get("client-key-data"):
            yield f"client-key-data and client-key are both specified for {name}; client-key-data will override"
        if not user.get("client-key") and not user.get("client-key-data"):
            yield f"client-key-data or client-key must be specified for {name} to use the clientCert authentication method."
        yield from _unreadable(user, "client-certificate", "client-cert", name, base)
        yield from _unreadable(user, "client-key", "client-key", name, base)
    if len(methods) > 1:
        yield f"more than one authentication method found for {name}; found [{' '.join(methods)}], only one is allowed"
    if any(map(user.get, ("as-uid", "as-groups", "as-user-extra"))) and not user.get("as"):
        yield f"requesting uid, groups or user-extra for {name} without impersonating a user"


def _cluster_problems(cluster: dict[str, Any], name: str, base: str) -> Iterator[str]:
    """``validateClusterInfo``."""
    if not any(cluster.values()):
        yield NO_CLUSTER
        return
    if not cluster.get("server"):
        yield f'no server found for cluster "{name}"' if name else "default cluster has no server defined"
    why = _proxy_problem(cluster["proxy-url"]) if cluster.get("proxy-url") else ""
    if why:
        yield f"invalid 'proxy-url' {go_quote(cluster['proxy-url'])} for cluster {go_quote(name)}: {why}"
    if cluster.get("certificate-authority") and cluster.get("certificate-authority-data"):
        what = "certificate-authority-data and certificate-authority are both specified"
        yield f"{what} for {name}. certificate-authority-data will override."
    yield from _unreadable(cluster, "certificate-authority", "certificate-authority", name, base)


def _check(found: list[str]) -> None:
    if found:
        raise KubeconfigError("invalid configuration: " + (found[0] if len(found) == 1 else f"[{', '.join(found)}]"))


def _unreadable(part: dict[str, Any], key: str, what: str, name: str, base: str) -> Iterator[str]:
    """Why the file that ``key`` names cannot be opened."""
    if part.get(key):
        path = os.path.join(base, part[key])
        try:
            _bytes_of(path)
        except KubeconfigError as e:
            yield f"unable to read {what} {path} for {name} due to {e}"


def _named(document: dict[str, Any], kind: str, part: str, name: str) -> dict[str, Any] | None:
    return next((item.get(part) or {} for item in document.get(kind) or () if (item.get("name") or "") == name), None)


def _target(cluster: dict[str, Any], credentials: Credentials, base: str) -> tuple[Target, ReloadingTLS | None]:
    server = cluster.get("server") or ""
    ca = _pem(cluster, "certificate-authority", base)
    if "://" not in server:
        server = f"{'https' if ca or credentials.cert else 'http'}://{server}"
    try:
        url = urlsplit(server)
        port = url.port
    except ValueError:
        raise KubeconfigError(f"host must be a URL or a host:port pair: {go_quote(cluster['server'])}") from None
    if url.scheme not in ("http", "https") or not url.hostname:
        raise KubeconfigError(f"invalid configuration: server {server} is not an http or https URL")
    tls = None
    if url.scheme == "https":
        insecure = cluster.get("insecure-skip-tls-verify") is True
        if insecure and ca:
            raise KubeconfigError("specifying a root certificates file with the insecure flag is not allowed")
        files = () if insecure else _paths(cluster, ("certificate-authority",), base)
        tls = _renewed(files, ca, credentials, insecure)
    path = posixpath.normpath("/" + unquote(url.path).lstrip("/"))
    context = tls.context() if tls is not None else None
    return Target(url.scheme, url.hostname, str(port or ""), path, url.query, context, cluster.get("tls-server-name") or ""), tls


def _renewed(
    authorities: tuple[str, ...], ca: bytes, credentials: Credentials, insecure: bool = False, protocols: Sequence[str] = ()
) -> ReloadingTLS:
    """``client_tls`` that follows the files: ``authorities`` has the path that ``ca`` was read from, or is empty."""

    def made(*contents: bytes) -> ssl.SSLContext:
        trusted, own = contents[: len(authorities)], contents[len(authorities) :]
        if b"" in contents:
            raise KubeconfigError("there is nothing in it")  # an empty file would mean the system's CAs, or no client certificate
        shown = Credentials(cert=own[0], key=own[1]) if own else credentials
        return prepared(trusted[0] if trusted else ca, shown)

    def prepared(trusted: bytes, shown: Credentials) -> ssl.SSLContext:
        context = client_tls(trusted, shown, insecure)
        if protocols:
            context.set_alpn_protocols(protocols)
        return context

    first: tuple[bytes, ...] = (ca,) if authorities else ()
    first += (credentials.cert, credentials.key) if credentials.files else ()
    return ReloadingTLS((*authorities, *credentials.files), first, prepared(ca, credentials), made)


def renewed(ca: bytes, credentials: Credentials, protocols: Sequence[str]) -> ReloadingTLS:
    """``client_tls`` that follows the files of the credentials and offers these protocols. Raises KubeconfigError."""
    return _renewed((), ca, credentials, protocols=protocols)


def _paths(part: dict[str, Any], names: tuple[str, ...], base: str) -> tuple[str, ...]:
    """The paths in the fields ``names``, apart from fields that are overridden by data."""
    return tuple(os.path.join(base, part[name]) for name in names if part.get(name) and not part.get(name + "-data"))


def _pem(part: dict[str, Any], name: str, base: str) -> bytes:
    """The content of ``name-data``, else of the file that ``name`` names."""
    data: bytes = part.get(name + "-data") or b""
    return data or (_bytes_of(os.path.join(base, part[name])) if part.get(name) else b"")


def client_tls(ca: bytes, credentials: Credentials = ANONYMOUS, insecure: bool = False) -> ssl.SSLContext:
    """A client context that requires a certificate issued by ``ca`` (PEM; the system's CAs if empty), and presents that of the credentials.

    Raises KubeconfigError for invalid certificates.
    """
    context = trust_as_go(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if ca else ssl.create_default_context())
    if ca:
        try:
            trust_authorities(context, ca)
        except AuthoritiesError as e:
            raise KubeconfigError(str(e)) from None
    for what, data in (("certificate", credentials.cert), ("key", credentials.key)):
        if data and b"-----BEGIN" not in data:
            raise KubeconfigError(f"tls: failed to find any PEM data in {what} input")
    try:
        if insecure:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if credentials.cert:
            # Python's ssl module takes only files for these two.
            import tempfile  # a third of a MiB that only client certificates need

            with tempfile.TemporaryDirectory(prefix="kas-") as folder:
                for part, data in (("cert", credentials.cert), ("key", credentials.key)):
                    with open(os.path.join(folder, part), "wb", opener=private) as f:
                        f.write(data)
                context.load_cert_chain(os.path.join(folder, "cert"), os.path.join(folder, "key"), password=lambda: b"")
    except ssl.SSLError as e:
        raise KubeconfigError(f"invalid configuration: certificates: {getattr(e, 'reason', None) or e}") from None
    return context
