"""What a worker does now and then, in a whole server."""

from __future__ import annotations

from pathlib import Path

from tests.server.whole import World


def test_a_lone_worker_seldom_writes_down_what_it_counted(tmp_path: Path) -> None:
    """Nobody reads it but who takes its place; what /metrics shows is written down then."""
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
