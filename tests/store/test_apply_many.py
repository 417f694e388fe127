"""``apply_many``: revisions that another source has assigned are applied in order and without gaps."""

from __future__ import annotations

from pathlib import Path

import pytest

from kas.store import Full, Op, open_store
from kas.store.lmdb import committer
from tests.contract.store_suite import draft


def test_nothing_is_applied_after_a_refused_revision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(str(tmp_path / "data"), sync=False)
    refused, apply_batch = [True], committer.apply_batch

    def full_at_first(*args):
        if refused.pop() if refused else False:
            raise Full("no room")
        return apply_batch(*args)

    monkeypatch.setattr(committer, "apply_batch", full_at_first)
    revisions = [(at, [Op(f"/registry/x/{at}", draft())]) for at in range(1, committer.BATCH_OPS + 10)]
    with pytest.raises(Full):
        store.apply_many(revisions)
    assert (store.revision, store.range("/registry/").records) == (0, [])
    store.apply_many(revisions)
    assert len(store.range("/registry/").records) == store.revision == len(revisions)
    store.close()
