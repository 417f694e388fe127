"""Random histories: LMDB (plain, and with encrypted keys) and the model get the same operations and must give the same answers at every
revision."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from kas.store import Compacted, Conflict, FutureRevision, Op, StoreError, Transformers, compile_matcher, open_store
from tests.contract.model import ModelStore
from tests.contract.on_etcd import OnEtcd
from tests.contract.sealing import ONE
from tests.contract.store_suite import draft, keys
from tests.etcd import Etcd

EXAMPLES = int(os.environ.get("KAS_STORE_EXAMPLES", "60"))
# Short keys, keys around the engine's limit, and keys beyond it that differ in their last bytes only.
LONG = "ns/" + "n" * (470 - len("/registry/pods/ns/"))
TAILS = ["ns/a", "ns/b", "ns/ab", "ns2/a", LONG[:-1], LONG, LONG + "a", LONG + "b", LONG + "ba", LONG + "/c"]
KEYS = ["/registry/pods/" + t for t in TAILS] + ["/registry/pod/x", "/registry/podz/x"]
PREFIXES = ["/registry/pods/", "/registry/", "/registry/pods/ns/", "/registry/none/"]
MATCHERS = [
    None,
    compile_matcher([("app", "in", ("a", "b"))]),
    compile_matcher([("app", "!=", ("a",))], [("phase", "=", "Running")]),
]


RUNNING = ("phase", "Running")


def touches(event: Any) -> bool:
    """Whether the write changes, or may change, what a selector of running pods sees."""
    return any(r is not None and r.fields.get("phase") == "Running" for r in (event.record, event.previous))


def flat(record: Any) -> Any:
    if record is None:
        return None
    return (record.key, record.json, record.revision, record.create_revision, record.version, record.labels, record.fields)


def flat_event(event: Any) -> Any:
    return (event.revision, event.op, event.key, flat(event.record), flat(event.previous))


class Histories(RuleBasedStateMachine):
    revisions = Bundle("revisions")
    transformers: Transformers | None = None

    @initialize(target=revisions)
    def begin(self) -> int:
        self.path = tempfile.mkdtemp(prefix="kas-store-")
        self.model = ModelStore()
        self.store = self.opened()
        self.watchers = [s.watch("/registry/pods/", 0, lambda: None, limit=3) for s in (self.model, self.store)]
        self.taken: list[list[Any]] = [[], []]
        self.selective = self.store.watch("/registry/pods/", 0, lambda: None, limit=3, trigger=RUNNING)
        self.selected: list[Any] = []
        return 0

    def opened(self) -> Any:
        return open_store(self.path, sync=False, transformers=self.transformers)

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            shutil.rmtree(self.path)

    def both(self, call: Any) -> list[Any]:
        out = []
        for store in (self.model, self.store):
            try:
                out.append(call(store))
            except Conflict as e:
                out.append(("conflict", e.key, flat(e.current)))
            except (Compacted, FutureRevision) as e:
                out.append(e.args)
            except StoreError as e:
                out.append((str(e),))
        return out

    def operation(self, key: str, kind: str, label: str, size: int) -> Op:
        current = self.model.get(key)
        expected = {"any": None, "match": current.revision if current else 0, "absent": 0, "wrong": 10**6, "delete": None}[kind]
        phase = "Running" if size % 2 else "Pending"
        return Op(key, None if kind == "delete" else draft("n", "x" * size, {"app": label}, phase=phase), expected)

    op = st.tuples(
        st.sampled_from(KEYS),
        st.sampled_from(["any", "match", "absent", "wrong", "delete"]),
        st.sampled_from("abc"),
        st.sampled_from([0, 1, 900, 5001]),
    )

    @rule(target=revisions, op=op)
    def write(self, op: Any) -> int:
        operation = self.operation(*op)
        model, lmdb = self.both(lambda s: s.commit_now(operation))
        assert isinstance(model, tuple) == isinstance(lmdb, tuple)
        if isinstance(model, tuple):
            assert model == lmdb
        return self.model.revision

    @rule(target=revisions, ops=st.lists(op, min_size=2, max_size=4, unique_by=lambda o: o[0]), one_revision=st.booleans())
    def write_group(self, ops: Any, one_revision: bool) -> int:
        operations = [self.operation(*op) for op in ops]
        model, lmdb = self.both(lambda s: s.commit_now(*operations, one_revision=one_revision))
        assert isinstance(model, tuple) == isinstance(lmdb, tuple)
        if isinstance(model, tuple):
            assert model == lmdb
        return self.model.revision

    @rule(target=revisions, ops=st.lists(op, max_size=4, unique_by=lambda o: o[0]), ahead=st.sampled_from([-1, 0, 1, 1, 2, 7]))
    def write_given_revision(self, ops: Any, ahead: int) -> int:
        operations = [self.operation(*op) for op in ops]
        revision = max(1, self.model.revision + ahead)
        model, lmdb = self.both(lambda s: s.apply(revision, operations))
        assert isinstance(model, tuple) == isinstance(lmdb, tuple)
        if isinstance(model, tuple):
            assert model == lmdb
        return self.model.revision

    given = st.lists(st.tuples(st.sampled_from(KEYS[:3]), st.booleans()), max_size=3, unique_by=lambda o: o[0])

    @rule(target=revisions, given=st.lists(given, min_size=1, max_size=6))
    def write_given_revisions(self, given: Any) -> int:
        revisions = []
        for at, ops in enumerate(given, self.model.revision + 1):
            revisions.append((at, [Op(key, draft() if there else None) for key, there in ops]))
            self.model.apply(at, [op for op in revisions[-1][1] if op.draft is not None or self.model.get(op.key) is not None])
        self.store.apply_many(revisions)
        assert self.store.revision == self.model.revision
        return self.model.revision

    @rule(revision=st.one_of(st.just(0), revisions), prefix=st.sampled_from(PREFIXES), limit=st.sampled_from([0, 1, 2, 5]),
          start=st.sampled_from(["", *KEYS]), matcher=st.sampled_from(MATCHERS), count=st.booleans())
    def read(self, revision: int, prefix: str, limit: int, start: str, matcher: Any, count: bool) -> None:
        model, lmdb = self.both(lambda s: s.range(prefix, start, limit, revision, matcher, count))
        if isinstance(model, tuple) and not hasattr(model, "records"):
            assert model == lmdb
            return
        assert [flat(r) for r in model.records] == [flat(r) for r in lmdb.records]
        if matcher is None or max(map(len, keys(model)), default=0) < 470:
            assert (model.more, model.next_key, model.remaining) == (lmdb.more, lmdb.next_key, lmdb.remaining)
        assert model.revision == lmdb.revision
        page = self.store.range_json(prefix, start, limit, revision, matcher, count)
        assert page.body == b",".join(r.item_json for r in model.records)

    @rule(revision=revisions, key=st.sampled_from(KEYS))
    def get(self, revision: int, key: str) -> None:
        model, lmdb = self.both(lambda s: s.get(key, revision))
        assert model == lmdb if isinstance(model, tuple) and not hasattr(model, "json") else flat(model) == flat(lmdb)

    @rule(after=revisions, prefix=st.sampled_from(PREFIXES), limit=st.sampled_from([1, 3, 100]))
    def follow(self, after: int, prefix: str, limit: int) -> None:
        model, lmdb = self.both(lambda s: s.events(prefix, after, limit))
        if isinstance(model[0], list):
            assert [flat_event(e) for e in model[0]] == [flat_event(e) for e in lmdb[0]]
            assert model[1] == lmdb[1]
        else:
            assert model == lmdb

    @rule(revision=revisions, steps=st.sampled_from([1, 3, 100]))
    def compact(self, revision: int, steps: int) -> None:
        # Watchers first: one that has taken nothing may fall behind, and the two backends dispatch at different moments.
        self.take()
        model, lmdb = self.both(lambda s: s.compact(revision, steps))
        assert model == lmdb

    @rule()
    def take(self) -> None:
        self.store.hub.catch_up()
        for watcher, taken in zip(self.watchers, self.taken, strict=True):
            while watcher.ready:
                taken += watcher.take(2)
        assert [flat_event(e) for e in self.taken[0]] == [flat_event(e) for e in self.taken[1]]
        while self.selective.ready:
            self.selected += self.selective.take(2)
        assert [flat_event(e) for e in self.selected if touches(e)] == [flat_event(e) for e in self.taken[0] if touches(e)]

    @invariant()
    def same_revision(self) -> None:
        if hasattr(self, "store"):
            assert self.model.revision == self.store.revision


class SealedHistories(Histories):
    transformers = staticmethod(lambda key: None if key.endswith("a") else ONE)


class EtcdHistories(Histories):
    """On etcd a transaction has one revision, and no other source assigns revisions."""

    etcd: Etcd
    write_given_revision = None
    write_given_revisions = None

    def opened(self) -> Any:
        return OnEtcd(self.etcd)

    @rule(target=Histories.revisions, ops=st.lists(Histories.op, min_size=2, max_size=4, unique_by=lambda o: o[0]))
    def write_group(self, ops: Any) -> int:
        operations = [self.operation(*op) for op in ops]
        model, etcd = self.both(lambda s: s.commit_now(*operations, one_revision=True))
        assert isinstance(model, tuple) == isinstance(etcd, tuple)
        if isinstance(model, tuple):
            assert model == etcd
        return self.model.revision


def test_histories_on_etcd(tmp_path: Path) -> None:
    few = settings(max_examples=max(5, EXAMPLES // 4), stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck))
    with Etcd(tmp_path) as etcd:
        run_state_machine_as_test(type("OnThisEtcd", (EtcdHistories,), {"etcd": etcd}), settings=few)


class TestHistories(Histories.TestCase):
    settings = settings(max_examples=EXAMPLES, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck))


class TestSealedHistories(SealedHistories.TestCase):
    settings = settings(max_examples=EXAMPLES, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck))
