"""The client of configured webhooks and the kubeconfigs it reads: tries, limits, credentials."""

from __future__ import annotations

import asyncio
import base64
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from kas.client.kubeconfig import KubeconfigError, load
from kas.client.webhook import MAX_ANSWER, TRIES, Webhook, WebhookError
from tests.admission.policy_backend import PolicyBackend, certificate, kubeconfig, reviewed


def post(path: str, timeout_s: float = 10.0, backoff_s: float = 1.0) -> tuple[Any, list[float]]:
    """(what was answered, pauses that were made)."""
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    async def run() -> Any:
        try:
            return await Webhook(load(path), backoff_s, timeout_s, sleep).post({"a": 1})
        except WebhookError as e:
            return e

    return asyncio.run(run()), pauses


@pytest.fixture
def backend():
    with PolicyBackend() as running:
        yield running


@pytest.mark.parametrize("status", [429, 500, 504])
def test_tries_again(tmp_path, backend, status):
    backend.answers = lambda _: (status, {}, b"") if len(backend.seen) < 3 else reviewed(True)
    answer, pauses = post(kubeconfig(tmp_path / "k", backend.url))
    assert answer["status"] == {"allowed": True} and len(backend.seen) == 3
    assert 1.0 <= pauses[0] <= 1.2 and 1.5 <= pauses[1] <= 1.8


def test_gives_up(tmp_path, backend):
    backend.answers = lambda _: (500, {}, b"")
    answer, pauses = post(kubeconfig(tmp_path / "k", backend.url))
    assert str(answer) == 'an error on the server ("") has prevented the request from succeeding'
    assert (len(backend.seen), len(pauses)) == (TRIES, TRIES - 1)
    backend.answers = lambda _: (503, {}, b"")
    assert len(post(kubeconfig(tmp_path / "k", backend.url))[1]) == 0


def test_waits_as_long_as_it_is_asked_to(tmp_path, backend):
    backend.answers = lambda _: (503, {"Retry-After": "7"}, b"") if len(backend.seen) < 2 else reviewed(True)
    assert post(kubeconfig(tmp_path / "k", backend.url))[1] == [7.0]
    backend.seen.clear()
    backend.answers = lambda _: (503, {"Retry-After": "99999"}, b"") if len(backend.seen) < 2 else reviewed(True)
    assert post(kubeconfig(tmp_path / "k", backend.url))[1] == [30.0]


def test_an_endless_answer_ends(tmp_path, backend):
    backend.answers = lambda _: (200, {}, b"x" * (MAX_ANSWER + 10))
    answer, _ = post(kubeconfig(tmp_path / "k", backend.url))
    assert str(answer).endswith(f"is larger than {MAX_ANSWER} bytes")


def test_a_backend_that_says_nothing(tmp_path):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        answer, _ = post(kubeconfig(tmp_path / "k", f"http://127.0.0.1:{s.getsockname()[1]}"), timeout_s=0.2)
    assert str(answer).endswith('/?timeout=200ms": context deadline exceeded')


def test_a_connection_that_is_reset_is_tried_again(tmp_path):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()

        def reset() -> None:
            for _ in range(TRIES):
                c, _ = s.accept()
                c.recv(1)
                c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                c.close()

        threading.Thread(target=reset, daemon=True).start()
        answer, pauses = post(kubeconfig(tmp_path / "k", f"http://127.0.0.1:{s.getsockname()[1]}"))
    assert "connection reset by peer" in str(answer) and len(pauses) == TRIES - 1


# --- kubeconfigs


def test_credentials(tmp_path):
    def headers(**user: Any) -> list[tuple[bytes, bytes]]:
        return load(kubeconfig(tmp_path / "k", "https://h/x", user=user)).headers()

    assert headers() == []
    assert headers(token="t") == [(b"authorization", b"Bearer t")]
    assert headers(username="u", password="p") == [(b"authorization", b"Basic " + base64.b64encode(b"u:p"))]
    (tmp_path / "token").write_text("from file\n")
    assert headers(tokenFile="token", token="t") == [(b"authorization", b"Bearer from file")]


def test_a_token_file_is_read_again(tmp_path):
    (tmp_path / "token").write_text("one")
    backend = load(kubeconfig(tmp_path / "k", "https://h", user={"tokenFile": str(tmp_path / "token")}))
    now = 0.0
    backend.credentials.clock = lambda: now
    assert backend.headers() == [(b"authorization", b"Bearer one")]
    (tmp_path / "token").write_text("two")
    assert backend.headers() == [(b"authorization", b"Bearer one")]
    now = 61.0
    assert backend.headers() == [(b"authorization", b"Bearer two")]
    (tmp_path / "token").unlink()
    now = 200.0
    assert backend.headers() == [(b"authorization", b"Bearer two")]


def test_where_the_backend_is(tmp_path):
    for server, url in (
        ("https://h", "https://h/"), ("http://h:81/a/b/", "http://h:81/a/b"), ("h:443", "http://h:443/"), ("https://[::1]:8/x", "https://[::1]:8/x"),
    ):  # fmt: skip
        assert load(kubeconfig(tmp_path / "k", server)).target.url == url


