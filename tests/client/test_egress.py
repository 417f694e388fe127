"""The file of egress selectors: what is refused, in upstream's words, and what is direct."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kas.client.egress import check_file
from kas.types.configfile import ConfigurationError

VALIDATE = "failed to validate egress selector configuration: "
AT = "service.connection"


def said(directory: Path, *selections: dict[str, Any], **more: Any) -> str:
    path = directory / "egress.yaml"
    head = {"apiVersion": "apiserver.k8s.io/v1beta1", "kind": "EgressSelectorConfiguration"}
    path.write_text(json.dumps({**head, "egressSelections": selections, **more}))
    try:
        check_file(str(path))
    except ConfigurationError as e:
        return str(e)
    return ""


def selection(protocol: str, transport: dict[str, Any] | None = None, name: str = "cluster") -> dict[str, Any]:
    connection = {"proxyProtocol": protocol} | ({"transport": transport} if transport is not None else {})
    return {"name": name, "connection": connection}


def test_direct_connections_are_what_kas_makes(tmp_path):
    assert said(tmp_path, *(selection("Direct", name=n) for n in ("cluster", "controlplane", "ETCD"))) == ""
    assert said(tmp_path) == "" and said(tmp_path, unknown=1) == ""


HTTPS = {"tcp": {"url": "https://x"}}
WRONG = [
    (selection("Direct", {}), f'{AT}.transport: Invalid value: "direct": Transport config should be absent for direct connect'),
    (selection("x"), f'{AT}.protocol: Unsupported value: "x": supported values: "Direct", "HTTPConnect", "GRPC"'),
    (selection("HTTPConnect"), f"{AT}.transport: Required value: transport must be set for HTTPConnect"),
    (selection("HTTPConnect", {}), f"{AT}.tcp: Required value: One of TCP or UDS must be set"),
    (selection("HTTPConnect", {"uds": {}}), f'{AT}.udsName: Invalid value: "nil": UDSName should be present for UDS connections'),
    (selection("HTTPConnect", {"tcp": {"url": "x"}}),
     f'{AT}.url: Invalid value: "x": supported connection protocols are http:// and https://'),
    (selection("HTTPConnect", HTTPS), f"{AT}.tlsConfig: Required value: TLSConfig must be present when using HTTPS"),
    (selection("HTTPConnect", {"tcp": {"url": "http://x", "tlsConfig": {}}}),
     f'{AT}.tlsConfig: Invalid value: "nil": TLSConfig config should not be present when using HTTP'),
    (selection("HTTPConnect", {"tcp": {"url": "https://x", "tlsConfig": {"caBundle": "/none", "clientKey": "/none"}}}),
     f'[{AT}.tlsConfig.caBundle: Invalid value: "/none": TLS config ca bundle does not exist, {AT}.tlsConfig.clientCert: Invalid value: '
     f'"nil": Using TLS requires clientCert, {AT}.tlsConfig.clientKey: Invalid value: "/none": TLS client key does not exist]'),
    (selection("GRPC"), f"{AT}.transport: Required value: transport must be set for GRPC"),
    (selection("GRPC", HTTPS), f"{AT}.uds: Required value: UDS must be set with GRPC"),
    (selection("Direct", name="Other"), f'{AT}: Unsupported value: "other": supported values: "cluster", "controlplane", "etcd"'),
]  # fmt: skip


@pytest.mark.parametrize(("given", "text"), WRONG, ids=range(len(WRONG)))
def test_what_is_refused(tmp_path, given, text):
    assert said(tmp_path, given) == VALIDATE + text


def test_two_of_a_name(tmp_path):
    assert said(tmp_path, selection("Direct"), selection("Direct", name="Cluster")) == f'{VALIDATE}{AT}[1]: Duplicate value: "cluster"'


def test_a_proxy_is_refused_before_anything_is_sent_past_it(tmp_path):
    found = said(tmp_path, selection("HTTPConnect", {"uds": {"udsName": "/run/x.sock"}}))
    assert found == "--egress-selector-config-file: kas does not have egress proxies yet"


def test_files_that_are_none(tmp_path):
    assert said(tmp_path, kind="X") == 'failed to read egress selector config: invalid service configuration object "X"'
    with pytest.raises(ConfigurationError, match=r'unable to read egress selector configuration from "/none" \[open /none: no such file'):
        check_file("/none")
