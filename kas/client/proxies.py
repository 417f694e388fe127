"""Proxies between this server and a backend: the one in a kubeconfig's ``proxy-url``, and those of the environment.

``HTTPS_PROXY``, ``HTTP_PROXY`` and ``NO_PROXY``, also in lower case, mean what they mean to Go programs
(golang.org/x/net/http/httpproxy); kubeadm passes them to the API server's pod.
"""

from __future__ import annotations

import base64
import ipaddress
import re
import ssl
from collections.abc import Callable, Mapping
from urllib.parse import SplitResult, unquote, urlsplit

from kas.client.http import Target, Via
from kas.meta.gourl import parse
from kas.meta.records import NamedTuple

PORTS = {"http": 80, "https": 443}
SOCKS = "socks5"
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def way(url: str, tls: Callable[[], ssl.SSLContext] | None) -> Via:
    """The way through the proxy at ``url``.

    An HTTP proxy is only used for https servers. If the proxy itself is an https one, the same certificates apply:
    ``tls`` returns them; it is None for a plain server. The metrics of ``--egress-selector-config-file`` do not
    count it. Raises ValueError for an unusable URL.
    """
    from kas.client.connectproxy import ConnectProxy, DialMetrics  # few kubeconfigs have a proxy
    from kas.observe.metrics import Registry

    parts = urlsplit(url)
    if not parts.hostname:
        raise ValueError("no host")
    if parts.scheme == SOCKS:
        return _socks(parts)
    if tls is None:
        raise ValueError("http and https proxies before http servers are not supported")
    said = ""
    if parts.username is not None:
        login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        said = f"Proxy-Authorization: Basic {base64.b64encode(login.encode()).decode()}\r\n"
    address = parts.hostname, parts.port or PORTS[parts.scheme]
    own = tls if parts.scheme == "https" else None
    return ConnectProxy(DialMetrics(Registry()), address=address, tls=own, headers=lambda wanted: f"Host: {wanted}\r\n{said}".encode())


def _socks(parts: SplitResult) -> Via:
    """A SOCKS proxy, which can be used for any server."""
    from kas.client.socks import PORT, SocksProxy

    login = None
    if parts.username is not None:
        login = unquote(parts.username).encode(), unquote(parts.password or "").encode()
    return SocksProxy((parts.hostname or "", parts.port or PORT), login)


class _Excepted(NamedTuple):
    """One item of ``NO_PROXY``: an address, a network, or a domain, which includes its subdomains and, if ``own``,
    itself; None is everything. It applies at ``port``, or any port if that is ""."""

    where: _Address | _Network | str | None
    port: str = ""
    own: bool = True

    def covers(self, host: str, port: str, address: _Address | None) -> bool:
        if self.port not in ("", port):
            return False
        if isinstance(self.where, str):
            return host.endswith("." + self.where) or (self.own and host == self.where)
        if isinstance(self.where, _Network):
            return address is not None and address in self.where
        return self.where is None or address == self.where


class Environment:
    """The proxies that the environment variables name. ``of(target)`` is the way to a target."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        def value(name: str) -> str:
            return variables.get(name) or variables.get(name.lower()) or ""

        self._urls = {scheme: url for scheme in ("http", "https") if (url := _proxy_url(value(f"{scheme.upper()}_PROXY")))}
        self._excepted = list(_excepted(value("NO_PROXY")))
        self._ways: dict[str, Via] = {}

    def __bool__(self) -> bool:
        return bool(self._urls)

    def of(self, target: Target) -> Via | None:
        """The proxy for ``target``, None for a direct connection, which this machine's own addresses always have.
        Plain HTTP servers are reached directly, unless the proxy is a SOCKS one."""
        url, tls = self._urls.get(target.scheme, ""), target.tls
        if not url or (tls is None and not url.startswith(SOCKS)) or not self._counts(*target.dial):
            return None
        if url not in self._ways or url.startswith("https:"):  # then with the target's certificates
            self._ways[url] = way(url, None if tls is None else lambda: tls)
        return self._ways[url]

    def _counts(self, host: str, port: int) -> bool:
        host, address = host.lower(), _address(host)
        if host == "localhost" or (address is not None and address.is_loopback):
            return False
        return not any(one.covers(host, str(port), address) for one in self._excepted)


def _proxy_url(text: str) -> str:
    """A URL, or what becomes one with ``http://`` in front; "" for anything else, which Go ignores."""
    for url in (text, f"http://{text}") if text else ():
        try:
            parts = parse(url)
        except ValueError:
            continue
        if parts.scheme and parts.host:
            scheme = SOCKS if parts.scheme == "socks5h" else parts.scheme
            return scheme + url[len(parts.scheme) :] if scheme in (*PORTS, SOCKS) and parts.hostname else ""
    return ""


def _excepted(text: str) -> list[_Excepted]:
    found = []
    for item in (part.strip().lower() for part in text.split(",")):
        if item == "*":
            return [_Excepted(None)]
        try:
            found.append(_Excepted(ipaddress.ip_network(item, strict=False)) if "/" in item else _host(item))
        except ValueError:
            continue
    return found


def _host(item: str) -> _Excepted:
    """Raises ValueError for an item without a host."""
    split = re.fullmatch(r"(?:\[([^\[\]]*)\]|([^:\[\]]*)):([^:\[\]]*)", item)
    host, port = ((split[1] or split[2] or ""), split[3]) if split is not None else (item, "")
    if (address := _address(host)) is not None:
        return _Excepted(address, port)
    domain = host.removeprefix("*") if host.startswith("*.") else host
    if not domain.strip("."):
        raise ValueError("no host part")
    return _Excepted(domain.removeprefix("."), port, own=not domain.startswith("."))


def _address(host: str) -> _Address | None:
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found
