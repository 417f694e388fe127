"""Writes definitions.json.gz: the OpenAPI v2 definition of every published type. Run by tables.py.

The facts in types.json give the types and those in resources.json the group versions; kas' own descriptions are in tools/texts (see
Texts). kas/endpoints/openapi/schemas.py reads the document when a client asks for OpenAPI; nothing else needs it. Nothing is written if a
published type or field has no description, or if a description belongs to none; both are listed.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import yaml

SCALARS = {
    "string": {"type": "string"},
    "bool": {"type": "boolean"},
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "integer", "format": "int64"},
    "double": {"type": "number", "format": "double"},
    "bytes": {"type": "string", "format": "byte"},
}
ZERO = {"string": "", "bool": False, "int32": 0, "int64": 0, "double": 0}
# The schemas of types with a JSON form of their own. A type that is missing here may hold anything.
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


class Texts:
    """The descriptions of types and fields, and a record of which of them were used.

    ``<group>.yaml`` maps the last part of a type's name to a mapping: "." is the description of the type, every other key is a JSON field.
    It serves all versions of the group; ``Type@version`` replaces single entries for one version. ``common.yaml`` has, by field name, the
    descriptions that all objects and lists with a kind of their own share; ``metadata@list`` is for lists.
    """

    def __init__(self, directory: Path) -> None:
        self.files = {path.stem: yaml.safe_load(path.read_text()) for path in sorted(directory.glob("*.yaml"))}
        common = self.files.pop("common")
        self.files["common"] = {"": common}
        self.used: set[tuple[str, str, str]] = set()
        self.missing: list[str] = []

    @staticmethod
    def place(name: str) -> tuple[str, str, str]:
        """Splits a type's full name into file, type and version: core, PodSpec, v1."""
        package, _, kind = name.rpartition(".")
        group, version = package.split(".")[-2:]
        return "meta" if name.startswith("io.k8s.apimachinery.") else group, kind, version

    def _find(self, file: str, kind: str, key: str) -> str:
        text = self.files.get(file, {}).get(kind, {}).get(key, "")
        if text:
            self.used.add((file, kind, key))
        return text

    def of(self, name: str, key: str = ".", shared: str = "") -> str:
        """Returns the description of a type or of one of its fields; ``shared`` is the fallback key in common.yaml, if any."""
        file, kind, version = self.place(name)
        # Look up both, so that an entry that every version replaces counts as used: it is kept for future versions.
        plain, own = self._find(file, kind, key), self._find(file, f"{kind}@{version}", key)
        text = own or plain or (self._find("common", "", shared) if shared else "")
        if not text:
            self.missing.append(f"{name} {key}")
        return text

    def faults(self) -> list[str]:
        """Lists the types and fields without a description, and the descriptions that were not used, once all have been looked up."""
        known = {(file, kind, key) for file, kinds in self.files.items() for kind, texts in kinds.items() for key in texts}
        superfluous = [f"{file}.yaml: {kind} {key}".replace("  ", " ") for file, kind, key in sorted(known - self.used)]
        return [f"no text: {name}" for name in self.missing] + [f"text of nothing: {name}" for name in superfluous]


class Generator:
    """Turns type records into definitions."""

    def __init__(self, facts: dict[str, Any], groups: list[dict[str, Any]], texts: Texts) -> None:
        self.texts = texts
        self.everywhere = sorted((g["group"], v) for g in groups for v in g["versions"])
        self.types = {t["name"]: t for t in facts["types"]}
        self.enums = {e["name"]: e for e in facts["enums"]}

    def element(self, field: dict[str, Any]) -> dict[str, Any]:
        """Returns the schema of one value of a field, whether it is a list or not."""
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

    def property(self, owner: dict[str, Any], field: dict[str, Any]) -> dict[str, Any]:
        """Returns the schema of a field."""
        element = self.element(field)
        if field["card"] == "list":
            out: dict[str, Any] = {"type": "array", "items": element}
        elif field["card"] == "map":
            out = {"type": "object", "additionalProperties": element}
        else:
            out = element
        default = field.get("default", self.implied(field))
        if default is not None:
            out["default"] = default
        for key, name in (
            ("listType", "list-type"), ("listMapKeys", "list-map-keys"), ("mapType", "map-type"),
            ("patchStrategy", "patch-strategy"), ("patchMergeKey", "patch-merge-key"),
        ):  # fmt: skip
            if field.get(key):
                out[f"x-kubernetes-{name}"] = field[key]
        out["description"] = self.texts.of(owner["name"], field["json"], self.shared(owner, field))
        return out

    def implied(self, field: dict[str, Any]) -> Any:
        """Returns the zero value of a field in Go if JSON shows it too; None if the field may be absent."""
        if field["card"] != "single" or field.get("ptr"):
            return None
        if field["type"] == "message":
            return None if self.types[field["ref"]].get("customJSON") else {}
        return None if field.get("omitempty") else ZERO.get(field["type"])

    @staticmethod
    def shared(owner: dict[str, Any], field: dict[str, Any]) -> str:
        """Returns the key in common.yaml that may describe a field, "" for none."""
        if not owner.get("gvk") or field["json"] not in ("apiVersion", "kind", "metadata"):
            return ""
        return "metadata@list" if field.get("ref", "").endswith(".ListMeta") else field["json"]

    def fields(self, t: dict[str, Any]) -> list[dict[str, Any]]:
        """Returns a type's JSON fields, including those of embedded types."""
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
                out["properties"] = {f["json"]: self.property(t, f) for f in fields}
            required = list(dict.fromkeys(f["json"] for f in fields if f.get("required")))  # in the order of Go's struct, as upstream
            if required:
                out["required"] = required
        if isinstance(t.get("gvk"), list):
            out["x-kubernetes-group-version-kind"] = [{"group": g, "version": v, "kind": k} for g, v, k in t["gvk"]]
        elif t.get("gvk"):  # the option and event types that every group version has
            kind = name.rpartition(".")[2]
            out["x-kubernetes-group-version-kind"] = [{"group": g, "version": v, "kind": kind} for g, v in self.everywhere]
        if t.get("mapType"):
            out["x-kubernetes-map-type"] = t["mapType"]
        if t.get("unions"):
            out["x-kubernetes-unions"] = t["unions"]
        out["description"] = self.texts.of(name)
        return out


def main(facts: Path, descriptions: Path, out: Path) -> None:
    """Writes the table ``out`` from directories of facts and descriptions. Raises SystemExit that lists the faults of the descriptions."""
    groups = json.loads((facts / "resources.json").read_text())["groups"]
    texts = Texts(descriptions)
    generator = Generator(json.loads((facts / "types.json").read_text()), groups, texts)
    definitions = {name: generator.definition(t) for name, t in sorted(generator.types.items()) if t["inOpenAPI"]}
    if faults := texts.faults():
        raise SystemExit("\n".join(faults))
    text = json.dumps(definitions, separators=(",", ":"), sort_keys=True).encode()
    # Not gzip.compress: the operating system that it writes into the header differs between versions of Python.
    with out.open("wb") as f, gzip.GzipFile("", "wb", 9, f, mtime=0) as z:
        z.write(text)
