"""API servers of one etcd that serve different versions: a request that only the other server can answer is passed on to it."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import socketserver
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kas.controllers.peerleases import PREFIX, TTL_S
from kas.testing.server import KasServer
from tests.aggregator.certificates import Authority
from tests.conftest import Client
from tests.controllers.waiting import until
from tests.etcd import Etcd

JOBS = "/apis/batch/v1/namespaces/default/jobs"
SPEC = {"template": {"spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}}}
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
WITHOUT = "--runtime-config=batch/v1=false"


class Setup:
    """An etcd, and the certificates and flags with which servers find one another."""

    def __init__(self, directory: Path, etcd: Etcd) -> None:
        self.directory, self.etcd = directory, etcd
        self.serving, front = Authority(directory, "serving"), Authority(directory, "front-proxy")
        certificate, key = self.serving.issue("server", ["127.0.0.1", "localhost", "kubernetes.default.svc"])
        shown, shown_key = front.issue("aggregator")
        self.flags = (
            "--storage-backend=etcd3", f"--etcd-servers={etcd.url}", "--advertise-address=127.0.0.1", f"--tls-cert-file={certificate}",
            f"--tls-private-key-file={key}", f"--requestheader-client-ca-file={front.file}", "--requestheader-allowed-names=aggregator",
            "--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-", "--requestheader-uid-headers=X-Remote-Uid",
            f"--proxy-client-cert-file={shown}", f"--proxy-client-key-file={shown_key}", f"--peer-ca-file={self.serving.file}",
            "--peer-advertise-ip=127.0.0.1",
        )  # fmt: skip

    def server(self, name: str, *more: str, workers: int = 1) -> KasServer:
        return KasServer(self.directory / name, *self.flags, *more, workers=workers)

    def client(self, server: KasServer) -> Client:
        client = Client(server)
        client.session.verify = str(self.serving.file)
        return client


@pytest.fixture(scope="module")
def setup(tmp_path_factory) -> Iterator[Setup]:
    with Etcd(tmp_path_factory.mktemp("etcd")) as etcd:
        yield Setup(tmp_path_factory.mktemp("peers"), etcd)


def resources(client: Client, accept: str = AGGREGATED) -> set[str]:
    status, found = client("GET", "/apis", Accept=accept)
    assert status == 200
    return {
        f"{group['metadata']['name']}/{version['version']}/{resource['resource']}"
        for group in found["items"] for version in group["versions"] for resource in version.get("resources") or ()
    }  # fmt: skip


def metric(client: Client, name: str, **labels: str) -> float:
    """Returns the sum of a counter's values with these labels."""
    told = client.session.get(f"{client.server.url}/metrics", timeout=60).text
    return sum(
        sample.value
        for family in text_string_to_metric_families(told) for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    )  # fmt: skip


def test_requests_that_only_a_peer_can_serve_are_passed_on(setup: Setup) -> None:
    with setup.server("old", WITHOUT, workers=2) as old:
        mine = setup.client(old)
        assert mine("GET", JOBS)[0] == 404  # no server serves it
        alone = set(until(lambda: setup.etcd.keys(PREFIX)))
        with setup.server("new") as new:
            theirs = setup.client(new)
            until(lambda: mine("GET", JOBS)[0] == 200)
            status, made = mine("POST", JOBS, {"metadata": {"name": "j"}, "spec": SPEC})
            assert (status, made["kind"]) == (201, "Job")
            assert theirs("GET", f"{JOBS}/j")[1]["metadata"]["uid"] == made["metadata"]["uid"]
            answer = mine.session.get(f"{old.url}{JOBS}?watch=1&timeoutSeconds=60", stream=True, timeout=60)
            lines = answer.iter_lines()
            assert json.loads(next(lines))["object"]["metadata"]["name"] == "j"
            patch = {"metadata": {"labels": {"a": "b"}}}
            assert mine("PATCH", f"{JOBS}/j", patch, "application/merge-patch+json")[0] == 200
            assert json.loads(next(lines))["type"] == "MODIFIED"
            answer.close()
            # The peer sees the requesting user. It does not get requests that no server serves, nor passes requests back.
            status, refused = mine("GET", JOBS, **{"Impersonate-User": "jane"})
            assert (status, refused["reason"]) == (403, "Forbidden")
            assert mine("GET", "/apis/batch/v1/namespaces/default/nothings")[0] == 404
            assert mine("GET", JOBS, **{"X-Kubernetes-Peer-Proxied": "true"})[0] == 404
            assert "batch/v1/jobs" in until(lambda: (found := resources(mine)) & {"batch/v1/jobs"} and found)
            assert "batch/v1/jobs" not in resources(mine, AGGREGATED + ";profile=nopeer")
            asked = ("nopeer_requests", "peer_aggregated_cache_misses", "peer_aggregated_cache_hits")
            families = [f"aggregator_discovery_{what}_total" for what in asked]
            until(lambda: resources(mine) and all(metric(mine, family) > 0 for family in families))
            assert resources(theirs) >= resources(mine)
            jobs = {"group": "batch", "version": "v1", "resource": "jobs"}
            until(lambda: metric(mine, "apiserver_rerouted_request_total", code="201", **jobs) == 1)  # another worker's, a second later
            until(lambda: metric(mine, "apiserver_rerouted_request_total", code="200", **jobs) >= 2)
            (key,) = set(setup.etcd.keys(PREFIX)) - alone
            new.kill()
            setup.etcd.end_lease(key, 2 * TTL_S)
            # Its objects must not be taken for deleted.
            until(lambda: (found := mine("GET", JOBS))[0] == 503 and "of the remote server" in str(found[1]))
            until(lambda: metric(mine, "apiserver_peer_proxy_errors_total", type="endpoint_resolution", **jobs) >= 1)
        with setup.server("new"):
            assert until(lambda: mine("GET", f"{JOBS}/j")[0] == 200)


