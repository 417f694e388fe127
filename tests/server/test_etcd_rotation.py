"""The certificates used with etcd, and then its CA, are replaced while a server runs."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path

import requests

from kas.testing.server import KasServer
from tests.conftest import Client
from tests.controllers.waiting import until
from tests.pki import authority, issue
from tests.store.test_etcd_rpc import Secured

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


def test_processes_that_die_during_a_rotation_restart(tmp_path: Path, connect: Callable[[KasServer], Client]) -> None:
    """The certificate and its key are not replaced at the same moment. Then all files come from another CA."""
    with Secured(tmp_path) as etcd:
        (certificate, key), ca = etcd.client, etcd.ca
        flags = (f"--etcd-servers={etcd.url}", f"--etcd-cafile={ca}", f"--etcd-certfile={certificate}", f"--etcd-keyfile={key}")
        with KasServer(tmp_path / "kas", "--storage-backend=etcd3", "--advertise-address=127.0.0.1", *flags) as server:
            call = connect(server)
            other = authority("other-ca")
            new, mine = issue([("CN", "kas")], other), issue([("CN", "etcd")], other, usages=("server", "client"), ips=("127.0.0.1",))
            Path(certificate).write_bytes(new.pem)
            (worker,) = server.worker_pids()
            os.kill(worker, signal.SIGKILL)

            def served(method: str, path: str, body: dict | None = None) -> int:
                with contextlib.suppress(requests.RequestException):
                    return call(method, path, body)[0]
                assert server.process.poll() is None, server.output
                return 0

            until(lambda: "starting it again" in server.output and server.worker_pids() not in ([], [worker]))
            until(lambda: served("GET", f"{CONFIG_MAPS}?resourceVersion=0") == 200)
            assert served("POST", CONFIG_MAPS, {"metadata": {"name": "early"}}) == 503
            Path(key).write_bytes(new.key_pem)
            etcd.kill()
            other.write(tmp_path, "ca")
            mine.write(tmp_path, "server")
            etcd.start()
            until(lambda: served("POST", CONFIG_MAPS, {"metadata": {"name": "late"}}) == 201)
            assert served("GET", f"{CONFIG_MAPS}/late") == 200
