"""Maintenance of an etcd, and what it does by itself, while kas serves from it."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kas.server import Server
from kas.store import Full, Unavailable
from kas.store.etcd import etcd_pb2 as pb
from kas.store.etcd.client import ALARM, COMPACT, RANGE
from kas.store.etcd.client import Client as Calls
from kas.testing.server import KasServer
from kas.worker import PendingBootstrap
from tests import ports
from tests.conftest import Client
from tests.controllers.waiting import until
from tests.etcd import Etcd

EVENTS, CONFIG_MAPS = "/api/v1/namespaces/default/events", "/api/v1/namespaces/default/configmaps"
MANY = 600


@pytest.fixture(scope="module")
def etcd(tmp_path_factory) -> Iterator[Etcd]:
    with Etcd(tmp_path_factory.mktemp("etcd")) as etcd:
        yield etcd


@pytest.fixture(scope="module")
def server(etcd: Etcd, tmp_path_factory) -> Iterator[KasServer]:
    """A server whose first address of etcd does not answer."""
    servers = f"http://127.0.0.1:{ports.reserve()},{etcd.url}"
    flags = ("--storage-backend=etcd3", f"--etcd-servers={servers}", "--advertise-address=127.0.0.1", "--event-ttl=2s")
    with KasServer(tmp_path_factory.mktemp("kas"), *flags, "--max-requests-inflight=0", workers=2) as server:
        yield server


def metrics(client: Client) -> str:
    return client.session.get(f"{client.server.url}/metrics", timeout=60).text


def event(name: str) -> dict:
    involved = {"kind": "Pod", "namespace": "default", "name": "p"}
    return {"metadata": {"name": name, "namespace": "default"}, "reason": "A", "involvedObject": involved}


def test_events_that_expire_by_the_thousand_are_deleted_one_by_one(server: KasServer) -> None:
    calls = [Client(server) for _ in range(8)]
    revision = calls[0]("GET", EVENTS)[1]["metadata"]["resourceVersion"]
    gone: dict[str, int] = {}
    made: set[str] = set()

    def follow() -> None:
        with calls[0].session.get(
            f"{server.url}{EVENTS}?watch=1&resourceVersion={revision}&timeoutSeconds=120", stream=True, timeout=120
        ) as answer:
            for line in answer.iter_lines():
                seen = json.loads(line)
                name = seen["object"]["metadata"]["name"]
                if seen["type"] == "ADDED":
                    made.add(name)
                else:
                    assert seen["type"] == "DELETED" and name in made
                    gone[name] = gone.get(name, 0) + 1
                if len(gone) == MANY:
                    return

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    with ThreadPoolExecutor(7) as pool:
        done = pool.map(lambda i: calls[1 + i % 7]("POST", EVENTS, event(f"e{i}"))[0], range(MANY))
        assert set(done) == {201}
    thread.join(120)
    assert len(gone) == MANY and set(gone.values()) == {1}
    assert calls[0]("GET", EVENTS)[1]["items"] == []
    # Upstream's metrics of leases and the database, and none of the replica.
    told = until(lambda: (text := metrics(calls[0])) and "etcd_lease_object_counts_count" in text and "storage_cluster_id" in text and text)
    assert re.search(r'^apiserver_storage_size_bytes\{storage_cluster_id="etcd-0"\} [1-9]', told, re.M), told
    assert "lmdb-" not in told and re.search(r"^etcd_lease_object_counts_count [1-9]", told, re.M)


def test_a_defragmentation_delays_requests_and_fails_none(etcd: Etcd, server: KasServer) -> None:
    call, ended, answers = Client(server), threading.Event(), []

    def write() -> None:
        client, i = Client(server), 0
        while not ended.is_set():
            i += 1
            answers.append(client("POST", CONFIG_MAPS, {"metadata": {"name": f"while{i}"}})[0])

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for _ in range(3):
            subprocess.run(["etcdctl", "--endpoints", etcd.url, "defrag"], check=True, capture_output=True)
    finally:
        ended.set()
        thread.join()
    assert set(answers) == {201}
    assert len(call("GET", CONFIG_MAPS)[1]["items"]) >= len(answers)


def test_watches_and_continue_tokens_survive_compaction_to_the_newest_revision(etcd: Etcd, server: KasServer) -> None:
    call = Client(server)
    for i in range(4):
        assert call("POST", CONFIG_MAPS, {"metadata": {"name": f"kept{i}"}})[0] == 201
    _, page = call("GET", f"{CONFIG_MAPS}?limit=1")
    revision, token = page["metadata"]["resourceVersion"], page["metadata"]["continue"]
    with call.session.get(f"{server.url}{CONFIG_MAPS}?watch=1&resourceVersion={revision}", stream=True, timeout=60) as answer:
        lines = answer.iter_lines()
        client = Calls(etcd.config)
        try:
            now = client.call(RANGE, pb.RangeRequest(key=b"/")).header.revision
            client.call(COMPACT, pb.CompactionRequest(revision=now))
        finally:
            client.close()
        other = Client(server)
        assert other("POST", CONFIG_MAPS, {"metadata": {"name": "after"}})[0] == 201
        assert json.loads(next(lines))["object"]["metadata"]["name"] == "after"
        status, rest = other("GET", f"{CONFIG_MAPS}?continue={token}")
        assert (status, rest["metadata"]["resourceVersion"]) == (200, revision)
        assert "after" not in [item["metadata"]["name"] for item in rest["items"]]


def test_after_an_alarm_is_cleared_writes_succeed(etcd: Etcd, server: KasServer) -> None:
    call, client = Client(server), Calls(etcd.config)
    try:
        member = client.call(RANGE, pb.RangeRequest(key=b"/")).header.member_id
        for action, works in ((pb.AlarmRequest.ACTIVATE, False), (pb.AlarmRequest.DEACTIVATE, True)):
            client.call(ALARM, pb.AlarmRequest(action=action, memberID=member, alarm=pb.AlarmMember.NOSPACE))
            status, body = call("POST", CONFIG_MAPS, {"metadata": {"name": f"full-{works}".lower()}})
            assert (status == 201) is works, body
            assert works or "space exceeded" in body["message"]
            until(lambda works=works: ("[+]etcd-space ok" in call.raw("GET", "/readyz?verbose").text) is works)
            assert call("GET", f"{CONFIG_MAPS}?limit=1")[0] == 200
    finally:
        client.close()


def test_a_corrupt_cluster_is_reported_and_causes_no_restart(etcd: Etcd, server: KasServer) -> None:
    call, client = Client(server), Calls(etcd.config)
    try:
        member = client.call(RANGE, pb.RangeRequest(key=b"/")).header.member_id
        for action, works in ((pb.AlarmRequest.ACTIVATE, False), (pb.AlarmRequest.DEACTIVATE, True)):
            client.call(ALARM, pb.AlarmRequest(action=action, memberID=member, alarm=pb.AlarmMember.CORRUPT))
            status, body = call("POST", CONFIG_MAPS, {"metadata": {"name": f"damaged-{works}".lower()}})
            assert (status, body.get("message")) == ((201, None) if works else (500, "etcdserver: corrupt cluster"))
            until(lambda works=works: ("[+]etcd-readiness ok" in call.raw("GET", "/readyz?verbose").text) is works)
            until(lambda: call.raw("GET", "/livez").text == "ok")
            assert "[-]poststarthook" not in call.raw("GET", "/readyz?verbose").text, "the loops wait, and nothing is wrong with them"
            assert call("GET", f"{CONFIG_MAPS}?limit=1")[0] == 200
    finally:
        client.close()


@pytest.mark.parametrize("alarm", [pb.AlarmMember.NOSPACE, pb.AlarmMember.CORRUPT])
def test_a_server_starts_though_etcd_accepts_no_writes(etcd: Etcd, server: KasServer, tmp_path: Path, alarm: Any) -> None:
    """A server at another address has to write it into the endpoints of the kubernetes Service. It serves before it can."""
    assert Client(server)("POST", CONFIG_MAPS, {"metadata": {"name": f"goes-{alarm}"}})[0] == 201
    client = Calls(etcd.config)
    try:
        member = client.call(RANGE, pb.RangeRequest(key=b"/")).header.member_id
        client.call(ALARM, pb.AlarmRequest(action=pb.AlarmRequest.ACTIVATE, memberID=member, alarm=alarm))
        flags = ("--storage-backend=etcd3", f"--etcd-servers={etcd.url}", "--advertise-address=127.0.0.9")
        with KasServer(tmp_path / "second", *flags) as second:
            until(lambda: "bootstrap objects of an earlier start are used until etcd accepts writes" in second.output)
            call = Client(second)
            assert call("GET", f"{CONFIG_MAPS}/goes-{alarm}")[0] == 200
            assert "[-]poststarthook" not in call.raw("GET", "/livez?verbose").text
            assert (call("DELETE", f"{CONFIG_MAPS}/goes-{alarm}")[0] == 200) is (alarm == pb.AlarmMember.NOSPACE)
            client.call(ALARM, pb.AlarmRequest(action=pb.AlarmRequest.DEACTIVATE, memberID=member, alarm=alarm))
    finally:
        client.close()


def test_writes_that_failed_at_the_start_are_repeated() -> None:
    answers: list[Exception | None] = [Full("etcdserver: mvcc: database space exceeded"), Unavailable("no leader"), None]

    def bootstrap() -> None:
        answer = answers.pop(0)
        if answer is not None:
            raise answer

    async def pay() -> None:
        owed = PendingBootstrap(cast(Server, SimpleNamespace(bootstrap=bootstrap)))
        for _ in range(5):
            await owed.pay()

    asyncio.run(pay())
    assert answers == []
