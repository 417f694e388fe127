"""Forks writers that are killed by the test. Run as a program by test_store_kill.py, never imported by it.

Commands on stdin: ``start <path> <sync> <seed>`` answers ``pid <n>``; ``kill <pid>`` answers ``dead <pid>``. A writer is a fork of this
process, which itself never opens the store. It writes as fast as it can and reports each acknowledged write on stdout as ``ack <revision>
<key> <mark>``, one write(2) per line, so that lines of several writers do not mix and a killed one leaves no incomplete line.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import zlib

from kas.store import Conflict, Op, build_record, open_store

KEYS = [f"/registry/crash/ns{i % 3}/k{i}" for i in range(12)]


def draft(mark: str, size: int):
    body = b"%s " % mark.encode() + b"x" * size
    return build_record(b'{"metadata":{', b'"crc":%d},"data":"%s"}' % (zlib.crc32(body), body), {"mark": mark}, {"metadata.name": mark})


async def write(path: str, sync: bool, seed: int) -> None:
    rng = random.Random(seed)
    store = open_store(path, max_size=1 << 30, sync=sync)
    store.start(asyncio.get_running_loop())

    async def worker(name: int) -> None:
        for n in range(1 << 30):
            mark = f"{os.getpid()}-{name}-{n}"
            key = rng.choice(KEYS)
            try:
                kind = rng.random()
                if kind < 0.15:
                    done = [await store.commit(Op(key, None))]
                elif kind < 0.4:
                    # The writes of a transaction have one revision each, or all the same.
                    one = kind < 0.28
                    ops = [Op(f"/registry/{'one' if one else 'group'}/{i}", draft(mark, rng.choice([0, 300, 5000]))) for i in range(3)]
                    done = await store.commit_many(ops, one_revision=one)
                else:
                    current = store.get(key)
                    done = [await store.commit(Op(key, draft(mark, rng.choice([0, 900, 9000])), current.revision if current else 0))]
            except Conflict:
                continue
            for op in done:
                os.write(1, b"ack %d %s %s\n" % (op.revision, op.key.encode(), mark.encode() if op.draft else b"-"))

    await asyncio.gather(*(worker(i) for i in range(4)))


def main() -> None:
    for line in sys.stdin:
        command, *rest = line.split()
        if command == "start":
            pid = os.fork()
            if pid == 0:
                asyncio.run(write(rest[0], rest[1] == "1", int(rest[2])))
                os._exit(3)
            os.write(1, b"pid %d\n" % pid)
        elif command == "kill":
            os.kill(int(rest[0]), signal.SIGKILL)
            os.waitpid(int(rest[0]), 0)
            os.write(1, b"dead %d\n" % int(rest[0]))


if __name__ == "__main__":
    main()
