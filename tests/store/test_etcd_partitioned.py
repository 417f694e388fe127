"""Several etcd clusters as one store."""

from __future__ import annotations

import asyncio
from typing import Any

from kas.store.etcd.partitioned import Partitioned


class Cluster:
    """A fake cluster that records which methods of a store are called."""

    hub, most_ops = None, 128

    def __init__(self) -> None:
        self.asked: list[str] = []

    def full(self) -> str:
        return "full"

    def lost(self) -> str:
        return "lost"

    async def fresh(self) -> None:
        self.asked.append("fresh")

    async def probe(self, least_s: float = 0.0) -> None:
        self.asked.append("probe")


class Well(Cluster):
    def full(self) -> str:
        return ""

    lost = full


def test_a_cluster_without_prefixes_is_probed_but_not_waited_for() -> None:
    main, events, nothing = Well(), Well(), Cluster()
    found: Any = Partitioned(main, [(events, ["/registry/events/"]), (nothing, [])])  # type: ignore[arg-type, list-item]
    assert found.parts() == (main, events, nothing) and (found.full(), found.lost()) == ("", "")
    assert found.part("/registry/events/a") is events and found.part("/registry/pods/a") is main

    async def ask() -> None:
        await found.fresh()
        await found.probe()

    asyncio.run(ask())
    assert (main.asked, events.asked, nothing.asked) == (["fresh", "probe"], ["fresh", "probe"], ["probe"])
    kept: Any = Partitioned(main, [(nothing, ["/registry/events/"])])  # type: ignore[arg-type, list-item]
    assert (kept.full(), kept.lost()) == ("full", "lost")
