#!/usr/bin/env python3
"""Write kas/endpoints/openapi/definitions.json.gz: the OpenAPI v2 definition of every published type.

usage: gen_openapi.py FACTS_DIR
FACTS_DIR/types.json has the types, resources.json the group versions, tools/openapi_texts.py our own short descriptions. The document
is read by kas/endpoints/openapi/schemas.py when somebody asks for OpenAPI; nothing else needs it.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

from openapi_texts import FIELDS, KINDS

OUT = Path(__file__).parents[1] / "kas/endpoints/openapi/definitions.json.gz"
SCALARS = {
    "string": {"type": "string"},
    "bool": {"type": "boolean"},
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "integer", "format": "int64"},
    "double": {"type": "number", "format": "double"},
    "bytes": {"type": "string", "format": "byte"},
}
# How types with a JSON form of their own look; those not named here may hold anything.
CUSTOM = {
    "rfc3339-seconds-utc;zero=null": {"type": "string", "format": "date-time"},
    "rfc3339-micros-utc;zero=null": {"type": "string", "format": "date-time"},
    "int-or-string": {"type": "string", "format": "int-or-string"},
    "quantity-string;accepts-number": {"type": "string"},
    "go-duration-string": {"type": "string"},
    "list-of-string;pb=message{1:repeated string}": {"type": "array", "items": {"type": "string"}},
    "raw-json": {"type": "object"},
}
RAW_EXTENSION = "io.k8s.apimachinery.pkg.runtime.RawExtension"


class Generator:
    """Turns type records into definitions."""

    def __init__(self, facts: dict[str, Any], groups: list[dict[str, Any]]) -> None:
        self.everywhere = sorted((g["group"], v) for g in groups for v in g["versions"])
        self.types = {t["name"]: t for t in facts["types"]}
        self.enums = {e["name"]: e for e in facts["enums"]}

    def element(self, field: dict[str, Any]) -> dict[str, Any]:
        """The schema of one value of a field, whatever its cardinality."""
        if field["type"] != "message":
            out = dict(SCALARS[field["type"]])
            enum = self.enums.get(field.get("enum", ""))
            if enum and enum["closed"]:
                out["enum"] = sorted(enum["values"])
            return out
        target = self.types[field["ref"]]
        target = self.types[target["sameAs"]] if "sameAs" in target and not target["inOpenAPI"] else target
        if not target["inOpenAPI"]:
            return dict(CUSTOM[target["customJSON"]])
        return {"$ref": f"#/definitions/{target['name']}"}

    def property(self, owner: str, field: dict[str, Any]) -> dict[str, Any]:
        """The schema of a field."""
        element = self.element(field)
        if field["card"] == "list":
            out: dict[str, Any] = {"type": "array", "items": element}
        elif field["card"] == "map":
            out = {"type": "object", "additionalProperties": element}
        else:
            out = element
        if "default" in field:
            out["default"] = field["default"]
        for key, name in (
            ("listType", "list-type"), ("listMapKeys", "list-map-keys"), ("mapType", "map-type"),
            ("patchStrategy", "patch-strategy"), ("patchMergeKey", "patch-merge-key"),
        ):  # fmt: skip
            if field.get(key):
                out[f"x-kubernetes-{name}"] = field[key]
        text = FIELDS.get(f"{owner.rpartition('.')[2]}.{field['json']}") or FIELDS.get(f"*.{field['json']}")
        if text:
            out["description"] = text
        return out

    def fields(self, t: dict[str, Any]) -> list[dict[str, Any]]:
        """A type's JSON fields, those of embedded types among them."""
        out = []
        for field in t["fields"]:
            if field.get("inline"):
                out += self.fields(self.types[field["ref"]])
            elif field["json"] is not None:
                out.append(field)
        return out

    def definition(self, t: dict[str, Any]) -> dict[str, Any]:
        name = t["name"]
        if t.get("customJSON"):
            out = {} if ";empty=null" in t["customJSON"] else dict(CUSTOM.get(t["customJSON"], {}))
            if name == RAW_EXTENSION:
                out = {"type": "object"}
        else:
            fields = self.fields(t)
            out = {"type": "object"}
            if fields:
                out["properties"] = {f["json"]: self.property(name, f) for f in fields}
            required = sorted({f["json"] for f in fields if f.get("required")})
            if required:
                out["required"] = required
        if isinstance(t.get("gvk"), list):
            out["x-kubernetes-group-version-kind"] = [{"group": g, "version": v, "kind": k} for g, v, k in t["gvk"]]
        elif t.get("gvk"):  # the option and event types every group version has
            kind = name.rpartition(".")[2]
            out["x-kubernetes-group-version-kind"] = [{"group": g, "version": v, "kind": kind} for g, v in self.everywhere]
        if t.get("mapType"):
            out["x-kubernetes-map-type"] = t["mapType"]
        if t.get("unions"):
            out["x-kubernetes-unions"] = t["unions"]
        text = KINDS.get(name.rpartition(".")[2])
        if text:
            out["description"] = text
        return out


def main(facts: Path) -> None:
    groups = json.loads((facts / "resources.json").read_text())["groups"]
    generator = Generator(json.loads((facts / "types.json").read_text()), groups)
    definitions = {name: generator.definition(t) for name, t in sorted(generator.types.items()) if t["inOpenAPI"]}
    text = json.dumps(definitions, separators=(",", ":"), sort_keys=True).encode()
    OUT.write_bytes(gzip.compress(text, 9, mtime=0))
    print(f"{len(definitions)} definitions, {len(text)} bytes, {OUT.stat().st_size} compressed")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
