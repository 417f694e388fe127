"""Counts of objects on ``/metrics`` are refreshed only when they may have changed: they are read each second."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kas.endpoints import inventory
from kas.store import Op, TransformError, build_record
from tests.server.whole import World

ROOT, CONFIG_MAPS = "/registry/configmaps/", ("", "configmaps")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


def objects(world: World) -> dict[tuple[str, str], int]:
    world.store.catch_up()
    world.server.metrics.read()
    return dict(world.server.metrics.metrics["apiserver_resource_objects"].values)


def put(name: str) -> Op:
    return Op(f"{ROOT}default/{name}", build_record(b'{"metadata":{', b"}}"))


def test_objects_are_counted_after_writes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[str] = []
    count = world.store.count
    monkeypatch.setattr(world.store, "count", lambda prefix: (counted.append(prefix), count(prefix))[1])
    before = objects(world)
    assert ROOT in counted and len(counted) > 20
    counted.clear()
    assert objects(world) == before and not counted
    world.store.commit_now(put("a"))
    assert objects(world) == before | {CONFIG_MAPS: before[CONFIG_MAPS] + 1} and counted == [ROOT]
    counted.clear()
    world.store.commit_now(Op(f"{ROOT}default/a", None), Op("/registry/namespaces/kube-public", None))
    assert objects(world) == before | {("", "namespaces"): before["", "namespaces"] - 1}
    assert sorted(counted) == [ROOT, "/registry/namespaces/"]


def test_metrics_are_counted_when_families_are_added(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    objects(world)
    counted = world.server.metrics.metrics["registered_metrics_total"].values
    before, looked_at = sum(counted.values()), list[str]()
    monkeypatch.setattr(inventory, "level_of", lambda name: (looked_at.append(name), "ALPHA")[1])
    objects(world)
    assert not looked_at
    world.server.metrics.counter("one_more_total", "One more.")
    objects(world)
    assert "one_more_total" in looked_at
    assert sum(world.server.metrics.metrics["registered_metrics_total"].values.values()) > before


def test_all_objects_are_counted_after_missed_events(world: World) -> None:
    before = objects(world)
    for name in ("a", "b", "c"):
        world.store.commit_now(put(name))
    while not world.store.compact(world.store.revision):
        pass
    assert objects(world)[CONFIG_MAPS] == before[CONFIG_MAPS] + 3


def test_objects_that_cannot_be_decrypted_are_counted(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    before = objects(world)
    events = world.store.events

    def broken(*args: Any) -> Any:
        found, reached = events(*args)
        for event in found:
            event.error = TransformError(event.key, "no key")
        return found, reached

    def unopened(prefix: str, *args: Any, **options: Any) -> Any:
        if prefix == ROOT:
            raise TransformError(f"{ROOT}default/a", "no key")
        return read(prefix, *args, **options)

    read = world.store.range
    monkeypatch.setattr(world.store.hub, "_read_events", broken)
    monkeypatch.setattr(world.store, "range", unopened)
    world.store.commit_now(put("a"))
    assert objects(world)[CONFIG_MAPS] == before[CONFIG_MAPS] + 1
    sizes = world.server.metrics.metrics["apiserver_resource_size_estimate_bytes"].values
    assert sizes[CONFIG_MAPS] == -1 and min(size for of, size in sizes.items() if of != CONFIG_MAPS) >= 0


def test_events_of_every_part_of_the_store_are_counted(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    events = world.server.metrics.metrics["apiserver_storage_events_received_total"].values
    objects(world)
    before = events.get(CONFIG_MAPS, 0)
    other = SimpleNamespace(hub=SimpleNamespace(received={f"{ROOT}default": 2}), size=lambda: ("etcd", -1))
    monkeypatch.setattr(world.store, "parts", lambda: (world.store, other))
    objects(world)
    assert events[CONFIG_MAPS] == before + 2 and not other.hub.received
    objects(world)
    assert events[CONFIG_MAPS] == before + 2


def test_objects_are_counted_as_often_as_the_flag_says(world: World) -> None:
    now = [0.0]

    def made(count_s: float) -> inventory.Inventory:
        s = world.server
        return inventory.Inventory(s.metrics, s.registries, s.watches, s.long_running, True, count_s, lambda: now[0])

    world.server.metrics.collectors.clear()
    world.server.metrics.collectors.append(made(60).collect)
    before = objects(world)[CONFIG_MAPS]
    world.store.commit_now(put("a"))
    now[0] = 30.0
    assert objects(world)[CONFIG_MAPS] == before
    now[0] = 60.0
    assert objects(world)[CONFIG_MAPS] == before + 1
    world.server.metrics.collectors[:] = [made(0).collect]
    world.store.commit_now(put("b"))
    now[0] = 1e9
    assert objects(world)[CONFIG_MAPS] == before + 1


def test_a_cancelled_count_is_done_by_the_next_request(world: World) -> None:
    before = objects(world)
    world.store.commit_now(put("a"))
    world.store.commit_now(Op("/registry/namespaces/kube-public", None))
    world.store.catch_up()
    own = next(c for c in world.server.metrics.collectors if isinstance(getattr(c, "__self__", None), inventory.Inventory))
    steps: Any = own()
    next(steps)  # one of the two
    steps.close()
    assert objects(world) == before | {CONFIG_MAPS: before[CONFIG_MAPS] + 1, ("", "namespaces"): before["", "namespaces"] - 1}


def test_few_large_objects_are_read_for_the_average_size(world: World) -> None:
    """Sixteen of 2.4 MB were read before, 20 to 40 ms of the loop."""
    looked: list[int] = []
    large = b'},"x":"%b"}' % (b"x" * (1 << 20))
    world.store.commit_now(*(Op(f"{ROOT}default/{i}", build_record(b'{"metadata":{', large)) for i in range(4)))
    own = world.store.range

    def read(prefix: str, *given: Any, **more: Any) -> Any:
        found = own(prefix, *given, **more)
        if prefix == ROOT and more.get("limit") == inventory.SAMPLE:
            looked.append(len(found.records))
        return found

    world.store.range = read  # type: ignore[method-assign]
    objects(world)
    assert len(looked) == 1 and 1 <= looked[0] <= 2
