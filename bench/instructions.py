"""Counts the instructions of a request with callgrind, a figure that no other process on the machine changes.

    .venv/bin/python bench/instructions.py [--only get,create] [--requests 160]

Runs the whole chain of an in-process server, without granian and TLS: filters, endpoint, admission, and the store with its threads,
synced to disk. Requests run 16 at a time (lists 4), and as many run before the count as in it. Needs valgrind with its vgdb (Debian:
valgrind).

- ``watched`` is an update that 16 watches receive; ``update-lease`` is what a kubelet does to its Lease.
- ``…-same`` is an update or apply that changes nothing.
- ``403`` is a GET without a credential, ``401`` one with an unknown token of 12 kB.
- ``create-asked`` and ``create-unasked`` run one at a time: dry runs of creates for which a webhook in another process is called over
  TLS, and of creates that its selector excludes.

Two runs differ by a few hundredths, because writes share commits differently and threads run in another order. Lists yield by the clock,
so that they take more on a busy machine.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from math import inf
from pathlib import Path

import orjson

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from bench import cluster_writes as cluster  # noqa: E402
from bench import custom_against_builtin as custom  # noqa: E402
from bench.conftest import InProcess  # noqa: E402
from bench.end_to_end import chosen, configmap, pod  # noqa: E402
from bench.webhook_cost import CONFIGURATIONS, CREATE, configuration, labelled  # noqa: E402
from kas.filters import slow_requests  # noqa: E402
from kas.observe.process import LOOKED_AT  # noqa: E402
from kas.request.http import Request, Response  # noqa: E402
from kas.types.scheme import BUILTIN, encode_protobuf  # noqa: E402
from tests.admission.webhook.hook_server import HookServer  # noqa: E402

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
PODS = "/api/v1/namespaces/default/pods"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
EVENTS, NODES = "/api/v1/namespaces/default/events", "/api/v1/nodes"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
NOTHING, WATCHED, WATCHES, BIND, KUBELET = "nothing", "watched", 16, "bind", ("kubelet-pod", "kubelet-node")
LEASE, LEASE_PROTO = "update-lease", "update-lease-proto"
MERGE, APPLY, STRATEGIC = b"application/merge-patch+json", b"application/apply-patch+yaml", b"application/strategic-merge-patch+json"
PROTOBUF = b"application/vnd.kubernetes.protobuf"
READ = {"get-large", "get-custom", "list-large", "list-custom"}  # of a ConfigMap and of a custom resource of its size; 100 of a list
REFUSED = {"403": b"", "401": b"Bearer " + b"a" * 12_000}  # with what they are asked
ASKED = {"create-asked": "yes", "create-unasked": "no"}  # what the label says that the webhook's selector wants
STATUS = {"status": {"phase": "Running", "message": "%q", "podIP": "10.2.3.4", "podIPs": [{"ip": "10.2.3.4"}]}}  # of a pod
TYPE_OF_LEASE = BUILTIN.kind("coordination.k8s.io", "v1", "Lease").type
Ask = tuple[str, str, bytes]  # method, path, body


def rows(numbers: itertools.count) -> dict[str, tuple[int, Callable[[], Ask]]]:
    """By name: the number of concurrent requests, and the function that makes the next one."""

    def body(obj: dict) -> bytes:
        return json.dumps(obj).replace("%q", str(next(numbers))).encode()

    def own(kind: str) -> Callable[[], Ask]:
        return lambda: ("POST", custom.KINDS[kind][0], custom.body(kind, f"made-{next(numbers)}"))

    def read(kind: str, more: str) -> Callable[[], Ask]:
        return lambda: ("GET", custom.KINDS[kind][0] + more, b"")

    turns, made = itertools.count(), itertools.count()

    def update() -> Ask:
        name = f"kept-{next(turns) % 16}"  # of those at a time each another, so that none is done twice
        return "PUT", f"{CONFIG_MAPS}/{name}", body(configmap(name))

    def same() -> Ask:
        return "PUT", f"{CONFIG_MAPS}/{(name := f'same-{next(turns) % 16}')}", json.dumps(configmap(name)).replace("%q", "0").encode()

    def renew() -> Ask:
        name = f"node-{next(turns) % 16}"
        obj = cluster.lease(name, next(numbers))
        obj["metadata"]["resourceVersion"] = "%r"
        return "PUT", f"{LEASES}/{name}", body(obj)

    def bind() -> Ask:
        name = f"kept-to-go-{(number := next(made))}"
        return "POST", f"{PODS}/{name}/binding", body(cluster.binding(name, f"node-{number % 16}"))

    def kubelet(path: str, patch: Callable[[int], dict]) -> Callable[[], Ask]:
        return lambda: ("PATCH", path % (next(turns) % 16), body(patch(next(numbers))))

    def slices() -> Ask:
        name = f"service-{next(turns) % 16}"
        return "PUT", f"{SLICES}/{name}", body(cluster.endpoint_slice(name, next(numbers)))

    return {
        "get": (16, lambda: ("GET", f"{CONFIG_MAPS}/kept-{next(numbers) % 16}", b"")),
        **{row: (16, lambda: ("GET", f"{CONFIG_MAPS}/kept-{next(numbers) % 16}", b"")) for row in REFUSED},
        "create": (16, lambda: ("POST", CONFIG_MAPS, body(configmap("made-%q")))),
        "update": (16, update),
        WATCHED: (16, update),
        "update-same": (16, same),
        LEASE: (16, renew),
        LEASE_PROTO: (16, renew),
        "update-slice": (16, slices),
        "patch": (16, lambda: ("PATCH", f"{CONFIG_MAPS}/kept-{next(turns) % 16}", body({"data": {"seq": "%q"}}))),
        "apply": (16, lambda: ("PATCH", f"{(u := update())[1]}?fieldManager=bench&force=true", u[2])),
        "apply-same": (16, lambda: ("PATCH", f"{(u := same())[1]}?fieldManager=bench&force=true", u[2])),
        "patch-status": (16, lambda: ("PATCH", f"{PODS}/kept-{next(turns) % 16}/status", body(STATUS))),
        KUBELET[0]: (16, kubelet(f"{PODS}/kept-%d/status", cluster.pod_status)),
        KUBELET[1]: (16, kubelet(f"{NODES}/node-%d/status", cluster.heartbeat)),
        BIND: (16, bind),
        "create-event": (16, lambda: ("POST", EVENTS, body(cluster.event("made-%q")))),
        "delete": (16, lambda: ("DELETE", f"{CONFIG_MAPS}/kept-to-go-{next(made)}", b"")),
        "create-pod": (16, lambda: ("POST", PODS, body(pod("made-%q")))),
        "create-large": (16, own("builtin")),
        "create-free": (16, own("custom without schema")),
        "create-schema": (16, own("custom")),
        "create-rules": (16, own("custom with rules")),
        "get-large": (16, read("builtin", "/first1")),
        "get-custom": (16, read("custom", "/first1")),
        "list-large": (4, read("builtin", "?labelSelector=first")),
        "list-custom": (4, read("custom", "?labelSelector=first")),
        **{row: (1, lambda asked=asked: ("POST", CREATE, body(labelled("made-%q", asked)))) for row, asked in ASKED.items()},
        "list-500": (4, lambda: ("GET", f"{PODS}?labelSelector=app%3Dlisted", b"")),
    }


def request_of(server: InProcess, ask: Ask, row: str = "") -> Request:
    """A PATCH merges, or applies as a manager; the row gives its content type."""
    method, path, body = ask
    path, _, query = path.partition("?")
    headers = [*server.headers]
    if row in REFUSED:
        headers[-1] = b"authorization", REFUSED[row]
    if body:
        patch = STRATEGIC if row in KUBELET else APPLY if "fieldManager=" in query else MERGE
        headers.append((b"content-type", patch if method == "PATCH" else PROTOBUF if row == LEASE_PROTO else b"application/json"))
        if row == LEASE_PROTO:
            headers[2] = b"accept", PROTOBUF
    return Request(method, path, query, headers, body)


async def run(server: InProcess, many: list[Ask], row: str = "") -> None:
    """All at once, each to the end of its answer."""

    async def one(ask: Ask) -> None:
        if row in (LEASE, LEASE_PROTO):
            ask = *ask[:2], renewed(server, ask, row)
        found = server.server.chain(request_of(server, ask, row))
        answer = found if isinstance(found, Response) else await found
        assert answer.status == int(row) if row in REFUSED else answer.status < 300, answer.body
        if answer.stream is not None:
            await answer.stream(Taker())
        if answer.finish is not None:
            answer.finish()

    await asyncio.gather(*map(one, many))


def renewed(server: InProcess, ask: Ask, row: str) -> bytes:
    """The body with the Lease's revision, without which nobody renews one; as protobuf if the row says so."""
    had = server.store.get(f"/registry/leases/default/{ask[1].rpartition('/')[2]}")
    body = ask[2].replace(b"%r", str(had.revision).encode())
    if row == LEASE:
        return body
    return encode_protobuf(TYPE_OF_LEASE, orjson.loads(body), api_version="coordination.k8s.io/v1", kind="Lease")


