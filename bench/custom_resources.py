"""Measures a server with many definitions: how long it takes to start, and what each definition costs in memory.

``python bench/custom_resources.py [--definitions 2000] [--properties 200]`` makes a data directory, creates the definitions through the
API, restarts the server and prints JSON:

- seconds from start to ready, with and without the definitions
- MiB of memory per definition while it is unused, and after an object of each was written
- MiB in total after a hundredth of the definitions were used and all were deleted, with what is left of those
- for each document about them: its compressed size, and the CPU of all processes that its first reader costs (``again``: after one more
  definition)

``--real`` measures something else: MiB in total after one, and then all, of the definitions of real projects in the tests were created,
listed and deleted, and before the deletion.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import gzip
import json
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kas.testing.server import KasServer
from tests.clients.conversation import Connection
from tests.hostile.bystander import processor_seconds

GIVEN_BACK_S = 25  # after which a worker has looked for freed memory, twice
NEW = 20  # definitions whose first service is timed
FLAGS = ("--controllers=none", "--unsafe-no-fsync", "--advertise-address=127.0.0.1", "--workers=1")
DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
OPENAPI_V2 = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
DOCUMENTS = {  # path and what is accepted, in the order in which they are asked for
    "discovery": ("/apis", DISCOVERY), "openapi v3, index": ("/openapi/v3", ""),
    "openapi v3, a group": ("/openapi/v3/apis/g1.example.com/v1", "application/json"),
    "openapi v2, JSON": ("/openapi/v2", "application/json"), "openapi v2, protobuf": ("/openapi/v2", OPENAPI_V2),
}  # fmt: skip
PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def definition(i: int, properties: int) -> dict[str, Any]:
    """One of about the size that real ones have with 400 properties."""
    text = "what a controller reads, in a sentence that is about as long as sentences in real definitions are"
    fields: dict[str, Any] = {f"field{n}": {"type": "string", "description": f"{text} {n}", "maxLength": 64} for n in range(properties)}
    fields["nested"] = {"type": "object", "properties": dict(fields)}
    group, plural = f"g{i % 50}.example.com", f"things{i}"
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, "subresources": {"status": {}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group, "scope": "Namespaced", "names": {"plural": plural, "singular": f"thing{i}", "kind": f"Thing{i}"},
            "versions": [version],
        },
    }  # fmt: skip


def private_mib(pid: int) -> float:
    """Private memory of a process and its children: neither shared nor backed by a file."""
    pids, total = [pid], 0.0
    for p in pids:
        pids += [int(x) for t in Path(f"/proc/{p}/task").iterdir() for x in (t / "children").read_text().split()]
        for line in Path(f"/proc/{p}/smaps_rollup").read_text().splitlines():
            if line.startswith("Anonymous:"):
                total += int(line.split()[1]) / 1024
    return total


def started(directory: Path) -> tuple[float, float]:
    """(seconds to ready, MiB when idle)."""
    began = time.perf_counter()
    with KasServer(directory, *FLAGS) as server:
        ready = time.perf_counter() - began
        time.sleep(8)
        return ready, private_mib(server.process.pid)


def create(directory: Path, count: int, properties: int) -> dict[str, float]:
    """Creates the definitions; seconds for all, and from a create's answer to the last one being served."""
    local = threading.local()
    with KasServer(directory, *FLAGS) as server:

        def one(i: int) -> None:
            if not hasattr(local, "connection"):
                local.connection = Connection(server)
            headers = {**local.connection.authorization, "Content-Type": "application/json"}
            status, _, data = local.connection.request("POST", PATH, json.dumps(definition(i, properties)).encode(), headers)
            assert status == 201, data

        began = time.perf_counter()
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            list(pool.map(one, range(count)))
        took = time.perf_counter() - began
        connection, waits = Connection(server), []
        for i in range(count, count + NEW):
            d = definition(i, properties)
            headers = {**connection.authorization, "Content-Type": "application/json"}
            connection.request("POST", PATH, json.dumps(d).encode(), headers)
            answered = time.perf_counter()
            where = f"/apis/{d['spec']['group']}/v1/{d['spec']['names']['plural']}"
            while connection.request("GET", where, None, headers)[0] != 200:
                pass
            waits.append(time.perf_counter() - answered)
        waits.sort()
        return {"create all s": took, "served after ms, median": 1000 * waits[10], "served after ms, max": 1000 * waits[-1]}


