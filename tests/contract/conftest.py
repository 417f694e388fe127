"""In these tests the stores cache every count, however small."""

from __future__ import annotations

import pytest

from kas.store.lmdb import store


@pytest.fixture(autouse=True)
def few_keys_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MANY_KEYS", 1)
