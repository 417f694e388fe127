"""Custom resources beside another server that serves them: server CPU for each request, over TLS, in turns, with the ratio.

    python bench/custom_beside.py --url https://127.0.0.1:6444 --token FILE --ca FILE --pids 123,456 [--seconds 8] [--rounds 4]

The other server needs CustomResourceDefinitions and nothing else, so that upstream's apiextensions-apiserver by itself can be it; its
etcd's process belongs among ``--pids``. Each is to run on CPU 0, where kas has one worker; the client of ``bench/end_to_end.py`` runs on
the last CPU. The definition has 200 fields, three rules in CEL and ``status``; an object is of 7 kB. It must not be there before.
"""

from __future__ import annotations

import json
import ssl
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.custom_against_builtin import FIELDS, definition
from bench.end_to_end import UNLIMITED, Bench, Client, Target, arguments, machine, other_target, pin
from kas.testing.server import KasServer

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
OBJECTS = "/apis/bench.example.com/v1/namespaces/default/ruled"
KEPT = 500
MERGE, APPLY = "application/merge-patch+json", "application/apply-patch+yaml"


def custom(name: str) -> dict[str, Any]:
    """An object with ``FIELDS`` entries."""
    data = {f"f{i}": f"value {i} of some length" for i in range(FIELDS)}
    return {"apiVersion": "bench.example.com/v1", "kind": "Ruled", "metadata": {"name": name, "labels": {"app": "bench"}}, "data": data}


def ask(target: Target, method: str, path: str, body: dict[str, Any] | None = None) -> int:
    """The status of one request, beside the load."""
    context = ssl.create_default_context(cafile=target.ca)
    context.check_hostname = False
    headers = {"Authorization": f"Bearer {target.token}", "Content-Type": "application/json"}
    url = f"https://{target.host}:{target.port}{path}"
    request = urllib.request.Request(url, json.dumps(body).encode() if body else None, headers, method=method)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    try:
        with opener.open(request, timeout=30) as answer:
            return answer.status
    except urllib.error.HTTPError as e:
        return e.code


class Customs(Bench):
    """The rows, over objects of the definition."""

    def prepare(self) -> None:
        crd = definition(True)
        crd["spec"]["versions"][0]["subresources"] = {"status": {}}
        for target in self.targets:
            if ask(target, "POST", DEFINITIONS, crd) != 201:
                raise SystemExit(f"custom_beside: {target.name} does not take the definition, or has it")
            until = time.monotonic() + 60
            while ask(target, "GET", OBJECTS) != 200:
                if time.monotonic() > until:
                    raise SystemExit(f"custom_beside: {target.name} does not serve the definition")
                time.sleep(0.2)
            for i in range(KEPT):
                assert ask(target, "POST", OBJECTS, custom(f"kept-{i:06}")) == 201

    def run(self) -> None:
        one, many = f"{OBJECTS}/kept-000001", f"{OBJECTS}/kept-%d"
        merge = {"data": {"f9": "%q"}}
        self.row("get", "GET", one)
        self.row("list-100", "GET", f"{OBJECTS}?limit=100", connections=16)
        self.row("list-all", "GET", f"{OBJECTS}?resourceVersion=0&labelSelector=app%3Dbench", connections=4)
        self.row("patch", "PATCH", many, body=merge, type=MERGE, modulo=256)
        self.row("apply", "PATCH", f"{OBJECTS}/kept-%d?fieldManager=bench&force=true", body=custom("kept-%d"), type=APPLY, modulo=256)
        watch = (100, 50, f"{OBJECTS}?watch=true&fieldSelector=metadata.name%3Dkept-000001")
        self.row("watch-100", "PATCH", one, body=merge, type=MERGE, connections=1, watch=watch)
        # Last, because it makes the lists longer.
        self.row("create", "POST", OBJECTS, body=custom("made-%d"))


def main() -> None:
    args = arguments()
    with tempfile.TemporaryDirectory() as directory, KasServer(Path(directory) / "server", *UNLIMITED) as server:
        pin(server)
        other = other_target(args, Path(directory))
        bench = Customs([Target.kas(server), other] if other else [Target.kas(server)], Client(Path(directory)), args)
        bench.prepare()
        print("name, then requests/s, CPU µs, p50 ms, p99 ms of each, and the other's CPU over that of kas")
        bench.run()
    if args.json:
        Path(args.json).write_text(json.dumps({"machine": machine(), "rows": bench.rows}, indent=1))


if __name__ == "__main__":
    main()