def define(server: InProcess, definition: dict) -> None:
    """A definition that is served: no controller is there to say so."""
    made = json.loads(server.call("POST", DEFINITIONS, json.dumps(definition).encode()).body)
    made["status"] = {"acceptedNames": made["spec"]["names"], "conditions": [{"type": "Established", "status": "True"}]}
    server.call("PUT", f"{DEFINITIONS}/{made['metadata']['name']}/status", json.dumps(made).encode())


def watching(server: InProcess) -> list[asyncio.Task[None]]:
    """Watches of all config maps, until they are cancelled."""

    async def watch() -> None:
        ask = "GET", f"{CONFIG_MAPS}?watch=true", b""
        found = server.server.chain(request_of(server, ask))
        answer = found if isinstance(found, Response) else await found
        assert answer.stream is not None
        await answer.stream(Taker())

    return [server.loop.create_task(watch()) for _ in range(WATCHES)]


async def ended(watches: list[asyncio.Task[None]]) -> None:
    """Cancels them."""
    for watch in watches:
        watch.cancel()
    await asyncio.gather(*watches, return_exceptions=True)


class Taker:
    """Receives a response and takes all of it at once: see ``begin_of``."""

    async def __call__(self, piece: bytes) -> None:
        pass

    def begin(self, piece: bytes) -> None:
        pass


