"""Measures what one tenant's flood costs another: the latency of a quiet tenant alone, and beside a flood.

    .venv/bin/python bench/fair_share.py [--seconds 4] [--rounds 3] [--off] [--workers 1]
    .venv/bin/python bench/fair_share.py --burst [--seats 600]

Both tenants are users of the level ``global-default``. The flood keeps ten times half of the level's seats waiting; the quiet tenant
sends one request at a time. In each round the quiet tenant is measured alone and then beside the flood, so that both see the same
variations of the machine; the result is the ratio of the medians of their p99. ``--off`` shows the same with max-in-flight instead. The
server runs on CPU 0 and the clients on the last CPU, as in ``end_to_end.py``.

Where that is allowed, both clients have a real-time priority. The quiet tenant's is higher, because it would otherwise wait for the
flood's client, which says nothing about the server. The flood has one because other programs on its CPU would slow it down until the
server waits for it, and then there is no flood. ``busy`` is the share of a CPU that the server used beside the flood; well below 1, the
ratio means nothing. The server has the highest ordinary priority, where allowed, so that other programs take little time from it: alone
it hardly competes with them, but beside a flood, when it is never idle, it would.

``--burst`` counts the server's CPU time instead, so that other users of the machine matter less (Linux). While the worker is stopped, the
flood sends one GET on each connection and the quiet tenant one behind them all. The CPU that the worker spends until the quiet tenant has
its answer is printed, next to the figure without the flood.
"""

from __future__ import annotations

import argparse
import http.client
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]

import json  # noqa: E402
import ssl  # noqa: E402

from end_to_end import Client, Target, chosen, pinned  # noqa: E402

from kas.testing.server import KasServer  # noqa: E402

TENANTS = ("quiet", "flood")
TIMES = 10
OFF = ("--enable-priority-and-fairness=false", "--max-requests-inflight=0", "--max-mutating-requests-inflight=0")
FIRST, SECOND = [("chrt", "--fifo", n) if os.geteuid() == 0 and shutil.which("chrt") else () for n in "21"]
ABOVE = ("nice", "-n", "-20") if os.geteuid() == 0 and shutil.which("nice") else ()
ASKED = re.compile(r'^apiserver_request_total\{.*resource="configmaps".*\} (\d+)', re.M)
LIMIT = re.compile(r'^apiserver_flowcontrol_nominal_limit_seats\{priority_level="global-default"\} (\d+)', re.M)


