"""Writes types.json, fields.jsonl and resources.json. Run by tables.py.

Reads the facts ``types.json`` and ``resources.json``. The output is kas' own compact form, which the scheme reads, with one record a line
so that a change is visible in a diff:

- types: ``[name, attributes, whether it has kind and apiVersion]``. The fields of a type are the line of the same number in fields.jsonl,
  which is parsed only when the type is used.
- a field: ``[json name, protobuf number, cardinality, element, flags, extras]``. The cardinality is ``s`` (single), ``l`` (list) or ``m``
  (map with string keys); the element is a scalar name or the name of a message; flags are the sum of FLAGS.
- enums: ``[name, closed, values]``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from legacy_types import legacy_rows

FLAGS = {"ptr": 1, "omitempty": 2, "omitzero": 4, "inline": 8, "typeMeta": 16, "required": 32, "pbOnly": 64}
EXTRAS = (
    "default", "defaultRule", "enum", "keyEnum", "listType", "listMapKeys", "mapType", "patchStrategy", "patchMergeKey", "gates", "rules",
    "format", "pbName", "unionDiscriminator",
)  # fmt: skip
GO_NAMES = {"go": "goType", "key": "goKey"}  # key of a field in gonames.json, and the extra that it becomes
ATTRIBUTES = ("gvk", "mapType", "customJSON")
META = "io.k8s.apimachinery.pkg.apis.meta.v1."
RAW = "io.k8s.apimachinery.pkg.runtime.RawExtension"
# Table has no protobuf form, so the facts, which come from protobuf messages, lack it: apimachinery/pkg/apis/meta/v1/types.go.
TABLE_TYPES = [
    [META + "Table", {}, [
        ["kind", None, "s", "string", 18], ["apiVersion", None, "s", "string", 18], ["metadata", None, "s", META + "ListMeta", 2],
        ["columnDefinitions", None, "l", META + "TableColumnDefinition", 32], ["rows", None, "l", META + "TableRow", 32]]],
    [META + "TableColumnDefinition", {}, [
        ["name", None, "s", "string", 32], ["type", None, "s", "string", 32], ["format", None, "s", "string", 32],
        ["description", None, "s", "string", 32], ["priority", None, "s", "int32", 32]]],
    [META + "TableRow", {}, [
        ["cells", None, "l", RAW, 32], ["conditions", None, "l", META + "TableRowCondition", 2], ["object", None, "s", RAW, 2]]],
    [META + "TableRowCondition", {}, [
        ["type", None, "s", "string", 32], ["status", None, "s", "string", 32], ["reason", None, "s", "string", 2],
        ["message", None, "s", "string", 2]]],
]  # fmt: skip


def field_row(field: dict[str, Any]) -> list[Any]:
    flags = sum(bit for key, bit in FLAGS.items() if field.get(key))
    element = field["ref"] if field["type"] == "message" else field["type"]
    extras = {key: field[key] for key in EXTRAS if key in field}
    if field["card"] == "map" and field.get("key", "string") != "string":
        raise ValueError(f"map key {field['key']} is not supported")
    return [field["json"], field["pb"], field["card"][0], element, flags, *([extras] if extras else [])]


def type_row(record: dict[str, Any]) -> list[Any]:
    attributes = {key: record[key] for key in ATTRIBUTES if key in record}
    return [record["name"], attributes, [field_row(f) for f in record["fields"]]]


def name_go_types(facts: Path, rows: list[list[Any]]) -> None:
    """Adds the names of Go types that cannot be derived from the other facts."""
    named = {row[0]: {field[0]: field for field in row[2]} for row in rows}
    for record in json.loads((facts / "gonames.json").read_text())["fields"]:
        field = named[record["type"]][record["json"]]
        field[5:] = [{**(field[5] if len(field) > 5 else {}), **{to: record[key] for key, to in GO_NAMES.items() if key in record}}]


def lines(key: str, rows: list[Any]) -> str:
    body = ",\n".join(json.dumps(row, separators=(",", ":"), ensure_ascii=False) for row in rows)
    return f'"{key}":[\n{body}\n]'


def main(facts: Path, types_out: Path, fields_out: Path, resources_out: Path) -> None:
    """Writes the three tables from a directory of facts."""
    types = json.loads((facts / "types.json").read_text())
    resources = json.loads((facts / "resources.json").read_text())
    rows = [*(type_row(t) for t in types["types"]), *TABLE_TYPES]
    rows = sorted([*rows, *legacy_rows(rows)], key=lambda r: r[0])
    name_go_types(facts, rows)
    enums = [[e["name"], e["closed"], e["values"]] for e in types["enums"]]
    index = [[name, attributes, int(any(f[4] & FLAGS["typeMeta"] for f in fields))] for name, attributes, fields in rows]
    types_out.write_text("{" + lines("types", index) + ",\n" + lines("enums", enums) + "}\n")
    fields_out.write_text("".join(json.dumps(r[2], separators=(",", ":"), ensure_ascii=False) + "\n" for r in rows))
    resources_out.write_text("{" + lines("groups", resources["groups"]) + ",\n" + lines("resources", resources["resources"]) + "}\n")
