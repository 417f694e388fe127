"""Starts an etcd for a test, on loopback."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

from kas.store.errors import StoreError
from kas.store.etcd import etcd_pb2 as pb
from kas.store.etcd.client import RANGE, REVOKE, STATUS, TIME_TO_LIVE, Client, Config
from tests import ports, prerequisites

if TYPE_CHECKING:
    from tests.robustness.shims import SlowDisk

START_S = 60.0


def snapshots() -> str:
    """Returns the program that restores and describes snapshots: etcdutl, because etcdctl no longer does from 3.6 on; etcdctl for an old
    version."""
    return shutil.which("etcdutl") or prerequisites.program("etcdctl", "Debian's etcd-client")


class Etcd:
    """One member, of a cluster of its own or of ``peers`` (name to peer URL); a context manager. ``url`` stays the same over restarts.
    ``files`` are a CA, a certificate and its key: the member uses them, and requires client certificates."""

    def __init__(
        self, directory: Path, name: str = "default", peers: dict[str, str] | None = None, files: tuple[str, str, str] | None = None,
    ) -> None:  # fmt: skip
        self.program = prerequisites.program("etcd", "Debian's etcd-server")
        self.data, self.log, self.name = Path(directory) / "etcd", Path(directory) / f"etcd-{name}.log", name
        self.url, self.files = f"http{'s' if files else ''}://127.0.0.1:{ports.reserve()}", files
        self.peers = peers or {name: f"http://127.0.0.1:{ports.reserve()}"}
        self.listens = self.peers[name]  # where it listens for the others; differs from ``peers`` when a proxy is in between
        self._prefix: tuple[str, ...] = ()
        self.disk: SlowDisk | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def live_at(self, address: str, prefix: tuple[str, ...]) -> None:
        """Makes it listen at this address, not on loopback, started through the command ``prefix``."""
        self._prefix = prefix
        self.url, self.listens = (url.replace("127.0.0.1", address) for url in (self.url, self.listens))
        self.peers[self.name] = self.listens

    def __enter__(self) -> Etcd:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def config(self) -> Config:
        return Config((self.url,), *self.files or ())

    def start(self, *flags: str) -> Etcd:
        """Starts it; returns when it answers."""
        self.spawn(*flags)
        client = Client(self.config)
        until = time.monotonic() + START_S
        try:
            while True:
                with contextlib.suppress(StoreError):
                    client.call(RANGE, pb.RangeRequest(key=b"/"), within_s=2.0)
                    return self
                if self._process is None or self._process.poll() is not None or time.monotonic() > until:
                    raise RuntimeError(f"etcd did not start: {self.log.read_text(errors='replace')[-2000:]}")
        finally:
            client.close()

    def spawn(self, *flags: str) -> None:
        """Starts it, and does not wait."""
        own = self.peers[self.name]
        command = [
            *self._prefix, self.program, "--name", self.name, "--data-dir", str(self.data),
            "--listen-client-urls", self.url, "--advertise-client-urls", self.url,
            "--listen-peer-urls", self.listens, "--initial-advertise-peer-urls", own, "--initial-cluster",
            ",".join(f"{name}={url}" for name, url in self.peers.items()), "--log-level", "error", *flags,
        ]  # fmt: skip
        if self.files:
            ca, certificate, key = self.files
            command += ["--client-cert-auth", "--trusted-ca-file", ca, "--cert-file", certificate, "--key-file", key]
        before = self.disk.before if self.disk else None
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, preexec_fn=before)
        if self.disk:
            self.disk.watch()

    def signal(self, s: signal.Signals) -> None:
        """Sends a signal; returns when it has taken effect."""
        assert self._process is not None
        self._process.send_signal(s)
        state = Path(f"/proc/{self._process.pid}/stat")
        while s == signal.SIGSTOP and state.read_text().rpartition(")")[2].split()[0] != "T":
            time.sleep(0.001)

    def kill(self) -> None:
        """Ends it as a power failure would. Idempotent."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def version(self) -> str:
        """Returns the program's version."""
        client = Client(self.config)
        try:
            return client.call(STATUS, pb.StatusRequest()).version
        finally:
            client.close()

    def value(self, key: str) -> bytes | None:
        """Returns the value of a key."""
        client = Client(self.config)
        try:
            kvs = client.call(RANGE, pb.RangeRequest(key=key.encode())).kvs
            return kvs[0].value if kvs else None
        finally:
            client.close()

    def end_lease(self, key: str, within_s: int) -> None:
        """Expires a lease at once, which etcd does ``within_s`` seconds after the last renewal: the key is deleted, with all others of its
        lease."""
        client = Client(self.config)
        try:
            lease = client.call(RANGE, pb.RangeRequest(key=key.encode())).kvs[0].lease
            granted = client.call(TIME_TO_LIVE, pb.LeaseTimeToLiveRequest(ID=lease)).grantedTTL
            assert 0 < granted <= within_s, f"{key}: a lease of {granted} s"
            client.call(REVOKE, pb.LeaseRevokeRequest(ID=lease))
        finally:
            client.close()

    def keys(self, prefix: str = "/registry/") -> list[str]:
        client = Client(self.config)
        try:
            return [kv.key.decode() for kv in client.range(prefix.encode(), keys_only=True).kvs]
        finally:
            client.close()


class Cluster:
    """Several members; a context manager."""

    def __init__(self, directory: Path, members: int = 3, *flags: str) -> None:
        peers = {f"m{i}": f"http://127.0.0.1:{ports.reserve()}" for i in range(members)}
        self.members = [Etcd(Path(directory) / name, name, peers) for name in peers]
        self.flags = flags

    def __enter__(self) -> Cluster:
        for member in self.members:
            member.spawn(*self.flags)
        self.answers()
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.members:
            member.kill()

    def answers(self) -> None:
        """Waits until each member answers."""
        for member in self.members:
            client, until = Client(member.config), time.monotonic() + START_S
            try:
                while True:
                    with contextlib.suppress(StoreError):
                        client.call(RANGE, pb.RangeRequest(key=b"/"), within_s=2.0)
                        break
                    if time.monotonic() > until:
                        raise RuntimeError("etcd did not start")
            finally:
                client.close()

    @property
    def urls(self) -> tuple[str, ...]:
        return tuple(member.url for member in self.members)

    @property
    def config(self) -> Config:
        return Config(self.urls)

    def leader(self) -> Etcd:
        """Returns the leader."""
        for member in self.members:
            client = Client(member.config)
            try:
                status = client.call(STATUS, pb.StatusRequest(), within_s=2.0)
                if status.header.member_id == status.leader:
                    return member
            except StoreError:
                continue
            finally:
                client.close()
        raise RuntimeError("nobody leads")
