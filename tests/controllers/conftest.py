"""A server whose controllers run, in two workers."""

from __future__ import annotations

import pytest

from kas.testing.server import KasServer


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with KasServer(tmp_path_factory.mktemp("kas"), "--unsafe-no-fsync", workers=2) as running:
        yield running


@pytest.fixture
def call(server, connect):
    return connect(server)
