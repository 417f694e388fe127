"""The promises of ``test_etcd_faults.py`` with each server and each etcd member on a host of its own (a network namespace), on slow disks
and with clocks that jump.

Needs root and is only run by name (``make robustness BACKEND=etcd HOSTS=1``): not every machine allows network namespaces.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from urllib.parse import urlsplit

from kas.store.etcd import etcd_pb2 as pb
from kas.store.etcd.client import ALARM
from kas.store.etcd.client import Client as EtcdClient
from kas.testing.server import KasServer
from tests.etcd import Etcd
from tests.robustness.namespaces import Host, Housed, Network
from tests.robustness.shims import Clock, SlowDisk
from tests.robustness.test_etcd_faults import ALL, Faults, LinkFaults, promises_hold

SLOW_S = 0.15  # seconds for a sync; etcd makes two or three for a write, and waits a second for a leader
FULL = pb.AlarmRequest(action=pb.AlarmRequest.ACTIVATE, alarm=pb.AlarmMember.NOSPACE)
NOT_FULL = pb.AlarmRequest(action=pb.AlarmRequest.DEACTIVATE, alarm=pb.AlarmMember.NOSPACE)


class HostFaults(Faults):
    """Faults of servers and members that are connected by a network."""

    def __init__(self, cluster: Housed, servers: list[KasServer], hosts: list[Host], clocks: list[Clock]) -> None:
        """``hosts`` are those of the servers."""
        super().__init__(cluster, servers, clocks)
        self.members, self._others, self.hosts = cluster.hosts, cluster.others, hosts

    def _away(self, host: Host) -> None:
        self._heal.append(host.heal)
        host.cut()

    def part_leader(self) -> None:
        """Neither members nor servers receive anything from the leader, nor it from them."""
        self._away(self.members[self.cluster.leader().name])

    def part_member(self) -> None:
        self._away(self.rnd.choice(list(self.members.values())))

    def part_server(self) -> None:
        """Neither etcd nor clients can reach the server, nor it them."""
        self._away(self.rnd.choice(self.hosts))

    def _silence(self, host: Host, others: list[Host]) -> None:
        self._heal.append(host.heal)
        host.silence(others)

    def _isolate(self, member: Etcd) -> None:
        own, others = self.members[member.name], self._others(member.name)
        self._silence(own, others)
        for other in others:
            self._silence(other, [own])

    def deafen_leader(self) -> None:
        """The others receive from the leader; it receives nothing from them."""
        leader = self.cluster.leader()
        for other in self._others(leader.name):
            self._silence(other, [self.members[leader.name]])

    def mute_leader(self) -> None:
        """The leader receives from the others, and they receive nothing from it."""
        leader = self.cluster.leader()
        self._silence(self.members[leader.name], self._others(leader.name))

    def mute_server(self) -> None:
        """Nothing that the server sends reaches etcd; clients reach the server."""
        self._silence(self.rnd.choice(self.hosts), list(self.members.values()))

    def deafen_server(self) -> None:
        """What the server sends reaches etcd, and it receives no answer; clients reach the server."""
        host = self.rnd.choice(self.hosts)
        for member in self.members.values():
            self._silence(member, [host])

    def mute_server_to_leader(self) -> None:
        """The server reaches all members but the leader."""
        self._silence(self.rnd.choice(self.hosts), [self.members[self.cluster.leader().name]])

    def _slow(self, members: list[Etcd]) -> None:
        for disk in [member.disk for member in members if member.disk]:
            self._heal.append(lambda disk=disk: setattr(disk, "wait_s", 0.0))
            disk.wait_s = SLOW_S

    def slow_disk_of_leader(self) -> None:
        self._slow([self.cluster.leader()])

    def slow_disks(self) -> None:
        self._slow(self.cluster.members)

    def fill(self) -> None:
        """etcd reports that its quota is exhausted."""
        self._heal.append(lambda: self._alarm(NOT_FULL))
        self._alarm(FULL)

    def _alarm(self, request: pb.AlarmRequest) -> None:
        client = EtcdClient(self.cluster.config)
        try:
            client.call(ALARM, request, 30.0)
        finally:
            client.close()


LINKS = [name for name in vars(LinkFaults) if not name.startswith("_")]
EVERY = [
    "part_leader", "slow_disk_of_leader", "part_server", *(name for name in ALL if name not in LINKS), "part_member", "deafen_leader",
    "mute_leader", "mute_server", "deafen_server", "mute_server_to_leader", "slow_disks", "fill",
]  # fmt: skip


def test_promises_hold_between_hosts(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        network = stack.enter_context(Network())
        cluster = Housed(network, tmp_path)
        for member in cluster.members:
            member.disk = SlowDisk()
            stack.callback(member.disk.close)
        stack.enter_context(cluster)
        hosts, clocks, servers = [], [], []
        for i in range(3):
            host, clock = network.host(), Clock(tmp_path / f"clock{i}")
            server = KasServer(
                tmp_path / f"kas{i}", "--storage-backend=etcd3", f"--etcd-servers={','.join(cluster.urls)}",
                f"--bind-address={host.address}", f"--advertise-address={host.address}", prefix=(*host.prefix, *clock.prefix),
            )  # fmt: skip
            hosts.append(host)
            clocks.append(clock)
            servers.append(stack.enter_context(server))
            assert urlsplit(server.url).hostname == host.address
        promises_hold(servers, HostFaults(cluster, servers, hosts, clocks), EVERY)
