"""The front of a real server: replaced certificates, TLS versions and suites, HTTP/2, and processes that die."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import ssl
import time
from pathlib import Path

import h2.config
import h2.connection
import h2.events
import pytest
from cryptography import x509

from kas.edge.front.frames import GOAWAY
from kas.testing.server import KasServer
from tests import pki
from tests.edge.front.conftest import LIMIT_S, answer, ask, until

JANE = [("CN", "jane")]


def served(s: ssl.SSLSocket) -> int:
    """Returns the serial number of the certificate that a server shows."""
    der = s.getpeercert(binary_form=True)
    assert der is not None
    return x509.load_der_x509_certificate(der).serial_number


def get(s, path: str = "/readyz", method: str = "GET", *headers: str) -> tuple[int, bytes]:
    s.sendall("\r\n".join((f"{method} {path} HTTP/1.1", "Host: x", *headers, "", "")).encode())
    return answer(s)


def test_a_replaced_serving_certificate_is_used(world, kas_server):
    """For new connections; open ones continue; an incomplete file changes nothing."""
    world.server = kas_server(*world.flags)
    old = world.serving.cert.serial_number
    with world.dial() as open_one:
        assert served(open_one) == old
        until(lambda: get(open_one)[0] == 200, "the worker that leads to have begun its loops")
        new = world.issue_serving().cert.serial_number

        def shows(serial: int) -> bool:
            with world.dial() as s:
                return served(s) == serial and get(s)[0] == 200

        until(lambda: shows(new), "the new certificate")
        (world.directory / "serving.crt").write_text("nothing")
        until(lambda: "serving certificates are unchanged" in world.server.output, "the complaint")
        assert shows(new)
        newest = world.issue_serving().cert.serial_number
        os.kill(world.server.front_pid(), signal.SIGHUP)
        until(lambda: shows(newest), "the newest certificate")
        assert get(open_one)[0] == 200


def test_a_replaced_certificate_in_the_certificate_directory_is_used(world, kas_server):
    world.serving.write(world.directory, "apiserver")
    world.server = kas_server("--unsafe-no-fsync", "--controllers=none", f"--cert-dir={world.directory}")
    with world.dial() as s:
        assert served(s) == world.serving.cert.serial_number
    new = world.issue_serving()
    new.write(world.directory, "apiserver")

    def shows() -> bool:
        with world.dial() as s:
            return served(s) == new.cert.serial_number and get(s)[0] == 200

    until(shows, "the new certificate")


def test_a_replaced_client_ca_is_used(world, kas_server):
    """Also for open connections: the certificate is verified with each request."""
    world.server = kas_server(*world.flags)
    other = pki.authority("clients of tomorrow")
    old, new = pki.issue(JANE, world.ca), pki.issue([("CN", "joe")], other)
    with world.dial(old) as s, world.dial(new) as t:
        assert ask(s)[1]["username"] == "jane" and ask(t)[0] == 401
        (world.directory / "ca.crt").write_bytes(world.ca.pem + other.pem)
        until(lambda: ask(t)[0] == 201, "the second authority")
        assert ask(s)[1]["username"] == "jane" and ask(t)[1]["username"] == "joe"
        (world.directory / "ca.crt").write_bytes(other.pem)
        until(lambda: ask(s)[0] == 401, "the end of the first authority")
        (world.directory / "ca.crt").write_text("nothing")
        until(lambda: "are unchanged" in world.server.output, "the complaint")
        assert ask(t)[1]["username"] == "joe" and ask(s)[0] == 401
        renewed = world.issue_serving().cert.serial_number

        def shown() -> bool:
            with world.dial() as another:
                return served(another) == renewed

        until(shown, "the serving certificate, which is no authority's business")
    proxy, carol = pki.issue([("CN", "proxy")], world.proxies), "X-Remote-User: carol"
    of_tomorrow = pki.issue([("CN", "proxy")], other)
    with world.dial(proxy) as s, world.dial(of_tomorrow) as t:
        assert ask(s, carol)[1]["username"] == "carol" and ask(t, carol)[1]["username"] == "proxy"
        (world.directory / "proxies.crt").write_bytes(other.pem)
        until(lambda: ask(t, carol)[1]["username"] == "carol", "the other authority of proxies")
        assert ask(s, carol)[0] == 401


def test_a_certificate_expires_while_its_connection_is_open(world, kas_server):
    world.server = kas_server(*world.flags)
    with contextlib.ExitStack() as stack:
        for ends_s in (3, 10, 30):  # the first certificate that a slow machine can use before it expires
            shown = pki.issue(JANE, world.ca, ends_s=ends_s)
            with contextlib.suppress(OSError):
                s = stack.enter_context(world.dial(shown))
                if ask(s)[0] != 401:
                    break
        else:
            pytest.fail("it had expired before it was shown")
        until(lambda: ask(s)[0] == 401, "the end of the certificate")
        assert time.time() >= shown.cert.not_valid_after_utc.timestamp()
        assert ask(s, f"Authorization: Bearer {world.server.token}")[0] == 201


def test_the_administrators_kubeconfig_has_a_client_certificate(world, kas_server):
    """And workers know the metric in which the front counts."""
    world.server = kas_server(*world.flags)
    text = Path(world.server.kubeconfig).read_text()
    assert "client-certificate-data" in text and world.server.token not in text
    assert os.stat(world.server.kubeconfig).st_mode & 0o777 == 0o600
    with world.dial(pki.issue([("CN", "root"), ("O", "system:masters")], world.ca)) as s:
        s.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"\napiserver_tls_handshake_errors_total " in answer(s)[1]


def test_named_certificates_versions_and_suites(world, kas_server):
    names = ["named.example.com", "*.wild.example.com", "both.example.com"]
    named = pki.issue([("CN", "named")], world.serving_ca, usages=("server",), dns=names, ips=["10.1.2.3"])
    address = pki.issue([("CN", "127.0.0.2")], world.serving_ca, usages=("server",), dns=["kube-apiserver"])
    given = pki.issue([("CN", "given")], world.serving_ca, usages=("server",), dns=["elsewhere"])
    made = (("named", named), ("given", given), ("address", address))
    first, second, third = (" , ".join(issued.write(world.directory, name)) for name, issued in made)
    world.server = kas_server(
        *world.flags, f"--tls-sni-cert-key={first}", f"--tls-sni-cert-key={second}:given.example.com",
        f"--tls-sni-cert-key={third}: both.example.com , 127.0.0.1",
        "--tls-cipher-suites=TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,TLS_AES_128_GCM_SHA256",
    )  # fmt: skip
    wanted = {
        "named.example.com": named, "a.wild.example.com": named, "a.b.wild.example.com": world.serving, "given.example.com": given,
        "GIVEN.example.com": given, "localhost": world.serving, "named": named, "unknown.example.com": world.serving,
        "both.example.com": address,  # an explicit name comes before one in a certificate
        "127.0.0.1": address,  # clients do not say which
        "elsewhere": given, "kube-apiserver": address,  # no client gets it, and no other certificate fits
    }  # fmt: skip
    shown = pki.issue(JANE, world.ca)
    for name, certificate in wanted.items():
        with world.dial(shown, name=name) as s:
            assert served(s) == certificate.cert.serial_number, name
            assert ask(s)[1]["username"] == "jane"
    context = world.context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with world.dial(context=context) as s:
        assert s.cipher()[0] == "ECDHE-ECDSA-AES256-GCM-SHA384"
    context.set_ciphers("ECDHE-ECDSA-AES128-GCM-SHA256")
    with pytest.raises(ssl.SSLError):
        world.dial(context=context)
    again = pki.issue([("CN", "named")], world.serving_ca, usages=("server",), dns=["named.example.com"])
    again.write(world.directory, "named")

    def shows_the_new_one() -> bool:
        with world.dial(name="named.example.com") as s:
            return served(s) == again.cert.serial_number

    until(shows_the_new_one, "the new named certificate")


@pytest.mark.parametrize(("numbers", "offered", "refused"), [("24,29", "secp384r1", "prime256v1"), ("23", "prime256v1", "secp384r1")])
def test_key_exchanges_are_those_of_the_flag(world, kas_server, numbers, offered, refused):
    """Those of the flag and no others."""
    world.server = kas_server(*world.flags, f"--tls-curve-preferences={numbers}")
    context = world.context()
    context.minimum_version = ssl.TLSVersion.TLSv1_3  # in older versions of TLS a client's curves also apply to certificates
    context.set_ecdh_curve(offered)
    with world.dial(context=context) as s:
        assert get(s)[0] == 200
    context.set_ecdh_curve(refused)
    with pytest.raises(ssl.SSLError):
        world.dial(context=context)


def test_the_oldest_version(world, kas_server):
    world.server = kas_server(*world.flags, "--tls-min-version=VersionTLS13")
    context = world.context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError):
        world.dial(context=context)
    with world.dial() as s:
        assert s.version() == "TLSv1.3" and get(s)[0] == 200


def test_http2_with_a_certificate(world, kas_server):
    world.server = kas_server(*world.flags)
    with world.dial(context=world.context(pki.issue([("CN", "root"), ("O", "system:masters")], world.ca), "h2")) as s:
        assert s.selected_alpn_protocol() == "h2"
        client = h2.connection.H2Connection(h2.config.H2Configuration())
        client.initiate_connection()
        for stream in (1, 3, 5):
            head = {":method": "GET", ":path": "/api/v1/namespaces", ":scheme": "https", ":authority": "x"}
            client.send_headers(stream, list(head.items()), end_stream=True)
        s.sendall(client.data_to_send())
        got: dict[int, str] = {}
        while len(got) < 3:
            for event in client.receive_data(s.recv(65536)):
                if isinstance(event, h2.events.ResponseReceived):
                    got[event.stream_id] = dict(event.headers)[b":status"].decode()
            s.sendall(client.data_to_send())
        assert set(got.values()) == {"200"}


def test_http2_can_be_off(world, kas_server):
    world.server = kas_server(*world.flags, "--disable-http2-serving")
    with world.dial(context=world.context(alpn="h2")) as s:
        assert s.selected_alpn_protocol() is None


def test_a_front_that_dies_is_replaced_and_no_connection_is_refused(world, kas_server):
    world.server = server = kas_server(*world.flags)
    shown = pki.issue(JANE, world.ca)
    for _ in range(2):
        front = server.front_pid()
        with world.dial(shown) as s:
            assert ask(s)[0] == 201
            os.kill(front, signal.SIGKILL)
            with pytest.raises(OSError):
                while True:
                    ask(s)
        assert world.who(shown)[1]["username"] == "jane"  # the supervisor holds the port
        assert server.front_pid() not in (0, front)


def test_a_worker_that_dies_takes_only_its_connections(world, kas_server):
    world.server = server = kas_server(*world.flags, workers=2)
    shown = pki.issue(JANE, world.ca)
    held = [world.dial(shown) for _ in range(4)]  # each worker has two: the one with the fewest is chosen
    assert [ask(s)[0] for s in held] == [201] * 4
    os.kill(server.worker_pids()[0], signal.SIGKILL)

    def alive(s: ssl.SSLSocket) -> bool:
        try:
            return ask(s)[0] == 201
        except OSError:
            return False

    until(lambda: "starting it again" in server.output, "the end of the worker")
    assert sum(map(alive, held)) == 2
    assert all(world.who(shown)[0] == 201 for _ in range(4))
    for s in held:
        s.close()


def test_shutdown_waits_for_requests_in_flight(world, kas_server):
    """SIGTERM to all processes at once, as a service manager does: the front stays as long as a worker answers."""
    world.server = server = kas_server(*world.flags)
    front = server.front_pid()
    watch = "/api/v1/namespaces?watch=1&timeoutSeconds=600"
    with world.dial(pki.issue([("CN", "root"), ("O", "system:masters")], world.ca)) as s:
        s.settimeout(LIMIT_S)
        s.sendall(f"GET {watch} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert b"200" in s.recv(65536)
        os.kill(front, signal.SIGTERM)
        assert server.stop() == 0
        got = b""
        while data := s.recv(65536):
            got += data
        assert got.endswith(b"0\r\n\r\n")  # ended, not cut
    assert not os.path.exists(f"/proc/{front}")


def test_a_front_without_its_supervisor_ends(world, kas_server):
    world.server = server = kas_server(*world.flags)
    front, workers = server.front_pid(), server.worker_pids()
    os.kill(server.pid, signal.SIGKILL)
    until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in (front, *workers)), "the end of the front and the workers")
    server.process.wait()


def memory_kib(pid: int) -> int:
    with open(f"/proc/{pid}/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS:"))


def test_idle_connections_cost_little(world, kas_server):
    """Two hundred connections with a request and two hundred without: some ten KiB each (measured with a thousand times as many)."""
    world.server = server = kas_server(*world.flags)
    shown = pki.issue(JANE, world.ca)
    context = world.context(shown)
    for _ in range(20):
        with world.dial(context=context) as s:
            ask(s)
    before = memory_kib(server.front_pid())
    held = []
    for i in range(400):
        held.append(world.dial(context=context))
        if i < 200:  # at once: silent connections are closed after a while
            assert ask(held[i])[0] == 201
    assert memory_kib(server.front_pid()) - before < 400 * 64
    for s in held:
        s.close()


@pytest.mark.parametrize(("flags", "text"), [
    (["--tls-cipher-suites=TLS_NO"], "Cipher suite TLS_NO not supported or doesn't exist"),
    (["--client-ca-file={d}/none.crt"], "open {d}/none.crt: no such file or directory"),
    (["--client-ca-file={d}/x.txt"],
     'error loading CA bundle for "client-ca-bundle::{d}/x.txt": data does not contain any valid RSA or ECDSA'),
    (["--client-ca-file={d}/der.txt"], 'error loading CA bundle for "client-ca-bundle::{d}/der.txt": x509: malformed certificate'),
    (["--requestheader-client-ca-file={d}/x.txt"],
     'error loading CA bundle for "request-header::{d}/x.txt": data does not contain any valid'),
    (["--client-ca-file={d}/ca.crt", "--requestheader-client-ca-file={d}/ca.crt"],
     "--requestheader-client-ca-file and --client-ca-file contain overlapping certificates; --requestheader-allowed-names must be"),
    (["--requestheader-group-headers= "], 'empty value in "requestheader-group-headers"'),
    (["--tls-sni-cert-key={d}/none.crt,{d}/none.key"], "open {d}/none.crt: no such file or directory"),
    (["--client-ca-file={d}/ca.crt", "--tls-cert-file={d}/x.txt", "--tls-private-key-file={d}/serving.key"],
     "tls: failed to find any PEM data in certificate input"),
    (["--client-ca-file={d}/ca.crt", "--tls-cert-file={d}/bad.crt", "--tls-private-key-file={d}/serving.key"], "the TLS front: "),
])  # fmt: skip
def test_invalid_combinations_refuse_to_start(world, tmp_path, flags, text):
    (world.directory / "x.txt").write_text("nothing")
    (world.directory / "der.txt").write_text("-----BEGIN CERTIFICATE-----\nZm9v\n-----END CERTIFICATE-----\n")
    (world.directory / "bad.crt").write_text("-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----\n")
    world.issue_serving()
    server = KasServer(tmp_path / "server", *(f.format(d=world.directory) for f in flags))
    with pytest.raises(RuntimeError) as e:
        server.start()
    assert text.format(d=world.directory) in str(e.value)


def test_without_client_certificates_there_is_no_front(kas_server, connect):
    """And no metric claims that all handshakes succeeded."""
    server = kas_server("--unsafe-no-fsync", "--controllers=none")
    assert server.front_pid() == 0
    assert "token:" in Path(server.kubeconfig).read_text()
    assert "apiserver_tls_handshake_errors_total" not in connect(server)("GET", "/metrics")[1]



@pytest.mark.parametrize("alone", [False, True])
def test_goaway_over_http2(world, kas_server, alone):
    """Of a thousand requests some are answered with a GOAWAY; open streams end normally, and none is lost. No other flag is needed."""
    world.server = kas_server(*(["--unsafe-no-fsync", "--controllers=none"] if alone else world.flags), "--goaway-chance=0.02")
    shown = None if alone else pki.issue([("CN", "root"), ("O", "system:masters")], world.ca)
    known = [("authorization", f"Bearer {world.server.token}")] if alone else []
    told = 0
    for _ in range(200):
        with world.dial(context=world.context(shown, "h2")) as s:
            client = h2.connection.H2Connection(h2.config.H2Configuration())
            client.initiate_connection()
            for stream in range(1, 40, 2):
                head = {":method": "GET", ":path": "/readyz", ":scheme": "https", ":authority": "x"}
                client.send_headers(stream, [*head.items(), *known], end_stream=True)
            s.sendall(client.data_to_send())
            ended = 0
            while ended < 20:
                data = s.recv(65536)  # a TLS record; all the answers together are smaller than one
                assert data
                if data.count(GOAWAY):
                    told += 1
                    data = data.replace(GOAWAY, b"")  # the library accepts no answer after it
                ended += sum(isinstance(e, h2.events.StreamEnded) for e in client.receive_data(data))
        if told:
            return
    raise AssertionError("nobody was told to go away")


def test_unauthenticated_http2_connections_are_closed(world, kas_server):
    """With GOAWAY for a client without a credential, with or after its answer; one with a certificate gets none."""
    world.server = kas_server(*world.flags)
    shown = pki.issue([("CN", "root"), ("O", "system:masters")], world.ca)
    for certificate, told in ((None, True), (shown, False)):
        with world.dial(context=world.context(certificate, "h2")) as s:
            client = h2.connection.H2Connection(h2.config.H2Configuration())
            client.initiate_connection()
            client.send_headers(1, [(":method", "GET"), (":path", "/readyz"), (":scheme", "https"), (":authority", "x")], end_stream=True)
            s.sendall(client.data_to_send())
            data, answered = b"", False
            while not (answered and (GOAWAY in data or not told)):
                data += (more := s.recv(65536))
                assert more
                answered |= any(isinstance(e, h2.events.StreamEnded) for e in client.receive_data(more.replace(GOAWAY, b"")))
            assert (GOAWAY in data) is told


def test_the_audit_log_has_the_clients_own_address(world, kas_server):
    policy, events = world.directory / "policy.yaml", world.directory / "audit.log"
    rule = "{level: Metadata, resources: [{group: authentication.k8s.io}]}"
    policy.write_text(f"apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{rule}]\n")
    world.server = kas_server(*world.flags, f"--audit-policy-file={policy}", f"--audit-log-path={events}", "--audit-log-mode=blocking")
    assert world.who(pki.issue(JANE, world.ca))[0] == 201
    assert world.who(None, f"Authorization: Bearer {world.server.token}")[0] == 201
    until(lambda: events.exists() and len(events.read_text().splitlines()) >= 4, "the events")
    seen = [json.loads(line) for line in events.read_text().splitlines()]
    assert {tuple(e["sourceIPs"]) for e in seen} == {("127.0.0.1",)}
    assert {e["user"]["username"] for e in seen} == {"jane", "admin"}


def test_a_serving_certificate_is_replaced_without_client_authorities(world, kas_server):
    """``--tls-cert-file`` alone: the certificate is renewed by another program."""
    world.server = kas_server(*[flag for flag in world.flags if flag.startswith(("--tls-", "--unsafe", "--controllers"))])

    def shown() -> bytes | None:
        with world.dial() as s:
            return s.getpeercert(binary_form=True)

    assert shown() == world.serving.der
    renewed = world.issue_serving()
    until(lambda: shown() == renewed.der, "the new certificate")
