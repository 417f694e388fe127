"""The server that plug-ins see in these tests: objects in a dict."""

from __future__ import annotations

import pytest

from tests.admission.admission_fakes import FakeServer


@pytest.fixture
def server() -> FakeServer:
    return FakeServer()
