"""The pytest plug-in: a ``kas`` fixture with a running server, and ``kas_server`` to start more.

    def test_something(kas):
        requests.get(kas.url + "/api", headers={"Authorization": "Bearer " + kas.token}, verify=kas.ca)

A server runs on a free port of 127.0.0.1 in a temporary directory and leaves nothing behind; if it panicked, the test fails. ``kas`` is
shared by the whole session; tests that need an empty or differently configured server use ``kas_server(*flags)``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from kas.testing.server import KasServer


@pytest.fixture(scope="session")
def kas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KasServer]:
    """A server shared by the session: ``url``, ``kubeconfig``, ``token``, ``ca``, ``data_dir``, ``pid``."""
    with KasServer(tmp_path_factory.mktemp("kas"), "--unsafe-no-fsync") as server:
        yield server


@pytest.fixture
def kas_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., KasServer]]:
    """A function that starts a separate server with the given flags, which is stopped at the end of the test."""
    yield from servers(tmp_path_factory)


def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., KasServer]]:
    """The body of a fixture of any scope: yields ``start(*flags, workers=1)`` and finally stops the servers it started."""
    running: list[KasServer] = []

    def start(*flags: str, workers: int = 1) -> KasServer:
        server = KasServer(tmp_path_factory.mktemp("kas"), *flags, workers=workers)
        server.start()
        running.append(server)
        return server

    yield start
    for server in running:
        server.stop()
    for server in running:
        server.check()
