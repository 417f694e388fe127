"""What strict decoding objects to in the operations of a JSON patch, in upstream's order."""

from __future__ import annotations

from kas.patch.jsonpatch import MEMBERS
from kas.types.strict import Findings, read_pairs


def json_patch_errors(raw: bytes, otherwise: list[str]) -> list[str]:
    """What strict decoding finds in the operations of a JSON patch, which must be a list of objects; else as ``strict_errors``."""
    findings = Findings()
    try:
        for i, operation in enumerate(read_pairs(raw) or ()):
            seen = set()
            for key, item in operation or ():
                here = f"[{i}].{key}"
                if key not in MEMBERS:
                    findings.add("unknown", here)
                    continue
                if key in seen:
                    findings.add("duplicate", here)
                seen.add(key)
                if key == "value":
                    findings.untyped(item, here)
    except RecursionError:
        return otherwise
    return [f"json patch {text}" for text in findings.texts]
