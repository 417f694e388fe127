"""Compares custom resources with built-in ones of the same size: server CPU for each GET, LIST, watch and create.

``python bench/custom_against_builtin.py [--requests 2000] [--rounds 5]`` measures them in turns and prints JSON: microseconds of CPU for
a request (for a watch: for the 100 objects that it begins with), the minimum and the median over the rounds, and the ratios of custom
resources to ConfigMaps, and of a schema of 200 fields, alone and with three rules, to no schema.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kas.testing.server import KasServer
from tests.clients.conversation import Connection

FLAGS = ("--controllers=none", "--unsafe-no-fsync", "--advertise-address=127.0.0.1", "--workers=1")
FIELDS = 200
WATCHES = 10


def definition(rules: bool, schema: bool = True) -> dict[str, Any]:
    """With ``FIELDS`` fields, and three rules where ``rules``; or with no schema."""
    data: dict[str, Any] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    if schema:
        data = {"type": "object", "properties": {f"f{i}": {"type": "string", "maxLength": 100} for i in range(FIELDS)}}
    if rules:
        data["x-kubernetes-validations"] = [
            {"rule": "self.f1 != self.f2"}, {"rule": "!has(self.f3) || size(self.f3) < 50"}, {"rule": "self.f4.startsWith('value')"},
        ]  # fmt: skip
    plural = "ruled" if rules else "plain" if schema else "free"
    whole = {"type": "object", "properties": {"data": data}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": f"{plural}.bench.example.com"},
        "spec": {
            "group": "bench.example.com", "scope": "Namespaced", "names": {"plural": plural, "kind": plural.title()},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": whole}}],
        },
    }  # fmt: skip


KINDS = {
    "builtin": ("/api/v1/namespaces/default/configmaps", "v1", "ConfigMap"),
    "custom without schema": ("/apis/bench.example.com/v1/namespaces/default/free", "bench.example.com/v1", "Free"),
    "custom": ("/apis/bench.example.com/v1/namespaces/default/plain", "bench.example.com/v1", "Plain"),
    "custom with rules": ("/apis/bench.example.com/v1/namespaces/default/ruled", "bench.example.com/v1", "Ruled"),
}


class Bench:
    def __init__(self, server: KasServer) -> None:
        self.connection = Connection(server)
        self.headers = {**self.connection.authorization, "Content-Type": "application/json", "Accept": "application/json"}
        self._processes = [server.process.pid, *server.worker_pids()]
        self._spent: dict[Path, int] = {}  # by thread, also of those that have ended

    def ask(self, method: str, path: str, body: bytes | None = None) -> bytes:
        """The body of the answer, which must be good."""
        status, _, data = self.connection.request(method, path, body, self.headers)
        assert status in (200, 201), data
        return data

    def cpu(self) -> float:
        """Seconds of all processes of the server."""
        for process in self._processes:
            for task in Path(f"/proc/{process}/task").iterdir():
                with contextlib.suppress(FileNotFoundError):
                    self._spent[task] = int((task / "schedstat").read_text().split()[0])
        return sum(self._spent.values()) / 1e9

    def each(self, n: int, run: Callable[[int], object]) -> float:
        """Microseconds of CPU for each of ``n`` calls."""
        before = self.cpu()
        for i in range(n):
            run(i)
        return (self.cpu() - before) * 1e6 / n


def body(kind: str, name: str) -> bytes:
    """An object with ``FIELDS`` entries."""
    _, version, what = KINDS[kind]
    data = {f"f{i}": f"value {i} of some length" for i in range(FIELDS)}
    meta = {"name": name, "labels": {"first": "y"} if name.startswith("first") else {}}
    return json.dumps({"apiVersion": version, "kind": what, "metadata": meta, "data": data}).encode()


def watched(server: KasServer, bench: Bench, path: str) -> float:
    """Microseconds of CPU for each of ``WATCHES`` concurrent watches, until their initial events have arrived and they end."""

    def watch(_: int) -> None:
        own = Bench(server)
        assert own.ask("GET", path).count(b"ADDED") >= 100

    before = bench.cpu()
    with concurrent.futures.ThreadPoolExecutor(WATCHES) as pool:
        list(pool.map(watch, range(WATCHES)))
    return (bench.cpu() - before) * 1e6 / WATCHES


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    rows = ("get", "list of 100", "watch of 100", "create")
    found: dict[str, dict[str, list[float]]] = {what: {kind: [] for kind in KINDS} for what in rows}
    with tempfile.TemporaryDirectory() as directory, KasServer(Path(directory), *FLAGS) as server:
        bench = Bench(server)
        for crd in (definition(False, schema=False), definition(False), definition(True)):
            bench.ask("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", json.dumps(crd).encode())
        for kind, (path, _, _) in KINDS.items():
            while bench.connection.request("GET", path, None, bench.headers)[0] != 200:
                time.sleep(0.05)
            for i in range(100):
                bench.ask("POST", path, body(kind, f"first{i}"))
        for turn in range(args.rounds):
            for kind, (path, _, _) in KINDS.items():
                found["get"][kind].append(bench.each(args.requests, lambda i, path=path: bench.ask("GET", f"{path}/first1")))
                page, watch = f"{path}?limit=100", f"{path}?watch=true&timeoutSeconds=1&labelSelector=first"
                found["list of 100"][kind].append(bench.each(args.requests // 20, lambda i, page=page: bench.ask("GET", page)))
                found["watch of 100"][kind].append(watched(server, bench, watch))
                found["create"][kind].append(
                    bench.each(args.requests // 5, lambda i, p=path, k=kind, t=turn: bench.ask("POST", p, body(k, f"t{t}n{i}")))
                )
    out: dict[str, dict[str, dict[str, float]]] = {}
    for what, kinds in found.items():
        for name, of in (("least", min), ("median", statistics.median)):
            us = {kind: of(values) for kind, values in kinds.items()}
            row: dict[str, float] = {kind: round(value, 1) for kind, value in us.items()}
            bare = us["custom without schema"]
            row |= {f"{kind} / without schema": round(us[kind] / bare, 2) for kind in ("custom", "custom with rules")}
            row |= {f"{kind} / builtin": round(value / us["builtin"], 2) for kind, value in us.items() if kind != "builtin"}
            out.setdefault(what, {})[name] = row
    print(json.dumps(out, indent=1))


if __name__ == "__main__":
    main()
