"""Models a cluster of 10,000 nodes and 500,000 pods on kas and etcd, and what fails first, with measured constants.

    .venv/bin/python bench/scale_model.py                               # the model, with the constants below
    .venv/bin/python bench/scale_model.py --nodes 5000 --pods 150000 --servers 3 --workers 4
    .venv/bin/python bench/scale_model.py --measure [--objects 50000] [--watches 500] [--events 500]    # the constants, here; needs etcd

``--measure`` fills an etcd with pods, starts ``kas serve`` on it with an empty replica and with an existing one, opens watches of one
node each and of all, writes to etcd and reads the CPU of each process. Times are CPU unless stated otherwise, with wall-clock times next
to them. The model multiplies and knows nothing of queues, so it calls a part full at 70 % of a core or of its limit.
"""

from __future__ import annotations

import argparse
import json
import re
import selectors
import socket
import sys
import tempfile
import time
import urllib.parse
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

FULL = 0.7
WRITERS = 16
GIB = 1 << 30


@dataclass
class Constants:
    """What one thing costs. ``us``: CPU microseconds of one process. Medians of five ``--measure``, 1,000 to 3,000 events (Debian's etcd
    3.4.23, Python 3.11, 2 shared cores of 2.5 GHz, under load of others), but for the last three; ``replicator_event_us`` and
    ``worker_event_us`` are of three later ones, at a load of 23 to 37, 500 to 1,500 events; ``sieved_us`` of four later still, at 34 to 41,
    600 and 1,000 events beside 300 and 600 watches (0.00 to 0.16)."""

    pod_replica_bytes: float = 8770.0  # of the replica's file, a pod of 6.5 KB of JSON with its protobuf
    pod_etcd_bytes: float = 2043.0  # of etcd's file, one revision of it
    replica_fill_us: float = 63.0  # replicator: an object of the first list
    replicator_event_us: float = 134.0  # replicator: a change, into the replica
    worker_event_us: float = 35.0  # each worker: a change, without watchers of it
    sieved_us: float = 0.1  # worker: a change that a watcher does not select, by the value of a field
    delivered_us: float = 5.3  # worker: a change to one watcher more
    watcher_bytes: float = 37_000.0  # worker
    process_bytes: float = 50e6  # worker or replicator, empty (README: memory, empty)
    write_us: float = 450.0  # worker: a write on etcd, the goal of the issue; README has 139 to 418 µs on LMDB
    get_us: float = 29.0  # README: GET


@dataclass
class Cluster:
    """The load of the servers. Rates per second, over the whole cluster."""

    nodes: int = 10_000
    pods: int = 500_000
    servers: int = 3
    workers: int = 4
    churn: float = 100.0  # pods created and deleted a second
    pod_writes: float = 9.0  # of each: create, bind, four statuses, two of its deletion, its Event
    node_watches: float = 8.0  # of the same things by every node: services, slices, nodes, classes, drivers
    pod_watches: float = 0.4  # of single config maps and secrets, for each pod on the node: two, shared by five pods
    shared_events: float = 20.0  # changes a second that every node watches (slices above all)
    etcd_writes_bound: float = 10_000.0  # etcd's own figure for three members on good disks; not measured here
    etcd_bytes_bound: float = 8 * GIB  # the largest --quota-backend-bytes etcd recommends


@dataclass
class Part:
    """How much of something is used."""

    name: str
    used: float
    bound: float
    unit: str

    @property
    def share(self) -> float:
        """1: at its bound."""
        return self.used / self.bound


def model(k: Constants, c: Cluster) -> list[Part]:
    """Each part, fullest first."""
    leases = c.nodes / 10.0  # each kubelet renews its own every 10 s
    statuses = c.nodes / 300.0
    pod_events = c.churn * (c.pod_writes - 1)
    writes = leases + statuses + c.churn * c.pod_writes + c.shared_events
    share = 1.0 / (c.servers * c.workers)  # of the watchers and requests that one worker has
    nodes = c.nodes * share
    sieved = nodes * pod_events * k.sieved_us  # every node watches its own pods among all
    delivered = (nodes * c.shared_events + pod_events * share) * k.delivered_us
    worker = (writes * k.worker_event_us + sieved + delivered + writes * share * k.write_us + nodes * 0.2 * k.get_us) / 1e6
    watchers = nodes * (1 + c.node_watches + c.pod_watches * c.pods / c.nodes)
    objects = 1.2 * c.pods + 3 * c.nodes  # with the slices, Events and Leases that belong to them
    memory = watchers * c.workers * k.watcher_bytes + (c.workers + 1) * k.process_bytes + objects * k.pod_replica_bytes
    history = writes * 600 * 2_000.0  # two intervals of compaction, 2 KB a revision
    return sorted(
        [
            Part("a worker's core", worker, 1.0, "cores"),
            Part("the replicator's core", writes * k.replicator_event_us / 1e6, 1.0, "cores"),
            Part("writes of etcd", writes, c.etcd_writes_bound, "a second"),
            Part("etcd's file", (objects * k.pod_etcd_bytes + history) / GIB, c.etcd_bytes_bound / GIB, "GiB"),
            Part("a server's memory (with the replica in it)", memory / GIB, 64.0, "GiB"),
            Part("the first start of a replica", objects * k.replica_fill_us / 1e6, 60.0, "s"),
        ],
        key=lambda part: -part.share,
    )


