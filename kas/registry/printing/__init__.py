"""Server-side printing: objects as rows of a ``meta.k8s.io`` Table.

Pure functions on decoded objects; the caller negotiates, lists and encodes. Columns come from ``printers.json`` (written by
tools/gen_printers.py), cells from one function per kind. Kinds without columns of their own, and the few for which upstream's
storage has no table convertor, get name and creation time.
Source of the behaviour: pkg/printers/internalversion/printers.go, apiserver ``rest/table.go`` and ``handlers/response.go``.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kas.meta.age import ZERO_TIME
from kas.meta.errors import bad_request
from kas.meta.field import go_quote
from kas.registry.printing.rows import CONDITIONS, ROWS, Row
from kas.types import kindloader
from kas.types.scheme import TypeDesc, builtin_type

if TYPE_CHECKING:  # needed only for custom resources
    from kas.apiextensions.columns import Printer

Columns = list[dict[str, Any]]


def _row(group: str, kind: str) -> Row:
    """Returns the row function of a kind, which registers when its group's modules are loaded."""
    found = ROWS.get((group, kind))
    if found is None:
        kindloader.load(group)
        found = ROWS[group, kind]
    return found


@functools.cache
def _tables() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((Path(__file__).parent / "printers.json").read_bytes())
    return found


def _definition(column: list[Any]) -> dict[str, Any]:
    name, kind, form, priority, text = column
    return {"name": name, "type": kind, "format": form, "description": _tables()["descriptions"][text], "priority": priority}


@functools.cache
def registered_columns(group: str, kind: str) -> Columns | None:
    """Returns the column definitions of a built-in kind's own printer, None if it has none. The list is shared: do not change
    it."""
    found = _tables()["kinds"].get(f"{group}/{kind}")
    return None if found is None else [_definition(c) for c in found]


@functools.cache
def default_columns() -> Columns:
    """Returns the columns of kinds without a printer. The list is shared: do not change it."""
    return [_definition(c) for c in _tables()["default"]]


def _matching_order(schema: dict[str, Any]) -> tuple[int, str]:
    """The sort key of flow schemas: they are listed in the order in which requests are matched."""
    return (schema.get("spec") or {}).get("matchingPrecedence", 0), schema["metadata"].get("name", "")


def _default_cells(obj: dict[str, Any]) -> list[Any]:
    meta = obj.get("metadata") or {}
    return [meta.get("name", ""), meta.get("creationTimestamp") or ZERO_TIME]


def table(
    gvk: tuple[str, str, str],
    objects: Sequence[dict[str, Any]],
    *,
    now: float,
    include_object: str = "",
    list_metadata: dict[str, Any] | None = None,
    version: str = "v1",
    headers: bool = True,
    custom_columns: Printer | None = None,
) -> dict[str, Any]:
    """Returns ``objects`` of one kind as a Table of ``meta.k8s.io/<version>``.

    ``objects`` are external, defaulted forms of ``gvk``; wide columns are always included (priority 1). ``include_object`` is
    the query parameter: "" and "Metadata" add PartialObjectMetadata, "Object" the whole object, "None" null.
    ``list_metadata`` is the list's metadata; None means a single object, whose resource version is used. ``custom_columns``
    are those of a custom resource; None means a built-in kind. With ``headers`` False the columns are null, as for watches
    after their first event. An invalid ``include_object`` raises ApiError 400. Objects in the table are shared with the
    input, never copied.
    """
    group, api_version, kind = gvk
    if include_object not in ("", "Metadata", "None", "Object"):
        raise bad_request(
            f"Unable to convert to Table as requested: includeObject: Invalid value: {go_quote(include_object)}: "
            "must be 'Metadata', 'Object', 'None', or empty"
        )
    if kind == "FlowSchema" and group == "flowcontrol.apiserver.k8s.io":
        objects = sorted(objects, key=_matching_order)
    meta_version = f"meta.k8s.io/{version}"
    rows: list[dict[str, Any]] | None
    if custom_columns is not None:
        name, created = default_columns()
        columns = custom_columns.definitions(name, created["description"])
        rows = [{"cells": custom_columns.cells(obj, now)} for obj in objects]
    elif f"{group}/{kind}" in _tables()["unprinted"] or (registered := registered_columns(group, kind)) is None:
        columns = default_columns()
        rows = [{"cells": _default_cells(obj)} for obj in objects] or None
    else:
        columns, row = registered, _row(group, kind)
        rows = [{"cells": row(obj, now)} for obj in _printed_form(gvk, objects)]
        conditions = CONDITIONS.get((group, kind))
        if conditions is not None:
            for made, obj in zip(rows, objects, strict=True):
                found = conditions(obj)
                if found:
                    made["conditions"] = found
    custom = custom_columns is not None
    for made, obj in zip(rows or (), objects, strict=True):
        if include_object == "None":
            made["object"] = None
        elif include_object == "Object":
            # The fields of a custom object are sorted.
            made["object"] = obj if custom else {"kind": kind, "apiVersion": f"{group}/{api_version}" if group else api_version} | obj
        else:
            meta = obj.get("metadata") or {}
            if custom:
                meta = _in_order(_object_meta(), meta)
            made["object"] = {"kind": "PartialObjectMetadata", "apiVersion": meta_version, "metadata": meta}
    if list_metadata is None:
        found = (objects[0].get("metadata") or {}).get("resourceVersion") if objects else None
        list_metadata = {"resourceVersion": found} if found else {}
    return {
        "kind": "Table", "apiVersion": meta_version, "metadata": list_metadata,
        "columnDefinitions": columns if headers else None, "rows": rows,
    }  # fmt: skip


@functools.cache
def _object_meta() -> TypeDesc:
    return builtin_type("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta")


def _in_order(of: TypeDesc, value: dict[str, Any]) -> dict[str, Any]:
    """Returns a value with its fields in the order of its type, as Go writes a struct; those of a custom object are sorted."""
    out = {}
    for f in of.fields:
        found = value.get(f.name)
        if found is None:
            continue
        out[f.name] = [_in_order(f.message, item) for item in found] if f.card == "list" and f.message is not None else found
    return out


def _printed_form(gvk: tuple[str, str, str], objects: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    """Returns the version that the row functions read; only autoscaling/v1 differs from it in fields that are read."""
    if gvk != ("autoscaling", "v1", "HorizontalPodAutoscaler"):
        return objects
    from kas.types.conversion import convert  # only this kind needs the types

    return [convert(obj, "autoscaling", "v1", "v2", "HorizontalPodAutoscaler") for obj in objects]
