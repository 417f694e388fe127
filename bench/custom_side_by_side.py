"""Compares custom resources on kas and another server, over TLS and from outside, as ``bench/end_to_end.py`` does.

    .venv/bin/python bench/custom_side_by_side.py --url https://127.0.0.1:6443 --token FILE --ca FILE --pids 123,456 [--only get,create]

The other server may serve definitions and their objects only, as upstream's ``apiextensions-apiserver`` does. It needs a namespace
``default`` and must not have the definitions. Rows whose name begins with ``ruled`` and ``wide`` are of objects with 200 fields, in a
schema with and without three rules. The objects of the other rows are as large as a small ConfigMap, in a schema that describes them.
Without another server only kas is measured.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import custom_against_builtin as wide
from bench import end_to_end as e2e
from kas.testing.server import KasServer

GROUP, DEFINITIONS = "bench.example.com", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ENTRIES = f"/apis/{GROUP}/v1/namespaces/default/entries"


def definition() -> dict[str, Any]:
    """Of objects that hold texts by name, as ConfigMaps do."""
    data = {"type": "object", "additionalProperties": {"type": "string"}}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"data": data}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": f"entries.{GROUP}"},
        "spec": {
            "group": GROUP, "scope": "Namespaced", "names": {"plural": "entries", "kind": "Entry"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }  # fmt: skip


def entry(name: str) -> dict[str, Any]:
    """As large as the ConfigMap of the other bench."""
    return {**e2e.configmap(name), "apiVersion": f"{GROUP}/v1", "kind": "Entry"}


class Bench(e2e.Bench):
    """The rows of custom resources."""

    def _prepare(self, target: e2e.Target) -> None:
        for made in (definition(), wide.definition(False), wide.definition(True)):
            target.ask("POST", DEFINITIONS, made, (201,))
        for path in (ENTRIES, *(wide.KINDS[kind][0] for kind in ("custom", "custom with rules"))):
            for _ in range(200):
                if target.ask("GET", path, None, (200, 404, 429)).get("kind", "").endswith("List"):
                    break
                time.sleep(0.05)
        target.ask("POST", ENTRIES, entry("one"), (201,))
        self.client.run(target, "POST", ENTRIES, count=500, body=entry("c-%d"), first=0)

    def _rows(self) -> None:
        one, many = f"{ENTRIES}/one", f"{ENTRIES}/c-%d"
        merge = {"data": {"seq": "%q"}}
        self.row("get", "GET", one)
        self.row("list-500", "GET", f"{ENTRIES}?limit=500", connections=16)
        self.row("create", "POST", ENTRIES, body=entry("n-%d"))
        self.row("patch", "PATCH", many, body=merge, type="application/merge-patch+json", modulo=256)
        applied = f"{ENTRIES}/a-%d?fieldManager=bench&force=true"
        self.row("apply", "PATCH", applied, body=entry("a-%d"), type="application/apply-patch+yaml", modulo=256)
        for name, kind in (("wide", "custom"), ("ruled", "custom with rules")):
            self.row(f"{name}-create", "POST", wide.KINDS[kind][0], body=json.loads(wide.body(kind, "n-%d")))
        for watchers, rate in ((100, 100), (1000, 20)):
            self.row(
                f"watch-{watchers}", "PATCH", one, body=merge, type="application/merge-patch+json", connections=1,
                watch=(watchers, rate, f"{ENTRIES}?watch=true&fieldSelector=metadata.name%3Done"),
            )  # fmt: skip


def main() -> int:
    args = e2e.arguments(__doc__)
    with tempfile.TemporaryDirectory() as directory:
        here = Path(directory)
        other = e2e.other_target(args, here)
        server = KasServer(here / "server", *e2e.UNLIMITED)
        with server:
            e2e.pin(server)
            target = e2e.Target.kas(server)
            bench = Bench([target, other] if other else [target], e2e.Client(here), args)
            bench.prepare()
            bench.run()
    result = {"machine": e2e.machine(), "rows": bench.rows, "seconds": args.seconds}
    if args.json:
        Path(args.json).write_text(json.dumps(result, indent=1))
    if unmet := bench.unmet():
        print(unmet, file=sys.stderr)
    return 2 if unmet else 0


if __name__ == "__main__":
    sys.exit(main())
