"""Measures what etcd as the store costs: kas on an etcd of its own beside kas on LMDB, one worker each, slice by slice.

    .venv/bin/python bench/on_etcd.py [--seconds 4] [--rounds 4] [--only create,get] [--pods 2000]

For each row and side it prints requests per second, CPU per request of kas (all processes) and of etcd, p50 and p99. ``ratio`` is the CPU
of kas on etcd divided by that on LMDB; where both run the same code, it is the noise of the machine.

Below the rows of a create (``bare``) is what etcd itself takes for one: the same transaction by a client without kas, as many at once, in
slices between the others; its ``ratio`` is that of p99. Create latencies are measured in slices of their own, whose first fifth is not
counted on any side. The process that measures the machine's speed runs on kas' processor and on none of etcd's. Both clients are
compiled, one process each, on the last processor (``etcd_client.py``); etcd has all processors but kas', whichever client asks, so that
the difference between the two sides is kas.

That is etcd at its full speed, which is another load than kas'. So ``paced`` is as many per second as kas made in its slice, from up to
eight writers. ``create-rate`` sends a fixed number per second through kas and, at the same moments, as many without it, and reports how
long each took from when it was due. ``create-turn`` makes one create, one transaction and so on, over one connection each. Their
``ratio`` is that of p99 (and of p50) too, and both are sent by this Python process, which is slower than etcd. The disk's part differs
from machine to machine by more than a hundredfold: ``--sync-ms`` makes etcd's syncs as slow as wanted (etcd's documentation asks for 99
of 100 syncs within 10 ms). ``event`` is what one more watcher costs: the difference between 100 watchers and one, both of which include
the write of each change.

Then come those two (``rate``, ``turn``); a call through kas' etcd client beside one through grpcio (a transaction that creates 1.5 kB;
CPU of the caller, and the latency without kas); when a watcher of another kas server sees a change, counted from etcd's answer to the
writer; and what three watched servers cost beside one. ``--only`` knows these five as rate, turn, calls, seen and spread. The load, CPU 0
for kas and ``scaled`` are those of ``end_to_end.py``.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import os
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import uvloop

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.end_to_end import (
    CONFIGMAPS,
    PODS,
    REFERENCE_US,
    UNLIMITED,
    Bench,
    Client,
    Speed,
    Target,
    chosen,
    configmap,
    cpu_s,
    machine,
    pin,
    pinned,
    pod,
)  # fmt: skip
from bench.etcd_client import NUMBER, Transactions, transaction
from kas.store.etcd import etcd_pb2 as pb
from kas.store.etcd.client import PUT, RANGE, TXN, AsyncClient
from kas.store.etcd.client import Client as EtcdClient
from kas.testing.server import KasServer
from tests.etcd import Etcd
from tests.robustness.shims import SlowDisk

MERGE = {"data": {"seq": "%q"}}
WATCH = f"{CONFIGMAPS}?watch=true&fieldSelector=metadata.name%3Done"
ROWS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "create-alone": ("POST", CONFIGMAPS, {"body": configmap("c-%d"), "connections": 1}),
    "create-8": ("POST", CONFIGMAPS, {"body": configmap("c-%d"), "connections": 8}),
    "create": ("POST", CONFIGMAPS, {"body": configmap("c-%d")}),
    "create-pod": ("POST", PODS, {"body": pod("n-%d")}),
    "get": ("GET", f"{CONFIGMAPS}/one?resourceVersion=0", {}),
    "get-newest": ("GET", f"{CONFIGMAPS}/one", {}),
    **{f"get-newest-{n}": ("GET", f"{CONFIGMAPS}/one", {"connections": n}) for n in (1, 8, 16)},
    "list-newest": ("GET", f"{PODS}?limit=500", {"connections": 16}),
    "list-500": ("GET", f"{PODS}?limit=500&resourceVersion=0", {"connections": 16}),
    **{f"watch-{n}": ("PATCH", f"{CONFIGMAPS}/one", {
        "body": MERGE, "type": "application/merge-patch+json", "connections": 1, "watch": (n, 100, WATCH),
    }) for n in (1, 100)},
}  # fmt: skip
VALUE_BYTES = 1486  # of such a ConfigMap in etcd
BESIDE_ROWS = ("rate", "turn", "seen", "spread", "calls")  # what is no row of requests to both


def rows(client: Client, sides: list[tuple[Target, int]], bare: Transactions, args: argparse.Namespace, wanted: Sequence[str]) -> None:
    """``sides``: LMDB's and etcd's, each with the process of its etcd, or 0; ``bare`` asks etcd without kas."""
    events: dict[str, list[float]] = {}  # of a row with watchers, what a write costs each side
    bench = Bench([target for target, _ in sides], client, argparse.Namespace(only="list" if args.pods else "get", pods=args.pods))
    bench.prepare()
    print(f"{'':14} {'side':5} {'/s':>8} {'kas µs':>8} {'scaled':>8} {'etcd µs':>8} {'p50 ms':>8} {'p99 ms':>8} {'ratio':>6}")
    for name, (method, path, options) in ROWS.items():
        if name not in wanted:
            continue
        took: list[dict[str, float]] = []
        paced: list[dict[str, float]] = []
        sums = [{"n": 0, "s": 0.0, "kas": 0.0, "etcd": 0.0, "p50": 0.0, "p99": 0.0, "loop": 0.0} for _ in sides]
        for at in range(args.rounds + 1):  # the first is not counted
            for (target, etcd), total in zip(sides, sums, strict=True):
                before = cpu_s(target.pids[0]), cpu_s(etcd) if etcd else 0.0
                with Speed() as speed:
                    got = client.run(target, method, path, seconds=args.seconds / args.rounds, first=bench.fresh(), **options)
                if at:
                    total["n"] += got["events"] if "watch" in options else got["requests"]
                    total["s"] += got["seconds"]
                    total["kas"] += cpu_s(target.pids[0]) - before[0]
                    total["etcd"] += cpu_s(etcd) - before[1] if etcd else 0.0
                    total["loop"] += speed.loop_us / args.rounds
                if name.startswith("create"):
                    slice_s, first = args.seconds / args.rounds, bench.fresh()
                    got = client.run(target, method, path, seconds=slice_s, warm=slice_s / 4, first=first, **options)
                if at:
                    total["p50"] += got["p50_ms"] / args.rounds
                    total["p99"] += got["p99_ms"] / args.rounds
            if at and name.startswith("create"):
                at_once = options.get("connections", 64)
                took.append(bare.run(at_once, args.seconds / args.rounds))
                if at_once <= 8:
                    paced.append(bare.run(at_once, args.seconds / args.rounds, got["requests"] / got["seconds"]))
        cost = [1e6 * total["kas"] / total["n"] for total in sums]
        for side, total, us in zip(("lmdb", "etcd"), sums, cost, strict=True):
            etcd_us = 1e6 * total["etcd"] / total["n"]
            end = f"{cost[1] / cost[0]:6.2f}" if side == "etcd" else ""
            shown = f"{us:8.0f} {us * REFERENCE_US / total['loop']:8.0f} {etcd_us:8.0f} {total['p50']:8.2f} {total['p99']:8.2f} {end}"
            print(f"{name:14} {side:5} {total['n'] / total['s']:8.0f} {shown}", flush=True)
        for side, slices in (("bare", took), ("paced", paced)):
            if slices:
                a_second, p50, p99 = (sum(one[of] for one in slices) / len(slices) for of in ("a_second", "p50_ms", "p99_ms"))
                shown = f"{a_second:8.0f} {'':8} {'':8} {'':8} {p50:8.2f} {p99:8.2f} {sums[1]['p99'] / p99:6.2f}"
                print(f"{name:14} {side:5} {shown}", flush=True)
        if "watch" in options:
            events[name] = [us * options["watch"][0] for us in cost]
    if len(events) == 2:
        lmdb, etcd_ = ((many - one) / 99 for one, many in zip(events["watch-1"], events["watch-100"], strict=True))
        print(f"{'event':14} lmdb {lmdb:.1f} µs, etcd {etcd_:.1f} µs: {etcd_ / lmdb:.2f}")


def pin_etcd(pid: int) -> None:
    """To all processors but that of kas, where there are several."""
    if pinned(0):
        subprocess.run(["taskset", "-a", "-p", "-c", f"1-{os.cpu_count() - 1}", str(pid)], capture_output=True, check=True)


class Calls:
    """The same transaction through several clients."""

    def __init__(self, etcd: Etcd) -> None:
        self.etcd, self.number = etcd, 0

    def request(self) -> pb.TxnRequest:
        self.number += 1
        return transaction(b"/bench/%d" % self.number, b"x" * VALUE_BYTES)

    async def own(self) -> tuple[Callable[[Any], Awaitable[Any]], Callable[[], Awaitable[None]]]:
        client = AsyncClient(self.etcd.config)
        return lambda request: client.call(TXN, request), client.close

    async def grpc_aio(self) -> tuple[Callable[[Any], Awaitable[Any]], Callable[[], Awaitable[None]]]:
        import grpc

        channel = grpc.aio.insecure_channel(self.etcd.url.removeprefix("http://"))
        method = channel.unary_unary(
            TXN.path, request_serializer=pb.TxnRequest.SerializeToString, response_deserializer=pb.TxnResponse.FromString
        )
        return lambda request: method(request, timeout=10.0, metadata=(("hasleader", "true"),)), channel.close

    async def grpc_future(self) -> tuple[Callable[[Any], Awaitable[Any]], Callable[[], Awaitable[None]]]:
        import grpc

        channel, loop = grpc.insecure_channel(self.etcd.url.removeprefix("http://")), asyncio.get_running_loop()
        method = channel.unary_unary(
            TXN.path, request_serializer=pb.TxnRequest.SerializeToString, response_deserializer=pb.TxnResponse.FromString
        )

        def call(request: pb.TxnRequest) -> asyncio.Future[Any]:
            waiter = loop.create_future()
            sent = method.future(request, timeout=10.0, metadata=(("hasleader", "true"),))
            sent.add_done_callback(lambda done: loop.call_soon_threadsafe(waiter.set_result, done.result()))
            return waiter

        async def close() -> None:
            channel.close()

        return call, close

    async def run(self, made: Callable[[], Awaitable[Any]], at_once: int, seconds: float) -> tuple[float, list[float]]:
        """CPU per call in µs, and the duration of each in ms."""
        call, close = await made()
        took: list[float] = []

        async def one(until: float) -> None:
            while (began := time.monotonic()) < until:
                await call(self.request())
                took.append(1e3 * (time.monotonic() - began))

        await asyncio.gather(*(one(time.monotonic() + seconds / 4) for _ in range(at_once)))
        took.clear()
        before = time.process_time()
        await asyncio.gather(*(one(time.monotonic() + seconds) for _ in range(at_once)))
        used = time.process_time() - before
        await close()
        return 1e6 * used / len(took), sorted(took)

    def show(self, seconds: float, rounds: int) -> None:
        for at_once in (1, 64):
            found: dict[str, list[tuple[float, list[float]]]] = {"own": [], "grpc_aio": [], "grpc_future": []}
            for _ in range(rounds):
                for name, results in found.items():
                    results.append(uvloop.run(self.run(getattr(self, name), at_once, seconds / rounds)))
            for name, results in found.items():
                took = sorted(t for _, times in results for t in times)
                us = sum(us * len(times) for us, times in results) / len(took)
                print(
                    f"call {name:12} {at_once:3} at once: {us:6.0f} µs of CPU, p50 {took[len(took) // 2]:.2f} ms,"
                    f" p99 {took[int(len(took) * 0.99)]:.2f} ms"
                )


class Creates:
    """ConfigMaps through kas, over connections that are kept; one takes the next when its answer has come."""

    def __init__(self, server: KasServer, connections: int) -> None:
        self._server, self._idle, self._n, self._made = server, asyncio.LifoQueue[Any](), connections, 0

    async def open(self) -> None:
        context = ssl.create_default_context(cafile=self._server.ca)
        for _ in range(self._n):
            self._idle.put_nowait(await asyncio.open_connection("127.0.0.1", self._server.port, ssl=context))

    async def __call__(self) -> None:
        reader, writer = connection = await self._idle.get()
        self._made += 1
        body = json.dumps(configmap(f"rate-{time.monotonic_ns()}-{self._made}")).encode()
        head = f"POST {CONFIGMAPS} HTTP/1.1\r\nHost: kas\r\nAuthorization: Bearer {self._server.token}\r\n"
        writer.write(head.encode() + b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 201"), answer
        length = next(line for line in answer.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(int(length.partition(b":")[2]))
        self._idle.put_nowait(connection)

    def close(self) -> None:
        while not self._idle.empty():
            self._idle.get_nowait()[1].close()


async def rate(etcd: Etcd, server: KasServer, a_second: int, seconds: float) -> None:
    """As many creates through kas as transactions without it, in turn, each when it is due, however long others take."""
    calls, creates = Calls(etcd), Creates(server, 64)
    call, close = await calls.own()
    await creates.open()
    took: dict[str, list[float]] = {"kas": [], "bare": []}

    async def one(side: str, due: float, warm: bool) -> None:
        await (creates() if side == "kas" else call(calls.request()))
        if not warm:
            took[side].append(1e3 * (time.monotonic() - due))

    began, tasks = time.monotonic() + 0.1, []
    for i in range(int(a_second * (seconds + 1))):
        due = began + i / a_second
        for side, at in (("kas", due), ("bare", due + 0.5 / a_second)):
            await asyncio.sleep(max(0.0, at - time.monotonic()))
            tasks.append(asyncio.create_task(one(side, at, i < a_second)))
    await asyncio.gather(*tasks)
    await close()
    creates.close()
    found = {side: [sorted(times)[int(len(times) * at)] for at in (0.5, 0.99)] for side, times in took.items()}
    for side, (p50, p99) in found.items():
        ratio = f"{p99 / found['bare'][1]:6.2f}" if side == "kas" else ""
        print(f"create-rate {a_second}/s {side:5} p50 {p50:.2f} ms, p99 {p99:.2f} ms {ratio}", flush=True)


def turn(etcd: Etcd, server: KasServer, seconds: float) -> None:
    """A create through kas and a transaction without it, in turn, so that both run under the same conditions; neither is at full speed.
    Both clients wait in this thread."""
    calls, client = Calls(etcd), EtcdClient(etcd.config)
    context = ssl.create_default_context(cafile=server.ca)
    connection = http.client.HTTPSConnection("127.0.0.1", server.port, context=context)
    head = {"Authorization": f"Bearer {server.token}", "Content-Type": "application/json"}
    took: dict[str, list[float]] = {"kas": [], "bare": []}
    began = time.monotonic()
    while time.monotonic() < began + 1.25 * seconds:
        body, request = json.dumps(configmap(f"turn-{time.monotonic_ns()}")), calls.request()
        at = [time.monotonic()]
        connection.request("POST", CONFIGMAPS, body, head)
        answer = connection.getresponse()
        answer.read()
        at.append(time.monotonic())
        assert answer.status == 201, answer.status
        client.call(TXN, request)
        at.append(time.monotonic())
        if at[0] > began + 0.25 * seconds:
            for j, side in enumerate(took):
                took[side].append(1e3 * (at[j + 1] - at[j]))
    connection.close()
    client.close()
    kas, bare = ([sorted(times)[int(len(times) * at)] for at in (0.5, 0.99)] for times in took.values())
    print(f"create-turn    kas   p50 {kas[0]:.2f} ms, p99 {kas[1]:.2f} ms ({len(took['kas'])})")
    print(f"create-turn    bare  p50 {bare[0]:.2f} ms, p99 {bare[1]:.2f} ms; {kas[0] / bare[0]:.2f}, {kas[1] / bare[1]:.2f}", flush=True)


def seen(etcd: Etcd, other: KasServer, changes: int) -> None:
    """A ConfigMap is written straight into etcd; a watcher of ``other`` reads."""
    context = ssl.create_default_context(cafile=other.ca)
    connection = http.client.HTTPSConnection("127.0.0.1", other.port, context=context)
    connection.request("GET", f"{WATCH}&resourceVersion=0", headers={"Authorization": f"Bearer {other.token}"})
    answer = connection.getresponse()
    answer.readline()
    arrived: dict[str, float] = {}
    event = threading.Event()

    def read() -> None:
        while line := answer.readline():
            arrived[json.loads(line)["object"]["metadata"]["resourceVersion"]] = time.monotonic()
            event.set()

    threading.Thread(target=read, daemon=True).start()
    client, took = EtcdClient(etcd.config), []
    key = b"/registry/configmaps/bench/one"
    value = client.call(RANGE, pb.RangeRequest(key=key)).kvs[0].value
    for i in range(changes):
        event.clear()
        revision = client.call(PUT, pb.PutRequest(key=key, value=value.replace(b"x" * 8, b"%08d" % i, 1))).header.revision
        committed = time.monotonic()
        while str(revision) not in arrived:
            event.wait(10.0)
            event.clear()
        took.append(1e3 * (arrived[str(revision)] - committed))
        time.sleep(0.01)
    client.close()
    took.sort()
    print(f"a change is seen on another server after p50 {took[len(took) // 2]:.2f} ms, p99 {took[int(len(took) * 0.99)]:.2f} ms")


class Watching:
    """Watchers of several servers, in this process; ``lines`` is how many events have come."""

    def __init__(self) -> None:
        self.lines, self._writers, self._wanted, self._come = 0, [], 0, asyncio.Event()

    async def open(self, server: KasServer, n: int) -> None:
        context = ssl.create_default_context(cafile=server.ca)
        for _ in range(n):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=context)
            head = f"GET {WATCH}&resourceVersion=0 HTTP/1.1\r\nHost: kas\r\nAuthorization: Bearer {server.token}\r\n\r\n"
            writer.write(head.encode())
            self._writers.append((writer, asyncio.create_task(self._read(reader))))

    async def _read(self, reader: asyncio.StreamReader) -> None:
        while chunk := await reader.read(1 << 16):
            self.lines += chunk.count(b'"type":"MODIFIED"')
            if self.lines >= self._wanted:
                self._come.set()

    def begin(self, wanted: int) -> None:
        self.lines, self._wanted = 0, wanted
        self._come.clear()

    async def come(self) -> None:
        await self._come.wait()

    async def close(self) -> None:
        for writer, task in self._writers:
            task.cancel()
            writer.close()
        self._writers.clear()


async def spread(etcd: Etcd, servers: list[KasServer], watchers: int, changes: int, rounds: int) -> None:
    """The cost of an event for a server that is watched alone, and for each of several with as many watches. A ConfigMap is written
    directly to etcd, 50 times a second."""
    client = AsyncClient(etcd.config)
    key = b"/registry/configmaps/bench/one"
    value = (await client.call(RANGE, pb.RangeRequest(key=key))).kvs[0].value
    cost: dict[int, list[float]] = {1: [], len(servers): []}
    for i in range(2 * rounds):
        watched = servers[:1] if not i % 2 else servers
        watching = Watching()
        for server in watched:
            await watching.open(server, watchers)
        await asyncio.sleep(1.0)
        watching.begin(changes * watchers * len(watched))
        before = [cpu_s(server.pid) for server in watched]
        for j in range(changes):
            await client.call(PUT, pb.PutRequest(key=key, value=value.replace(b"x" * 8, b"%08d" % (i * changes + j), 1)))
            await asyncio.sleep(0.02)
        await watching.come()
        cost[len(watched)] += [1e6 * (cpu_s(s.pid) - b) / (changes * watchers) for s, b in zip(watched, before, strict=True)]
        await watching.close()
    await client.close()
    one, several = (statistics.median(cost[n]) for n in (1, len(servers)))
    print(
        f"an event of {watchers} watchers costs a server that alone is watched {one:.1f} µs, each of {len(servers)} {several:.1f} µs:"
        f" they carry {len(servers) * one / several:.2f} times the watchers of one"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=4.0, help="length of each row")
    parser.add_argument("--rounds", type=int, default=4, help="slices of each row, in turn")
    parser.add_argument("--only", default="", help="what to run, comma separated")
    parser.add_argument("--rates", type=int, nargs="+", default=[100, 400], help="creates a second of create-rate")
    parser.add_argument("--pods", type=int, default=1000)
    parser.add_argument("--sync-ms", type=float, default=0.0, help="how much longer etcd's syncs take than on this disk")
    args = parser.parse_args()
    wanted = chosen(parser, args.only, [*ROWS, *BESIDE_ROWS])
    print(" ".join(f"{k}={v}" for k, v in machine().items()))
    with tempfile.TemporaryDirectory() as directory:
        here = Path(directory)
        etcd = Etcd(here)
        if args.sync_ms:
            etcd.disk = SlowDisk()
            etcd.disk.wait_s = args.sync_ms / 1e3
        with etcd:
            flags = (*UNLIMITED, "--storage-backend=etcd3", f"--etcd-servers={etcd.url}")
            with KasServer(here / "lmdb", *UNLIMITED) as plain, KasServer(here / "etcd", *flags) as server:
                time.sleep(3)
                pin(plain)
                pin(server)
                pin_etcd(etcd._process.pid)
                bare = Transactions(here, etcd.url, b"/bench/configmaps/bench/c-" + NUMBER, b"x" * VALUE_BYTES)
                rows(Client(here), [(Target.kas(plain), 0), (Target.kas(server), etcd._process.pid)], bare, args, wanted)
                if "rate" in wanted:
                    for a_second in args.rates:
                        uvloop.run(rate(etcd, server, a_second, args.seconds))
                if "turn" in wanted:
                    turn(etcd, server, args.seconds)
            if "seen" in wanted:
                with KasServer(here / "etcd", *flags), KasServer(here / "other", *flags) as other:
                    time.sleep(3)
                    seen(etcd, other, 300)
            if "spread" in wanted:
                with ExitStack() as stack:
                    servers = [stack.enter_context(KasServer(here / name, *flags)) for name in ("etcd", "two", "three")]
                    time.sleep(3)
                    asyncio.run(spread(etcd, servers, 100, 200, args.rounds))
            if "calls" in wanted:
                Calls(etcd).show(args.seconds, args.rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
