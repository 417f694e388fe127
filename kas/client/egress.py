"""The EgressSelectorConfiguration of ``--egress-selector-config-file``: direct connections, HTTP CONNECT proxies and konnectivity.

Error texts are upstream's (``apiserver/pkg/server/egressselector/config.go``).
"""

from __future__ import annotations

import importlib.util
import os
import ssl
from collections.abc import Iterator
from typing import Any, Protocol
from urllib.parse import urlsplit

from kas.client.connectproxy import ConnectProxy, DialMetrics
from kas.client.http import Egress, Via
from kas.client.konnectivity import KonnectivityProxy
from kas.meta import field
from kas.meta.field import FieldError
from kas.meta.goerrors import unreadable
from kas.meta.tls import trust_as_go
from kas.observe.metrics import Registry
from kas.types.configfile import STRING, ConfigurationError, Named, Struct, check, of_kind, parse

_TLS_CONFIG = Struct("TLSConfig", {"caBundle": STRING, "clientKey": STRING, "clientCert": STRING, "tlsServerName": STRING})
_TCP_TRANSPORT = Struct("TCPTransport", {"url": STRING, "tlsConfig": _TLS_CONFIG})
_TRANSPORT = Struct("Transport", {"tcp": _TCP_TRANSPORT, "uds": Struct("UDSTransport", {"udsName": STRING})})
_CONNECTION = Struct("Connection", {"proxyProtocol": Named("ProtocolType"), "transport": _TRANSPORT})
_SELECTION = Struct("EgressSelection", {"name": STRING, "connection": _CONNECTION})
KIND = "EgressSelectorConfiguration"
KINDS = {(f"apiserver.k8s.io/{v}", KIND): Struct(KIND, {"egressSelections": [_SELECTION]}) for v in ("v1beta1", "v1alpha1")}
SCHEME = "k8s.io/apiserver/pkg/server/egressselector/config.go:33"
# Go's names of the fields that an error shows, in their order.
_SHOWN_TLS = {"caBundle": "CABundle", "clientKey": "ClientKey", "clientCert": "ClientCert", "tlsServerName": "TLSServerName"}
DIRECT, HTTP_CONNECT, GRPC = "Direct", "HTTPConnect", "GRPC"
NAMES = ("cluster", "controlplane", "etcd")
_AT, _TLS = "service.connection", "service.connection.tlsConfig"
Obj = dict[str, Any]


class Settings(Protocol):
    """The flags that concern egress."""

    egress_selector_config_file: str
    storage_backend: str
    tracing_config_file: str


def load(settings: Settings, metrics: Registry) -> Egress:
    """The egress settings. Raises ConfigurationError for a file that upstream refuses, and if traffic would bypass a configured proxy."""
    try:
        selections = _read(settings.egress_selector_config_file)
    except ConfigurationError as e:
        raise ConfigurationError(f"failed to read egress selector config: {e}") from None
    try:
        check(_problems(selections))
    except ConfigurationError as e:
        raise ConfigurationError(f"failed to validate egress selector configuration: {e}") from None
    counted = DialMetrics(metrics)
    found = {str(s["name"]).lower(): _via(_connection(s), str(s["name"]).lower(), counted) for s in selections}
    if settings.storage_backend == "etcd3" and found.get("etcd") is not None:
        raise ConfigurationError("--egress-selector-config-file: kas does not reach etcd through a proxy")
    if settings.tracing_config_file and found.get("controlplane") is not None:
        raise ConfigurationError("--egress-selector-config-file: kas does not send traces through the proxy of controlplane")
    return Egress(found.get("controlplane"), found.get("cluster"))


def _via(connection: Obj, name: str, metrics: DialMetrics) -> Via | None:
    protocol = connection["proxyProtocol"]
    if protocol == DIRECT:
        return None
    transport = connection["transport"]
    uds, tcp = _part(transport, "uds"), _part(transport, "tcp")
    if protocol == GRPC:
        if importlib.util.find_spec("grpc") is None:
            why = "proxyProtocol GRPC needs the extra kas[egress]: pip install '.[egress]' in a clone of kas"
            raise ConfigurationError(f"--egress-selector-config-file: {why}")
        return KonnectivityProxy(metrics, str((uds or {})["udsName"]))
    if uds is not None or tcp is None:
        return ConnectProxy(metrics, str((uds or {})["udsName"]))
    try:
        url = urlsplit(str(tcp["url"]))
        address = url.hostname or "", url.port or 0
        tls = _part(tcp, "tlsConfig")
        context = _context(tls) if tls is not None else None  # upstream reads the files once, too
    except (ValueError, ConfigurationError) as e:
        raise ConfigurationError(f'failed to create dialer for egressSelection "{name}": {e}') from None
    if not all(address):
        why = f"address {url.netloc}: missing port in address"
        raise ConfigurationError(f'failed to create dialer for egressSelection "{name}": {why}')
    return ConnectProxy(metrics, "", address, None if context is None else lambda: context, str((tls or {}).get("tlsServerName") or ""))


