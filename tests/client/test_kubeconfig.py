"""Valid and invalid kubeconfigs (client-go's ``tools/clientcmd``)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kas.client.http import Via
from kas.client.kubeconfig import KubeconfigError, load, load_users
from kas.client.webhook import Webhook, WebhookError
from tests.client.proxying import Authority, ConnectProxy
from tests.tlsstub import Answer, TLSStub, authority, serving

GOOD = """apiVersion: v1
kind: Config
clusters: [{name: w, cluster: {server: "https://127.0.0.1:1/x"}}]
users: [{name: u, user: {}}]
contexts: [{name: c, context: {cluster: w, user: u}}]
current-context: c
"""
NOTHING = "invalid configuration: no configuration has been provided, try setting KUBERNETES_MASTER environment variable"
SCHEME = 'in scheme "k8s.io/client-go/tools/clientcmd/api/latest/latest.go:50"'


def write(tmp_path, text):
    path = tmp_path / "config"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(
    ("before", "after"),
    [("", ""),
     (GOOD, GOOD.replace("\n", ", ").join(("{", "}"))),
     ("apiVersion: v1\n", ""), ("kind: Config\n", ""), ("kind: Config\n", "kind: Config\nfoo: bar\n"),
     ("user: u}", "user: nobody}"), ("cluster: {server", "cluster: {extensions: [1], server"), ("user: {}", "user: null")],
)  # fmt: skip
def test_valid(tmp_path, before, after):
    assert load(write(tmp_path, GOOD.replace(before, after))).target.host == "127.0.0.1"


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ("kind: Config", "kind: Pod", f'error loading config file "{{}}": no kind "Pod" is registered for version "v1" {SCHEME}'),
        ("apiVersion: v1", "apiVersion: v2", f'error loading config file "{{}}": no kind "Config" is registered for version "v2" {SCHEME}'),
        ("users: [{name: u, user: {}}]", "users: x",
         'error loading config file "{}": json: cannot unmarshal string into Go struct field Config.users of type []v1.NamedAuthInfo'),
        ("name: u, user: {}", "name: 1",
         'error loading config file "{}": json: cannot unmarshal number into Go struct field NamedAuthInfo.users.name of type string'),
        ("server: ", "certificate-authority-data: 1, server: ",
         'error loading config file "{}": json: cannot unmarshal number into Go struct field '
         "Cluster.clusters.cluster.certificate-authority-data of type []uint8"),
        ("server: ", "certificate-authority-data: AA, server: ", 'error loading config file "{}": illegal base64 data at input byte 0'),
        ("user: {}", "user: {as-uid: a}",
         "invalid configuration: requesting uid, groups or user-extra for u without impersonating a user"),
        ("current-context: c", "", NOTHING),
        ("current-context: c", "current-context: d", "context was not found for specified context: d"),
        (GOOD, "", NOTHING),
        (GOOD, "# nothing\n", NOTHING),
        (GOOD, "x", 'error loading config file "{}": couldn\'t get version/kind; json parse error: json: cannot unmarshal string into Go '
                    'value of type struct {{ APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string '
                    '"json:\\"kind,omitempty\\"" }}'),
    ],
)  # fmt: skip
def test_invalid(tmp_path, before, after, says):
    path = write(tmp_path, GOOD.replace(before, after))
    with pytest.raises(KubeconfigError) as e:
        load(path)
    assert str(e.value) == says.format(path)


def test_a_directory_is_not_a_file(tmp_path):
    with pytest.raises(KubeconfigError, match=f'^error loading config file "{tmp_path}": read {tmp_path}: is a directory$'):
        load(str(tmp_path))


@pytest.mark.parametrize(("scheme", "sent"), [("https", [(b"authorization", b"Bearer t")]), ("http", [])])
def test_credentials_are_not_sent_without_tls(tmp_path, scheme, sent):
    text = GOOD.replace("https", scheme).replace("name: u, user: {}", "name: u, user: {token: t}")
    assert load(write(tmp_path, text)).headers() == sent


def test_users_by_name(tmp_path):
    users = load_users(write(tmp_path, GOOD.replace("name: u, user: {}", "name: x.example.com, user: {token: t}")))
    assert users.of("x.example.com", 443).token == "t" and not users.of("y.example.com", 443).token


async def posted(path: str, via: Via | None = None) -> dict:
    webhook = Webhook(load(path), 0.0, via=via)
    try:
        return await webhook.post({"a": 1})
    finally:
        webhook.close()


class Nowhere:
    """A dialer over which the kubeconfig's own proxy has priority."""

    where = "nowhere"

    async def connect(self, factory, host, port):
        raise AssertionError("the kubeconfig names another proxy")


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_an_http_proxy_in_front_of_the_server(tmp_path, scheme):
    """Called as Go does, with the password of its URL; TLS with the server is inside, and TLS with the proxy uses the same CAs."""
    certificates = Authority(tmp_path)
    stub = TLSStub(*serving(tmp_path, authority(tmp_path)), lambda asked: Answer(200, b'{"found": true}'))
    port = int(stub.url.rpartition(":")[2].partition("/")[0])
    authorities = tmp_path / "both.crt"
    authorities.write_bytes((tmp_path / "stub-ca.crt").read_bytes() + Path(certificates.ca).read_bytes())
    with ConnectProxy(authority=certificates if scheme == "https" else None) as proxy:
        proxy.headers = f"Host: 127.0.0.1:{port}\r\nProxy-Authorization: Basic dTpwIHc=\r\n"
        user = "{{client-certificate: {}, client-key: {}}}".format(*certificates.client)
        text = GOOD.replace("https://127.0.0.1:1/x", stub.url).replace(
            "{server", f"{{certificate-authority: {authorities}, proxy-url: '{scheme}://u:p%20w@127.0.0.1:{proxy.port}', server"
        )
        path = write(tmp_path, text.replace("user: {}", f"user: {user}"))
        assert asyncio.run(posted(path, Nowhere())) == {"found": True}
        assert proxy.asked == [f"127.0.0.1:{port}"] and len(stub.asked) == 1
        proxy.says, proxy.closes = b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", True
        with pytest.raises(WebhookError, match="code 407: 407 Proxy Authentication Required"):
            asyncio.run(posted(path))
    stub.close()
    assert len(stub.asked) == 1


