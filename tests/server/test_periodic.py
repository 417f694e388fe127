"""Periodic work of a worker, in a whole server."""

from __future__ import annotations

from pathlib import Path

from tests.server.whole import World


def test_a_single_worker_rarely_dumps_its_metrics(tmp_path: Path) -> None:
    """Only its replacement would read the dump. /metrics writes one when it is read."""
    world = World(tmp_path)
    try:
        server = world.server

        def every_s() -> float:
            return next(seconds for name, seconds, _ in server.runner()._periodic if name == "metrics")

        alone = every_s()
        server.options = server.options._replace(workers=2)
        assert every_s() == 1.0 < alone
    finally:
        world.close()
