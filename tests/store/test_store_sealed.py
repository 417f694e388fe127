"""Encrypted records: what the file contains, and the effect of another key, another key's value and a changed byte."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lmdb
import pytest

from kas.store import Conflict, Event, Op, TransformError, Transformers, build_record, compile_matcher, frame_record, open_store
from kas.store.lmdb import LMDBStore
from tests.contract.sealing import ONE, AESGCMTransformer
from tests.store.test_store_fastpath import message

TYPE = b'{"kind":"Secret","apiVersion":"v1",'
ROOT = "/registry/secrets/"
SECRETS = ["Hunter2Hunter2", "labelKeyX", "labelValueX", "fieldNameX", "fieldValueX", "uidOfSecret", "protoValueX"]
TWO_ONE = AESGCMTransformer(two=b"2" * 32, one=b"1" * 32)
TWO = AESGCMTransformer(two=b"2" * 32)


def only_secrets(transformer: Any) -> Transformers:
    return lambda key: transformer if key.startswith(ROOT) else None


def put(key: str, data: str = "Hunter2Hunter2", expected: int | None = None, lease_s: int = 0) -> Op:
    tail = b'"uid":"uidOfSecret"},"data":"%s"}' % data.encode()
    protobuf = message(b"", b"protoValueX")
    fields = {"fieldNameX": "fieldValueX"}
    draft = build_record(TYPE + b'"metadata":{', tail, {"labelKeyX": "labelValueX"}, fields, len(TYPE), lease_s, 22, protobuf)
    return Op(key, draft, expected)


def start(path: Path, transformer: Any) -> LMDBStore:
    return open_store(str(path / "data"), max_size=1 << 26, sync=False, transformers=only_secrets(transformer))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LMDBStore]:
    store = start(tmp_path, ONE)
    yield store
    store.close()


def image(tmp_path: Path) -> bytes:
    return (tmp_path / "data" / "data.mdb").read_bytes()


def test_the_file_does_not_contain_encrypted_data(store: LMDBStore, tmp_path: Path) -> None:
    """Not in the current tables, the log or freed pages: the whole file is searched."""
    for i in range(30):
        store.commit_now(put(f"{ROOT}ns/{i % 5}", f"Hunter2Hunter2 {i} " + "Hunter2Hunter2" * (i * 50)))
    store.commit_now(Op(ROOT + "ns/0", None))
    store.commit_now(put(ROOT + "ns/1"), put(ROOT + "ns/9", lease_s=60), one_revision=True)
    seen = image(tmp_path)
    assert b"/registry/secrets/ns/1" in seen
    assert [s for s in SECRETS if s.encode() in seen] == []
    while not store.compact(store.revision, 10):
        pass
    store.commit_now(put(ROOT + "ns/2"))
    assert [s for s in SECRETS if s.encode() in image(tmp_path)] == []
    # The search would find plain text.
    store.commit_now(put("/registry/configmaps/ns/a"))
    plain = image(tmp_path)
    assert [s for s in SECRETS if s.encode() in plain] == SECRETS


def test_a_decrypted_record_equals_one_stored_in_plain_text(store: LMDBStore, tmp_path: Path) -> None:
    plain = open_store(str(tmp_path / "plain"), sync=False)
    for each in (store, plain):
        each.commit_now(put(ROOT + "ns/a"))
        each.commit_now(put(ROOT + "ns/a", "2"))
    one, other = store.get(ROOT + "ns/a"), plain.get(ROOT + "ns/a")
    assert one == other and (one.sealed, other.sealed) == (True, False)
    assert (one.json, one.protobuf, one.metadata_json) == (other.json, other.protobuf, other.metadata_json)
    assert (one.labels, one.fields, one.item_json) == (other.labels, other.fields, other.item_json)
    assert frame_record("MODIFIED", one, 99) == frame_record("MODIFIED", other, 99)
    assert store.range_json(ROOT).body == plain.range_json(ROOT).body is not None
    assert store.range_protobuf(ROOT).body == plain.range_protobuf(ROOT).body is not None
    assert store.range_json(ROOT, metadata_only=True).body == plain.range_json(ROOT, metadata_only=True).body is not None
    assert store.get(ROOT + "ns/a", 1).json == plain.get(ROOT + "ns/a", 1).json
    plain.close()


def test_commit_returns_decrypted_records(store: LMDBStore) -> None:
    op = put(ROOT + "ns/a")
    store.commit_now(op)
    assert (op.record, op.record.sealed) == (store.get(ROOT + "ns/a"), True)
    again = put(ROOT + "ns/a", "2")
    store.commit_now(again)
    assert again.previous == op.record
    with pytest.raises(Conflict) as caught:
        store.commit_now(put(ROOT + "ns/a", "3", 1))
    assert caught.value.current == again.record


def test_selectors_decrypt(store: LMDBStore) -> None:
    for i in range(6):
        store.commit_now(put(f"{ROOT}ns/{i}"), put(f"/registry/configmaps/ns/{i}"))
    by_label, by_field = compile_matcher([("labelKeyX", "=", ("labelValueX",))]), compile_matcher((), [("fieldNameX", "=", "fieldValueX")])
    for matcher in (by_label, by_field):
        page = store.range(ROOT, "", 4, matcher=matcher, count=True)
        assert (page.count, page.more, page.remaining) == (4, True, 2)
        assert store.range_json("/registry/", matcher=matcher).count == 12
        assert store.range(ROOT, revision=3, matcher=matcher).count == 2
    assert store.range(ROOT, matcher=compile_matcher([("labelKeyX", "!", ())])).records == []


def test_everything_can_be_decrypted_after_a_restart(store: LMDBStore, tmp_path: Path) -> None:
    store.commit_now(put(ROOT + "ns/a", "1"))
    store.commit_now(put(ROOT + "ns/a", "2"))
    store.close()
    store = start(tmp_path, ONE)
    assert store.get(ROOT + "ns/a").json.endswith(b'"data":"2"}')
    assert [e.record.json[-4:] for e in store.events(ROOT, 0)[0]] == [b'"1"}', b'"2"}']
    store.close()


def test_after_key_rotation_old_records_are_stale(store: LMDBStore, tmp_path: Path) -> None:
    store.commit_now(put(ROOT + "ns/a"), put("/registry/configmaps/ns/a"))
    assert not store.stale(store.get(ROOT + "ns/a"))
    store.close()
    store = start(tmp_path, TWO_ONE)
    old = store.get(ROOT + "ns/a")
    assert store.stale(old) and store.stale(store.range(ROOT).records[0])
    assert not store.stale(store.get("/registry/configmaps/ns/a"))
    store.commit_now(put(ROOT + "ns/a"))
    assert not store.stale(store.get(ROOT + "ns/a"))
    store.close()
    store = start(tmp_path, TWO)
    assert store.get(ROOT + "ns/a").revision == 3
    with pytest.raises(TransformError, match=r"/registry/secrets/ns/a cannot be opened"):
        store.get(ROOT + "ns/a", 1)
    store.close()


def test_a_plain_record_whose_key_is_now_encrypted_is_stale(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "data"), sync=False)
    store.commit_now(put(ROOT + "ns/a"))
    assert not store.stale(store.get(ROOT + "ns/a"))
    store.close()
    store = start(tmp_path, ONE)
    record = store.get(ROOT + "ns/a")
    assert (record.sealed, store.stale(record)) == (False, True)
    store.commit_now(put(ROOT + "ns/a"))
    assert (store.get(ROOT + "ns/a").sealed, store.get(ROOT + "ns/a", 1).sealed) == (True, False)
    store.close()


def without_key(store: LMDBStore, tmp_path: Path) -> LMDBStore:
    store.close()
    return start(tmp_path, TWO)


def test_reading_without_the_key_fails_with_a_reason(store: LMDBStore, tmp_path: Path) -> None:
    store.commit_now(put(ROOT + "ns/a"), put("/registry/configmaps/ns/a"))
    store = without_key(store, tmp_path)
    matcher = compile_matcher([("a", "!", ())])
    for call in (
        lambda: store.get(ROOT + "ns/a"),
        lambda: store.range(ROOT),
        lambda: store.range_json("/registry/"),
        lambda: store.range("/registry/", matcher=matcher),
        lambda: store.range("/registry/", revision=1),
        lambda: store.commit_now(put(ROOT + "ns/a", expected=0)),
    ):
        with pytest.raises(TransformError, match="cannot be opened"):
            call()
    assert store.count(ROOT) == 1
    assert store.range("/registry/configmaps/").count == 1
    store.close()
    store = open_store(str(tmp_path / "data"), sync=False)
    with pytest.raises(TransformError, match="identity transformer tried to read encrypted data"):
        store.get(ROOT + "ns/a")
    store.close()


def test_records_that_cannot_be_decrypted_can_be_deleted_and_expire(store: LMDBStore, tmp_path: Path) -> None:
    store.commit_now(put(ROOT + "ns/a"), put(ROOT + "ns/b", lease_s=10))
    deadline = store.get(ROOT + "ns/b").lease_expiry
    store = without_key(store, tmp_path)
    op = Op(ROOT + "ns/a", None)
    store.commit_now(op)
    assert (op.revision, op.previous) == (3, None)
    assert isinstance(op.error, TransformError)
    assert store.expire(deadline) == 1
    assert store.count(ROOT) == 0
    store.close()


def drain(watcher: Any) -> list[int]:
    got: list[int] = []
    while watcher.ready:
        got += [e.revision for e in watcher.take()]
    return got


@pytest.mark.parametrize("live", [True, False])
def test_an_event_that_cannot_be_decrypted_ends_its_watches(store: LMDBStore, tmp_path: Path, live: bool) -> None:
    store.commit_now(put(ROOT + "ns/a"))
    store = without_key(store, tmp_path)
    told: list[Event] = []
    store.listen("/registry/", told.extend)

    def watch() -> list[Any]:
        return [store.watch(p, 1, lambda: None, limit=1024 if live else 1) for p in (ROOT, ROOT + "ns/", "/registry/configmaps/")]

    async def main() -> list[Any]:
        store.start(asyncio.get_running_loop())
        watchers = watch() if live else []
        await store.commit(put(ROOT + "ns/b"))
        await store.commit_many([put(ROOT + "ns/c"), Op(ROOT + "ns/a", None), put("/registry/configmaps/ns/a")], one_revision=True)
        await store.commit(put("/registry/configmaps/ns/b"))
        return watchers or watch()

    everything, namespace, others = asyncio.run(main())
    for watcher in (everything, namespace):
        assert [e.revision for e in watcher.take()] == [2]  # no event of the unreadable revision
        assert watcher.ready and watcher.progress == 2
        with pytest.raises(TransformError):
            watcher.take()
        assert watcher.closed and not watcher.ready
    assert drain(others) == [3, 4]
    assert [(e.revision, e.key) for e in told] == [
        (2, ROOT + "ns/b"), (3, ROOT + "ns/c"), (3, "/registry/configmaps/ns/a"), (4, "/registry/configmaps/ns/b"),
    ]  # fmt: skip
    # Later events can be watched.
    assert drain(store.watch(ROOT, 3, lambda: None)) == []
    store.close()


def test_a_follower_starts_again_once_a_record_can_be_decrypted(
    store: LMDBStore, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """State derived from the old record must not remain: for example a right that was withdrawn in the encrypted one."""
    monkeypatch.setattr("kas.store.hub.AGAIN_S", 0.0)
    monkeypatch.setattr("kas.store.hub.RESTS", 0)
    store.commit_now(put(ROOT + "ns/a"), put(ROOT + "ns/b"))
    store.close()
    keys = AESGCMTransformer(two=b"2" * 32)
    store = start(tmp_path, keys)
    known, resets, timers = [ROOT + "ns/a", ROOT + "ns/b"], [], []

    def begin_anew() -> None:
        resets.append(store.hub.revision)
        known[:] = [record.key for record in store.range(ROOT).records]

    def put_off(_: float, what: Any) -> Any:
        timers.append(what)
        return SimpleNamespace(cancel=timers.clear)

    store.listen(ROOT, lambda events: pytest.fail("nothing of it can be shown"), begin_anew)
    store.listen("/registry/configmaps/", lambda events: None, lambda: pytest.fail("it missed nothing"))
    store.listen(ROOT, lambda events: pytest.fail("nothing of it can be shown"))  # a follower that is never told to start again
    store.hub.put_off = put_off
    store.commit_now(put("/registry/configmaps/ns/a"), Op(ROOT + "ns/a", None))
    store.hub.catch_up()
    assert (len(resets), store.hub.failing, len(timers)) == (1, 1, 1)
    timers.pop()()
    assert (len(resets), store.hub.failing, len(timers), len(known)) == (2, 1, 1, 2)
    assert len([r for r in caplog.records if "could not be rebuilt: TransformError" in r.message]) == 1
    keys.keys |= ONE.keys
    timers.pop()()
    assert (len(resets), store.hub.failing, timers, known) == (3, 0, [], [ROOT + "ns/b"])
    # Closing the store ends the wait, too.
    keys.keys.pop(b"one")
    store.commit_now(put(ROOT + "ns/b"))
    store.hub.catch_up()
    store.close()
    assert timers == []


def test_another_keys_value_and_changed_bytes_cannot_be_decrypted(store: LMDBStore, tmp_path: Path) -> None:
    store.commit_now(put(ROOT + "ns/a"), put(ROOT + "ns/b"), put(ROOT + "ns/c"))
    store.close()
    with lmdb.open(str(tmp_path / "data"), max_dbs=8) as env:
        body = env.open_db(b"body")
        with env.begin(write=True, db=body) as txn:
            txn.put(b"/registry/secrets/ns/b", txn.get(b"/registry/secrets/ns/a"))
            raw = bytearray(txn.get(b"/registry/secrets/ns/c"))
            raw[-1] ^= 1
            txn.put(b"/registry/secrets/ns/c", bytes(raw))
    store = start(tmp_path, ONE)
    assert store.get(ROOT + "ns/a") is not None
    for name in "bc":
        with pytest.raises(TransformError):
            store.get(f"{ROOT}ns/{name}")
    store.close()


class Broken:
    """A transformer that returns wrong results."""

    plain, waits, refuses_plain = False, False, ""

    def __init__(self, sealed: Any = b"", opened: Any = (b"", False)) -> None:
        self.sealed, self.opened = sealed, opened

    def seal(self, plain: bytes, key: bytes) -> bytes:
        return plain if self.sealed == b"plain" else self.sealed

    def open(self, sealed: bytes, key: bytes) -> tuple[bytes, bool]:
        return self.opened


@pytest.mark.parametrize("opened", [(b"", False), (b"x" * 100, False), None, 7, (b"KSP1" + b"\xff" * 40, False)])
def test_a_transformer_with_wrong_results_is_an_error_and_no_crash(tmp_path: Path, opened: Any) -> None:
    store = start(tmp_path, Broken(b"plain", opened))
    store.commit_now(put(ROOT + "ns/a"))
    with pytest.raises(TransformError):
        store.get(ROOT + "ns/a")
    with pytest.raises(TransformError):
        store.range(ROOT)
    assert store.events(ROOT, 0)[0][0].error is not None
    store.commit_now(put(ROOT + "ns/a"))  # the committer still runs
    store.close()


def test_slow_decryption_and_a_growing_map_do_not_deadlock(tmp_path: Path) -> None:
    """A range that decrypts waits for the GIL inside its transaction. A thread that must remap, because another process has enlarged the
    file, waits for that transaction, and must not hold the GIL meanwhile."""
    opening, grown = threading.Event(), threading.Event()

    class Slow(Broken):
        def seal(self, plain: bytes, key: bytes) -> bytes:
            return plain

        def open(self, sealed: bytes, key: bytes) -> tuple[bytes, bool]:
            opening.set()
            assert grown.wait(60)
            time.sleep(0.2)  # the other thread is about to wait for this one
            return sealed, False

    store = open_store(str(tmp_path / "data"), max_size=1 << 20, sync=False, transformers=only_secrets(Slow()))
    store.commit_now(put(ROOT + "ns/a"))
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(store.range, ROOT)
        assert opening.wait(60)
        code = (
            "import sys; from kas.store import *\n"
            "store = open_store(sys.argv[1], max_size=1 << 24, sync=False)\n"
            "for i in range(40): store.commit_now(Op(f'/registry/x/{i}', build_record(b'{', b'\"d\":\"%s\"}' % (b'x' * 100_000))))\n"
            "store.close()"
        )
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        subprocess.run([sys.executable, "-c", code, str(tmp_path / "data")], check=True, env=env)
        grown.set()
        assert store.count("/registry/x/") == 40
        assert [r.key for r in found.result(60).records] == [ROOT + "ns/a"]
    store.close()


def test_a_write_that_cannot_be_encrypted_is_refused(tmp_path: Path) -> None:
    store = start(tmp_path, Broken(7))

    async def main() -> None:
        store.start(asyncio.get_running_loop())
        with pytest.raises(TransformError, match="cannot be sealed"):
            store.commit(put(ROOT + "ns/a"))
        await store.commit(put("/registry/configmaps/ns/a"))

    asyncio.run(main())
    assert store.revision == 1
    store.close()