def test_a_socks_proxy_in_front_of_the_server(tmp_path):
    """It gets the server's name and a login, and sees nothing of the requests."""
    stub = TLSStub(*serving(tmp_path, authority(tmp_path)), lambda asked: Answer(200, b'{"found": true}'))
    port, heard = int(stub.url.rpartition(":")[2].partition("/")[0]), []

    async def serve(reader, writer):
        for answer in (b"\x05\x02", b"\x01\x00", b"\x05\x00\x00\x01" + bytes(6)):
            heard.append(await reader.read(600))
            writer.write(answer)
        there, here = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(relay(reader, here), relay(there, writer))

    async def relay(source, sink):
        while data := await source.read(1 << 16):
            sink.write(data)
        sink.close()

    async def ask():
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        proxy = f"socks5://u:p%20w@127.0.0.1:{server.sockets[0].getsockname()[1]}"
        text = GOOD.replace("https://127.0.0.1:1/x", stub.url).replace(
            "{server", f"{{certificate-authority: {tmp_path / 'stub-ca.crt'}, proxy-url: '{proxy}', server"
        )
        try:
            return await posted(write(tmp_path, text), Nowhere())
        finally:
            server.close()

    assert asyncio.run(ask()) == {"found": True}
    assert heard == [b"\x05\x02\x00\x02", b"\x01\x01u\x03p w", b"\x05\x01\x00\x01\x7f\x00\x00\x01" + port.to_bytes(2, "big")]
    stub.close()
