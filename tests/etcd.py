"""An etcd of a test's own, on loopback."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import time
from pathlib import Path

from kas.store.errors import StoreError
from kas.store.etcd import etcd_pb2 as pb
from kas.store.etcd.client import RANGE, Client, Config
from tests import need

START_S = 60.0


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


class Etcd:
    """One member; a context manager. ``url`` stays the same over restarts."""

    def __init__(self, directory: Path) -> None:
        self.program = need.program("etcd", "Debian's etcd-server")
        self.data = Path(directory) / "etcd"
        self.url, self._peers = (f"http://127.0.0.1:{_free_port()}" for _ in range(2))
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Etcd:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def config(self) -> Config:
        return Config((self.url,))

    def start(self, *flags: str) -> Etcd:
        """Returns when it answers."""
        command = [
            self.program, "--data-dir", str(self.data), "--listen-client-urls", self.url, "--advertise-client-urls", self.url,
            "--listen-peer-urls", self._peers, "--initial-advertise-peer-urls", self._peers, "--initial-cluster", f"default={self._peers}",
            "--log-level", "error", *flags,
        ]  # fmt: skip
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        client = Client(self.config)
        until = time.monotonic() + START_S
        try:
            while True:
                with contextlib.suppress(StoreError):
                    client.call(RANGE, pb.RangeRequest(key=b"/"), within_s=2.0)
                    return self
                if self._process.poll() is not None or time.monotonic() > until:
                    raise RuntimeError("etcd did not start")
        finally:
            client.close()

    def signal(self, s: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(s)

    def kill(self) -> None:
        """As a power cut would end it. Idempotent."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def value(self, key: str) -> bytes | None:
        """What stands at a key."""
        client = Client(self.config)
        try:
            kvs = client.call(RANGE, pb.RangeRequest(key=key.encode())).kvs
            return kvs[0].value if kvs else None
        finally:
            client.close()

    def keys(self, prefix: str = "/registry/") -> list[str]:
        client = Client(self.config)
        try:
            return [kv.key.decode() for kv in client.range(prefix.encode(), keys_only=True).kvs]
        finally:
            client.close()
