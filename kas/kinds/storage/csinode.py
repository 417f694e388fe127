"""Strategy of CSINode (upstream ``pkg/registry/storage/csinode``)."""

from __future__ import annotations

from typing import Any

from kas.kinds.core.objectmeta import object_meta
from kas.meta import field, names
from kas.meta.age import age
from kas.meta.checks import IMMUTABLE, csi_driver_name, nonnegative, qualified_name
from kas.meta.equality import semantic_equal
from kas.meta.field import FieldError
from kas.registry.printing.cells import part
from kas.registry.printing.rows import printer
from kas.registry.strategy import Context, Obj, Strategy, strategy_for
from kas.types.gostruct import render
from kas.types.scheme import builtin_type

MAX_LONG_NODE_ID = 256


@strategy_for("storage.k8s.io", "csinodes")
class CSINodeStrategy(Strategy):
    """CSINodes; of a driver's entry only the allocatable count may change."""

    def prepare_for_create(self, ctx: Context, obj: Obj) -> None:
        """Replace an absent list of drivers by an empty one."""
        super().prepare_for_create(ctx, obj)
        obj.setdefault("spec", {}).setdefault("drivers", [])

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        """``ValidateCSINode``, with the current length limit of node ids."""
        return self._validate(obj, MAX_LONG_NODE_ID)

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """Validate an update. A driver's entry is changed by removing and adding it; only its allocatable count may change in place.

        As upstream, which validates the object twice here, each error occurs twice among the causes.
        """
        errs = self._validate(obj, MAX_LONG_NODE_ID) * 2
        named: dict[str, list[Obj]] = {}
        for driver in _drivers(obj):
            named.setdefault(driver.get("name") or "", []).append(driver)
        for before in _drivers(old):
            for driver in named.get(before.get("name") or "", ()):
                if not semantic_equal(_fixed(driver), _fixed(before), builtin_type("storage.v1.CSINodeDriver")):
                    errs.append(field.invalid("spec.drivers", render("storage.CSINodeDriver", _fixed(driver)), IMMUTABLE))
        return errs

    def _validate(self, obj: Obj, max_node_id: int) -> list[FieldError]:
        errs = object_meta(obj["metadata"], False, names.dns_subdomain)
        seen: set[str] = set()
        for i, driver in enumerate(_drivers(obj)):
            path = field.index("spec.drivers", i)
            errs += _driver(driver, path, max_node_id)
            name = driver.get("name") or ""
            if name in seen:
                errs.append(field.duplicate(field.child(path, "name"), name))
            seen.add(name)
            errs += _topology_keys(driver.get("topologyKeys"), path)
        return errs


def _drivers(obj: Obj) -> list[dict[str, Any]]:
    return (obj.get("spec") or {}).get("drivers") or []


def _fixed(driver: dict[str, Any]) -> dict[str, Any]:
    # the gate MutableCSINodeAllocatableCount is on: only the count may change
    return {k: v for k, v in driver.items() if k != "allocatable"}


def _driver(driver: dict[str, Any], path: str, max_node_id: int) -> list[FieldError]:
    errs = csi_driver_name(driver.get("name") or "", field.child(path, "name"))
    node_id, at = driver.get("nodeID") or "", field.child(path, "nodeID")
    if not node_id:
        errs.append(field.required(at))
    if len(node_id.encode()) > max_node_id:
        errs.append(field.invalid(at, node_id, f"must be {max_node_id} characters or less"))
    count = (driver.get("allocatable") or {}).get("count")
    if count is not None:
        errs += nonnegative(count, field.child(path, "allocatable", "count"))
    return errs


def _topology_keys(keys: list[str] | None, path: str) -> list[FieldError]:
    errs: list[FieldError] = []
    seen: set[str] = set()
    for key in keys or ():
        if not key:
            errs.append(field.required(path))
        if key in seen:
            errs.append(field.duplicate(path, key))
        seen.add(key)
        errs += qualified_name(key, path)
    return errs


@printer("storage.k8s.io", "CSINode")
def csi_node_row(obj: Obj, now: float) -> list[Any]:
    """The cells of a Table row: name, number of drivers, age."""
    return [obj["metadata"].get("name", ""), len(part(obj, "spec").get("drivers") or ()), age(obj, now)]
