"""The store contract, run over every backend."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kas.store import Conflict, Op, open_store
from kas.store.lmdb import LMDBStore
from tests.contract.model import ModelStore
from tests.contract.on_etcd import OnEtcd
from tests.contract.revision_suite import RevisionSuite
from tests.contract.sealing import ONE
from tests.contract.store_suite import PODS, StoreSuite, draft, keys, put
from tests.etcd import Etcd


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
    """Encrypted and plain records in one range."""

    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[LMDBStore]:
        path = str(tmp_path / "data")
        store = open_store(path, sync=False, transformers=lambda key: ONE if len(key) % 2 or key[-1] in "bdz1357" else None)
        yield store
        store.close()


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    with Etcd(tmp_path_factory.mktemp("etcd")) as etcd:
        yield etcd


class TestEtcd(StoreSuite, RevisionSuite):
    """etcd differs: a transaction always has one revision, no other source assigns revisions, and etcd expires leases
    (``tests/store/test_etcd_store.py``)."""

    @pytest.fixture
    def store(self, etcd: Etcd) -> Iterator[OnEtcd]:
        store = OnEtcd(etcd)
        yield store
        store.close()

    test_assigned_revisions_may_have_gaps = None
    test_an_assigned_revision_without_writes_advances_the_store = None
    test_an_assigned_revision_must_be_newer = None
    test_live_watch_over_gaps = None
    test_leases_expire_as_deletes_and_can_be_renewed = None

    def test_transaction_without_asking_has_consecutive_revisions(self, store: OnEtcd) -> None:
        store.commit_now(*(Op(f"{PODS}ns/{name}", draft(name)) for name in "cab"))
        assert [store.get(f"{PODS}ns/{name}").revision for name in "abc"] == [1, 1, 1]

    def test_a_transaction_is_all_or_nothing(self, store: OnEtcd) -> None:
        put(store, "/registry/a/1")
        with pytest.raises(Conflict) as caught:
            store.commit_now(Op("/registry/b/1", draft()), Op("/registry/a/1", draft(), 0), Op("/registry/c/1", draft()))
        assert (caught.value.key, keys(store.range("/registry/"))) == ("/registry/a/1", ["/registry/a/1"])
        store.commit_now(Op("/registry/b/1", draft(), 0), Op("/registry/a/1", None, 1), Op("/registry/c/1", draft()))
        assert (store.revision, keys(store.range("/registry/"))) == (2, ["/registry/b/1", "/registry/c/1"])

    def test_a_transaction_with_a_check_succeeds_only_if_the_key_is_as_expected(self, store: OnEtcd) -> None:
        self.three(store)
        a, d, e, z = (f"{PODS}ns/{name}" for name in "adez")
        store.commit_now(Op(a, None, 1, check=True), Op(d, draft()), Op(z, None, 0, check=True), Op(e, draft()))
        assert [store.get(key).revision for key in (a, d, e)] == [1, 2, 2]
        assert store.get(z) is None
        assert [event.key for event in store.events(PODS, 1)[0]] == [d, e]
