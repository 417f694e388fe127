"""Errors of strict decoding as texts: unknown and duplicate fields, as found by sigs.k8s.io/json.

The hot path learns from ``decode`` and ``duplicates`` whether there are any; only then is the text read again (``strict_fields``), because
a parsed dict does not retain the order of the document.
"""

from __future__ import annotations

from typing import Any

import orjson

from kas._codecs import reads_alike, syntax_fault
from kas.types.scheme import duplicate_fields, go_quote

# Prefixes of a YAML decoder's errors (upstream's parseYAMLWarnings).
_YAML = ("yaml: unmarshal errors:\n", "error converting YAML to JSON: yaml: unmarshal errors:\n")


def duplicates(raw: bytes) -> list[str]:
    """The duplicate fields of a JSON text in document order, as ``duplicate field "data.a"``."""
    return [f"duplicate field {go_quote(path)}" for path in duplicate_fields(raw)]


def read_json(text: bytes) -> dict[str, Any] | None:
    """Parses a text that is to be read as YAML, if it is JSON that certainly has the same meaning and no duplicate keys; else returns None.
    Most clients send JSON, and parsing YAML takes many times as long.
    """
    if not reads_alike(text):
        return None
    try:
        value: dict[str, Any] = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return None if duplicate_fields(text) else value


def is_json(text: bytes) -> bool:
    """Whether ``read_json`` accepts a text, determined without building objects: 4 µs per KiB."""
    return reads_alike(text) and syntax_fault(text) is None and not duplicate_fields(text)


def warning_texts(finding: str) -> list[str]:
    """A strict decoding error as a list of warnings: a YAML decoder reports all its lines in one error."""
    for prefix in _YAML:
        if finding.startswith(prefix):
            return [line.strip() for line in finding[len(prefix) :].split("\n")]
    return [finding]