def used_and_deleted(directory: Path, count: int, properties: int, used: int) -> dict[str, float]:
    """Uses ``used`` definitions, then deletes all."""
    with KasServer(directory, *FLAGS) as server:
        connection = Connection(server)
        headers = {**connection.authorization, "Content-Type": "application/json"}

        def ask(method: str, path: str, body: Any = None) -> bytes:
            status, _, data = connection.request(method, path, json.dumps(body).encode() if body is not None else None, headers)
            assert status < 300, data
            return data

        time.sleep(8)
        idle = private_mib(server.process.pid)
        for i in range(used):
            d = definition(i, properties)["spec"]
            obj = {"apiVersion": f"{d['group']}/v1", "kind": d["names"]["kind"], "metadata": {"name": "a"}, "spec": {"field1": "x"}}
            ask("POST", f"/apis/{d['group']}/v1/namespaces/default/{d['names']['plural']}", obj)
        time.sleep(2)
        in_use = private_mib(server.process.pid)
        for i in range(count + NEW + 1):  # with the one of documents()
            ask("DELETE", f"{PATH}/{definition(i, 0)['metadata']['name']}")
        while json.loads(ask("GET", f"{PATH}?limit=1"))["items"]:
            time.sleep(0.2)
        time.sleep(8)
        left = private_mib(server.process.pid)
    return {"MiB each used": (in_use - idle) / used, "MiB before deletion": in_use, "MiB after deletion": left}


def documents(directory: Path, count: int, properties: int) -> dict[str, str]:
    """What each document about ``count`` definitions takes."""
    out = {}
    with KasServer(directory, *FLAGS) as server:
        connection = Connection(server)
        time.sleep(8)  # until what begins with the server has ended

        def ask(path: str, accept: str) -> str:
            headers = {**connection.authorization, "Accept": accept, "Accept-Encoding": "gzip"}
            pids = [*server.worker_pids(), server.process.pid]
            before = processor_seconds(pids)
            status, _, data = connection.request("GET", path, None, headers)
            assert status == 200, data
            return f"{len(data) / 1000:,.0f} kB, {1000 * (processor_seconds(pids) - before):,.0f} ms"

        for what, asked in DOCUMENTS.items():
            out[what] = ask(*asked)
        headers = {**connection.authorization, "Content-Type": "application/json"}
        status, _, data = connection.request("POST", PATH, json.dumps(definition(count + NEW, properties)).encode(), headers)
        assert status == 201, data
        time.sleep(8)
        for what in ("discovery", "openapi v2, JSON"):
            out[f"{what}, again"] = ask(*DOCUMENTS[what])
    return out


def real() -> dict[str, float]:
    """MiB of a server that is given definitions of real projects, uses and loses them: one, and all."""
    path = Path(__file__).parents[1] / "tests/vectors/data/crds-real.jsonl.gz"
    found: dict[str, dict[str, Any]] = {}
    for line in gzip.decompress(path.read_bytes()).splitlines():
        crd = json.loads(line).get("crd")
        if isinstance(crd, dict):
            meta = {"name": crd["metadata"]["name"], "annotations": crd["metadata"].get("annotations") or {}}
            found.setdefault(meta["name"], {"apiVersion": crd["apiVersion"], "kind": crd["kind"], "metadata": meta, "spec": crd["spec"]})
    with tempfile.TemporaryDirectory() as directory, KasServer(Path(directory)) as server:
        connection = Connection(server)
        headers = {**connection.authorization, "Content-Type": "application/json"}

        def ask(method: str, path: str, body: Any = None) -> tuple[int, bytes]:
            return connection.request(method, path, json.dumps(body).encode() if body is not None else None, headers)[::2]

        def turn(crds: list[dict[str, Any]]) -> float:
            for crd in crds:
                assert ask("POST", PATH, crd)[0] == 201
            for spec in (crd["spec"] for crd in crds):
                version = next(v["name"] for v in spec["versions"] if v["served"])
                while ask("GET", f"/apis/{spec['group']}/{version}/{spec['names']['plural']}")[0] != 200:
                    time.sleep(0.05)
            used = private_mib(server.process.pid)
            for crd in crds:
                ask("DELETE", f"{PATH}/{crd['metadata']['name']}")
            while json.loads(ask("GET", f"{PATH}?limit=1")[1])["items"]:
                time.sleep(0.1)
            time.sleep(GIVEN_BACK_S)
            return used

        out = {"definitions": float(len(found))}
        crds = list(found.values())
        for what, some in (("one", crds[:1]), ("one, again", crds[:1]), ("all", crds), ("all, again", crds), ("all, thrice", crds)):
            out[f"{what}: MiB in use"] = turn(some)
            out[f"{what}: MiB left"] = private_mib(server.process.pid)
        return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--definitions", type=int, default=2000)
    parser.add_argument("--properties", type=int, default=200)
    parser.add_argument("--real", action="store_true", help="definitions of real projects instead")
    args = parser.parse_args()
    if args.real:
        print(json.dumps(real(), indent=1))
        return
    directory = Path(tempfile.mkdtemp())
    try:
        empty_s, empty_mib = started(directory)
        empty_s, empty_mib = started(directory)
        out: dict[str, Any] = {"definitions": args.definitions, "bytes each": len(json.dumps(definition(1, args.properties)))}
        out |= create(directory, args.definitions, args.properties)
        full_s, full_mib = started(directory)
        out |= {"start empty s": empty_s, "start s": full_s, "empty MiB": empty_mib, "MiB": full_mib}
        out["MiB each"] = (full_mib - empty_mib) / args.definitions
        out |= documents(directory, args.definitions, args.properties)
        out |= used_and_deleted(directory, args.definitions, args.properties, max(1, args.definitions // 100))
        print(json.dumps(out, indent=1))
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
