"""Measures what a validating webhook costs: server CPU for a create that calls it, and for one that does not, in turns.

``python bench/webhook_cost.py [--requests 50] [--rounds 80]`` prints JSON: microseconds of CPU for a create (a dry run, so that no disk
is involved), the minimum and the median over the rounds, and what the webhook adds: the difference of the minima, and the median of the
differences within a round, so that a machine that is slower for a while has little effect. The webhook runs in this process, not in the
server's, over TLS, on a connection that stays open. The two kinds of create differ only by a label that the webhook's selector requires.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kas.testing.server import KasServer
from tests.admission.webhook.hook_server import HookServer, webhook
from tests.clients.conversation import Connection

FLAGS = ("--controllers=none", "--unsafe-no-fsync", "--advertise-address=127.0.0.1", "--workers=1")
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
WARM = 200
CREATE = "/api/v1/namespaces/default/configmaps?dryRun=All"


def configuration(hook: HookServer) -> dict[str, Any]:
    """One webhook, for ConfigMaps with the label."""
    only = {"matchLabels": {"asked": "yes"}}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": {"name": "bench"},
        "webhooks": [webhook(hook.client(), objectSelector=only)],
    }  # fmt: skip


def labelled(name: str, asked: str) -> dict[str, Any]:
    """The object to create; its label decides whether the webhook is called."""
    meta = {"name": name, "labels": {"asked": asked}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"key": "value" * 40}}


class Bench:
    """The creates, one after the other on one connection."""

    def __init__(self, server: KasServer) -> None:
        self.connection, self.made = Connection(server), 0
        self.headers = {**self.connection.authorization, "Content-Type": "application/json"}
        self._processes = [server.process.pid, *server.worker_pids()]
        self._spent: dict[Path, int] = {}  # by thread, also of those that have ended

    def post(self, path: str, obj: dict[str, Any]) -> None:
        """It has to be created."""
        status, _, data = self.connection.request("POST", path, json.dumps(obj).encode(), self.headers)
        assert status == 201, data

    def cpu_us(self) -> float:
        """Of all processes of the server, without the background work of a start."""
        for process in self._processes:
            for task in Path(f"/proc/{process}/task").iterdir():
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                    self._spent[task] = int((task / "schedstat").read_text().split()[0])
        return sum(self._spent.values()) / 1e3

    def each(self, count: int, asked: str) -> float:
        """Microseconds of CPU for each of ``count`` creates."""
        before = self.cpu_us()
        for _ in range(count):
            self.made += 1
            self.post(CREATE, labelled(f"c{self.made}", asked))
        return (self.cpu_us() - before) / count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=80)
    args = parser.parse_args()
    found: dict[str, list[float]] = {"yes": [], "no": []}
    with (
        tempfile.TemporaryDirectory() as directory, KasServer(Path(directory) / "data", *FLAGS) as server,
        HookServer(Path(directory)) as hook,
    ):  # fmt: skip
        bench = Bench(server)
        bench.post(CONFIGURATIONS, configuration(hook))
        for asked in found:
            bench.each(WARM, asked)
        for turn in range(args.rounds):
            for asked in ("yes", "no") if turn % 2 else ("no", "yes"):
                found[asked].append(bench.each(args.requests, asked))
        assert len(hook.seen) == WARM + args.requests * args.rounds
    added = [yes - no for yes, no in zip(found["yes"], found["no"], strict=True)]
    out = {
        "least us": {
            "asked": round(min(found["yes"])), "not asked": round(min(found["no"])),
            "added": round(min(found["yes"]) - min(found["no"])),
        },
        "median us": {
            "asked": round(statistics.median(found["yes"])), "not asked": round(statistics.median(found["no"])),
            "added": round(statistics.median(added)),
        },
    }  # fmt: skip
    print(json.dumps(out, indent=1))


if __name__ == "__main__":
    main()