def most_pods(k: Constants, c: Cluster) -> int:
    """How far the same kind of cluster may grow until a part is full; nodes, pods and churn together."""
    low, high = 0.0, 64.0
    for _ in range(40):
        scale = (low + high) / 2
        grown = Cluster(**{**asdict(c), "nodes": c.nodes * scale, "pods": c.pods * scale, "churn": c.churn * scale})
        low, high = (scale, high) if model(k, grown)[0].share < FULL else (low, scale)
    return int(c.pods * low)


def show(k: Constants, c: Cluster) -> None:
    """Prints the model."""
    print(f"{c.nodes:,} nodes, {c.pods:,} pods, {c.churn:g} pods a second come and go; {c.servers} servers of {c.workers} workers")
    for part in model(k, c):
        mark = "  over" if part.share > 1 else "  full" if part.share > FULL else ""
        print(f"  {part.name:45}{part.used:12,.2f} of {part.bound:10,.1f} {part.unit:9}{100 * part.share:7.0f} %{mark}")
    first = model(k, c)[0]
    print(f"first to break: {first.name}; such a cluster may grow to {most_pods(k, c):,} pods until something is {100 * FULL:.0f} % full")


# -- measuring


def pieces(pid: int) -> dict[str, list[int]]:
    """The server's processes: the supervisor, the replicator, the worker."""
    from bench.end_to_end import processes

    out: dict[str, list[int]] = {"supervisor": [pid], "replicator": [], "worker": []}
    for p in processes(pid):
        if p != pid:
            out["replicator" if Path(f"/proc/{p}/comm").read_text().strip() == "kas-replicator" else "worker"].append(p)
    return out


def cpu(pids: list[int]) -> float:
    """Seconds."""
    total = 0
    for p in pids:
        total += sum(int(t.joinpath("schedstat").read_text().split()[0]) for t in Path(f"/proc/{p}/task").iterdir())
    return total * 1e-9


def memory(pids: list[int]) -> float:
    """Bytes that are not the file's."""
    kib = 0
    for p in pids:
        text = Path(f"/proc/{p}/smaps_rollup").read_text()
        kib += sum(int(re.search(rf"^{name}:\s+(\d+)", text, re.M).group(1)) for name in ("Pss_Anon", "Pss_Shmem"))
    return kib * 1024.0


class Fill:
    """Pods in an etcd, as kube-apiserver would have them."""

    def __init__(self, etcd) -> None:
        from bench.end_to_end import pod
        from kas import kinds
        from kas.storage.places import Forms
        from kas.store.etcd.client import Client

        kinds.install()
        self.client, self._pod, self._forms, self._number = Client(etcd.config), pod, Forms(), 0

    def value(self, name: str, node: int) -> bytes:
        """A pod on a node; each differs from all before."""
        self._number += 1
        obj = self._pod(name)
        obj["metadata"].update(namespace="bench", uid=f"u-{name}", creationTimestamp="2026-01-01T00:00:00Z", generation=self._number)
        obj["spec"]["nodeName"] = f"node-{node}"
        key = f"/registry/pods/bench/{name}"
        return self._forms.values.encode(key, self._forms.values.decode(key, json.dumps(obj).encode()))

    def put(self, numbers: range, nodes: int) -> None:
        """A hundred a transaction."""
        from kas.store.etcd import etcd_pb2 as pb
        from kas.store.etcd.client import TXN

        for at in range(numbers.start, numbers.stop, 100):
            ops = []
            for i in range(at, min(at + 100, numbers.stop)):
                put = pb.PutRequest(key=f"/registry/pods/bench/p{i}".encode(), value=self.value(f"p{i}", i % nodes))
                ops.append(pb.RequestOp(request_put=put))
            self.client.call(TXN, pb.TxnRequest(success=ops))

    def change(self, n: int, nodes: int) -> None:
        """Writes with one revision each, ``WRITERS`` at a time, as in a cluster: etcd then sends several events at once."""
        from kas.store.etcd import etcd_pb2 as pb
        from kas.store.etcd.client import PUT

        puts = [pb.PutRequest(key=f"/registry/pods/bench/p{i}".encode(), value=self.value(f"p{i}", i % nodes)) for i in range(n)]
        with ThreadPoolExecutor(WRITERS) as pool:
            list(pool.map(lambda put: self.client.call(PUT, put), puts))