class Relay:
    """A port in front of ``target``: other servers may reach a server at another address than the one where it listens."""

    def __init__(self) -> None:
        self.target, self.taken, relay = 0, 0, self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                relay.taken += 1
                with socket.create_connection(("127.0.0.1", relay.target)) as far:
                    other = threading.Thread(target=self.copy, args=(far, self.request))
                    other.start()
                    self.copy(self.request, far)
                    other.join()

            @staticmethod
            def copy(source: socket.socket, sink: socket.socket) -> None:
                with contextlib.suppress(OSError):
                    while data := source.recv(65536):
                        sink.sendall(data)
                    sink.shutdown(socket.SHUT_WR)

        self.server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


def test_a_peer_is_reached_at_its_advertised_port(setup: Setup) -> None:
    relay = Relay()
    try:
        with setup.server("here", WITHOUT) as here, setup.server("there", f"--peer-advertise-port={relay.port}") as there:
            relay.target = there.port
            mine = setup.client(here)
            until(lambda: mine("GET", JOBS)[0] == 200)
            assert relay.taken
    finally:
        relay.server.shutdown()
        relay.server.server_close()


def test_replacing_a_peer_causes_no_error(setup: Setup) -> None:
    """Requests that the first server cannot serve go to the second, then to the third. A client of the first does not notice."""
    alpha, ended, seen = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions", threading.Event(), []
    with setup.server("first", WITHOUT) as first, setup.server("second", "--shutdown-delay-duration=5m") as second:
        mine, theirs = setup.client(first), setup.client(second)
        until(lambda: mine("GET", JOBS)[0] == 200)

        def ask() -> None:
            asking = setup.client(first)
            while not ended.is_set():
                seen.append(asking("GET", JOBS)[0])

        def unasked() -> bool:
            """Whether the second server, which is shutting down, gets no more requests, though it still answers."""
            before = metric(theirs, "apiserver_request_total", resource="jobs")
            for _ in range(30):  # each could go to either of two servers
                assert mine("GET", JOBS)[0] == 200
            return metric(theirs, "apiserver_request_total", resource="jobs") == before

        thread = threading.Thread(target=ask)
        thread.start()
        try:
            with setup.server("third", "--runtime-config=internal.apiserver.k8s.io/v1alpha1=true"):
                until(lambda: mine("GET", alpha)[0] == 200)  # the first has discovered it
                second.process.send_signal(signal.SIGTERM)
                until(unasked)
                second.kill()
                for _ in range(20):
                    assert mine("GET", JOBS)[0] == 200
                ended.set()
                thread.join()
        finally:
            ended.set()
            thread.join()
        assert set(seen) == {200}, sorted(set(seen))


def descriptors(server: KasServer) -> int:
    return sum(len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in server.worker_pids())


def test_a_peer_is_killed_under_load_and_comes_back(setup: Setup) -> None:
    """The server that passes requests on answers each of them, with the peer's answer or 503, and leaks no descriptors."""
    clients, ended = 12, threading.Event()
    seen: list[list[int]] = [[] for _ in range(clients)]
    others: list[object] = []  # unexpected answers
    with setup.server("asked", WITHOUT) as asked, setup.server("killed") as killed:
        mine = setup.client(asked)
        until(lambda: mine("GET", JOBS)[0] == 200)

        def ask(own: list[int], number: int) -> None:
            asking = setup.client(asked)
            while not ended.is_set():
                told: object = None
                if len(own) % 3 == number % 3:
                    job = {"metadata": {"name": f"load-{number}-{len(own)}"}, "spec": SPEC}
                    status, told = asking("POST", JOBS, job)
                elif len(own) % 3:
                    status, told = asking("GET", f"{JOBS}?limit=5")
                else:
                    with asking.session.get(f"{asked.url}{JOBS}?watch=1&timeoutSeconds=1", stream=True, timeout=60) as answer:
                        status, told = answer.status_code, answer.text if answer.status_code != 200 else None
                own.append(status)
                if status not in (200, 201, 503):
                    others.append((status, told))

        def each_sees(status: int) -> None:
            """Waits until each client has seen the status from now on."""
            at = [len(own) for own in seen]
            until(lambda: all(status in own[n:] for n, own in zip(at, seen, strict=True)))

        threads = [threading.Thread(target=ask, args=(own, number)) for number, own in enumerate(seen)]
        for thread in threads:
            thread.start()
        try:
            each_sees(201)
            open_then = descriptors(asked)
            for _ in range(2):
                killed.kill()
                each_sees(503)
                each_sees(503)
                killed.start()
                each_sees(201)
        finally:
            ended.set()
            for thread in threads:
                thread.join()
        assert {status for own in seen for status in own} == {200, 201, 503}, others[:3]
        until(lambda: descriptors(asked) <= open_then)