def tell(command: str) -> None:
    """A command for the callgrind that this process runs under."""
    subprocess.run(["vgdb", f"--pid={os.getpid()}", *command.split()], check=True, capture_output=True)


def count(wanted: list[str], requests: int, asks: bytes) -> None:
    """Under callgrind: a dump for each row. ``asks`` is the configuration of the webhook."""
    with tempfile.TemporaryDirectory() as directory:
        server = InProcess(Path(directory), sync=True, max_size=1 << 30)  # valgrind maps no more than some gigabytes
        prepare = [("POST", "/api/v1/namespaces/default/serviceaccounts", b'{"metadata":{"name":"default"}}')]
        prepare += [("POST", CONFIG_MAPS, json.dumps(configmap(f"kept-{n}")).encode()) for n in range(16)]
        if {"update-same", "apply-same"} & {*wanted}:
            prepare += [("POST", CONFIG_MAPS, json.dumps(configmap(f"same-{n}")).replace("%q", "0").encode()) for n in range(16)]
        if {LEASE, LEASE_PROTO} & {*wanted}:
            prepare += [("POST", LEASES, json.dumps(cluster.lease(f"node-{n}", 0)).encode()) for n in range(16)]
        if {KUBELET[1], BIND} & {*wanted}:
            prepare += [("POST", NODES, json.dumps(cluster.node(f"node-{n}")).encode()) for n in range(16)]
        if "update-slice" in wanted:
            prepare += [("POST", SLICES, json.dumps(cluster.endpoint_slice(f"service-{n}", 1)).encode()) for n in range(16)]
        if {"patch-status", KUBELET[0]} & {*wanted}:
            prepare += [("POST", PODS, json.dumps(pod(f"kept-{n}")).encode()) for n in range(16)]
        if "list-500" in wanted:
            listed = json.dumps(pod("%q")).replace('"labels": {', '"labels": {"app": "listed", ').encode()
            prepare += [("POST", PODS, listed.replace(b"%q", b"listed-%d" % n)) for n in range(500)]
        if READ & {*wanted}:
            for kind in ("builtin", "custom"):
                prepare += [("POST", custom.KINDS[kind][0], custom.body(kind, f"first{n}")) for n in range(100)]
        if ({"create-free", "create-schema", "create-rules"} | READ) & {*wanted}:
            for definition in custom.definition(False, schema=False), custom.definition(False), custom.definition(True):
                define(server, definition)
        for ask in prepare:
            server.loop.run_until_complete(run(server, [ask]))
        slow_requests.SLOW_S = inf  # as all are here: a line for each would be counted
        gc.freeze()
        gc.set_threshold(*LOOKED_AT)  # as in a worker
        kinds = rows(itertools.count())
        for name in [NOTHING, *wanted]:
            at_once, make = kinds.get(name, (1, None))
            watches = watching(server) if name == WATCHED else []
            if name in ASKED:
                server.loop.run_until_complete(run(server, [("POST", CONFIGURATIONS, asks)]))
            for counted in (False, True):
                todo = [[make() for _ in range(at_once)] for _ in range(max(1, requests // at_once))] if make else []
                if name in ("delete", BIND):
                    for _, path, _ in itertools.chain(*todo):
                        to_go = re.search("kept-to-go-[0-9]+", path)[0]
                        obj = configmap(to_go) if name == "delete" else cluster.unbound(to_go)
                        create = "POST", PODS if name == BIND else CONFIG_MAPS, json.dumps(obj).encode()
                        server.loop.run_until_complete(run(server, [create]))
                if counted:
                    tell("instrumentation on")
                for many in todo:
                    server.loop.run_until_complete(run(server, many, name))
            tell(f"dump {name}")
            tell("instrumentation off")
            server.loop.run_until_complete(ended(watches))
            if name in ASKED:
                server.loop.run_until_complete(run(server, [("DELETE", f"{CONFIGURATIONS}/bench", b"")]))
        server.close()


def counted(directory: Path) -> dict[str, int]:
    """What the dumps in a directory say, by row."""
    out: dict[str, int] = {}
    for path in directory.iterdir():
        text = path.read_text()
        if (name := re.search(r"^desc: Trigger: .*?([a-z0-9-]+)\s*$", text, re.M)) and (total := re.search(r"^totals: (\d+)", text, re.M)):
            out[name[1]] = out.get(name[1], 0) + int(total[1])
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = list(rows(itertools.count()))
    parser.add_argument("--only", default=",".join(names), help="rows to count, comma separated")
    parser.add_argument("--requests", type=int, default=160)
    parser.add_argument("--under-callgrind", help=argparse.SUPPRESS)
    args = parser.parse_args()
    wanted = chosen(parser, args.only, names)
    if args.under_callgrind:
        count(wanted, args.requests, args.under_callgrind.encode())
        return 0
    if not shutil.which("valgrind") or not shutil.which("vgdb"):
        raise SystemExit("instructions: needs valgrind (Debian: valgrind)")
    with tempfile.TemporaryDirectory() as directory, HookServer(Path(directory)) as hook:
        command = ["valgrind", "-q", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={directory}/out"]
        asks = json.dumps(configuration(hook))
        here = [sys.executable, __file__, "--under-callgrind", asks, "--only", args.only, "--requests", str(args.requests)]
        # The server's log tells of requests that are slow, as all are under callgrind, and of each bad token.
        done = subprocess.run([*command, *here], env={**os.environ, "PYTHONHASHSEED": "0"}, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            raise SystemExit(done.stderr[-5000:])
        found = counted(Path(directory))
    for name in wanted:
        at_once = rows(itertools.count())[name][0]
        made = max(1, args.requests // at_once) * at_once
        print(f"{name:18} {(found[name] - found[NOTHING]) / made:12,.0f} instructions a request")
    return 0


if __name__ == "__main__":
    sys.exit(main())
