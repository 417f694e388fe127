"""The server that plug-ins use in these tests, with objects in a dict; and a webhook server."""

from __future__ import annotations

import pytest

from tests.admission.admission_fakes import FakeServer
from tests.admission.webhook.hook_server import HookServer, reviewed


@pytest.fixture
def server() -> FakeServer:
    return FakeServer()


@pytest.fixture(scope="module")
def hook_server(tmp_path_factory):
    with HookServer(tmp_path_factory.mktemp("hook")) as running:
        yield running


@pytest.fixture
def hook(hook_server):
    """A webhook server that has received nothing yet and allows everything."""
    hook_server.seen.clear()
    hook_server.answers = reviewed
    return hook_server
