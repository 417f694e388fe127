"""The servers' time of day jumps back and forth by minutes and hours while they are used.

No acknowledged write is lost, no read is stale, watches keep their promises, nothing expires early, the leader stays leader, and only what
has expired or is not valid yet by the clock is refused. KAS_ROBUSTNESS_SECONDS (6) is how long the test writes.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import requests

from kas.auth.authn.bearer import SUCCESS_TTL_S
from kas.auth.signingkey import ensure_signing_key
from kas.store.etcd import etcd_pb2 as pb
from kas.store.etcd.client import RANGE, TIME_TO_LIVE
from kas.store.etcd.client import Client as EtcdClient
from kas.testing.server import KasServer
from tests import pki
from tests.conftest import Client
from tests.controllers.waiting import until
from tests.etcd import Etcd
from tests.robustness.shims import Clock
from tests.robustness.test_etcd_faults import Several
from tests.robustness.test_watch_promises import SECONDS

pytestmark = pytest.mark.long

AHEAD_S = (7200, 0, -7200, 180, -180, 86400)  # seconds of each jump, in order
LEADER = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kas-controllers"
EVENTS = "/api/v1/namespaces/default/events"
ACCOUNT = "/api/v1/namespaces/default/serviceaccounts/default"
ME = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
TTL_S = 3600
FAILED = re.compile(r'^apiserver_request_total\{code="(?:429|500)".*\} \d+', re.MULTILINE)


class Holder:
    """A user with a token or a certificate that is valid for an hour, and the user name that the server sees."""

    def __init__(self, server: KasServer, token: str = "", certificate: tuple[str, str] | None = None) -> None:
        self.url, self.ca, self.certificate = server.url, server.ca, certificate
        self.headers = {"Authorization": f"Bearer {token}"} if token else {}

    def status(self) -> int:
        review = {"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"}
        shown = {"headers": self.headers, "verify": self.ca, "cert": self.certificate}
        return requests.post(self.url + ME, json=review, timeout=60, **shown).status_code


def token(client: Client) -> str:
    status, made = client("POST", f"{ACCOUNT}/token", {"spec": {"expirationSeconds": TTL_S}})
    assert status == 201, made
    return made["status"]["token"]


def tell(client: Client, name: str) -> None:
    event = {"metadata": {"name": name}, "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"}, "reason": "Jumped"}
    until(lambda: client("POST", EVENTS, event)[0] in (201, 409))  # one that timed out may have been created


def leader(client: Client) -> tuple[Any, ...]:
    status, lease = client("GET", LEADER)
    return (lease["spec"].get("holderIdentity"), lease["spec"]["leaseTransitions"]) if status == 200 else ()


def disturbed(servers: Sequence[KasServer], clocks: Sequence[Clock], certificate: tuple[str, str]) -> list[str]:
    """Makes the clocks jump during load; returns the names of the Events that were created meanwhile."""
    clients, told = [Client(server) for server in servers], []
    leads = until(lambda: leader(clients[0])) if len(servers) > 1 else ()  # a single server need not win an election
    until(lambda: clients[0]("GET", ACCOUNT)[0] == 200)
    tokens = [Holder(server, token(client)) for server, client in zip(servers, clients, strict=True)]
    shown = [Holder(server, certificate=certificate) for server in servers]
    assert [holder.status() for holder in (*tokens, *shown)] == [201] * 2 * len(servers)
    recorder = Several(list(servers))
    recorder.start()
    end, turn = time.monotonic() + SECONDS, 0
    while time.monotonic() < end or turn < len(AHEAD_S):
        at, ahead = turn % len(servers), AHEAD_S[turn % len(AHEAD_S)]
        clocks[at].jump(ahead)
        name = f"jumped.{turn}"
        tell(clients[at], name)
        told.append(name)
        # Its certificate is valid for an hour. A valid token is cached for a moment; one from another time is not known yet.
        assert shown[at].status() == (201 if abs(ahead) < TTL_S else 401)
        there = Holder(servers[at], token(clients[at]))
        assert there.status() == 201, "a token of its own clock"
        until(lambda: clients[at]("GET", f"{EVENTS}/{name}")[0] == 200)  # noqa: B023 — it is over here
        time.sleep(min(1.0, SECONDS / len(AHEAD_S)))
        assert not leads or until(lambda: leader(clients[at])) == leads  # noqa: B023
        turn += 1
    for clock in clocks:
        clock.jump(0)
    assert [holder.status() for holder in (*tokens, *shown)] == [201] * 2 * len(servers), "what was refused while the clock was wrong"
    recorder.finish()
    return told


def failed(server: KasServer) -> list[str]:
    """Returns which requests failed, by the metrics. Those with a certificate or token that is not valid now are answered with 401;
    timeouts (503 and 504) occur on a busy machine without jumps, too."""
    return FAILED.findall(Client(server).raw("GET", "/metrics").text)


@pytest.fixture
def flags(tmp_path: Path) -> tuple[str, ...]:
    """Returns the flags of the servers of one cluster: they accept one another's tokens."""
    key, authority = tmp_path / "sa.key", pki.authority("clients")
    ensure_signing_key(key)
    (tmp_path / "clients.crt").write_bytes(authority.pem)
    pki.issue([("O", "system:masters"), ("CN", "jane")], authority, begins_s=-TTL_S, ends_s=TTL_S).write(tmp_path, "jane")
    return (
        "--advertise-address=127.0.0.1", f"--service-account-signing-key-file={key}", f"--service-account-key-file={key}",
        "--service-account-issuer=https://kas.example", f"--client-ca-file={tmp_path / 'clients.crt'}",
    )  # fmt: skip


