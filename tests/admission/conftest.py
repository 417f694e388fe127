from __future__ import annotations

import pytest
from admission_fakes import FakeServer


@pytest.fixture
def server() -> FakeServer:
    return FakeServer()
