"""Connections through HTTP CONNECT proxies: data, and errors of a proxy that is missing, refuses, hangs or disconnects."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest
import uvloop

from kas.auth.authn.oidc.configuration import Issuer
from kas.auth.authn.oidc.provider import Provider
from kas.client import connectproxy
from kas.client.egress import load
from kas.client.exchange import exchange
from kas.client.http import BackendError, Target, connect, insecure_tls, request_head, verified_tls
from kas.observe.metrics import Registry
from tests.client.proxying import Authority, ConnectProxy, egress_file
from tests.endpoints.fakekubelet import make_certificate

LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]
BIG = bytes(range(256)) * (1 << 12)
NAME = "apiserver_egress_dialer_dial_"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("proxy"))


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    return make_certificate(tmp_path_factory.mktemp("backend"), "127.0.0.1")


@pytest.fixture(params=["tls", "uds"])
def proxy(request, tmp_path, certificates):
    with ConnectProxy(str(tmp_path / "p.sock")) if request.param == "uds" else ConnectProxy(authority=certificates) as made:
        yield made


def loaded(directory, *selections):
    """Returns (the dialers, their metrics)."""
    registry = Registry()
    path = egress_file(directory, *selections)
    return load(SimpleNamespace(egress_selector_config_file=path, storage_backend="lmdb", tracing_config_file=""), registry), registry


def through(proxy, directory):
    ways, registry = loaded(directory, proxy.selection("cluster"))
    assert ways.controlplane is None and ways.cluster.where == (proxy._path or f"127.0.0.1:{proxy.port}")
    return ways.cluster, registry


async def echo(reader, writer):
    """Answers every POST with its body."""
    while head := await reader.readuntil(b"\r\n\r\n"):
        length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % length + await reader.readexactly(length))
        await writer.drain()


async def backend(pair, tls):
    async def serve(reader, writer):
        try:
            await echo(reader, writer)
        except (asyncio.IncompleteReadError, OSError):
            writer.close()

    context = None
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*pair)
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    return server, server.sockets[0].getsockname()[1]


async def answered(proxy, via, pair, tls, ended=lambda: None):
    """Returns what an echoing backend answers on both kinds of connections, with two requests on each that are larger than any buffer;
    only the proxy can resolve its name. ``ended()`` runs in a thread once both are closed."""
    server, port = await backend(pair, tls)
    proxy.routes["pod.invalid:7443"] = port
    context = verified_tls(pair[0]) if tls else None
    target = Target("https" if tls else "http", "pod.invalid", "7443", "/", tls=context, tls_name="127.0.0.1", via=via)
    posted = await exchange(target)
    answers = [await posted.post(request_head("POST", target, []), body, 1 << 21) for body in (BIG, b"x")]
    streamed = await connect(target)
    for body in (BIG, b"y"):
        await streamed.send("POST", target, [], body)
        await streamed.head()
        answers.append(await streamed.read(1 << 21))
    posted.close()
    streamed.close()
    await asyncio.to_thread(ended)
    server.close()
    return answers


@pytest.mark.parametrize("loop", LOOPS, ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("tls", [True, False], ids=["https", "http"])
def test_data_pass_unchanged(proxy, tmp_path, pair, tls, loop):
    via, registry = through(proxy, tmp_path)
    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(answered(proxy, via, pair, tls)) == [BIG, b"x", BIG, b"y"]
    assert proxy.asked == ["pod.invalid:7443"] * 2
    labels = "http_connect", "uds" if proxy._path else "tcp"
    assert registry.metrics[f"{NAME}start_total"].values == {labels: 2}
    assert sum(registry.metrics[f"{NAME}duration_seconds"].values[labels][:-1]) == 2
    assert not registry.metrics[f"{NAME}failure_count"].values


def dialled(via, timeout_s=10.0, loop=uvloop.new_event_loop, host="10.9.8.7"):
    """Returns the error of both kinds of connections, which is the same."""

    async def run():
        said = set()
        for made in (connect, exchange):
            with pytest.raises(BackendError) as e:
                await made(Target("https", host, "443", tls=insecure_tls(), via=via), timeout_s)
            said.add(str(e.value))
        assert len(said) == 1
        return said.pop()

    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(run())


READING = "reading HTTP response from CONNECT to 10.9.8.7:443 via proxy {} failed: "
REFUSED = "proxy error from {} while dialing 10.9.8.7:443, code "
WRONG = [
    (b"HTTP/1.1 403 Forbidden\r\n\r\n", REFUSED + "403: 403 Forbidden"),
    (b"HTTP/1.1 201 Created\r\nA: b\r\n\r\n", REFUSED + "201: 201 Created"),
    (b"HTTP/1.1 200 OK\r\n\r\nxyz", 'unexpected 3 bytes of buffered data from CONNECT proxy "{}"'),
    (b"", READING + "unexpected EOF"),
    (b"HTTP/1.1 200 OK\r\nA: b", READING + "unexpected EOF"),
    (b"HTTP/1.1 200 OK\r\nA: " + b"b" * (1 << 17), READING + "unexpected EOF"),
    (b"SSH-2.0-x\r\n\r\n", READING + 'malformed HTTP response "SSH-2.0-x"'),
]


@pytest.mark.parametrize(("says", "text"), WRONG, ids=range(len(WRONG)))
def test_a_proxy_that_refuses(proxy, tmp_path, says, text):
    via, registry = through(proxy, tmp_path)
    proxy.says, proxy.closes = says or None, True
    assert dialled(via) == text.format(via.where)
    labels = "http_connect", "proxy", "uds" if proxy._path else "tcp"
    assert registry.metrics[f"{NAME}failure_count"].values == {labels: 2}


@pytest.mark.parametrize("host", ["a:1 HTTP/1.1\r\nX: y\r\n\r\n", "a b", "a\n", "\x7f"])
def test_a_host_name_cannot_inject_headers(proxy, tmp_path, host):
    via, registry = through(proxy, tmp_path)
    assert "invalid character in host name" in dialled(via, host=host)
    assert proxy.asked == [] and not registry.metrics[f"{NAME}start_total"].values


def test_a_proxy_that_hangs(proxy, tmp_path):
    via, registry = through(proxy, tmp_path)
    proxy.says = None
    assert dialled(via, 0.1) == f"dial tcp 10.9.8.7:443 via proxy {via.where}: i/o timeout"
    proxy.says = b"HTTP/1.1 200 OK\r\n"
    assert dialled(via, 0.1) == f"dial tcp 10.9.8.7:443 via proxy {via.where}: i/o timeout"
    assert sum(registry.metrics[f"{NAME}failure_count"].values.values()) == 4


def test_a_cancelled_dial_is_counted(tmp_path):
    class GivenUp(connectproxy.ConnectProxy):
        async def _reached(self, opening):
            await super()._reached(opening)
            raise asyncio.CancelledError

    registry = Registry()
    with ConnectProxy(str(tmp_path / "p.sock")) as proxy:
        via = GivenUp(connectproxy.DialMetrics(registry), proxy._path)
        with pytest.raises(asyncio.CancelledError):
            asyncio.run(via.connect(asyncio.Protocol, "10.9.8.7", 443))
    assert registry.metrics[f"{NAME}failure_count"].values == {("http_connect", "proxy", "uds"): 1}


def test_a_missing_proxy(proxy, tmp_path):
    via, registry = through(proxy, tmp_path)
    proxy._loop.call_soon_threadsafe(proxy._server.close)
    asyncio.run_coroutine_threadsafe(proxy._server.wait_closed(), proxy._loop).result(10)
    if proxy._path:
        (tmp_path / "p.sock").unlink(missing_ok=True)
    network, why = ("unix", "no such file or directory") if proxy._path else ("tcp", "connection refused")
    assert dialled(via) == f"dial {network} {via.where}: connect: {why}"
    assert registry.metrics[f"{NAME}failure_count"].values == {("http_connect", "connect", "uds" if proxy._path else "tcp"): 2}


def test_both_sides_are_authenticated(tmp_path, certificates):
    """A proxy of another CA gets no request, and one that does not trust the client disconnects."""
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other", "others")
    with ExitStack() as stack:
        proxy = stack.enter_context(ConnectProxy(authority=certificates))
        said = []
        for ca, client in ((other.ca, certificates.client), (certificates.ca, other.client)):
            selection = proxy.selection("cluster")
            tls = selection["connection"]["transport"]["tcp"]["tlsConfig"]
            tls |= {"caBundle": ca, "clientCert": client[0], "clientKey": client[1]}
            said.append(dialled(loaded(tmp_path, selection)[0].cluster))
    assert said[0] == "tls: failed to verify certificate: x509: certificate signed by unknown authority"
    assert said[1].startswith(READING.format(f"127.0.0.1:{proxy.port}"))
    assert proxy.asked == []


def test_a_wrong_backend_behind_the_proxy(proxy, tmp_path, pair):
    """TLS with the backend is end to end."""
    via, _ = through(proxy, tmp_path)

    async def run():
        server, port = await backend(pair, True)
        for made in (connect, exchange):
            target = Target("https", "127.0.0.1", str(port), tls=ssl.create_default_context(), via=via)
            with pytest.raises(BackendError, match="certificate signed by unknown authority"):
                await made(target)
            with pytest.raises(BackendError, match="failed to verify certificate"):
                await made(target._replace(tls=verified_tls(pair[0]), tls_name="pod.invalid"))
        server.close()

    asyncio.run(run())
    assert len(proxy.asked) == 4


@pytest.mark.parametrize("name", ["", "cluster", "controlplane"])
def test_documents_of_issuers(proxy, tmp_path, pair, name):
    """Through the proxy that the issuer names, directly without one."""
    ways, _ = loaded(tmp_path, proxy.selection(name or "cluster"))
    issuer = Issuer("https://issuer.invalid:9443", "", Path(pair[0]).read_text(), (), (), None, name)
    provider = Provider(issuer, egress=ways)

    async def run():
        server, port = await backend(pair, True)
        proxy.routes["issuer.invalid:9443"] = port
        with pytest.raises(BackendError) as e:
            await provider.get("https://issuer.invalid:9443/x")
        server.close()
        return str(e.value)

    why = "tls: failed to verify certificate" if name else "dial tcp: lookup issuer.invalid: no such host"
    assert why in asyncio.run(run())
    assert proxy.asked == (["issuer.invalid:9443"] if name else [])
