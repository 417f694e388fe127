"""Several workers on one store: every worker sees every write, in order, and is woken by the writer, not by a timer."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kas.store import Full, Op, build_record, open_store
from kas.store.shared import Shared

WORKERS = 3
WRITES = 200

WORKER = """
import asyncio, sys
from kas.store import Op, build_record
from kas.store import open_store
from kas.store.shared import Shared

async def main(path, spec, index, writes, total):
    shared = Shared.attach(spec, index)
    store = open_store(path, max_size=1 << 28, sync=False, shared=shared)
    store.start(asyncio.get_running_loop())
    ready = asyncio.Event()
    watcher = store.watch("/registry/", 0, ready.set)
    seen = []
    shared.memory.enter(True)

    async def write(n):
        key = f"/registry/w{index}/{n % 20}"
        while True:
            current = store.get(key)
            op = await store.commit(Op(key, build_record(b'{"metadata":{', b'"x":1}}'), current.revision if current else 0))
            # What one worker acknowledged, all derived state of this worker can know at once.
            store.hub.catch_up()
            assert store.hub.revision >= op.revision
            return

    async def writer():
        for n in range(0, writes, 10):
            await asyncio.gather(*(write(n + i) for i in range(10)))

    task = asyncio.create_task(writer())
    while len(seen) < total:
        while watcher.ready:
            seen += [e.revision for e in watcher.take()]
        ready.clear()
        if len(seen) < total and not watcher.ready:
            await asyncio.wait_for(ready.wait(), 60)  # the others may begin that much later
    await task
    print("ok" if seen == list(range(1, total + 1)) else seen)
    store.close()

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])))
"""


def test_workers_see_each_other(tmp_path: Path) -> None:
    shared = Shared.create(WORKERS)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    running = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(tmp_path), shared.spec, str(i), str(WRITES), str(WRITES * WORKERS)],
            pass_fds=shared.fds,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for i in range(WORKERS)
    ]
    for process in running:
        out, err = process.communicate(timeout=120)
        assert out.strip() == "ok", err[-2000:]
    assert shared.revision == WRITES * WORKERS
    # The workers have died without detaching: their share of the counters is taken back.
    assert shared.memory.in_flight(True) == WORKERS
    for i in range(WORKERS):
        shared.memory.reap(i)
    assert shared.memory.in_flight(True) == 0
    shared.close()


def test_map_grown_by_another_process(tmp_path: Path) -> None:
    """A worker with a smaller map adopts the larger one of another process; its own limit applies to its writes."""
    path = str(tmp_path)
    small = open_store(path, max_size=2 << 20, sync=False)
    code = (
        "import sys\nfrom kas.store import Op, build_record\nfrom kas.store import open_store\n"
        "s = open_store(sys.argv[1], max_size=64 << 20, sync=False)\n"
        "for i in range(200): s.commit_now(Op(f'/registry/x/{i:03d}', build_record(b'{', b'\"d\":\"' + b'x' * 40000 + b'\"}')))\n"
        "s.close()\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    subprocess.run([sys.executable, "-c", code, path], check=True, env=env, timeout=60)
    try:
        assert small.count("/registry/x/") == 200
        assert small.get("/registry/x/199").revision == 200
        with pytest.raises(Full):
            small.commit_now(Op("/registry/x/200", build_record(b"{", b'"d":1}')))
        small.commit_now(Op("/registry/x/199", None))
        assert small.count("/registry/x/") == 199
    finally:
        small.close()


def test_commits_on_the_loop(tmp_path: Path) -> None:
    """Many concurrent commits form batches; each future resolves after its event was dispatched."""

    async def main() -> None:
        store = open_store(str(tmp_path), sync=False)
        store.start(asyncio.get_running_loop())
        revisions = []

        async def one(i: int) -> None:
            op = await store.commit(Op(f"/registry/x/{i}", build_record(b"{", b'"d":1}'), 0))
            assert store.hub.revision >= op.revision
            revisions.append(op.revision)

        await asyncio.gather(*(one(i) for i in range(500)))
        assert revisions == list(range(1, 501))
        assert store.statistics()["batches"] < 500
        pending = store.commit(Op("/registry/x/last", build_record(b"{", b'"d":1}'), 0))
        store.close()
        assert (await pending).revision == 501

    asyncio.run(main())


def test_a_write_of_a_worker_that_died_before_publishing_it(tmp_path: Path) -> None:
    """The write is durable and unpublished: reading it publishes it, and refresh() publishes what is not read."""
    path = str(tmp_path)
    store = open_store(path, sync=False)
    code = (
        "import sys\nfrom kas.store import Op, build_record\nfrom kas.store import open_store\n"
        "s = open_store(sys.argv[1], sync=False)\ns.commit_now(Op('/registry/x/' + sys.argv[2], build_record(b'{', b'\"d\":1}')))\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}

    async def main() -> None:
        store.start(asyncio.get_running_loop())
        ready = asyncio.Event()
        watcher = store.watch("/registry/", 0, ready.set)
        await asyncio.to_thread(subprocess.run, [sys.executable, "-c", code, path, "a"], check=True, env=env, timeout=60)
        assert store.revision == 0
        assert store.get("/registry/x/a").revision == 1
        assert store.revision == 1
        late = store.watch("/registry/", 1, lambda: None)
        await asyncio.to_thread(subprocess.run, [sys.executable, "-c", code, path, "b"], check=True, env=env, timeout=60)
        store.refresh()
        seen: list[int] = []
        while len(seen) < 2:  # together, or one after the other
            await asyncio.wait_for(ready.wait(), 60)
            ready.clear()
            seen += [e.revision for e in watcher.take()]
        assert seen == [1, 2]
        assert [e.revision for e in late.take()] == [2]

    asyncio.run(main())
    store.close()
