"""Measures what etcd alone needs for the transaction of a create, with a compiled client as lean as the one that loads kas.

The client uses one connection, as a kas worker does, with a fixed number of transactions in flight, at full speed or at a fixed rate.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

from bench.end_to_end import pinned
from kas.store.etcd import etcd_pb2 as pb

NUMBER = b"#" * 10  # in the key; each transaction has another one
SLOTS_APART = 10_000_000  # between the numbers of two runs



class Transactions:
    """The compiled client, for one etcd without TLS, on the processor of the client that asks kas."""

    def __init__(self, directory: Path, url: str, key: bytes, value: bytes) -> None:
        """``key`` has ``NUMBER`` in it."""
        source, self.program = Path(__file__).with_suffix(".c"), directory / "etcd_client"
        compiler = next((c for c in ("cc", "gcc", "clang") if shutil.which(c)), None)
        if compiler is None:
            raise SystemExit("on_etcd: needs a C compiler")
        subprocess.run([compiler, "-O2", "-Wall", "-o", self.program, source], check=True)
        self._address, self._first, self._message = url.removeprefix("http://"), 0, transaction(key, value).SerializeToString()

    def run(self, at_once: int, seconds: float, rate: float = 0.0) -> dict[str, float]:
        """``rate`` a second at most (0: as many as go), the first fifth of the time not counted."""
        self._first += SLOTS_APART
        command = [self.program, self._address, self._message.hex(), at_once, seconds, seconds / 4, rate, self._first]
        done = subprocess.run(
            [*pinned((os.cpu_count() or 1) - 1), *map(str, command)], capture_output=True, text=True, timeout=600, check=False
        )
        if done.returncode:
            raise RuntimeError(f"the client for etcd ended with {done.returncode}: {done.stderr[:500]}")
        out: dict[str, float] = json.loads(done.stdout)
        if out["refused"]:
            raise RuntimeError(f"{out['refused']} of {out['requests']} transactions did not succeed")
        return out | {"a_second": out["requests"] / out["seconds"]}


def transaction(key: bytes, value: bytes) -> pb.TxnRequest:
    """What creates a key that is not there."""
    put = pb.RequestOp(request_put=pb.PutRequest(key=key, value=value))
    get = pb.RequestOp(request_range=pb.RangeRequest(key=key, keys_only=True))
    return pb.TxnRequest(compare=[pb.Compare(target=pb.Compare.MOD, key=key, mod_revision=0)], success=[put], failure=[get])
