"""What ``/metrics`` tells of the objects there are is counted when it may have changed: the numbers are read each second."""

from __future__ import annotations

from pathlib import Path

import pytest

from kas.store import Op, build_record
from tests.server.whole import World

ROOT = "/registry/configmaps/"


def test_objects_are_counted_when_something_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path)
    try:
        counted: list[str] = []
        count = world.store.count
        monkeypatch.setattr(world.store, "count", lambda prefix: (counted.append(prefix), count(prefix))[1])

        def objects() -> float:
            world.server.metrics.read()
            return world.server.metrics.metrics["apiserver_resource_objects"].values["", "configmaps"]

        before = objects()
        assert ROOT in counted
        counted.clear()
        assert objects() == before and not counted
        world.store.commit_now(Op(f"{ROOT}default/a", build_record(b'{"metadata":{', b"}}")))
        assert objects() == before + 1 and ROOT in counted
        counted.clear()
        world.store.commit_now(Op(f"{ROOT}default/a", None))
        assert objects() == before and ROOT in counted
    finally:
        world.close()
