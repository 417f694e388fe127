"""``/metrics`` of all workers and ``/metrics/slis``."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from kas.director import Director
from kas.edge.http import Request, Response
from kas.endpoints.rest import method_not_allowed
from kas.observe.metrics import Registry

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"


class MetricsEndpoint:
    """Workers leave their numbers in ``run_dir``; whoever is asked adds them up."""

    def __init__(self, registry: Registry, run_dir: Path, index: int, collect: Callable[[], None]) -> None:
        self.registry, self.run_dir, self.index = registry, run_dir, index
        registry.collectors.append(collect)

    def install(self, director: Director) -> None:
        director.exact("/metrics", self.answer)
        director.exact("/metrics/slis", self.slis)

    def dump(self) -> None:
        """Writes this worker's numbers where the others find them."""
        path = self.run_dir / f"metrics-{self.index}.json"
        tmp = path.with_suffix(".new")
        tmp.write_bytes(self.registry.dump())
        os.replace(tmp, path)

    def answer(self, req: Request) -> Response:
        if req.method != "GET":
            raise method_not_allowed()
        own = f"metrics-{self.index}.json"
        others = [p.read_bytes() for p in sorted(self.run_dir.glob("metrics-*.json")) if p.name != own]
        return Response(200, [(b"content-type", CONTENT_TYPE)], self.registry.expose(others))

    def slis(self, req: Request) -> Response:
        if req.method != "GET":
            raise method_not_allowed()
        body = (
            "# HELP kubernetes_healthcheck This metric records the result of a single healthcheck.\n"
            "# TYPE kubernetes_healthcheck gauge\n"
            'kubernetes_healthcheck{name="ping",type="healthz"} 1\nkubernetes_healthcheck{name="ping",type="livez"} 1\n'
        )
        return Response(200, [(b"content-type", CONTENT_TYPE)], body.encode())
