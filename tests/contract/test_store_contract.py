"""The store contract over every backend."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from model import ModelStore
from store_suite import StoreSuite

from kas.store import open_store
from kas.store.lmdb import LMDBStore


class TestModel(StoreSuite):
    @pytest.fixture
    def store(self) -> ModelStore:
        return ModelStore()


class TestLMDB(StoreSuite):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[LMDBStore]:
        store = open_store(str(tmp_path / "data"), sync=False)
        yield store
        store.close()
