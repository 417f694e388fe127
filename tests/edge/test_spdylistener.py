"""SPDY through the TLS front: exec, attach and port-forward of clients that take over the connection, to a fake kubelet."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import socket
import ssl
import termios
import time
from array import array

import pytest
import uvloop

from kas.edge.front.introduction import Introductions
from kas.edge.front.relay import STREAM_BYTES
from kas.edge.front.upgrades import MAX_HEAD, wants_spdy
from kas.edge.messagelimit import MessageLimit
from kas.edge.spdylistener import HELD_BYTES, READ_BYTES, HeadError, SPDYListener, request_of
from kas.request.websocket import Upgrade
from kas.testing.server import KasServer
from tests import pki
from tests.conftest import Client
from tests.controllers.waiting import until
from tests.endpoints.fakekubelet import FakeKubelet, make_certificate

EXEC = "/api/v1/namespaces/default/pods/p/exec?command=id&stdout=1"
SPDY = "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n"


@pytest.fixture(scope="module")
def fronted(tmp_path_factory):
    """Returns (a server with a TLS front and the pod ``p``, the kubelet of its node)."""
    directory = tmp_path_factory.mktemp("spdy")
    ca, _ = pki.issue([("CN", "ca")], ca=True).write(directory, "clients")
    (directory / "tokens.csv").write_text("jane-token,jane,u-1\n")
    flags = [f"--client-ca-file={ca}", f"--token-auth-file={directory}/tokens.csv", "--unsafe-no-fsync", "--controllers=none"]
    with (
        FakeKubelet(certificate=make_certificate(directory, "127.0.0.1")) as kubelet,
        KasServer(directory, *flags, workers=2) as server,
    ):
        client = Client(server)
        client("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
        assert client("POST", "/api/v1/nodes", {"metadata": {"name": "n"}})[0] == 201
        addresses, port = [{"type": "InternalIP", "address": kubelet.host}], {"kubeletEndpoint": {"Port": kubelet.port}}
        status = {"addresses": addresses, "daemonEndpoints": port}
        assert client("PATCH", "/api/v1/nodes/n/status", {"status": status}, "application/merge-patch+json")[0] == 200
        spec = {"nodeName": "n", "containers": [{"name": "c", "image": "i"}], "automountServiceAccountToken": False}
        assert client("POST", "/api/v1/namespaces/default/pods", {"metadata": {"name": "p"}, "spec": spec})[0] == 201
        yield server, kubelet


def timed(server: KasServer) -> float:
    """Returns for how many connecting requests with these labels the metrics have a duration: those that have ended."""
    lines = Client(server)("GET", "/metrics")[1].splitlines()
    name = "apiserver_request_duration_seconds_count{"
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name) and 'verb="CONNECT"' in line)


class Raw:
    """A TLS connection with HTTP/1.1, as of an old client."""

    def __init__(self, server: KasServer) -> None:
        context = ssl.create_default_context(cafile=server.ca)
        context.set_alpn_protocols(["http/1.1"])
        self.server = server
        self.sock = context.wrap_socket(socket.create_connection(("127.0.0.1", server.port), timeout=60), server_hostname="localhost")
        self.rest = b""

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def ask(self, method: str = "POST", path: str = EXEC, more: str = SPDY, token: str = "", pieces: int = 1) -> tuple[int, str]:
        """Returns (status, head) of the answer."""
        auth = f"Authorization: Bearer {token or self.server.token}\r\n"
        sent = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: old\r\n{auth}{more}\r\n".encode()
        size = -(-len(sent) // pieces)
        for at in range(0, len(sent), size):
            self.sock.sendall(sent[at : at + size])
            if pieces > 1:
                time.sleep(0.05)
        while b"\r\n\r\n" not in self.rest:
            got = self.sock.recv(65536)
            if not got:
                break
            self.rest += got
        head, _, self.rest = self.rest.partition(b"\r\n\r\n")
        return int(head.split(b" ")[1]), head.decode()

    def read(self, size: int) -> bytes:
        while len(self.rest) < size:
            got = self.sock.recv(65536)
            if not got:
                break
            self.rest += got
        out, self.rest = self.rest[:size], self.rest[size:]
        return out


def test_data_that_are_not_read_any_more_are_bounded(fronted):
    """The front used to read on as long as it waited for an answer to be read, 64 MiB and more."""
    chunk, sent = b"10000\r\n" + b" " * 65536 + b"\r\n", 0
    with Raw(fronted[0]) as raw:
        raw.sock.settimeout(30)
        head = f"POST /api/v1/namespaces HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {fronted[0].token}\r\n"
        with contextlib.suppress(OSError):
            raw.sock.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
            while sent < 48 << 20:
                raw.sock.sendall(chunk)
                sent += len(chunk)
    assert sent < 48 << 20


@pytest.mark.parametrize("method", ["POST", "GET"])
@pytest.mark.parametrize("pieces", [1, 5])
@pytest.mark.parametrize("path", [EXEC, EXEC.replace("exec", "attach"), "/api/v1/namespaces/default/pods/p/portforward"])
def test_bytes_go_both_ways(fronted, method, pieces, path):
    server, kubelet = fronted
    before = timed(server)
    with Raw(server) as raw:
        status, head = raw.ask(method, path, pieces=pieces)
        assert status == 101 and "upgrade: spdy/3.1" in head.lower()
        for sent in (b"abc", b"\x80\x03\x00\x01" * 200):
            raw.sock.sendall(sent)
            assert raw.read(len(sent)) == sent[::-1]
    until(lambda: timed(server) > before)
    seen = kubelet.seen[-1]
    assert (seen["method"], seen["headers"]["upgrade"]) == ("POST", "SPDY/3.1")
    assert seen["headers"]["x-stream-protocol-version"] == "v4.channel.k8s.io"
    assert "authorization" not in seen["headers"]


def test_large_amounts_are_relayed(fronted):
    server, _ = fronted
    with Raw(server) as raw:
        assert raw.ask()[0] == 101
        for _ in range(50):
            raw.sock.sendall(b"x" * 1000)
            assert raw.read(1000) == b"x" * 1000


@pytest.mark.parametrize(
    ("path", "token", "status"),
    [
        (EXEC, "jane-token", 403), (EXEC, "wrong", 401), (EXEC.replace("pods/p", "pods/none"), "", 404),
        ("/api/v1/namespaces/default/pods/none/attach", "", 404), ("/api/v1/nodes/n/exec", "", 404),
    ],
)  # fmt: skip
def test_a_refused_request_opens_no_connection(fronted, path, token, status):
    server, kubelet = fronted
    before = len(kubelet.seen)
    with Raw(server) as raw:
        assert raw.ask(path=path, token=token)[0] == status
    assert len(kubelet.seen) == before


@pytest.mark.parametrize("more", ["Content-Length: 3\r\n", "Transfer-Encoding: chunked\r\n", "bad header\r\n", "X: a\x01b\r\n"])
def test_heads_that_are_refused(fronted, more):
    server, kubelet = fronted
    before = len(kubelet.seen)
    with Raw(server) as raw:
        assert raw.ask(more=SPDY + more)[0] == 400
        assert raw.sock.recv(65536) or True
    assert len(kubelet.seen) == before


def test_a_second_request_on_the_connection_is_not_read(fronted):
    """What follows a refused head is never taken for a request."""
    server, _ = fronted
    with Raw(server) as raw:
        smuggled = f"GET /api/v1/secrets HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {server.token}\r\n\r\n"
        status, head = raw.ask(path=EXEC.replace("pods/p", "pods/none"), more=SPDY)
        assert status == 404 and "connection: close" in head.lower()
        raw.sock.sendall(smuggled.encode())
        rest = b""
        while got := raw.sock.recv(65536):
            rest += got
        assert b"HTTP/1.1" not in rest


def test_other_requests_are_served_as_without_spdy(fronted):
    server, _ = fronted
    with Raw(server) as raw:
        assert raw.ask("GET", "/readyz", "")[0] == 200
    with Raw(server) as raw:
        assert raw.ask("GET", "/api/v1/namespaces/default/pods/p", SPDY)[0] == 200
    with Raw(server) as raw:
        assert raw.ask("POST", EXEC, "Content-Length: 0\r\n")[0] == 400


HEAD = f"POST {EXEC} HTTP/1.1\r\nHost: a\r\n"


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        (HEAD + SPDY + "\r\n", True), (HEAD + "upgrade:spdy/3.1\r\n\r\n", True), (HEAD + SPDY, None), (HEAD + "\r\n", False),
        (HEAD + "Upgrade: websocket\r\n\r\n", False), (HEAD + "\r\n" + SPDY + "\r\n", False), ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", False),
        ("GET /api/v1/pods?x=/exec HTTP/1.1\r\n" + SPDY + "\r\n", False), ("", False), (HEAD + "x" * MAX_HEAD, False),
        (f"POST {EXEC}{'a' * 9000}", None), ("GET /api/v1/name", None), ("GET /api/v1/" + "a" * 2000, False), ("GET /apis/", False),
    ],
)  # fmt: skip
def test_which_heads_select_the_spdy_listener(data, wanted):
    assert wants_spdy(data.encode()) is wanted


@pytest.mark.parametrize(
    "head",
    [b"", b"DELETE / HTTP/1.1", b"GET / HTTP/1.0", b"GET x HTTP/1.1", b"GET / HTTP/1.1\r\n a: b", b"GET / HTTP/1.1\r\na : b",
     b"GET / HTTP/1.1\r\na:" + b" " * 60_000 + b"\x01"],
    ids=["empty", "method", "version", "path", "continued", "blank", "blanks that end with what may not be"],
)
def test_invalid_heads(head):
    with pytest.raises(HeadError):
        request_of(head)


def test_a_head():
    req = request_of(b"POST /a%20b?c=%20 HTTP/1.1\r\nHost: x\r\nX-Y:  z ")
    assert (req.method, req.path, req.query, req.headers) == ("POST", "/a b", "c=%20", [(b"host", b"x"), (b"x-y", b"z")])


def test_little_is_held_of_a_client_whose_backend_takes_nothing(tmp_path):
    """The listener used to hold 128 KiB and more of each."""
    address = str(tmp_path / "s")

    async def run():
        async def talk(client):
            started.set()
            await asyncio.Event().wait()

        started = asyncio.Event()
        listener = SPDYListener(lambda req: Upgrade("", talk, lambda: None), address, Introductions(str(tmp_path / "i")), MessageLimit())
        await listener.start()
        with socket.socket(socket.AF_UNIX) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, STREAM_BYTES)
            sock.connect(address)
            sock.setblocking(False)
            sock.send(f"POST {EXEC} HTTP/1.1\r\n{SPDY}\r\n".encode())
            await started.wait()
            taken, idle = 0, 0
            while idle < 20:
                try:
                    taken, idle = taken + sock.send(b"x" * READ_BYTES), 0
                except BlockingIOError:
                    idle += 1
                await asyncio.sleep(0.001)
            waiting = array("i", [0])
            fcntl.ioctl(sock, termios.TIOCOUTQ, waiting)
        await listener.stop()
        return taken - waiting[0]

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(asyncio.wait_for(run(), 60)) <= 2 * HELD_BYTES + 2 * STREAM_BYTES
