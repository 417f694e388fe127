"""What strict decoding objects to, in upstream's order: unknown and duplicate fields as sigs.k8s.io/json finds them.

The hot path learns from ``decode`` and ``duplicate_fields`` that there is something to say; only then is the text read once more here,
because a parsed dict no longer knows in which order things stood.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from json.scanner import py_make_scanner  # type: ignore[attr-defined]
from typing import Any

from kas.meta import errors, utf8
from kas.meta.aside import LARGE
from kas.types.scheme import DecodeError, Field, TypeDesc, duplicate_fields, go_quote

MAX_FINDINGS = 100
"""sigs.k8s.io/json stops collecting there."""

# Types that read their own JSON: nothing inside them is looked at.
OWN_JSON = frozenset({"raw-json", "raw-json;empty=null", "schema|list-of-schema", "schema|bool", "schema|list-of-string"})


# How what a YAML decoder found begins (parseYAMLWarnings).
_YAML = ("yaml: unmarshal errors:\n", "error converting YAML to JSON: yaml: unmarshal errors:\n")


class Pairs(list[tuple[str, Any]]):
    """A JSON object with its keys in order, repeats included."""


class Findings:
    """What strict decoding has against an object: texts, each once, in order."""

    def __init__(self) -> None:
        self.texts: dict[str, None] = {}

    def add(self, what: str, path: str) -> None:
        """Note one finding unless there are ``MAX_FINDINGS`` already; the same one twice counts once."""
        if len(self.texts) < MAX_FINDINGS:
            self.texts[f"{what} field {go_quote(path)}"] = None

    def untyped(self, value: Any, path: str) -> None:
        """Look for keys that appear twice, at any depth, where no type says more."""
        if isinstance(value, Pairs):
            seen = set()
            for key, item in value:
                here = f"{path}.{key}" if path else key
                if key in seen:
                    self.add("duplicate", here)
                seen.add(key)
                self.untyped(item, here)
        elif isinstance(value, list):
            for i, item in enumerate(value):
                self.untyped(item, f"{path}[{i}]")

    def struct(self, type: TypeDesc, value: Pairs, path: str) -> None:
        """Look for keys the type does not have or that appear twice, and into the values of the others."""
        fields, seen = type.by_name, set()
        for key, item in value:
            here = f"{path}.{key}" if path else key
            field = fields.get(key)
            if field is None:
                self.add("unknown", here)
                continue
            if key in seen:
                self.add("duplicate", here)
            seen.add(key)
            self.field(field, item, here)

    def field(self, field: Field, value: Any, path: str) -> None:
        """Look into the value of a field: into each item of a list, each value of a map, or the value itself."""
        if field.card == "list" and isinstance(value, list) and not isinstance(value, Pairs):
            for i, item in enumerate(value):
                self.element(field, item, f"{path}[{i}]")
        elif field.card == "map" and isinstance(value, Pairs):
            seen = set()
            for key, item in value:
                here = f"{path}.{key}"
                if key in seen:
                    self.add("duplicate", here)
                seen.add(key)
                self.element(field, item, here)
        elif field.card == "single":
            self.element(field, value, path)

    def element(self, field: Field, value: Any, path: str) -> None:
        """Look into a single value, if it is a message that is read by its fields."""
        message = field.message
        if message is not None and isinstance(value, Pairs) and message.custom_json not in OWN_JSON:
            self.struct(message, value, path)


def duplicates(raw: bytes) -> list[str]:
    """``duplicate field "data.a"`` of a JSON text, in document order. Raises 400 for a text too deep to be looked at."""
    try:
        paths = duplicate_fields(raw)
    except DecodeError as e:
        raise errors.bad_request(str(e)) from None
    return [f"duplicate field {path if path.startswith(chr(34)) else go_quote(path)}" for path in paths]


def strict_errors(type: TypeDesc | None, raw: bytes, otherwise: list[str]) -> list[str]:
    """``unknown field "spec.foo"`` and ``duplicate field "data.a"`` of a JSON text, in document order, each once, at most 100.

    ``type`` None looks at untyped objects (custom resources), which have duplicates only. The text must have been parsed before.
    ``otherwise`` is what is known of it anyway, for a text too deep to be read here.
    """
    findings = Findings()
    try:
        value = read_pairs(raw)
        if type is None:
            findings.untyped(value, "")
        elif isinstance(value, Pairs):
            findings.struct(type, value, "")
    except RecursionError:
        return otherwise
    return list(findings.texts)


def read_pairs(raw: bytes, whole: Callable[[str], Any] = str, real: Callable[[str], Any] = str) -> Any:
    """A JSON text with every object as its pairs, repeats included; ``whole`` and ``real`` read the numbers, which mostly do not
    matter, however long they are."""
    decoder = json.JSONDecoder(object_pairs_hook=Pairs, parse_int=whole, parse_float=real)
    if len(raw) >= LARGE:
        # The compiled scanner would keep the interpreter to itself for a tenth of a second and more; this one takes longer.
        decoder.scan_once = py_make_scanner(decoder)  # type: ignore[attr-defined]
    return decoder.decode(utf8.text(raw))


def warning_texts(finding: str) -> list[str]:
    """A strict decoding error as warnings: a YAML decoder tells all its lines in one."""
    for prefix in _YAML:
        if finding.startswith(prefix):
            return [line.strip() for line in finding[len(prefix) :].split("\n")]
    return [finding]
