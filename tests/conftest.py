"""Fixtures and settings for all tests. kas.testing ensures that no process outlives its test, and that a panic in a server fails the run.
"""

from __future__ import annotations

import gc
import hashlib
import os
from collections.abc import Iterator

import pytest
import requests
from hypothesis import HealthCheck, settings

from kas import kinds
from kas.testing.server import KasServer
from tests import prerequisites
from tests.etcd import Etcd

kinds.install()

# Collected tests stay for the whole run. The garbage collector, which scanned ever more of them, took a third of the
# time of collecting, in each process of a run.
gc.disable()

# No test depends on how fast the machine is, nor on how many generated examples were usable.
LUCK = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
settings.register_profile("kas", deadline=None, suppress_health_check=LUCK)
settings.load_profile("kas")


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """From here on, the garbage collector scans what tests create, not the tests."""
    gc.freeze()
    gc.enable()


class Client:
    """A small HTTP client of one server: JSON in, (status, JSON) out."""

    def __init__(self, server: KasServer) -> None:
        self.server = server
        self.session = requests.Session()
        self.session.trust_env = False  # an environment's CA bundle would override the line below
        self.session.verify = server.ca
        self.session.headers["Authorization"] = f"Bearer {server.token}"

    def __call__(self, method: str, path: str, body=None, ctype: str = "application/json", **headers: str):
        r = self.raw(method, path, body, ctype, **headers)
        try:
            return r.status_code, r.json()
        except ValueError:
            return r.status_code, r.text

    def raw(self, method: str, path: str, body=None, ctype: str = "application/json", **headers: str) -> requests.Response:
        sent = {k.replace("_", "-"): v for k, v in headers.items()}
        if body is not None:
            sent.setdefault("Content-Type", ctype)
        if isinstance(body, (bytes, str)):
            return self.session.request(method, self.server.url + path, data=body, headers=sent, timeout=60)
        return self.session.request(method, self.server.url + path, json=body, headers=sent, timeout=60)


@pytest.fixture(scope="session", autouse=True)
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """With KAS_BACKEND=etcd, every server of the run that does not name another backend uses an etcd, with a prefix of its own."""
    if os.environ.get("KAS_BACKEND", "lmdb") != "etcd":
        yield
        return
    with Etcd(tmp_path_factory.mktemp("etcd")) as etcd, pytest.MonkeyPatch.context() as patch:

        def flags(server: KasServer) -> tuple[str, ...]:
            if any(flag.startswith("--storage-backend") for flag in server.flags):
                return ()
            prefix = hashlib.sha1(str(server.data_dir).encode()).hexdigest()[:12]
            return "--storage-backend=etcd3", f"--etcd-servers={etcd.url}", f"--etcd-prefix=/{prefix}"

        patch.setattr(KasServer, "more", staticmethod(flags))
        yield


@pytest.fixture
def client(kas) -> Client:
    """A client of the session's server with all rights."""
    return Client(kas)


@pytest.fixture
def connect():
    """``connect(server)`` returns a client of any server."""
    return Client


@pytest.fixture
def namespace(client: Client, request: pytest.FixtureRequest):
    """A namespace for this test, with its default service account."""
    name = "t" + hashlib.sha1(request.node.nodeid.encode()).hexdigest()[:10]
    status, body = client("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    assert status in (201, 409), body
    client("POST", f"/api/v1/namespaces/{name}/serviceaccounts", {"metadata": {"name": "default"}})
    return name


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With another backend, tests of what only LMDB promises are left out. In a run of several processes, slow modules come first, so that
    the others need not wait for them at the end, then the attacks: these measure how others are served, would disturb one another, and
    therefore share one process."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: (item.get_closest_marker("long") is None, not item.nodeid.startswith("tests/hostile/")))
    if os.environ.get("KAS_BACKEND", "lmdb") != "lmdb":
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("lmdb")])
        items[:] = [item for item in items if not item.get_closest_marker("lmdb")]


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fails or skips a test that stands for tests that cannot be generated: see prerequisites.py."""
    if mark := item.get_closest_marker("missing"):
        prerequisites.give_up(*mark.args)


_areas: dict[str, dict[str, int]] = {}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" or (report.when == "setup" and report.outcome == "skipped"):
        parts = report.nodeid.split("::")[0].split("/")
        area = parts[0] if parts[0] != "tests" else parts[1] if len(parts) > 2 else "source"
        counts = _areas.setdefault(area, {})
        counts[report.outcome] = counts.get(report.outcome, 0) + 1


def pytest_terminal_summary(terminalreporter) -> None:
    """Prints how many tests of each area passed."""
    if not _areas:
        return
    terminalreporter.section("areas")
    for area in sorted(_areas):
        counts = _areas[area]
        terminalreporter.write_line(f"{area:14}" + ", ".join(f"{n} {what}" for what, n in sorted(counts.items())))