def test_data_in_the_file_itself(tmp_path):
    cert, key = (base64.b64encode(Path(file).read_bytes()).decode() for file in certificate(tmp_path, "me"))
    user = {"client-certificate-data": cert, "client-key-data": key}
    target = load(kubeconfig(tmp_path / "k", "h:1", {"certificate-authority-data": cert}, user)).target
    assert target.scheme == "https" and target.tls is not None


@pytest.mark.parametrize(
    ("server", "cluster", "user", "says"),
    [
        ("", {}, {}, "invalid configuration: no configuration has been provided"),
        ("", {"tls-server-name": "s"}, {}, 'invalid configuration: no server found for cluster "x"'),
        ("https://h", {"certificate-authority": "/gone"}, {},
         "invalid configuration: unable to read certificate-authority /gone for x due to open /gone: no such file or directory"),
        ("https://h", {}, {"client-key": "/gone"}, "open /gone: no such file or directory"),
        ("https://h", {"certificate-authority": "/gone", "certificate-authority-data": "YQ=="}, {"token": "t", "username": "n"},
         "invalid configuration: [more than one authentication method found for u; found [token basicAuth], only one is allowed, "
         "certificate-authority-data and certificate-authority are both specified for x. certificate-authority-data will override., "
         "unable to read certificate-authority /gone for x due to open /gone: no such file or directory]"),
        ("https://h", {}, {"client-certificate-data": "YQ==", "client-certificate": "/gone", "client-key": "/gone"},
         "invalid configuration: [client-cert-data and client-cert are both specified for u. client-cert-data will override., "
         "unable to read client-cert /gone for u due to open /gone: no such file or directory, "
         "unable to read client-key /gone for u due to open /gone: no such file or directory]"),
        ("ftp://h", {}, {}, "invalid configuration: server ftp://h is not an http or https URL"),
        ("https://h:x", {}, {}, 'host must be a URL or a host:port pair: "https://h:x"'),
        ("http://h", {"proxy-url": "http://p"}, {}, "proxy-url: http and https proxies before http servers are not supported"),
        ("https://h", {"proxy-url": "socks5://u@p"}, {}, "proxy-url: invalid username/password"),
        ("https://h", {"proxy-url": "socks5:"}, {}, "proxy-url: no host"),
        ("https://h", {"proxy-url": "http://p:x"}, {},
         "invalid 'proxy-url' \"http://p:x\" for cluster \"x\": could not parse: http://p:x"),
        ("https://h", {"proxy-url": "ftp://p"}, {},
         "invalid configuration: invalid 'proxy-url' \"ftp://p\" for cluster \"x\": "
         "unsupported scheme \"ftp\", must be http, https, or socks5"),
        ("https://h", {}, {"exec": {"command": "x"}}, "exec plug-ins are not supported"),
        ("https://h", {}, {"client-certificate": "gone.crt"}, "gone.crt: no such file or directory"),
        ("https://h", {}, {"client-certificate-data": "YQ=!", "client-key-data": "YQ=="},
         'error loading config file "FILE": illegal base64 data at input byte 2'),
        ("https://h", {}, {"client-certificate-data": "YQ=="},
         "client-key-data or client-key must be specified for u to use the clientCert authentication method."),
        ("https://h", {}, {"client-certificate-data": "YQ==", "client-key-data": "YQ=="},
         "tls: failed to find any PEM data in certificate input"),
        ("https://h", {"certificate-authority-data": "YQ=="}, {}, "unable to load root certificates: unable to parse bytes as PEM block"),
        ("https://h", {"certificate-authority-data": "YQ==", "insecure-skip-tls-verify": True}, {},
         "specifying a root certificates file with the insecure flag is not allowed"),
        ("https://h", {}, {"tokenFile": "gone"}, "gone: no such file or directory"),
        (True, {}, {}, 'error loading config file "FILE": json: cannot unmarshal bool into Go struct field '
                       "Cluster.clusters.cluster.server of type string"),
        ("https://h", {}, {"token": 5}, 'error loading config file "FILE": json: cannot unmarshal number into Go struct field '
                                        "AuthInfo.users.user.token of type string"),
    ],
)  # fmt: skip
def test_kubeconfigs_that_cannot_be_used(tmp_path, server, cluster, user, says):
    with pytest.raises(KubeconfigError) as e:
        load(kubeconfig(tmp_path / "k", server, cluster, user))
    assert says.replace("FILE", str(tmp_path / "k")) in str(e.value) and "\n" not in str(e.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no configuration has been provided"),
        ("clusters: []", "no configuration has been provided"),
        ("current-context: c", "^context was not found for specified context: c"),
        ("current-context: c\ncontexts: [{name: c, context: {cluster: x}}]",
         "^invalid configuration: no configuration has been provided, try setting KUBERNETES_MASTER environment variable$"),
        ("current-context: c\ncontexts: 5",
         r"json: cannot unmarshal number into Go struct field Config.contexts of type \[\]v1.NamedContext"),
        ("current-context: c\ncontexts: [{name: c, context: 5}]",
         "json: cannot unmarshal number into Go struct field NamedContext.contexts.context of type v1.Context"),
        ("a: [", "error loading config file"),
    ],
)
def test_files_that_are_no_kubeconfig(tmp_path, text, says):
    (tmp_path / "k").write_text(text)
    with pytest.raises(KubeconfigError, match=says):
        load(str(tmp_path / "k"))
