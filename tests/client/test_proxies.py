"""The proxies of the environment, as Go's programs find them (golang.org/x/net/http/httpproxy)."""

from __future__ import annotations

import asyncio
import ssl

import pytest

from kas.client.connectproxy import ConnectProxy as ConnectWay
from kas.client.http import BackendError, Target, connect, use_environment
from kas.client.proxies import Environment
from kas.client.socks import SocksProxy
from kas.testing.server import KasServer
from tests.client.proxying import ConnectProxy

EXCEPTED = (
    "foobar.com, .barbaz.net, *.star.net, Big.example:8443, 192.168.1.1, 192.168.1.2:81, 192.168.1.3:443, 10.0.0.0/30, 2001:db8::52:0:1, "
    "[2001:db8::52:0:2]:80, [2001:db8::52:0:3]:443, 2002:db8:a::45/64, [::9], bad/cidr, :443, .,, ::ffff:10.1.1.1"
)
DIRECT = (
    "localhost", "LOCALHOST", "127.0.0.1", "127.0.0.2", "::1", "192.168.1.1", "192.168.1.3", "10.0.0.2", "2001:db8::52:0:1",
    "2001:db8::52:0:3", "2002:db8:a::123", "www.barbaz.net", "a.star.net", "foobar.com", "www.FOOBAR.com", "10.1.1.1",
)  # fmt: skip
PROXIED = (
    "::2", "192.168.1.2", "192.168.1.4", "2001:db8::52:0:2", "fe80::424b:c8be:1643:a1b6", "barbaz.net", "star.net", "foofoobar.com",
    "baz.com", "localhost.net", "local.localhost", "barbarbaz.net", "big.example", "::9", "10.0.0.4",
)  # fmt: skip


def to(host: str, port: str = "", scheme: str = "https") -> Target:
    return Target(scheme, host, port, tls=ssl.create_default_context() if scheme == "https" else None)


@pytest.mark.parametrize("host", DIRECT)
def test_direct_connections(host: str) -> None:
    assert Environment({"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": EXCEPTED}).of(to(host)) is None


@pytest.mark.parametrize("host", PROXIED)
def test_connections_through_a_proxy(host: str) -> None:
    found = Environment({"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": EXCEPTED}).of(to(host))
    assert isinstance(found, ConnectWay) and found.where == "proxy:3128"


def test_ports_and_wildcards() -> None:
    some = Environment({"HTTPS_PROXY": "p", "NO_PROXY": "a.example:8443,1.1.1.1:99"})
    assert some.of(to("a.example", "8443")) is None and some.of(to("b.a.example", "8443")) is None and some.of(to("a.example")) is not None
    assert some.of(to("1.1.1.1", "99")) is None and some.of(to("1.1.1.1", "98")) is not None
    assert Environment({"HTTPS_PROXY": "p", "NO_PROXY": "a.example, * "}).of(to("b.example")) is None


@pytest.mark.parametrize(
    ("variables", "where"),
    [
        ({"https_proxy": "small:1", "HTTPS_PROXY": ""}, "small:1"),
        ({"https_proxy": "small:1", "HTTPS_PROXY": "LARGE:2"}, "large:2"),
        ({"HTTPS_PROXY": "https://p"}, "p:443"),
        ({"HTTPS_PROXY": "http://u:p@p/"}, "p:80"),
        ({"HTTPS_PROXY": "[::1]:3128"}, "[::1]:3128"),
        ({"HTTPS_PROXY": "ftp://p"}, None),
        ({"HTTPS_PROXY": "::"}, None),
        ({"HTTP_PROXY": "p:1"}, None),  # for servers without TLS
        ({}, None),
    ],
)
def test_which_variable_counts(variables: dict[str, str], where: str | None) -> None:
    found = Environment(variables).of(to("a.example"))
    assert (found.where if isinstance(found, ConnectWay) else None) == where


def test_socks_and_servers_without_tls() -> None:
    both = Environment({"HTTPS_PROXY": "socks5h://p:9", "HTTP_PROXY": "socks5://q"})
    assert isinstance(both.of(to("a.example")), SocksProxy)
    found = both.of(to("a.example", scheme="http"))
    assert isinstance(found, SocksProxy) and found.where == "q:1080"
    assert both.of(to("a.example", scheme="http")) is found
    assert Environment({"HTTP_PROXY": "http://p"}).of(to("a.example", scheme="http")) is None  # it would need another form of request


def test_the_dialer_of_a_connection() -> None:
    """A target's own proxy comes first, and a connection to be upgraded is dialled directly."""

    async def ways(target: Target, **how: bool) -> str:
        with pytest.raises(BackendError) as e:
            await connect(target, **how)  # type: ignore[arg-type]
        return str(e.value)

    async def all_of_them() -> list[str]:
        target = Target("https", "nowhere.invalid", "1", tls=ssl.create_default_context())
        return [await ways(target), await ways(target, upgrade=True)]

    use_environment(Environment({"HTTPS_PROXY": "http://127.0.0.1:1"}).of)
    try:
        proxied, direct = asyncio.run(all_of_them())
    finally:
        use_environment(None)
    assert proxied == "dial tcp 127.0.0.1:1: connect: connection refused"
    assert "nowhere.invalid" in direct and "proxy" not in direct


def test_a_server_with_a_proxy(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its webhooks are reached through it, by name, which the proxy has to resolve."""
    import requests

    with ConnectProxy() as proxy:
        proxy.headers = "Host: hook.example:443\r\n"
        proxy.says, proxy.closes = b"HTTP/1.1 403 Forbidden\r\n\r\n", True
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.port}")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        hook = {
            "name": "h.example.com", "clientConfig": {"url": "https://hook.example/x"}, "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
        }  # fmt: skip
        made = {"metadata": {"name": "w"}, "webhooks": [hook]}
        with KasServer(tmp_path, "--unsafe-no-fsync") as server, requests.Session() as session:
            session.trust_env, session.verify, session.headers["Authorization"] = False, server.ca, f"Bearer {server.token}"
            path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
            assert session.post(server.url + path, json=made, timeout=60).status_code == 201
            answer = session.post(f"{server.url}/api/v1/namespaces/default/configmaps", json={"metadata": {"name": "a"}}, timeout=60)
        assert answer.status_code == 500 and "hook.example" in answer.text and "Forbidden" in answer.text, answer.text
        assert set(proxy.asked) == {"hook.example:443"}