def ask(server: KasServer, method: str, path: str, body: object = None) -> bytes:
    """As the administrator."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {server.token}", "Content-Type": "application/json"}
    request = urllib.request.Request(server.url + path, data, headers, method=method)
    with urllib.request.urlopen(request, context=ssl.create_default_context(cafile=server.ca)) as answer:
        return answer.read()


def prepare(server: KasServer) -> int:
    """Creates the objects that the tenants request; returns the seats of their level."""
    for tenant in TENANTS:
        ask(server, "POST", "/api/v1/namespaces", {"metadata": {"name": tenant}})
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": tenant}
        ask(server, "POST", f"/apis/rbac.authorization.k8s.io/v1/namespaces/{tenant}/rolebindings", {
            "metadata": {"name": "edit"}, "subjects": [subject],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        })  # fmt: skip
        for i in range(200):
            ask(server, "POST", f"/api/v1/namespaces/{tenant}/configmaps",
                {"metadata": {"name": f"c{i:06d}"}, "data": {"a": "x" * 1000}})  # fmt: skip
    found = LIMIT.search(ask(server, "GET", "/metrics").decode())
    return int(found.group(1)) if found else 49


ROWS = {
    "get": ("GET", "configmaps/c%d", 200, None),
    "list-200": ("GET", "configmaps", 0, None),
    "write": ("PATCH", "configmaps/c%d", 200, {"data": {"b": "%q"}}),
}


def steady(server: KasServer, connections: int) -> None:
    """Waits until the flood has sent several times as many requests as it has connections."""

    def asked() -> int:
        return sum(map(int, ASKED.findall(ask(server, "GET", "/metrics").decode())))

    before = asked()
    while asked() < before + 3 * connections:
        threading.Event().wait(0.2)


def measure(
    client: Client, server: KasServer, targets: dict[str, Target], row: str, seconds: float, rounds: int, connections: int
) -> dict[str, float]:
    """The quiet tenant's latency in milliseconds, alone and during the flood."""
    method, path, modulo, body = ROWS[row]

    def command(tenant: str, n: int, s: float) -> list[str]:
        kind = "application/merge-patch+json" if body is not None else "application/json"
        return client.command(
            targets[tenant], method, f"/api/v1/namespaces/{tenant}/{path}", connections=n, seconds=s, modulo=modulo, body=body, type=kind
        )

    def quiet() -> dict[str, float]:
        done = subprocess.run([*FIRST, *command("quiet", 1, seconds)], capture_output=True, text=True, timeout=600, check=True)
        return json.loads(done.stdout)

    alone, beside, flooded, busy = [], [], 0.0, 0.0
    pids = offspring(server.pid)
    for _ in range(rounds):
        alone.append(quiet())
        flood = subprocess.Popen([*SECOND, *command("flood", connections, 3600)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            steady(server, connections)
            began = sum(map(int, ASKED.findall(ask(server, "GET", "/metrics").decode())))
            had, since = sum(map(spent, pids)), time.monotonic()
            beside.append(quiet())
            busy += (sum(map(spent, pids)) - had) / (time.monotonic() - since) / rounds
            flooded += (sum(map(int, ASKED.findall(ask(server, "GET", "/metrics").decode()))) - began) / seconds / rounds
        finally:
            flood.kill()
            flood.wait()
    out = {"refused": sum(r["bad"] for r in beside)}
    for name in ("p50", "p99"):
        one, other = (statistics.median(r[f"{name}_ms"] for r in rows) for rows in (alone, beside))
        out |= {name: one, f"{name} beside": other, f"{name} ratio": other / one}
    return out | {"flood/s": flooded, "busy": busy}


def offspring(pid: int) -> list[int]:
    """A process and all below it."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(p for child in found for p in offspring(int(child)))]


def spent(pid: int) -> float:
    """Seconds of CPU of a process."""
    return time.clock_gettime((~pid << 3) | 2)  # the kernel's number of another process' CPU clock


def connection(server: KasServer) -> ssl.SSLSocket:
    """An open connection."""
    raw = socket.create_connection(("127.0.0.1", server.port))
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return ssl.create_default_context(cafile=server.ca).wrap_socket(raw, server_hostname="127.0.0.1")


def send(sock: ssl.SSLSocket, tenant: str) -> None:
    """Asks for one object."""
    path = f"/api/v1/namespaces/{tenant}/configmaps/c000001"
    sock.sendall(f"GET {path} HTTP/1.1\r\nHost: kas\r\nAuthorization: Bearer {tenant}-token\r\n\r\n".encode())


def receive(sock: ssl.SSLSocket) -> None:
    """Reads the answer."""
    answer = http.client.HTTPResponse(sock)
    answer.begin()
    if answer.status != 200:
        raise SystemExit(f"fair_share: {answer.status}: {answer.read()[:200]!r}")
    answer.read()


def burst(server: KasServer, connections: int, rounds: int) -> dict[str, float]:
    """Milliseconds of the worker's CPU until the quiet tenant is answered: alone, and behind a burst."""

    worker = max(offspring(server.pid), key=spent)
    flood, quiet = [connection(server) for _ in range(connections)], connection(server)
    took: tuple[list[float], list[float]] = ([], [])
    for i in range(2 * rounds + 4):
        flooded = i % 2
        os.kill(worker, signal.SIGSTOP)
        try:
            time.sleep(0.02)  # it stops when it is scheduled next
            for sock in flood if flooded else ():
                send(sock, "flood")
            send(quiet, "quiet")
            began = spent(worker)
        finally:
            os.kill(worker, signal.SIGCONT)
        receive(quiet)
        if i >= 4:
            took[flooded].append((spent(worker) - began) * 1000)
        for sock in flood if flooded else ():
            receive(sock)
    alone, behind = map(statistics.median, took)
    return {"alone": alone, "behind the burst": behind, "at most": max(took[1])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seats", type=int, default=60, help="of the server")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--off", action="store_true")
    parser.add_argument("--only", default="", help="rows to run, comma separated")
    parser.add_argument("--burst", action="store_true")
    args = parser.parse_args()
    chosen_rows = chosen(parser, args.only, ROWS)
    with tempfile.TemporaryDirectory(prefix="kas-bench-") as d:
        directory = Path(d)
        tokens = directory / "tokens.csv"
        tokens.write_text("".join(f"{t}-token,{t},{t}\n" for t in TENANTS))
        writes = args.seats // 3
        flags = ["--token-auth-file", str(tokens), "--workers", str(args.workers)]
        flags += OFF if args.off else [f"--max-requests-inflight={args.seats - writes}", f"--max-mutating-requests-inflight={writes}"]
        client = Client(directory)
        with KasServer(directory / "server", *flags, prefix=(*ABOVE, *pinned(0)) if args.workers == 1 else ABOVE) as server:
            seats = prepare(server)
            targets = {t: Target("kas", "127.0.0.1", server.port, server.ca, f"{t}-token", (server.pid,), f"{t}-token") for t in TENANTS}
            connections = TIMES * seats // len(TENANTS)
            print(f"{seats} seats, {connections} connections of the flood, flow control {'off' if args.off else 'on'}")
            if args.burst:
                print("  ".join(f"{k} {v:.2f}" for k, v in burst(server, connections, 10 * args.rounds).items()), "ms of CPU", flush=True)
                return
            for row in chosen_rows:
                found = measure(client, server, targets, row, args.seconds, args.rounds, connections)
                print(f"{row:10}" + "  ".join(f"{k} {v:.2f}" for k, v in found.items()), flush=True)


if __name__ == "__main__":
    main()