class Watches:
    """Open watches over plain HTTP; ``drain`` reads until no data arrive for a while."""

    def __init__(self, port: int) -> None:
        self._port, self._selector = port, selectors.DefaultSelector()
        self.sockets: list[socket.socket] = []

    def open(self, n: int, query) -> None:
        for i in range(n):
            s = socket.create_connection(("127.0.0.1", self._port))
            s.sendall(f"GET /api/v1/pods?watch=1&{query(i)} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            s.setblocking(False)
            self.sockets.append(s)
            self._selector.register(s, selectors.EVENT_READ)
        self.drain()

    def drain(self, quiet_s: float = 1.5) -> int:
        """Bytes read."""
        n = 0
        while ready := self._selector.select(quiet_s):
            for key, _ in ready:
                n += len(key.fileobj.recv(1 << 18))
        return n

    def close(self) -> None:
        for s in self.sockets:
            self._selector.unregister(s)
            s.close()
        self.sockets.clear()


def started(server) -> tuple[float, float, float]:
    """Starts it; (seconds by the clock, CPU of all processes, of the replicator)."""
    began = time.monotonic()
    server.start()
    wall, parts = time.monotonic() - began, pieces(server.pid)
    return wall, sum(map(cpu, parts.values())), cpu(parts["replicator"])


def measure(objects: int, watches: int, events: int) -> dict[str, float]:
    """Constants of this machine, and the starts."""
    from kas.store.etcd import etcd_pb2 as pb
    from kas.store.etcd.client import STATUS
    from kas.testing.server import KasServer
    from tests.etcd import Etcd

    out: dict[str, float] = {}
    here = Path(tempfile.mkdtemp(prefix="kas-scale-"))
    flags = ("--storage-backend=etcd3", "--advertise-address=127.0.0.1", "--insecure-port=auto", "--controllers=none", "--secure-port=auto")
    with Etcd(here) as etcd:
        fill = Fill(etcd)
        fill.put(range(objects), watches)
        out["pod_etcd_bytes"] = fill.client.call(STATUS, pb.StatusRequest()).dbSizeInUse / objects
        server = KasServer(here, *flags, f"--etcd-servers={etcd.url}")
        try:
            out["start_empty_s"], out["start_empty_cpu_s"], fill_cpu = started(server)
            out["replica_fill_us"] = 1e6 * fill_cpu / objects
            out["pod_replica_bytes"] = sum(f.stat().st_blocks * 512 for f in (server.data_dir / "replica").iterdir()) / objects
            server.kill()
            out["start_kept_s"], out["start_kept_cpu_s"], _ = started(server)
            _watching(server, fill, watches, events, out)
        finally:
            server.kill()
    return out


def _watching(server, fill: Fill, watches: int, events: int, out: dict[str, float]) -> None:
    parts = pieces(server.pid)
    workers, replicator = parts["worker"], parts["replicator"]
    port = int(re.findall(r"http://127\.0\.0\.1:(\d+)", server.output)[-1])
    open_ = Watches(port)

    def cost() -> tuple[float, float]:
        before = cpu(workers), cpu(replicator)
        idle = time.monotonic()
        fill.change(events, watches)
        open_.drain() if open_.sockets else time.sleep(1.5)
        took = time.monotonic() - idle
        spent = (cpu(workers) - before[0] - rest[0] * took, cpu(replicator) - before[1] - rest[1] * took)
        return 1e6 * spent[0] / events, 1e6 * spent[1] / events

    def resting() -> tuple[float, float]:
        before = cpu(workers), cpu(replicator)
        time.sleep(4)
        return (cpu(workers) - before[0]) / 4, (cpu(replicator) - before[1]) / 4

    until = time.monotonic() + 90
    while (rest := resting())[0] > 0.05 and time.monotonic() < until:  # what is loaded once it serves
        pass
    alone, out["replicator_event_us"] = cost()
    out["worker_event_us"] = alone
    begun = memory(workers)
    revision = fill.client.range(b"/registry/pods/", limit=1).header.revision
    open_.open(watches, lambda i: f"resourceVersion={revision}&fieldSelector={urllib.parse.quote(f'spec.nodeName=node-{i}')}")
    out["watcher_bytes"] = (memory(workers) - begun) / watches
    sieved = cost()[0]
    open_.close()
    time.sleep(1)
    some = min(100, watches)
    revision = fill.client.range(b"/registry/pods/", limit=1).header.revision
    open_.open(some, lambda i: f"resourceVersion={revision}")
    out["delivered_us"] = (cost()[0] - alone) / some
    open_.close()
    out["sieved_us"] = (sieved - alone - out["delivered_us"]) / watches  # one of them is given each change


def main() -> int:
    """The command line."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--measure", action="store_true")
    p.add_argument("--objects", type=int, default=50_000)
    p.add_argument("--watches", type=int, default=500)
    p.add_argument("--events", type=int, default=500)
    defaults = Cluster()
    for f in fields(Cluster):
        p.add_argument("--" + f.name.replace("_", "-"), type=type(getattr(defaults, f.name)), default=getattr(defaults, f.name))
    args = p.parse_args()
    if args.measure:
        for name, value in measure(args.objects, args.watches, args.events).items():
            print(f"{name:24}{value:14,.2f}")
        return 0
    show(Constants(), Cluster(**{f.name: getattr(args, f.name) for f in fields(Cluster)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
