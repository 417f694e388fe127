"""What a worker opens at its start, and how it ends."""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import kas
from kas.config.flags import BY_NAME
from kas.config.options import Options, complete
from kas.config.validation import BACKENDS
from kas.filters.wait_group import WaitGroup
from kas.observe.process import SWITCH_S
from kas.store import StoreError, Unavailable, Unknown
from kas.store.lmdb import LMDBStore
from kas.store.shared import Shared
from kas.worker import _answered, _bootstrap, _open


@pytest.mark.parametrize("backend", [name for name in BACKENDS if name != "etcd3"])  # tests/server/test_etcd.py opens it
def test_each_backend_has_its_own_store(backend, tmp_path):
    options = complete(Options({"data-dir": str(tmp_path), "storage-backend": backend}))
    store = _open(options, Shared.private(), (), -1, None)
    try:
        assert (type(store) is LMDBStore) is (backend == "lmdb")
    finally:
        store.close()


class Starting:
    """A worker whose store raises each of ``errors`` before it accepts the bootstrap objects."""

    def __init__(self, etcd: bool, *errors: StoreError) -> None:
        self.options, self.errors = SimpleNamespace(etcd=etcd), list(errors)

    def bootstrap(self) -> None:
        if self.errors:
            raise self.errors.pop(0)


def begun(server: Any, ended: bool = False) -> list[StoreError]:
    async def run() -> list[StoreError]:
        stop = asyncio.Event()
        if ended:
            stop.set()
        await _bootstrap(server, stop)
        return server.errors

    return asyncio.run(run())


AWAY = Unavailable("etcdserver: no server can be reached"), Unknown("etcdserver: request timed out")


def test_a_worker_on_etcd_waits_until_etcd_accepts_writes(monkeypatch):
    monkeypatch.setattr("kas.worker.AGAIN_S", 0.001)
    assert begun(Starting(True, *AWAY, *AWAY)) == []


@pytest.mark.parametrize(("etcd", "ended", "error"), [(True, True, AWAY[1]), (False, False, AWAY[1]), (True, False, StoreError("denied"))])
def test_errors_that_waiting_cannot_cure_are_raised(etcd, ended, error):
    with pytest.raises(type(error), match=str(error)):
        begun(Starting(etcd, error), ended)


def test_each_backend_is_named_by_the_flags_text():
    words = BY_NAME["storage-backend"].text.replace(",", " ").split()
    assert [value for value in BACKENDS if value not in words] == []


class Looks(WaitGroup):
    """Requests that end after ``turns`` checks; ``turn`` is called at each check."""

    def __init__(self, served: int, turns: int, turn: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self.serving, self.turns, self.turn = set(range(served)), turns, turn

    async def wait(self, timeout_s: float) -> bool:
        self.turns -= 1
        self.turn()
        return self.turns < 0


def answered(looks: Looks, *leaving: Any) -> bool:
    return asyncio.run(_answered(looks, leaving, math.inf, 0.0))


def test_answers_that_clients_do_not_read_do_not_delay_shutdown(monkeypatch):
    standing = {3: 100}
    monkeypatch.setattr("kas.worker.held", lambda: dict(standing))
    one, other = SimpleNamespace(sent=5), SimpleNamespace(sent=7)
    stuck = Looks(2, 1000)
    assert not answered(stuck, one, other) and stuck.turns > 900

    def goes_on() -> None:
        one.sent += 1

    def is_taken() -> None:
        standing[3] += 1

    assert answered(Looks(2, 9, goes_on), one, other), "a piece is given to the connection"
    assert answered(Looks(2, 9, is_taken), one, other), "the other side takes some of what the connection holds"
    assert answered(Looks(3, 9), one, other), "there is a request whose answer has not begun"


def test_threads_wait_only_briefly_for_the_interpreters_lock(tmp_path):
    """The event loop releases the lock for moments only. With the interpreter's default interval, threads that read and write for all
    clients would wait long."""
    said = tmp_path / "said"

    async def tell(context: kas.HookContext) -> None:
        said.write_text(str(sys.getswitchinterval()))

    options = kas.Options(data_dir=tmp_path / "data", secure_port="auto", unsafe_no_fsync=True, workers=1)
    with kas.Server(options, kinds="none", post_start={"tell": tell}):
        assert float(said.read_text()) == SWITCH_S < sys.getswitchinterval()