def test_servers_on_etcd(tmp_path: Path, flags: tuple[str, ...]) -> None:
    with ExitStack() as stack:
        etcd = stack.enter_context(Etcd(tmp_path))
        clocks = [Clock(tmp_path / f"clock{i}") for i in range(2)]
        servers = [
            stack.enter_context(KasServer(
                tmp_path / f"kas{i}", "--storage-backend=etcd3", f"--etcd-servers={etcd.url}", *flags, workers=2, prefix=clock.prefix,
            )) for i, clock in enumerate(clocks)
        ]  # fmt: skip
        told = disturbed(servers, clocks, (str(tmp_path / "jane.crt"), str(tmp_path / "jane.key")))
        client = EtcdClient(etcd.config)
        stack.callback(client.close)
        for name in told:
            [kv] = client.call(RANGE, pb.RangeRequest(key=f"/registry/events/default/{name}".encode())).kvs
            left = client.call(TIME_TO_LIVE, pb.LeaseTimeToLiveRequest(ID=kv.lease)).TTL
            assert TTL_S / 2 < left < TTL_S * 1.1, "the life of an Event is etcd's to measure"
        for server in servers:
            assert not failed(server)


@pytest.mark.lmdb
def test_a_server_on_lmdb(tmp_path: Path, flags: tuple[str, ...]) -> None:
    clock = Clock(tmp_path / "clock")
    with KasServer(tmp_path / "kas", "--unsafe-no-fsync", "--storage-backend=lmdb", *flags, workers=2, prefix=clock.prefix) as server:
        told = disturbed([server], [clock], (str(tmp_path / "jane.crt"), str(tmp_path / "jane.key")))
        assert [Client(server)("GET", f"{EVENTS}/{name}")[0] for name in told] == [200] * len(told)
        assert not failed(server)


def test_a_token_from_the_future_is_refused_at_another_server(tmp_path: Path, flags: tuple[str, ...]) -> None:
    """As is an expired one where the clock is ahead, once the cached verdict has expired."""
    clock = Clock(tmp_path / "clock")
    with KasServer(tmp_path / "kas", "--unsafe-no-fsync", *flags, prefix=clock.prefix) as server:
        client = Client(server)
        until(lambda: client("GET", ACCOUNT)[0] == 200)
        now = Holder(server, token(client))
        clock.jump(7200)
        later = Holder(server, token(client))
        assert (now.status(), later.status()) == (401, 201)
        clock.jump(0)
        assert now.status() == 201
        until(lambda: later.status() == 401, SUCCESS_TTL_S * 4)
