"""One etcd for all; each test has a prefix of its own."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.etcd import Etcd

_numbers = itertools.count()


@pytest.fixture(scope="session")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    with Etcd(tmp_path_factory.mktemp("etcd")) as etcd:
        yield etcd


@pytest.fixture
def prefix() -> str:
    return f"/p{next(_numbers)}"
