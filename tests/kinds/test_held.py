"""Allocated numbers of a nearly full range: read once, then followed by events, and right whoever writes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kas.kinds.core.service.allocation import held
from kas.kinds.core.service.allocation.addresses import AllocationError, choose, number_of, ranges
from kas.kinds.core.service.allocation.held import Held
from kas.store import Op, Store, build_record, open_store

ROOT = "/registry/ipaddresses/"


class Counting:
    """A store that counts complete reads."""

    def __init__(self, store: Store) -> None:
        self.store, self.ranges = store, 0

    def part(self, key: str) -> Counting:
        return self

    def range(self, *args: Any, **more: Any) -> Any:
        self.ranges += 1
        return self.store.range(*args, **more)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Any]:
    opened = open_store(str(tmp_path), sync=False)
    yield Counting(opened)
    opened.close()


def take(store: Any, *names: str) -> None:
    store.commit_now(*(Op(f"{ROOT}{name}", build_record(b'{"metadata":{', b"}}", {}, {}, 1), 0) for name in names))


def give(store: Any, *names: str) -> None:
    store.commit_now(*(Op(f"{ROOT}{name}", None, None) for name in names))


def ports(store: Any) -> Held:
    return Held(store, ROOT, int)


@pytest.mark.parametrize("mapped", [0, 1 << 20])
def test_free_numbers_are_known_without_reading_everything_again(store, monkeypatch, mapped):
    monkeypatch.setattr(held, "MAPPED", mapped)
    take(store, *map(str, range(100, 130)))
    found = ports(store)
    assert found.free(100, 129) is None and found.free(100, 130) == 130 and found.free(90, 89) is None
    give(store, "107")
    assert found.free(100, 129) == 107 and 107 not in found.numbers()
    take(store, "107")
    give(store, "129")
    assert found.free(100, 129) == 129
    assert found.numbers() == set(range(100, 129))
    assert {found.free(1, 20) for _ in range(2000)} == set(range(1, 21))  # from any place in the range
    assert store.ranges == 1


def test_lost_history_is_read_again(store):
    take(store, "1", "2")
    found = ports(store)
    assert found.free(1, 3) == 3
    take(store, "3")
    give(store, "1")
    assert store.compact(store.revision)
    assert found.free(1, 3) == 1 and store.ranges == 2


def test_more_history_than_objects_is_read_again(store, monkeypatch):
    monkeypatch.setattr(held, "EVENTS", 2)
    take(store, "1", "2", "3", "4")
    found = ports(store)
    assert found.free(1, 5) == 5
    give(store, "1", "2", "3")  # within the history, in two steps
    assert found.numbers() == {4} and store.ranges == 1
    take(store, "1", "2", "3")
    assert found.numbers() == {1, 2, 3, 4} and store.ranges == 2


def test_unused_ranges_are_dropped(store, monkeypatch):
    monkeypatch.setattr(held, "MOST_MAPS", 2)
    take(store, "1")
    found = ports(store)
    assert [found.free(1, high) is None for high in (1, 2, 3, 1)] == [True, False, False, True]
    assert len(found._maps) <= 2


def test_addresses_of_a_full_range_are_found_by_family(store):
    known = ranges([{"metadata": {}, "spec": {"cidrs": ["10.0.0.0/27", "fd00::/112"]}}])
    take(store, "fd00::1", *(f"10.0.0.{i}" for i in range(1, 31) if i != 3))
    free = {family: Held(store, ROOT, partial(number_of, family)).free for family in ("IPv4", "IPv6")}
    taken = lambda ip: store.get(ROOT + ip) is not None  # noqa: E731
    assert choose(known, "IPv4", taken, free["IPv4"]) == "10.0.0.3"
    take(store, "10.0.0.3")
    with pytest.raises(AllocationError, match="range is full"):
        choose(known, "IPv4", taken, free["IPv4"])
    assert free["IPv6"](0xFD00 << 112, (0xFD00 << 112) + 2) in (0xFD00 << 112, (0xFD00 << 112) + 2)
    assert number_of("IPv4", "a\0") is number_of("IPv4", "fd00::1") is number_of("IPv6", "10.0.0.1") is None
