"""Coordinated leader election with two servers on one etcd: one elects, for candidates that use either server, and the other takes over
when it is killed."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kas.testing.server import KasServer
from tests.conftest import Client
from tests.controllers.waiting import until
from tests.etcd import Etcd
from tests.intervals import shorter_intervals

COORDINATION = "/apis/coordination.k8s.io"
ELECTOR = f"{COORDINATION}/v1/namespaces/kube-system/leases/leader-election-controller"
LEASES = f"{COORDINATION}/v1/namespaces/default/leases"
CANDIDATES = f"{COORDINATION}/v1beta1/namespaces/default/leasecandidates"
FLAGS = (
    "--storage-backend=etcd3", "--advertise-address=127.0.0.1", "--feature-gates=CoordinatedLeaderElection=true",
    "--runtime-config=coordination.k8s.io/v1beta1=true", "--coordinated-leadership-lease-duration=3s",
    "--coordinated-leadership-renew-deadline=2s", "--coordinated-leadership-retry-period=500ms",
)  # fmt: skip

SOON = shorter_intervals("kas.controllers.coordinated.AGAIN_S=0.5")


def now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def offer(client: Client, name: str, lease: str, emulation: str) -> None:
    spec = {
        "leaseName": lease, "binaryVersion": "1.36.0", "emulationVersion": emulation, "strategy": "OldestEmulationVersion",
        "renewTime": now(),
    }  # fmt: skip
    assert client("POST", CANDIDATES, {"metadata": {"name": name}, "spec": spec})[0] == 201


def spec(client: Client, path: str) -> dict[str, Any]:
    status, obj = client("GET", path)
    return obj["spec"] if status == 200 else {}


def answered(client: Client, name: str) -> None:
    """A live candidate: it answers pings."""
    found = spec(client, f"{CANDIDATES}/{name}")
    if found.get("pingTime", "") > found["renewTime"]:
        client("PATCH", f"{CANDIDATES}/{name}", {"spec": {"renewTime": now()}}, "application/merge-patch+json")


def test_one_server_elects_and_the_other_takes_over(tmp_path: Path, connect: Callable[[KasServer], Client]) -> None:
    with Etcd(tmp_path) as etcd:
        flags = (*FLAGS, f"--etcd-servers={etcd.url}")
        with KasServer(tmp_path / "one", *flags, prefix=SOON) as first, KasServer(tmp_path / "two", *flags, prefix=SOON) as second:
            one, two = connect(first), connect(second)
            until(lambda: spec(two, ELECTOR).get("holderIdentity"))
            assert spec(two, ELECTOR)["leaseDurationSeconds"] == 3
            offer(two, "a", "app", "1.36.0")
            until(lambda: spec(one, f"{LEASES}/app").get("holderIdentity") == "a")
            first.kill()  # it started first and elects, unless the machine was suspended for so long that the other one took over
            killed = now()
            until(lambda: spec(two, ELECTOR).get("renewTime", "") > killed)
            offer(two, "b", "other", "1.36.0")
            until(lambda: spec(two, f"{LEASES}/other").get("holderIdentity") == "b")

            # The election that the first began continues: candidate "a" no longer answers.
            offer(two, "c", "app", "1.35.0")

            def led_by_c() -> bool:
                answered(two, "c")
                return spec(two, f"{LEASES}/app").get("holderIdentity") == "c"

            until(led_by_c)