def _context(tls: Obj) -> ssl.SSLContext:
    """Raises ConfigurationError for files that are not certificates or keys."""
    ca, certificate, key = (str(tls.get(name) or "") for name in ("caBundle", "clientCert", "clientKey"))
    try:
        context = trust_as_go(ssl.create_default_context(cafile=ca or None))
    except (OSError, ValueError):
        raise ConfigurationError("failed to append CA cert to the cert pool") from None
    try:
        context.load_cert_chain(certificate, key, password=lambda: b"")
    except (OSError, ValueError) as e:
        why = getattr(e, "reason", None) or str(e)
        raise ConfigurationError(f"failed to read key pair {certificate} & {key}, got {why}") from None
    return context


def _read(path: str) -> list[Obj]:
    try:
        with open(path, "rb") as f:
            data = f.read()
    except OSError as e:
        why = unreadable(path, e)
        raise ConfigurationError(f"unable to read egress selector configuration from {field.go_quote(path)} [{why}]") from None
    said = of_kind(parse(data), KINDS, SCHEME, lambda version, kind: f"unexpected config type: {version}, Kind={kind}")
    found = [s or {} for s in said.get("egressSelections") or []]
    # The older name is converted to the newer one, as in upstream.
    return [{**s, "name": "controlplane"} if s.get("name") == "master" else s for s in found]


def _connection(selection: Obj) -> Obj:
    return _part(selection, "connection") or {}


def _part(of: Obj, name: str) -> Obj | None:
    found = of.get(name)
    return found if isinstance(found, dict) else None


def _problems(selections: list[Obj]) -> Iterator[FieldError]:
    for selection in selections:
        connection = _connection(selection)
        protocol, transport = connection.get("proxyProtocol") or "", _part(connection, "transport")
        if protocol == DIRECT:
            if transport is not None:
                yield field.invalid(f"{_AT}.transport", "direct", "config must be absent for direct connect")
        elif protocol in (HTTP_CONNECT, GRPC):
            yield from _transport(protocol, transport)
        else:
            known = ", ".join(map(field.go_quote, (DIRECT, HTTP_CONNECT, GRPC)))
            yield FieldError(field.NOT_SUPPORTED, f"{_AT}.protocol", protocol, f"supported values: {known}")
    seen = set()
    for i, selection in enumerate(selections):
        name = str(selection.get("name") or "").lower()
        if name in seen:
            yield field.duplicate(f"{_AT}[{i}]", name)
            continue
        seen.add(name)
        if name not in NAMES:
            yield field.not_supported(_AT, name, NAMES)


def _transport(protocol: str, transport: Obj | None) -> Iterator[FieldError]:
    if transport is None:
        yield field.required(f"{_AT}.transport", f"transport must be set for {protocol}")
        return
    tcp, uds = _part(transport, "tcp"), _part(transport, "uds")
    if protocol == GRPC:
        if uds is None:
            yield field.required(f"{_AT}.uds", "UDS must be set with GRPC")
        else:
            yield from _uds(uds)
    elif tcp is not None and uds is not None:
        yield field.invalid(f"{_AT}.tcp", _as_in_go(tcp), "TCP and UDS cannot both be set")
    elif tcp is not None:
        yield from _tcp(tcp)
    elif uds is not None:
        yield from _uds(uds)
    else:
        yield field.required(f"{_AT}.tcp", "One of TCP or UDS must be set")


def _as_in_go(tcp: Obj) -> Obj:
    tls = _part(tcp, "tlsConfig")
    shown = None if tls is None else {go: tls.get(name) or "" for name, go in _SHOWN_TLS.items()}
    return {"URL": tcp.get("url") or "", "TLSConfig": shown}


def _uds(uds: Obj) -> Iterator[FieldError]:
    if not uds.get("udsName"):
        yield field.invalid(f"{_AT}.udsName", "nil", "must be present for UDS connections")


def _tcp(tcp: Obj) -> Iterator[FieldError]:
    url, tls = str(tcp.get("url") or ""), _part(tcp, "tlsConfig")
    if url.startswith("http://"):
        if tls is not None:
            yield field.invalid(_TLS, "nil", "config must not be present when using HTTP")
    elif not url.startswith("https://"):
        yield field.invalid(f"{_AT}.url", url, "supported connection protocols are http:// and https://")
    elif tls is None:
        yield field.required(_TLS, "TLSConfig must be present when using HTTPS")
    else:
        ca, certificate, key = (str(tls.get(name) or "") for name in ("caBundle", "clientCert", "clientKey"))
        if ca and not os.path.exists(ca):
            yield field.invalid(f"{_TLS}.caBundle", ca, "TLS config ca bundle does not exist")
        if not certificate:
            yield field.invalid(f"{_TLS}.clientCert", "nil", "Using TLS requires clientCert")
        elif not os.path.exists(certificate):
            yield field.invalid(f"{_TLS}.clientCert", certificate, "TLS client cert does not exist")
        if not key:
            yield field.invalid(f"{_TLS}.clientKey", "nil", "Using TLS requires requires clientKey")
        elif not os.path.exists(key):
            yield field.invalid(f"{_TLS}.clientKey", key, "TLS client key does not exist")
