"""What a worker opens."""

from __future__ import annotations

import pytest

from kas.config.flags import BY_NAME
from kas.config.options import Options, complete
from kas.config.validation import BACKENDS
from kas.store.lmdb import LMDBStore
from kas.store.shared import Shared
from kas.worker import _open


@pytest.mark.parametrize("backend", [name for name in BACKENDS if name != "etcd3"])  # which tests/server/test_etcd.py opens
def test_each_backend_has_a_store_of_its_own(backend, tmp_path):
    options = complete(Options({"data-dir": str(tmp_path), "storage-backend": backend}))
    store = _open(options, Shared.private(), (), -1, None)
    try:
        assert (type(store) is LMDBStore) is (backend == "lmdb")
    finally:
        store.close()


def test_each_backend_is_named_by_the_flags_text():
    words = BY_NAME["storage-backend"].text.replace(",", " ").split()
    assert [value for value in BACKENDS if value not in words] == []
