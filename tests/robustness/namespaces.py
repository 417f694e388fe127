"""Hosts on this machine: network namespaces on one switch; needs root.

Data sent to a host that was cut off are lost without a notice: no connection is refused, none is reset.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

from tests.etcd import Cluster

NETWORK = "10.213.79"  # addresses that are used in the namespaces only
CLONE_NEWNET = 0x40000000


def _ip(*args: str) -> None:
    subprocess.run(["ip", *args], check=True, capture_output=True)


def _enter(descriptor: int) -> None:
    """Moves the calling thread, and what it starts from now on, into a namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


class Host:
    """A host of a ``Network``. ``prefix`` is a command that runs the rest of its line there."""

    def __init__(self, hub: str, name: str, number: int) -> None:
        self._hub, self._link, self.name, self.address = hub, f"v{number}", name, f"{NETWORK}.{number}"
        self.prefix = ("nsenter", f"--net=/run/netns/{name}", "--")
        _ip("netns", "add", name)
        _ip("-n", hub, "link", "add", self._link, "type", "veth", "peer", "name", "eth0", "netns", name)
        _ip("-n", hub, "link", "set", self._link, "master", "switch", "up")
        _ip("-n", name, "link", "set", "lo", "up")
        _ip("-n", name, "addr", "add", f"{self.address}/24", "dev", "eth0")
        _ip("-n", name, "link", "set", "eth0", "up")
        self._silent: set[str] = set()

    def cut(self) -> None:
        """Cuts the host off in both directions."""
        _ip("-n", self._hub, "link", "set", self._link, "down")

    def silence(self, others: Iterable[Host]) -> None:
        """These hosts receive nothing from it any more; it receives from them."""
        for other in others:
            _ip("-n", self.name, "route", "replace", "blackhole", f"{other.address}/32")
            self._silent.add(other.address)

    def heal(self) -> None:
        """Connects it with all again."""
        _ip("-n", self._hub, "link", "set", self._link, "up")
        while self._silent:
            _ip("-n", self.name, "route", "del", "blackhole", f"{self._silent.pop()}/32")


class Network:
    """A context manager for the main thread, which moves it, and the threads and processes that it starts meanwhile, into a namespace that
    reaches all hosts and nothing else."""

    def __init__(self) -> None:
        self._name, self._numbers = f"kas{os.getpid()}", itertools.count(2)
        self._hosts: list[Host] = []
        self._before = -1

    def __enter__(self) -> Network:
        self._before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        _ip("netns", "add", self._name)
        for words in ("link set lo up", "link add switch type bridge", f"addr add {NETWORK}.1/24 dev switch", "link set switch up"):
            _ip("-n", self._name, *words.split())
        inside = os.open(f"/run/netns/{self._name}", os.O_RDONLY)
        _enter(inside)
        os.close(inside)
        return self

    def __exit__(self, *_: object) -> None:
        _enter(self._before)
        os.close(self._before)
        for host in self._hosts:
            _ip("netns", "del", host.name)
        _ip("netns", "del", self._name)

    def host(self) -> Host:
        """Returns a new host."""
        number = next(self._numbers)
        self._hosts.append(Host(self._name, f"{self._name}-{number}", number))
        return self._hosts[-1]


class Housed(Cluster):
    """A cluster with a host for each member: ``hosts``, by the members' names."""

    def __init__(self, network: Network, directory: Path, members: int = 3, *flags: str) -> None:
        super().__init__(directory, members, *flags)
        self.hosts = {member.name: network.host() for member in self.members}
        for member in self.members:
            member.live_at(self.hosts[member.name].address, self.hosts[member.name].prefix)

    def others(self, name: str) -> list[Host]:
        """Returns the hosts of the other members."""
        return [host for other, host in self.hosts.items() if other != name]
