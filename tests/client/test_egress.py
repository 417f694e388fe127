"""The egress selector configuration: what is refused, with upstream's messages, and what is direct."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kas.client.egress import load
from kas.client.http import DIRECT
from kas.observe.metrics import Registry
from kas.types.configfile import ConfigurationError
from tests import pki

VALIDATE = "failed to validate egress selector configuration: "
AT = "service.connection"


def of(path: str, storage: str = "lmdb", tracing: str = ""):
    settings = SimpleNamespace(egress_selector_config_file=path, storage_backend=storage, tracing_config_file=tracing)
    return load(settings, Registry())


def said(directory: Path, *selections: dict[str, Any], **more: Any) -> str:
    path = directory / "egress.yaml"
    head = {"apiVersion": "apiserver.k8s.io/v1beta1", "kind": "EgressSelectorConfiguration"}
    path.write_text(json.dumps({**head, "egressSelections": selections, **more}))
    try:
        assert of(str(path)) == DIRECT
    except ConfigurationError as e:
        return str(e)
    return ""


def selection(protocol: str, transport: dict[str, Any] | None = None, name: str = "cluster") -> dict[str, Any]:
    connection = {"proxyProtocol": protocol} | ({"transport": transport} if transport is not None else {})
    return {"name": name, "connection": connection}


def test_direct_connections_are_the_default_ones(tmp_path):
    assert said(tmp_path, *(selection("Direct", name=n) for n in ("cluster", "controlplane", "ETCD"))) == ""
    assert said(tmp_path) == "" and said(tmp_path, apiVersion="apiserver.k8s.io/v1alpha1") == ""
    assert said(tmp_path, selection("Direct", name="master")) == ""
    doubled = f'{VALIDATE}{AT}[1]: Duplicate value: "controlplane"'
    assert said(tmp_path, selection("Direct", name="controlplane"), selection("Direct", name="master")) == doubled


HTTPS = {"tcp": {"url": "https://x"}}
WRONG = [
    (selection("Direct", {}), f'{AT}.transport: Invalid value: "direct": config must be absent for direct connect'),
    (selection("x"), f'{AT}.protocol: Unsupported value: "x": supported values: "Direct", "HTTPConnect", "GRPC"'),
    (selection("HTTPConnect"), f"{AT}.transport: Required value: transport must be set for HTTPConnect"),
    (selection("HTTPConnect", {}), f"{AT}.tcp: Required value: One of TCP or UDS must be set"),
    (selection("HTTPConnect", {"uds": {}}), f'{AT}.udsName: Invalid value: "nil": must be present for UDS connections'),
    (selection("HTTPConnect", {"tcp": {"url": "x"}}),
     f'{AT}.url: Invalid value: "x": supported connection protocols are http:// and https://'),
    (selection("HTTPConnect", HTTPS), f"{AT}.tlsConfig: Required value: TLSConfig must be present when using HTTPS"),
    (selection("HTTPConnect", {"tcp": {"url": "http://x", "tlsConfig": {}}}),
     f'{AT}.tlsConfig: Invalid value: "nil": config must not be present when using HTTP'),
    (selection("HTTPConnect", {"tcp": {"url": "https://x", "tlsConfig": {"caBundle": "/none", "clientKey": "/none"}}}),
     f'[{AT}.tlsConfig.caBundle: Invalid value: "/none": TLS config ca bundle does not exist, {AT}.tlsConfig.clientCert: Invalid value: '
     f'"nil": Using TLS requires clientCert, {AT}.tlsConfig.clientKey: Invalid value: "/none": TLS client key does not exist]'),
    (selection("HTTPConnect", {**HTTPS, "uds": {"udsName": "/x"}}),
     f'{AT}.tcp: Invalid value: {{"URL":"https://x","TLSConfig":null}}: TCP and UDS cannot both be set'),
    (selection("GRPC"), f"{AT}.transport: Required value: transport must be set for GRPC"),
    (selection("GRPC", HTTPS), f"{AT}.uds: Required value: UDS must be set with GRPC"),
    (selection("Direct", name="Other"), f'{AT}: Unsupported value: "other": supported values: "cluster", "controlplane", "etcd"'),
]  # fmt: skip


@pytest.mark.parametrize(("given", "text"), WRONG, ids=range(len(WRONG)))
def test_invalid_configurations(tmp_path, given, text):
    assert said(tmp_path, given) == VALIDATE + text


def test_two_selections_with_one_name(tmp_path):
    assert said(tmp_path, selection("Direct"), selection("Direct", name="Cluster")) == f'{VALIDATE}{AT}[1]: Duplicate value: "cluster"'


UDS = {"uds": {"udsName": "/run/x.sock"}}


def test_unsupported_proxies_are_refused(tmp_path):
    flag = "--egress-selector-config-file: kas does not "
    said(tmp_path, selection("Direct"), selection("HTTPConnect", UDS, "etcd"))
    path = str(tmp_path / "egress.yaml")
    assert of(path) == DIRECT
    with pytest.raises(ConfigurationError, match=f"^{flag}reach etcd through a proxy$"):
        of(path, "etcd3")
    with pytest.raises(AssertionError):
        said(tmp_path, selection("HTTPConnect", UDS, "ControlPlane"))
    assert of(path).controlplane.where == "/run/x.sock" and of(path).cluster is None
    with pytest.raises(ConfigurationError, match=f"^{flag}send traces through the proxy of controlplane$"):
        of(path, tracing="/t")


def test_konnectivity_needs_grpc(tmp_path, monkeypatch):
    with pytest.raises(AssertionError):
        said(tmp_path, selection("GRPC", UDS))
    path = str(tmp_path / "egress.yaml")
    assert of(path).cluster.where == "/run/x.sock" and of(path).controlplane is None
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r"^--egress-selector-config-file: proxyProtocol GRPC needs the extra kas\[egress\]"):
        of(path)


def test_unusable_files_and_addresses(tmp_path):
    create = 'failed to create dialer for egressSelection "cluster": '
    pki.issue([("CN", "x")]).write(tmp_path, "x")
    empty, crt, key = (str(tmp_path / name) for name in ("empty", "x.crt", "x.key"))
    Path(empty).touch()

    def tcp(url, ca, certificate, key):
        return said(tmp_path, selection("HTTPConnect", {"tcp": {
            "url": url, "tlsConfig": {"caBundle": ca, "clientCert": certificate, "clientKey": key},
        }}))  # fmt: skip

    assert tcp("https://p:1", empty, crt, key) == f"{create}failed to append CA cert to the cert pool"
    assert tcp("https://p:1", crt, empty, key).startswith(f"{create}failed to read key pair {empty} & {key}, got ")
    assert tcp("https://p", crt, crt, key) == f"{create}address p: missing port in address"
    assert tcp("https://p:x", crt, crt, key).startswith(create)


def test_invalid_files(tmp_path):
    read, scheme = "failed to read egress selector config: ", ' in scheme "k8s.io/apiserver/pkg/server/egressselector/config.go:33"'
    assert said(tmp_path, kind="X") == f'{read}no kind "X" is registered for version "apiserver.k8s.io/v1beta1"{scheme}'
    newer = f'{read}no kind "EgressSelectorConfiguration" is registered for version "apiserver.k8s.io/v1"{scheme}'
    assert said(tmp_path, apiVersion="apiserver.k8s.io/v1") == newer
    assert said(tmp_path, unknown=1) == f'{read}strict decoding error: unknown field "unknown"'
    assert said(tmp_path, kind="TracingConfiguration", apiVersion="apiserver.config.k8s.io/v1") == (
        f"{read}unexpected config type: apiserver.config.k8s.io/v1, Kind=TracingConfiguration"
    )
    assert said(tmp_path, {"name": 1}).startswith(f"{read}json: cannot unmarshal number into Go struct field ")
    both = tmp_path / "both.yaml"
    head = "apiVersion: apiserver.k8s.io/v1beta1\nkind: EgressSelectorConfiguration\n"
    both.write_text(f"{head}foo: 1\negressSelections: [{{name: x, bar: 1}}]\n")
    with pytest.raises(ConfigurationError, match=r'strict decoding error: unknown field "egressSelections\[0\].bar", unknown field "foo"'):
        of(str(both))  # YAML has become JSON with sorted keys by then
    (tmp_path / "empty.yaml").touch()
    with pytest.raises(ConfigurationError, match=f"^{read}Object 'Kind' is missing in ''$"):
        of(str(tmp_path / "empty.yaml"))
    with pytest.raises(ConfigurationError, match=r'unable to read egress selector configuration from "/none" \[open /none: no such file'):
        of("/none")
