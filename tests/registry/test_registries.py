"""Registries that are added and removed while a server runs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kas.registry.registries import Registries
from tests.linecount import executed_lines


def registry(group: str, kind: str = "W") -> Any:
    plural = f"{kind.lower()}s"
    return SimpleNamespace(resource=SimpleNamespace(group=group, etcd_prefix=f"{group}/{plural}", resource=plural, kind=kind))


def test_kinds_are_found_in_all_versions_while_they_exist():
    registries = Registries(None, lambda: "")  # type: ignore[arg-type]
    first, second = registry("a.io"), registry("b.io")
    registries.put(first, ["v1", "v2"])
    registries.put(second, ["v1"])
    assert registries.of_kind("a.io/v2", "W") is first and registries.of_kind("b.io/v1", "W") is second
    assert registries.of_kind("b.io/v2", "W") is None and registries.of_kind("a.io/v1", "Other") is None
    registries.put(first, ["v2"])
    assert registries.of_kind("a.io/v1", "W") is None and registries.of_kind("a.io/v2", "W") is first
    other = registry("a.io")
    other.resource.resource = other.resource.etcd_prefix = "others"  # another one has the kind before the first is removed
    registries.put(other, ["v2"])
    registries.drop("a.io", "ws")
    assert registries.of_kind("a.io/v2", "W") is other
    registries.drop("a.io", "others")
    assert registries.of_kind("a.io/v2", "W") is None and registries.of_kind("b.io/v1", "W") is second


def test_removing_one_does_not_scan_the_others():
    """Each removal scanned all versions of all others: deleting 10,000 definitions took quadratic time."""

    def cost(others: int, versions: int) -> int:
        registries = Registries(None, lambda: "")  # type: ignore[arg-type]
        for i in range(others):
            registries.put(registry(f"g{i}.io"), ["v1"])
        names = [f"v{i}" for i in range(versions)]
        return executed_lines(lambda: (registries.put(registry("a.io"), names), registries.drop("a.io", "ws")), "registry/registries.py")

    assert cost(1, 1) == cost(100, 1) == cost(1, 100)
