"""Instructions a request, counted by callgrind: a number that no other process on the machine changes.

    .venv/bin/python bench/instructions.py [--only get,create] [--requests 160]

The whole chain of an in-process server, without granian and TLS: filters, endpoint, admission, the store with its threads, synced to disk.
Requests run 16 at a time (lists 4), as many before the count as in it. Needs valgrind with its vgdb (Debian: valgrind).

Two runs differ by a few hundredths: how writes share a commit, and the order in which threads come, are not the same.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from bench import custom_against_builtin as custom  # noqa: E402
from bench.conftest import InProcess  # noqa: E402
from bench.end_to_end import configmap, pod  # noqa: E402
from kas.request.http import Response  # noqa: E402

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
PODS = "/api/v1/namespaces/default/pods"
NOTHING = "nothing"
Ask = tuple[str, str, bytes]  # method, path, body


def rows(numbers: itertools.count) -> dict[str, tuple[int, Callable[[], Ask]]]:
    """By name: how many run at a time, and what makes the next one."""

    def body(obj: dict) -> bytes:
        return json.dumps(obj).replace("%q", str(next(numbers))).encode()

    def own(kind: str) -> Callable[[], Ask]:
        return lambda: ("POST", custom.KINDS[kind][0], custom.body(kind, f"made-{next(numbers)}"))

    return {
        "get": (16, lambda: ("GET", f"{CONFIG_MAPS}/kept-{next(numbers) % 16}", b"")),
        "create": (16, lambda: ("POST", CONFIG_MAPS, body(configmap("made-%q")))),
        "update": (16, lambda: ("PUT", f"{CONFIG_MAPS}/kept-{(n := next(numbers) % 16)}", body(configmap(f"kept-{n}")))),
        "create-pod": (16, lambda: ("POST", PODS, body(pod("made-%q")))),
        "create-large": (16, own("builtin")),
        "create-free": (16, own("custom without schema")),
        "create-schema": (16, own("custom")),
        "create-rules": (16, own("custom with rules")),
        "list-500": (4, lambda: ("GET", f"{PODS}?labelSelector=app%3Dlisted", b"")),
    }


async def run(server: InProcess, many: list[Ask]) -> None:
    """All at once, each to the end of its answer."""

    async def one(ask: Ask) -> None:
        found = server.server.chain(server.request(*ask))
        answer = found if isinstance(found, Response) else await found
        assert answer.status < 300, answer.body
        if answer.stream is not None:
            await answer.stream(write)
        if answer.finish is not None:
            answer.finish()

    async def write(piece: bytes) -> None:
        return

    await asyncio.gather(*map(one, many))


def define(server: InProcess, definition: dict) -> None:
    """A definition that is served: no controller is there to say so."""
    made = json.loads(server.call("POST", DEFINITIONS, json.dumps(definition).encode()).body)
    made["status"] = {"acceptedNames": made["spec"]["names"], "conditions": [{"type": "Established", "status": "True"}]}
    server.call("PUT", f"{DEFINITIONS}/{made['metadata']['name']}/status", json.dumps(made).encode())


def tell(command: str) -> None:
    """A command for the callgrind that this process runs under."""
    subprocess.run(["vgdb", f"--pid={os.getpid()}", *command.split()], check=True, capture_output=True)


def count(wanted: list[str], requests: int) -> None:
    """Under callgrind: a dump for each row."""
    with tempfile.TemporaryDirectory() as directory:
        server = InProcess(Path(directory), sync=True, max_size=1 << 30)  # valgrind maps no more than some gigabytes
        prepare = [("POST", "/api/v1/namespaces/default/serviceaccounts", b'{"metadata":{"name":"default"}}')]
        prepare += [("POST", CONFIG_MAPS, json.dumps(configmap(f"kept-{n}")).encode()) for n in range(16)]
        if "list-500" in wanted:
            listed = json.dumps(pod("%q")).replace('"labels": {', '"labels": {"app": "listed", ').encode()
            prepare += [("POST", PODS, listed.replace(b"%q", b"listed-%d" % n)) for n in range(500)]
        for definition in custom.definition(False, schema=False), custom.definition(False), custom.definition(True):
            define(server, definition)
        for ask in prepare:
            server.loop.run_until_complete(run(server, [ask]))
        kinds = rows(itertools.count())
        for name in [NOTHING, *wanted]:
            at_once, make = kinds.get(name, (1, None))
            for counted in (False, True):
                todo = [[make() for _ in range(at_once)] for _ in range(max(1, requests // at_once))] if make else []
                if counted:
                    tell("instrumentation on")
                for many in todo:
                    server.loop.run_until_complete(run(server, many))
            tell(f"dump {name}")
            tell("instrumentation off")
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
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = list(rows(itertools.count()))
    parser.add_argument("--only", default=",".join(names), help="rows to count, comma separated")
    parser.add_argument("--requests", type=int, default=160)
    parser.add_argument("--under-callgrind", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    wanted = args.only.split(",")
    if args.under_callgrind:
        count(wanted, args.requests)
        return 0
    if not shutil.which("valgrind") or not shutil.which("vgdb"):
        raise SystemExit("instructions: needs valgrind (Debian: valgrind)")
    with tempfile.TemporaryDirectory() as directory:
        command = ["valgrind", "-q", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={directory}/out"]
        here = [sys.executable, __file__, "--under-callgrind", "--only", args.only, "--requests", str(args.requests)]
        subprocess.run([*command, *here], check=True, env={**os.environ, "PYTHONHASHSEED": "0"})
        found = counted(Path(directory))
    for name in wanted:
        at_once = rows(itertools.count())[name][0]
        made = max(1, args.requests // at_once) * at_once
        print(f"{name:12} {(found[name] - found[NOTHING]) / made:12,.0f} instructions a request")
    return 0


if __name__ == "__main__":
    sys.exit(main())
