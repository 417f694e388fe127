"""What stores count they remember, however little it is."""

from __future__ import annotations

import pytest

from kas.store.lmdb import store


@pytest.fixture(autouse=True)
def few_keys_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MANY_KEYS", 1)
