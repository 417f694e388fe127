"""Counters of requests to the store."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kas.observe.metrics import Registry as Metrics
from kas.registry.requests import Pages, StorageMetrics


class Store:
    """Each page reads three objects, of which two are selected; ``body`` is that of scans."""

    body: bytes | None = b"{}"

    def _page(self, *args: Any, **more: Any) -> Any:
        return SimpleNamespace(looked=3, count=2, body=self.body)

    range = range_json = range_protobuf = _page


def test_objects_of_lists_are_counted_once():
    metrics, store = Metrics(), Store()
    pages = Pages(store, StorageMetrics(metrics).of("g", "r"))  # type: ignore[arg-type]

    def counted() -> list[float]:
        metrics.read()
        families = (metrics.metrics[f"apiserver_storage_list_{what}_objects_total"] for what in ("fetched", "evaluated", "returned"))
        return [family.values.get(("g", "r"), 0) for family in families]  # type: ignore[list-item]

    for n, read in enumerate((pages.range, pages.range_json, pages.range_protobuf), 1):
        read()
        assert counted() == [3 * n, 3 * n, 2 * n]
    store.body = None  # only sizes are reported, or it is read again
    pages.range_json()
    pages.range_protobuf()
    assert counted() == [9, 9, 6]
    pages.range_to_filter()
    assert counted() == [12, 12, 6]
    pages.count_selected(1)
    assert counted() == [12, 12, 7]
    metrics.forget("g", "r")
    assert counted() == [0, 0, 0]
    pages.range()
    assert counted() == [3, 3, 2], "a resource that comes again begins at nothing"
