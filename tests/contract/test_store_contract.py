"""The store contract over every backend."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kas.store import open_store
from kas.store.lmdb import LMDBStore
from tests.contract.model import ModelStore
from tests.contract.revision_suite import RevisionSuite
from tests.contract.sealing import ONE
from tests.contract.store_suite import StoreSuite


class TestModel(StoreSuite, RevisionSuite):
    @pytest.fixture
    def store(self) -> ModelStore:
        return ModelStore()


class TestLMDB(StoreSuite, RevisionSuite):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[LMDBStore]:
        store = open_store(str(tmp_path / "data"), sync=False)
        yield store
        store.close()


class TestLMDBSealed(StoreSuite, RevisionSuite):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[LMDBStore]:
        store = open_store(str(tmp_path / "data"), sync=False, transformers=lambda key: ONE)
        yield store
        store.close()


class TestLMDBPartlySealed(StoreSuite, RevisionSuite):
    """Sealed and plain records side by side in one range."""

    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[LMDBStore]:
        path = str(tmp_path / "data")
        store = open_store(path, sync=False, transformers=lambda key: ONE if len(key) % 2 or key[-1] in "bdz1357" else None)
        yield store
        store.close()
